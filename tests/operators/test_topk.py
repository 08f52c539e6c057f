"""Top-k against sorting everything: after every epoch its two halves together give the change of the window."""

from __future__ import annotations

import math
import random
import tempfile
from collections import Counter
from contextlib import nullcontext
from decimal import Decimal
from functools import cmp_to_key
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.operators.ordering import sort_rows
from holdfast.operators.topk import BUCKETS, TopKSpec
from holdfast.trace.hashing import weak_bits
from operators.running import Runner, added, bag, compare, exact

STRING, DOUBLE, INT = pa.string(), pa.float64(), pa.int32()
DECIMAL = pa.decimal128(38, 2)
PAIR = pa.struct([("a", DOUBLE), ("b", STRING)])
LISTS = pa.list_(INT)
SLOT = 2**64 // BUCKETS

STRINGS = st.sampled_from([None, "", "abcdefghi", "abcdefghj", "b", "Ä"])
DOUBLES = st.sampled_from([None, math.nan, -math.inf, 0.0, 1.5])
INTS = st.one_of(st.none(), st.integers(-3, 3))
BIG = "123456789012345678901234"
DECIMALS = st.sampled_from([None, *map(Decimal, (f"-{BIG}.56", "-0.01", "0.00", f"{BIG}.56", f"{BIG}.57"))])
PAIRS = st.one_of(st.none(), st.fixed_dictionaries({"a": DOUBLES, "b": STRINGS}))
NUMBERS = st.one_of(st.none(), st.lists(INTS, max_size=3))


def window(rows: Counter[Any], order: tuple[Any, ...], offset: int, limit: int, values: dict[Any, Any]) -> Counter[Any]:
    """The rows at places [offset, offset + limit), by sorting everything."""

    def before(one: Any, other: Any) -> int:
        a, b = values[one], values[other]
        for position, descending, nulls_first in order:
            x, y = a[position], b[position]
            if (x is None) != (y is None):
                return -1 if (x is None) == nulls_first else 1
            if found := compare(x, y):
                return -found if descending else found
        return next((c for c in map(compare, a, b) if c), 0)

    places = [row for row in sorted(rows, key=cmp_to_key(before)) for _ in range(rows[row])]
    return Counter(places[offset : offset + limit])


class Both:
    """The two halves of a top-k, one behind the other."""

    def __init__(
        self, order: Any, limit: int, offset: int, types: Any, key: Any, directory: Path, dice: random.Random
    ) -> None:
        bucket = TopKSpec(order, limit, offset, types, "bucket", key)
        whole = TopKSpec(order, limit, offset, types, "global")
        self.bucket = Runner(bucket, [types], directory / "bucket", dice, slot=SLOT)
        self.whole = Runner(whole, [types], directory / "global", dice, slot=SLOT)
        self.values: dict[Any, Any] = {}

    def epoch(self, change: Any) -> Counter[Any]:
        self.values |= {tuple(map(exact, row)): row for row, _ in change}
        passed = self.bucket.epoch(change)
        return self.whole.epoch([(self.values[row], diff) for row, diff in passed.items()])


SHAPES: dict[str, tuple[Any, ...]] = {
    "doubles": ((DOUBLE, STRING), (DOUBLES, STRINGS)),
    "strings": ((STRING, INT), (STRINGS, INTS)),
    "decimals": ((DECIMAL, INT), (DECIMALS, INTS)),
    "nested": ((PAIR, LISTS), (PAIRS, NUMBERS)),
    "lists": ((LISTS, INT), (NUMBERS, INTS)),
}


