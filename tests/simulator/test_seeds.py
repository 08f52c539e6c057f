"""Flows in the simulator, each through the disasters that its seed draws: nothing is lost, duplicated or wrong.

Short lives, of eight actions, reach most states that two disasters can lead to, and cost a fifth of a long one; long
lives reach what needs many epochs (merging, folding, removal).
"""

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


def _short(start: int, count: int) -> None:
    check((seed for seed in range(start, start + count) if seed % 4), length=6)
    check((seed for seed in range(start, start + count) if seed % 4 == 0), scattered=True, length=6)


@pytest.mark.parametrize("start", range(0, 2_000, 100))
def test_nothing_is_lost_duplicated_or_wrong_in_short_lives(start: int) -> None:
    _short(start, 100)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(2_000, 2_000 + times(18_000), 500))
def test_nothing_is_lost_duplicated_or_wrong_in_many_short_lives(start: int) -> None:
    _short(start, 500)
