"""The join against a brute-force oracle: after every epoch its output change is the difference of the full joins."""

from __future__ import annotations

import math
import random
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.operators.join import InnerJoin
from holdfast.trace.hashing import weak_bits
from operators.running import Rows, Runner, added, bag, table

INT, LONG, DOUBLE, STRING = pa.int32(), pa.int64(), pa.float64(), pa.string()
PAIR = pa.struct([("a", INT), ("b", DOUBLE)])
LISTS = pa.list_(DOUBLE)

INTS = st.one_of(st.none(), st.integers(0, 3))
DOUBLES = st.sampled_from([None, 0.0, -0.0, math.nan, 1.5])
STRINGS = st.sampled_from([None, "", "a", "ä"])
DECIMALS = st.sampled_from([None, Decimal("0.10"), Decimal("-1.00")])
PAIRS = st.one_of(st.none(), st.fixed_dictionaries({"a": INTS, "b": DOUBLES}))
NUMBERS = st.one_of(st.none(), st.lists(DOUBLES, max_size=2))


def normal(value: Any) -> Any:
    """A key as Spark compares it."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0
    if isinstance(value, dict):
        return tuple(normal(value[key]) for key in sorted(value))
    if isinstance(value, list):
        return ("list", *map(normal, value))
    return value


def full_join(left: Rows, right: Rows, left_keys: tuple[int, ...], right_keys: tuple[int, ...]) -> Counter[Any]:
    def pairs() -> Iterator[tuple[tuple[Any, ...], int]]:
        for row, diff in left:
            for other, times in right:
                one, two = [row[key] for key in left_keys], [other[key] for key in right_keys]
                if None not in one and None not in two and list(map(normal, one)) == list(map(normal, two)):
                    yield (*row, *other), diff * times

    return bag(list(pairs()))


# (left columns, right columns, keys of each side); the keys are not in front, and not in one order.
SHAPES: dict[str, tuple[Any, ...]] = {
    "integers": ([(STRING, STRINGS), (INT, INTS)], [(INT, INTS), (DOUBLE, DOUBLES)], (1,), (0,)),
    "doubles": ([(DOUBLE, DOUBLES), (INT, INTS)], [(INT, INTS), (DOUBLE, DOUBLES)], (0,), (1,)),
    "several": ([(INT, INTS), (STRING, STRINGS), (DOUBLE, DOUBLES)], [(DOUBLE, DOUBLES), (STRING, STRINGS)],
                (1, 2), (1, 0)),
    "nested": ([(PAIR, PAIRS), (LISTS, NUMBERS)], [(LISTS, NUMBERS), (PAIR, PAIRS), (INT, INTS)], (0, 1), (1, 0)),
    "decimals": ([(pa.decimal128(20, 2), DECIMALS)], [(pa.decimal128(20, 2), DECIMALS)], (0,), (0,)),
    "one twice": ([(INT, INTS), (STRING, STRINGS)], [(INT, INTS), (INT, INTS)], (0, 0), (0, 1)),
    "nothing to the right": ([(INT, INTS)], [], (), ()),
    "everything": ([(INT, INTS)], [(STRING, STRINGS)], (), ()),
}  # fmt: skip


@pytest.mark.parametrize("weak", [None, 2], ids=["strong hash", "weak hash"])
@pytest.mark.parametrize("shape", SHAPES)
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_change_of_the_join_is_the_join_of_the_changes(shape: str, weak: int | None, data: st.DataObject) -> None:
    left, right, left_keys, right_keys = SHAPES[shape]
    types = [[kind for kind, _ in side] for side in (left, right)]
    spec = InnerJoin(left_keys, right_keys, tuple(types[0]), tuple(types[1]))
    diffs = st.sampled_from([1, 1, 2, -1])
    changes = [st.lists(st.tuples(st.tuples(*(s for _, s in side)), diffs), max_size=8) for side in (left, right)]
    epochs = data.draw(st.lists(st.tuples(*changes), min_size=1, max_size=5))
    dice = random.Random(data.draw(st.integers(0, 1 << 30)))
    with tempfile.TemporaryDirectory() as directory, weak_bits(weak) if weak is not None else nullcontext():
        runner = Runner(spec, types, Path(directory), dice)
        lefts: list[Any] = []
        rights: list[Any] = []
        before: Counter[Any] = Counter()
        for left_change, right_change in epochs:
            lefts += left_change
            rights += right_change
            after = full_join(lefts, rights, left_keys, right_keys)
            assert runner.epoch(left_change, right_change) == added(after, before, -1)
            before = after


def test_null_keys_go_no_further_than_prepare() -> None:
    spec = InnerJoin((0,), (0,), (INT, STRING), (INT,))
    prepared = spec.prepare(0, table([((None, "a"), 1), ((1, None), 1)], (INT, STRING)))
    assert prepared.num_rows == 1 and prepared.column_names == ["_hash", "c0", "c1", "_diff"]


def test_keys_come_out_as_they_went_in(tmp_path: Path) -> None:
    spec = InnerJoin((0,), (0,), (DOUBLE,), (DOUBLE,))
    runner = Runner(spec, [(DOUBLE,), (DOUBLE,)], tmp_path, random.Random(0))
    assert runner.epoch([((-0.0,), 1)], [((0.0,), 1)]) == bag([((-0.0, 0.0), 1)])


def test_row_that_comes_and_goes_in_one_epoch_leaves_no_trace(tmp_path: Path) -> None:
    spec = InnerJoin((0,), (0,), (INT,), (INT,))
    runner = Runner(spec, [(INT,), (INT,)], tmp_path, random.Random(0))
    assert not runner.epoch([((1,), 1), ((1,), -1)], [((1,), 1)])
    assert not runner.state("left") and runner.state("right") == bag([((1,), 1)])


def test_keys_that_share_a_hash_do_not_join(tmp_path: Path) -> None:
    spec = InnerJoin((0,), (0,), (INT,), (INT,))
    with weak_bits(0):
        runner = Runner(spec, [(INT,), (INT,)], tmp_path, random.Random(0))
        assert not runner.epoch([((1,), 1)], [((2,), 1)])
        assert runner.epoch([((2,), 1), ((3,), 1)], []) == bag([((2, 2), 1)])


def test_both_sides_changing_at_once_counts_their_meeting_once(tmp_path: Path) -> None:
    spec = InnerJoin((0,), (0,), (INT,), (INT,))
    runner = Runner(spec, [(INT,), (INT,)], tmp_path, random.Random(0))
    assert runner.epoch([((1,), 2)], [((1,), 3)]) == bag([((1, 1), 6)])
    assert runner.epoch([((1,), 1)], [((1,), -3)]) == bag([((1, 1), -6)])
