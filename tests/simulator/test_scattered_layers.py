"""Members that keep their own layers, and come and go: nothing is lost, duplicated or wrong."""

from __future__ import annotations

import pytest

from amounts import times
from simulator.seeds import check


@pytest.mark.parametrize("start", range(0, 10, 10))
def test_nothing_is_lost_duplicated_or_wrong_when_members_come_and_go(start: int) -> None:
    check(range(start, start + 10), scattered=True)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(10, 10 + times(400), 50))
def test_nothing_is_lost_duplicated_or_wrong_in_many_runs(start: int) -> None:
    check(range(start, start + 50), scattered=True)
