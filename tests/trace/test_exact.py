"""Sums and products near the ends of int64: exact, or an error, never a wrapped number."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import MultiplicityOverflow
from holdfast.trace import exact
from holdfast.trace.rows import Block, Layout, consolidate, constant_epoch

MOST = 2**63 - 1
EDGES = [2**31, 2**32, 2**61, 2**62 - 1, 2**62, 2**62 + 1, MOST - 1, MOST]
NUMBERS = st.one_of(
    st.integers(-3, 3), st.integers(-MOST, MOST), st.sampled_from(EDGES), st.sampled_from(EDGES).map(lambda x: -x)
)
LISTS = st.lists(NUMBERS, min_size=1, max_size=8)


def ints(values: list[int]) -> Any:
    return np.array(values, np.int64)


def agrees(compute: Callable[[], Any], expected: list[int]) -> None:
    """What is computed is what is expected if that fits, and an error otherwise."""
    if all(-MOST <= value <= MOST for value in expected):
        assert compute().tolist() == expected
    else:
        with pytest.raises(MultiplicityOverflow):
            compute()


@settings(deadline=None, max_examples=50)
@given(LISTS, st.data())
def test_sums_of_runs_are_exact_or_raise(values: list[int], data: st.DataObject) -> None:
    cuts = data.draw(st.sets(st.integers(0, len(values) - 1)))
    starts = sorted({0, *cuts})
    expected = [sum(values[a:b]) for a, b in zip(starts, [*starts[1:], len(values)], strict=True)]
    agrees(lambda: exact.sums(ints(values), np.array(starts)), expected)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 2), NUMBERS), max_size=8))
def test_sums_at_places_are_exact_or_raise(pairs: list[tuple[int, int]]) -> None:
    expected = [sum(value for at, value in pairs if at == place) for place in range(3)]
    places, values = ints([at for at, _ in pairs]), ints([value for _, value in pairs])
    agrees(lambda: exact.sums_at(places, values, 3), expected)


@settings(deadline=None, max_examples=50)
@given(LISTS)
def test_running_sums_are_exact_or_raise(values: list[int]) -> None:
    agrees(lambda: exact.running(ints(values)), list(accumulate(values)))


@settings(deadline=None, max_examples=50)
@given(LISTS)
def test_a_total_is_exact_however_large(values: list[int]) -> None:
    assert exact.total(ints(values)) == sum(values)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=6))
def test_sums_and_products_of_pairs_are_exact_or_raise(pairs: list[tuple[int, int]]) -> None:
    left, right = ints([one for one, _ in pairs]), ints([other for _, other in pairs])
    agrees(lambda: exact.add(left, right), [one + other for one, other in pairs])
    agrees(lambda: exact.multiply(left, right), [one * other for one, other in pairs])


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 2), NUMBERS.filter(bool)), min_size=1, max_size=8))
def test_consolidating_is_exact_or_raises(pairs: list[tuple[int, int]]) -> None:
    hashes = np.array([at for at, _ in pairs], np.uint64)
    diff = ints([value for _, value in pairs])
    block = Block(hashes, None, (), constant_epoch(0, len(pairs)), {"+diff": diff})
    totals = [sum(value for at, value in pairs if at == place) for place in sorted({at for at, _ in pairs})]
    agrees(lambda: consolidate(block, Layout(0, 0)).diff, [total for total in totals if not _fits(totals) or total])


def _fits(totals: list[int]) -> bool:
    return all(-MOST <= total <= MOST for total in totals)


def test_copies_that_cannot_be_laid_out_are_an_error() -> None:
    # The sum of these wraps to 0, for which numpy would make no room at all.
    with pytest.raises(MultiplicityOverflow, match="18446744073709551616 copies"):
        exact.repeated(ints([2**62] * 4))
    assert exact.repeated(ints([2, 0, 1])).tolist() == [0, 0, 2]
