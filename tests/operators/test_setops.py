"""INTERSECT and EXCEPT against bags in plain Python: after every epoch the output change is the difference."""

from __future__ import annotations

import math
import random
import tempfile
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import NegativeMultiplicity
from holdfast.operators.set_operation import SetSpec
from holdfast.trace.hashing import weak_bits
from operators.running import Rows, Runner, added, bag

TYPES = (pa.int64(), pa.float64(), pa.list_(pa.string()))
ROWS = st.tuples(
    st.sampled_from([None, 1]),
    st.sampled_from([None, 0.0, -0.0, math.nan]),
    st.sampled_from([None, [], ["a", None]]),
)
KINDS = [("intersect", False), ("intersect", True), ("except", False), ("except", True)]


def normal(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(value + 0.0 if isinstance(value, float) else value for value in row)


def expected(kind: str, all: bool, left: Counter[Any], right: Counter[Any]) -> Counter[Any]:
    if all:
        return left & right if kind == "intersect" else left - right
    return Counter(row for row in left if (row in right) == (kind == "intersect"))


@st.composite
def worlds(draw: st.DrawFn) -> list[tuple[Rows, Rows]]:
    """Epochs of changes of both sides, in which a row is never deleted before it is there."""
    bags: tuple[list[Any], list[Any]] = ([], [])
    world = []
    for _ in range(draw(st.integers(1, 4))):
        changes: list[Rows] = []
        for held in bags:
            rows = draw(st.lists(ROWS, max_size=5))
            held += rows
            gone = [held.pop(place % len(held)) for place in draw(st.lists(st.integers(0, 99), max_size=4)) if held]
            changes.append([(row, 1) for row in rows] + [(row, -1) for row in gone])
        world.append((changes[0], changes[1]))
    return world


@pytest.mark.parametrize("weak", [None, 2], ids=["strong hash", "weak hash"])
@pytest.mark.parametrize(("kind", "all"), KINDS, ids=[f"{kind}{' all' * all}" for kind, all in KINDS])
@settings(max_examples=25, deadline=None)
@given(world=worlds(), seed=st.integers(0, 1000))
def test_the_result_has_each_row_as_often_as_its_counts_on_both_sides_say(
    kind: str, all: bool, weak: int | None, world: list[tuple[Rows, Rows]], seed: int
) -> None:
    spec = SetSpec(kind, all, TYPES)
    with tempfile.TemporaryDirectory() as directory, weak_bits(weak) if weak else nullcontext():
        runner = Runner(spec, [TYPES, TYPES], Path(directory), random.Random(seed))
        sides: list[Counter[Any]] = [Counter(), Counter()]
        view: Counter[Any] = Counter()
        for changes in world:
            view = added(view, runner.epoch(*changes))
            normalised = [[(normal(row), diff) for row, diff in change] for change in changes]
            sides = [added(side, bag(change)) for side, change in zip(sides, normalised, strict=True)]
            assert view == expected(kind, all, *sides)


def test_a_row_deleted_more_often_than_inserted_is_an_error(tmp_path: Path) -> None:
    runner = Runner(SetSpec("intersect", True, (pa.int64(),)), [[pa.int64()]] * 2, tmp_path, random.Random(0))
    with pytest.raises(NegativeMultiplicity, match=r"\(1,\)"):
        runner.epoch([((1,), 1)], [((1,), -1)])
