"""The log: its output is the change, consolidated; its trace is the collection; a row never goes below zero."""

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
from holdfast.operators import log
from holdfast.operators.log import LogSpec
from holdfast.trace.hashing import weak_bits
from operators.running import Runner, added, bag

TYPES = (pa.string(), pa.float64(), pa.int32(), pa.list_(pa.int32()))
ROW = st.tuples(
    st.sampled_from([None, "", "a", "b"]), st.sampled_from([None, 0.0, -0.0, math.nan]), st.integers(0, 1),
    st.sampled_from([None, [], [1], [None]]),
)  # fmt: skip


@pytest.mark.parametrize("weak", [None, 0, 2], ids=["strong hash", "no hash", "weak hash"])
@pytest.mark.parametrize("key", [(0,), (2, 1), (), (0, 1, 2, 3), (1, 1)], ids=str)
@settings(max_examples=8, deadline=None)
@given(epochs=st.lists(st.lists(st.tuples(ROW, st.sampled_from([1, 2, -1])), max_size=10), min_size=1, max_size=5),
       seed=st.integers(0, 1 << 30))  # fmt: skip
def test_output_is_the_change_and_the_trace_is_the_collection(
    key: tuple[int, ...], weak: int | None, epochs: list[Any], seed: int
) -> None:
    with tempfile.TemporaryDirectory() as directory, weak_bits(weak) if weak is not None else nullcontext():
        runner = Runner(LogSpec(TYPES, key, False, "rows"), [TYPES], Path(directory), random.Random(seed))
        places = spec_places(key)
        total: Counter[Any] = Counter()
        for change in epochs:
            assert runner.epoch(change) == bag(change)
            total = added(total, bag([(tuple(row[place] for place in places), diff) for row, diff in change]))
            assert runner.state("rows") == total


@pytest.mark.parametrize("weak", [None, 1], ids=["strong hash", "weak hash"])
@settings(max_examples=25, deadline=None)
@given(epochs=st.lists(st.lists(st.tuples(ROW, st.sampled_from([1, 1, -1])), max_size=6), min_size=1, max_size=5),
       seed=st.integers(0, 1 << 30))  # fmt: skip
def test_check_raises_exactly_when_a_row_goes_below_zero(weak: int | None, epochs: list[Any], seed: int) -> None:
    with tempfile.TemporaryDirectory() as directory, weak_bits(weak) if weak is not None else nullcontext():
        runner = Runner(LogSpec(TYPES, (0,), True, "orders"), [TYPES], Path(directory), random.Random(seed))
        total: Counter[Any] = Counter()
        for change in epochs:
            total = added(total, bag(change))
            if min(total.values(), default=0) < 0:
                with pytest.raises(NegativeMultiplicity):
                    runner.epoch(change)
                return
            assert runner.epoch(change) == bag(change)


def test_error_names_the_collection_the_rows_and_the_epoch(tmp_path: Path) -> None:
    types = (pa.int32(), pa.string())
    runner = Runner(LogSpec(types, (1,), True, "orders"), [types], tmp_path, random.Random(3))
    runner.epoch([((1, "a"), 1)])
    with pytest.raises(NegativeMultiplicity) as raised:
        runner.spec.step([runner.prepared(0, [((1, "a"), -3), *(((n, "x"), -1) for n in range(4))])],
                 {"rows": open_trace(runner)}, log.Context(1, 0, 2**64, False))  # fmt: skip
    error = raised.value
    assert "'orders'" in str(error) and "epoch 1" in str(error) and "and 2 more" in str(error)
    assert error.fields["name"] == "orders" and error.fields["epoch"] == 1
    rows = error.fields["rows"]
    assert isinstance(rows, list) and len(rows) == 3 and set(rows) <= {(1, "a"), *((n, "x") for n in range(4))}


def test_many_rows_of_one_key_may_be_deleted_at_once(tmp_path: Path) -> None:
    types = (pa.int32(), pa.int32())
    runner = Runner(LogSpec(types, (0,), True, "orders"), [types], tmp_path, random.Random(3))
    runner.epoch([((1, n), 1) for n in range(20)])
    gone = [((1, n), -1) for n in range(0, 20, 2)]
    assert runner.epoch(gone) == bag(gone)


def test_row_may_be_deleted_and_inserted_in_one_epoch(tmp_path: Path) -> None:
    types = (pa.int32(),)
    runner = Runner(LogSpec(types, (0,), True, "orders"), [types], tmp_path, random.Random(3))
    assert not runner.epoch([((1,), -1), ((1,), 1)])


def open_trace(runner: Runner) -> Any:
    from holdfast.trace.trace import Trace

    layout = runner.spec.layouts()["rows"]
    return Trace.open(runner.directory / "rows", layout, 0, 2**64, len(runner.digests) - 1, runner.chain)


def spec_places(key: tuple[int, ...]) -> tuple[int, ...]:
    return LogSpec(TYPES, key, False, "rows").arrangement.places
