"""Equality and content order of rows, against Python's."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.trace.equality import content_ranks, equal_rows

from .model import TYPES, disguised, identity, value, values


@pytest.mark.parametrize("kind", TYPES, ids=str)
@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=20, deadline=None)
def test_rows_are_equal_exactly_when_their_values_are(kind: pa.DataType, seed: int) -> None:
    rng = Random(seed)
    left = values(rng, kind)
    right = [item if rng.random() < 0.5 else value(rng, kind) for item in left]
    found = equal_rows([disguised(rng, left, kind)], [disguised(rng, right, kind)])
    assert found.tolist() == [identity(a) == identity(b) for a, b in zip(left, right, strict=True)]


@pytest.mark.parametrize("kind", TYPES, ids=str)
@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=20, deadline=None)
def test_ranks_are_equal_for_equal_rows_and_in_an_order_of_content_alone(kind: pa.DataType, seed: int) -> None:
    rng = Random(seed)
    items = values(rng, kind, 14)
    ranks = content_ranks([disguised(rng, items, kind)]).tolist()
    for i, a in enumerate(items):
        for j, b in enumerate(items):
            assert (ranks[i] == ranks[j]) == (identity(a) == identity(b))
    # Among other rows, in another order, the same rows come in the same order.
    chosen = rng.sample(range(len(items)), len(items) // 2)
    again = content_ranks([disguised(rng, [items[i] for i in chosen], kind)]).tolist()
    by_first, by_second = [ranks[i] for i in chosen], again
    for i in range(len(chosen)):
        for j in range(len(chosen)):
            assert (by_first[i] < by_first[j]) == (by_second[i] < by_second[j])


def test_all_columns_count() -> None:
    left = [pa.array([1, 1, None]), pa.array(["a", "a", None])]
    right = [pa.array([1, 1, None]), pa.array(["a", "b", None])]
    assert equal_rows(left, right).tolist() == [True, False, True]
    ranks = content_ranks([pa.array([1, 1, 2, 1]), pa.array(["b", "a", "a", "b"])]).tolist()
    assert ranks[0] == ranks[3] and len(set(ranks)) == 3


def test_rows_without_columns_are_equal() -> None:
    assert equal_rows([], [], rows=2).tolist() == [True, True]
    assert content_ranks([], rows=2).tolist() == [0, 0]


def test_strings_of_narrow_and_wide_offsets_compare() -> None:
    narrow, wide = pa.array(["a", None, "c"]), pa.array(["a", None, "d"], pa.large_string())
    assert equal_rows([narrow], [wide]).tolist() == [True, True, False]


def test_a_column_of_no_type_is_all_null() -> None:
    assert equal_rows([pa.nulls(2)], [pa.array([None, 1])]).tolist() == [True, False]