@pytest.mark.parametrize("weak", [None, 1], ids=["strong hash", "weak hash"])
@pytest.mark.parametrize("shape", SHAPES)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_change_is_the_change_of_the_window(shape: str, weak: int | None, data: st.DataObject) -> None:
    types, columns = SHAPES[shape]
    directions = st.tuples(st.integers(0, 1), st.booleans(), st.booleans())
    order = tuple(data.draw(st.lists(directions, max_size=2)))
    limit, offset = data.draw(st.integers(0, 4)), data.draw(st.integers(0, 3))
    key = data.draw(st.sampled_from([(0, 1), (1,), ()]))
    dice = random.Random(data.draw(st.integers(0, 1 << 30)))
    rows: Counter[Any] = Counter()
    before: Counter[Any] = Counter()
    with tempfile.TemporaryDirectory() as directory, weak_bits(weak) if weak is not None else nullcontext():
        both = Both(order, limit, offset, types, key, Path(directory), dice)
        for _ in range(data.draw(st.integers(1, 5))):
            inserted = data.draw(st.lists(st.tuples(st.tuples(*columns), st.sampled_from([1, 1, 3])), max_size=8))
            gone = [(both.values[row], -dice.randint(1, rows[row])) for row in rows if dice.random() < 0.4]
            change = inserted + gone
            rows = added(rows, bag(change))
            found = both.epoch(change)
            after = window(rows, order, offset, limit, both.values)
            assert found == added(after, before, -1)
            before = after


def test_deleting_the_whole_front_brings_up_the_next_rows(tmp_path: Path) -> None:
    both = Both(((0, True, False),), 3, 0, (INT,), (0,), tmp_path, random.Random(5))
    both.epoch([((n,), 1) for n in range(2000)])
    found = both.epoch([((n,), -1) for n in range(100, 2000)])
    assert found == bag([*(((n,), 1) for n in (99, 98, 97)), *(((n,), -1) for n in (1999, 1998, 1997))])


def test_copies_take_places_and_are_cut_at_the_border(tmp_path: Path) -> None:
    both = Both(((0, False, True),), 2, 1, (INT,), (0,), tmp_path, random.Random(5))
    assert both.epoch([((1,), 2), ((2,), 5)]) == bag([((1,), 1), ((2,), 1)])
    assert both.epoch([((0,), 1)]) == bag([((1,), 1), ((2,), -1)])


@pytest.mark.parametrize(
    ("descending", "nulls_first", "expected"),
    [(False, True, [None, 1]), (False, False, [1, 2]), (True, True, [None, 2]), (True, False, [2, 1])],
)
def test_nulls_stand_where_the_order_says(
    descending: bool, nulls_first: bool, expected: list[int | None], tmp_path: Path
) -> None:
    # The second order column: the first is settled by its prefix alone.
    order = ((0, False, True), (1, descending, nulls_first))
    both = Both(order, 2, 0, (INT, INT), (0,), tmp_path, random.Random(5))
    change = [((7, value), 1) for value in (1, None, 2)]
    assert both.epoch(change) == bag([((7, value), 1) for value in expected])


def test_negative_zero_ties_with_zero_and_the_rest_of_the_row_decides(tmp_path: Path) -> None:
    both = Both(((0, False, True),), 1, 0, (DOUBLE, INT), (1,), tmp_path, random.Random(5))
    assert both.epoch([((0.0, 1), 1), ((-0.0, 2), 1)]) == bag([((0.0, 1), 1)])
    assert both.epoch([((-0.0, 0), 1)]) == bag([((0.0, 1), -1), ((-0.0, 0), 1)])


@settings(max_examples=20, deadline=None)
@given(rows=st.lists(st.tuples(st.sampled_from([0.0, -0.0, math.nan]), INTS), max_size=8), seed=st.integers(0, 99))
def test_order_of_rows_is_one_whatever_order_they_came_in(rows: list[Any], seed: int) -> None:
    import numpy as np

    def ordered(given: list[Any]) -> list[Any]:
        maps = pa.array([[("k", row[1])] for row in given], pa.map_(STRING, INT))
        columns = [pa.array([row[0] for row in given], DOUBLE), maps]
        places = sort_rows(np.zeros(len(given), np.uint64), columns, ((0, False, True),))
        return [tuple(map(exact, given[place])) for place in places]

    shuffled = list(rows)
    random.Random(seed).shuffle(shuffled)
    assert ordered(shuffled) == ordered(rows)
