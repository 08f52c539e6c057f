"""The first half of the seeds: two files, so that two processes share them."""

from __future__ import annotations

import pytest

from simulator.seeds import check


@pytest.mark.parametrize("start", range(0, 250, 25))
def test_nothing_is_lost_duplicated_or_wrong(start: int) -> None:
    check(range(start, start + 25))
