"""The long run: `make test-slow`."""

from __future__ import annotations

import pytest

from simulator.seeds import check


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, 10_000, 500))
def test_nothing_is_lost_duplicated_or_wrong(start: int) -> None:
    check(range(start, start + 500))
