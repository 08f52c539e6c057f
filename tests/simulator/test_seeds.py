"""Flows in the simulator, each through the disasters that its seed draws: nothing is lost, duplicated or wrong."""

from __future__ import annotations

import pytest

from amounts import times
from simulator.seeds import check


@pytest.mark.parametrize("start", range(0, 25, 25))
def test_nothing_is_lost_duplicated_or_wrong(start: int) -> None:
    check(range(start, start + 25))


@pytest.mark.slow
@pytest.mark.parametrize("start", range(25, 25 + times(1_700), 100))
def test_nothing_is_lost_duplicated_or_wrong_in_many_runs(start: int) -> None:
    check(range(start, start + 100))
