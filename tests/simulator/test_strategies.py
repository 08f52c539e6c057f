"""Each strategy under which recovery is precise, through the disasters that seeds draw: as exact as the default."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest

import holdfast as hf
from amounts import times
from holdfast.guarantees.strategies import AlignedSnapshot, NoSync, UpstreamBackup
from holdfast.testing import simulate
from simulator.seeds import check

STRATEGIES = {
    "synchronous_log": hf.synchronous_log(),
    "held": hf.aligned_snapshot(3),
    "passive_standby": hf.passive_standby(3),
    "upstream_backup": hf.upstream_backup(3),
    "active_standby": hf.active_standby(),
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_nothing_is_lost_duplicated_or_wrong_under_a_strategy(name: str) -> None:
    check(range(3), strategy=STRATEGIES[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("start", range(100, 100 + times(400), 100))
def test_nothing_is_lost_duplicated_or_wrong_under_a_strategy_in_many_runs(name: str, start: int) -> None:
    check(range(start, start + 100), strategy=STRATEGIES[name])


# -- strategies that are broken on purpose ----------------------------------------------------------------------------


@dataclass(frozen=True)
class ForwardsNothing(NoSync):
    """Output leaves without the lineage that is not durable."""

    @property
    def forwards(self) -> bool:
        return False


@dataclass(frozen=True)
class TrimsEarly(UpstreamBackup):
    """Input is forgotten although it is part of the state."""

    def releasable(self, cleared: int, state: int) -> int:
        return cleared


@dataclass(frozen=True)
class HoldsNothing(AlignedSnapshot):
    """Output leaves before the snapshot that it should wait for."""

    def deliverable(self, last: int, safe: int) -> int:
        return last

    @property
    def rolls_back(self) -> bool:
        return False


@pytest.mark.parametrize(
    ("broken", "first", "said"),
    [
        (ForwardsNothing(), 24, "the lineage between is in none of the places"),
        (TrimsEarly(3), 0, "was released, and is read again"),
        (HoldsNothing(3), 0, "of another history|none of the places|another driver"),
    ],
    ids=["forwards nothing", "trims early", "holds nothing"],
)
def test_a_strategy_that_is_broken_is_noticed(broken: hf.Strategy, first: int, said: str) -> None:
    """``first``: the first seed that notices; those before it take time."""
    found = (failure for seed in range(first, 150) if (failure := simulate(seed, strategy=broken)) is not None)
    assert re.search(said, next(found).what)
