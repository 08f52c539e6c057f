"""Each strategy under which recovery is precise, through the disasters that seeds draw: as exact as the default."""

from __future__ import annotations

import pytest

import holdfast as hf
from amounts import times
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
