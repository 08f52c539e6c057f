"""The threshold against a brute-force oracle: its change is the difference of all comparisons, after every epoch.

The bounds come, move, repeat and go, so that every range is read: between two bounds, at single values, to the end.
"""

from __future__ import annotations

import math
import pickle
import random
import tempfile
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.operators.step import Context
from holdfast.operators.threshold import Comparison, ThresholdSpec
from holdfast.operators.topk import BUCKETS
from holdfast.trace.cover import Chain
from holdfast.trace.hashing import weak_bits
from holdfast.trace.layer import write_layer
from holdfast.trace.trace import Trace
from operators.running import END, Rows, Runner, added, bag, compare, table

SLOT = END // BUCKETS
INT, DOUBLE, STRING = pa.int32(), pa.float64(), pa.string()

NEAR = Decimal("1000000000000000000000000000000.0002")
"""It has the same order prefix as another value."""

KEYS = st.sampled_from([0.0, -0.0, math.nan, 1.0, None])
VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "integers": (INT, st.one_of(st.none(), st.integers(-3, 3))),
    "doubles": (DOUBLE, st.sampled_from([None, -math.inf, -1.5, -0.0, 0.0, 1.5, math.inf, math.nan])),
    "strings": (STRING, st.sampled_from([None, "", "longer than 8 a", "longer than 8 b", "longer than 9", "ä"])),
    "short decimals": (pa.decimal128(12, 2), st.sampled_from([None, *map(Decimal, ("-1.00", "0.00", "0.01", "7.25"))])),
    "long decimals": (
        pa.decimal128(38, 4),
        st.sampled_from([None, *(Decimal(f"{each}000000000000000000000000000000.0001") for each in (-1, 1, 2)), NEAR]),
    ),
}


def holds(comparison: str, value: Any, bound: Any) -> bool:
    if value is None or bound is None:
        return False
    found = compare(value, bound)
    return {"=": found == 0, "<>": found != 0, "<": found < 0, "<=": found <= 0, ">": found > 0, ">=": found >= 0}[
        comparison
    ]


def meant(left: Rows, right: Rows, comparison: str, keyed: bool, safe: bool) -> Counter[Any]:
    """What the operator means: every row, as often as a bound of its key compares true."""
    found = []
    for row, copies in left:
        for other, times in right:
            same = not keyed or (compare(row[0], other[0]) == 0 and (safe or row[0] is not None))
            if same and holds(comparison, row[1], other[-1]):
                found.append((row, copies * times))
    return bag(found)


@pytest.mark.parametrize("weak", [None, 2], ids=["strong hash", "weak hash"])
@pytest.mark.parametrize("form", ["one bound", "a bound per key", "a bound per key, NULL too"])
@pytest.mark.parametrize("kind", VALUES)
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_its_change_is_the_difference_of_what_it_means(
    kind: str, form: str, weak: int | None, data: st.DataObject
) -> None:
    keyed, safe = form != "one bound", form.endswith("too")
    comparison: Comparison = data.draw(st.sampled_from(get_args(Comparison)))
    type_of, values = VALUES[kind]
    types = ([DOUBLE, type_of, STRING], [DOUBLE, INT, type_of])
    key = (0,) if keyed else ()
    spec = ThresholdSpec(
        tuple(types[0]), tuple(types[1]), key, key, 1, comparison, 2, () if keyed else (0, 2), (True,) if safe else ()
    )
    assert pickle.loads(pickle.dumps(spec)) == spec
    left_row = st.tuples(KEYS, values, st.sampled_from(["a", "b"]))
    right_row = st.tuples(KEYS, st.integers(0, 1), values)
    dice = random.Random(data.draw(st.integers(0, 1 << 30)))
    with tempfile.TemporaryDirectory() as directory, weak_bits(weak or 64):
        runner = Runner(spec, types, Path(directory), dice, slot=SLOT)
        sides: list[list[tuple[tuple[Any, ...], int]]] = [[], []]
        before = bag([])
        for _ in range(data.draw(st.integers(1, 5))):
            changes = []
            for rows, row, most in zip(sides, (left_row, right_row), (6, 2), strict=True):
                gone = [(each, -copies) for each, copies in rows if copies > 0 and dice.random() < 0.2]
                come = data.draw(st.lists(st.tuples(row, st.sampled_from([1, 1, 2])), max_size=most))
                changes.append([*gone, *come])
                rows += changes[-1]
            after = meant(*sides, comparison, keyed, safe)
            assert runner.epoch(*changes) == added(after, before, -1)
            before = after


def test_a_moved_bound_reads_only_the_rows_that_change_sides(tmp_path: Path) -> None:
    spec = ThresholdSpec((INT,), (INT,), (), (), 0, ">", 0, (0,))
    rows = spec.prepare(0, table([((number,), 1) for number in range(10_000)], [INT]))
    first = spec.prepare(1, table([((5_000,), 1)], [INT]))
    nothing = {"left": rows.slice(0, 0), "right": first.slice(0, 0)}
    traces = opened(spec, tmp_path, -1)
    step = spec.step([rows, first], traces, Context(0, 0, END, True))
    assert step.output.num_rows == 4_999
    for suffix, layout in spec.layouts().items():
        write_layer(tmp_path / suffix, step.layers[suffix], layout, low=0, high=END, first=0, last=0, digest="0" * 16)
    moved = spec.prepare(1, table([((5_000,), -1), ((4_990,), 1)], [INT]))
    traces = opened(spec, tmp_path, 0)
    read: list[int] = []
    whole = traces["left"].ranges

    def counted(*ranges: Any) -> Any:
        found = whole(*ranges)
        read.append(found.rows)
        return found

    traces["left"].ranges = counted  # type: ignore[method-assign]  # it counts the rows that are read
    step = spec.step([nothing["left"], moved], traces, Context(1, 0, END, False))
    assert sorted(step.output.column("c0").to_pylist()) == list(range(4_991, 5_001)) and read == [11]


def opened(spec: ThresholdSpec, directory: Path, as_of: int) -> dict[str, Trace]:
    chain = Chain(-1, ("0" * 16,)[: as_of + 1])
    return {
        suffix: Trace.open(directory / suffix, layout, 0, END, as_of, chain)
        for suffix, layout in spec.layouts().items()
    }
