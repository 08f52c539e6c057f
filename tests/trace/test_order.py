"""Order prefixes never contradict Spark's order, and tell apart what they can."""

from __future__ import annotations

import functools
import math
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import Unsupported
from holdfast.trace.order import order_prefix

from .model import KEY_TYPES, disguised, unscaled, values

ORDERED = [kind for kind in KEY_TYPES if not pa.types.is_null(kind)]


def compare(a: Any, b: Any) -> int:
    """Spark's order of two values of one type; inside structs and lists NULL is the least."""
    if a is None or b is None:
        return (a is not None) - (b is not None)
    if isinstance(a, dict):
        a, b = list(a.values()), list(b.values())
    if isinstance(a, list):
        for x, y in zip(a, b, strict=False):
            if found := compare(x, y):
                return found
        return (len(a) > len(b)) - (len(a) < len(b))
    if isinstance(a, float):
        a, b = (a != a, 0.0 if a != a else a), (b != b, 0.0 if b != b else b)
    elif isinstance(a, str):
        a, b = a.encode(), b.encode()
    return int(a > b) - int(a < b)


@pytest.mark.parametrize("kind", ORDERED, ids=str)
@given(seed=st.integers(0, 1 << 32), descending=st.booleans(), nulls_first=st.booleans())
@settings(max_examples=20, deadline=None)
def test_prefix_never_contradicts_the_order(kind: pa.DataType, seed: int, descending: bool, nulls_first: bool) -> None:
    rng = Random(seed)
    items = values(rng, kind)
    prefixes = order_prefix(disguised(rng, items, kind), descending=descending, nulls_first=nulls_first)
    assert prefixes.dtype == np.uint64

    def before(i: int, j: int) -> int:
        a, b = items[i], items[j]
        if a is None or b is None:
            return ((b is None) - (a is None)) * (1 if nulls_first else -1)
        return -compare(a, b) if descending else compare(a, b)

    order = sorted(range(len(items)), key=functools.cmp_to_key(before))
    sorted_prefixes = prefixes[order].tolist()
    assert sorted_prefixes == sorted(sorted_prefixes)
    for i, j in pairwise(order):
        if before(i, j) == 0:
            assert prefixes[i] == prefixes[j]


def test_prefix_tells_numbers_dates_and_short_strings_apart() -> None:
    columns = [
        pa.array([-(2**63), -5, 0, 1, 2**63 - 1]),
        pa.array([-math.inf, -1.5, -5e-324, 0.0, 5e-324, 1.5, math.inf, math.nan]),
        pa.array(["", "a", "aa", "ab", "b", "ä"]),
        pa.array([False, True]),
        pa.array([unscaled(n, pa.decimal128(38, 2)) for n in (-(10**37), -101, -100, 0, 1, 2, 3, 10**20, 10**37)]),
        pa.array([unscaled(n, pa.decimal128(18, 2)) for n in (-(10**17), -101, -100, 0, 10**17, 10**17 + 1)]),
        pa.array([-1, 0, 19000], pa.int32()).cast(pa.date32()),
    ]
    for column in columns:
        up = order_prefix(column, descending=False, nulls_first=True)
        down = order_prefix(column, descending=True, nulls_first=True)
        assert (np.diff(up.astype(object)) > 0).all() and (np.diff(down.astype(object)) < 0).all()


def test_large_decimals_keep_their_leading_bits() -> None:
    kind = pa.decimal128(38, 0)
    rng = Random(7)
    numbers = sorted(rng.choice((-1, 1)) * rng.getrandbits(rng.randrange(1, 126)) for _ in range(2000))
    prefixes = order_prefix(pa.array([unscaled(n, kind) for n in numbers], kind), descending=False, nulls_first=True)
    assert (prefixes[1:] >= prefixes[:-1]).all()
    far = [abs(b - a) > max(abs(a), abs(b)) >> 50 for a, b in pairwise(numbers)]
    assert (prefixes[1:] > prefixes[:-1])[far].all()


def test_nulls_go_where_they_are_wanted() -> None:
    column = pa.array([5, None, -5])
    for descending in (False, True):
        assert order_prefix(column, descending=descending, nulls_first=True)[1] == 0
        assert order_prefix(column, descending=descending, nulls_first=False)[1] == 2**64 - 1
    assert order_prefix(pa.nulls(2), descending=False, nulls_first=False).tolist() == [2**64 - 1] * 2


def test_a_type_without_order_is_refused_by_name() -> None:
    with pytest.raises(Unsupported, match="interval"):
        order_prefix(pa.array([], pa.month_day_nano_interval()), descending=False, nulls_first=True)
