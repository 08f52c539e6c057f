"""Rows while their time is, against a plain model: after every epoch, the rows whose time has come and is not over."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.operators.step import Context
from holdfast.operators.temporal import TemporalSpec
from holdfast.operators.topk import BUCKETS
from holdfast.trace.cover import Chain
from holdfast.trace.hashing import weak_bits
from holdfast.trace.trace import Trace
from operators.running import Runner, added, bag, table

STRING, TIME = pa.string(), pa.timestamp("us")
TYPES = (STRING, TIME, TIME)
SLOT = 2**64 // BUCKETS

MOMENTS = st.one_of(st.none(), st.integers(-5, 25))
ROWS = st.tuples(st.sampled_from(["a", "b", "c"]), MOMENTS, MOMENTS)
CHANGES = st.lists(st.tuples(ROWS, st.integers(1, 3), st.booleans()), max_size=8)
EPOCHS = st.lists(st.tuples(st.integers(0, 7), CHANGES), min_size=1, max_size=7)


def is_there(row: Any, clock: int) -> bool:
    _, start, end = row
    return (start is None or start <= clock) and (end is None or clock < end)


def is_pending(row: Any, clock: int) -> bool:
    _, start, end = row
    if start is not None and clock < start:
        return end is None or start < end
    return end is not None and clock < end


def change_of(wanted: Any, held: Counter[Any]) -> list[tuple[Any, int]]:
    """What is wanted, with deletions cut to what is there."""
    change = []
    for row, copies, deletes in wanted:
        diff = -min(copies, held[row]) if deletes else copies
        held[row] += diff
        change.append((row, diff))
    return [each for each in change if each[1]]


def as_moments(counts: Counter[Any]) -> Counter[Any]:
    """Timestamps as the numbers that they are."""
    return Counter({tuple(_number(value) for value in row): count for row, count in counts.items()})


def _number(value: Any) -> Any:
    return value if value is None or isinstance(value, str) else pa.scalar(value, TIME).value


@given(EPOCHS, st.randoms(use_true_random=False), st.sampled_from([1, 64]))
@settings(max_examples=25, deadline=None)
def test_a_row_is_there_from_its_start_until_its_end(epochs: Any, dice: random.Random, bits: int) -> None:
    spec = TemporalSpec(TYPES, 1, 2, (0,))
    held: Counter[Any] = Counter()
    found: Counter[Any] = Counter()
    with tempfile.TemporaryDirectory() as directory, weak_bits(bits):
        runner = Runner(spec, [TYPES], Path(directory), dice, slot=SLOT)
        for passed, wanted in epochs:
            runner.clock += passed
            found = added(found, runner.epoch(change_of(wanted, held)))
            expected = Counter({row: n for row, n in held.items() if n and is_there(row, runner.clock)})
            assert as_moments(found) == expected
            waiting = Counter({row: n for row, n in held.items() if n and is_pending(row, runner.clock)})
            assert as_moments(runner.state("pending")) == waiting


@given(EPOCHS, st.randoms(use_true_random=False))
@settings(max_examples=8, deadline=None)
def test_a_history_taken_as_one_epoch_gives_the_same_state(epochs: Any, dice: random.Random) -> None:
    spec = TemporalSpec(TYPES, 1, 2, (0,))
    held: Counter[Any] = Counter()
    with tempfile.TemporaryDirectory() as directory:
        one = Runner(spec, [TYPES], Path(directory) / "one", dice, slot=SLOT)
        many = Runner(spec, [TYPES], Path(directory) / "many", dice, slot=SLOT)
        seen: Counter[Any] = Counter()
        for passed, wanted in epochs:
            many.clock += passed
            seen = added(seen, many.epoch(change_of(wanted, held)))
        one.clock = many.clock
        assert one.epoch([(row, n) for row, n in held.items() if n]) == seen
        assert one.state("pending") == many.state("pending")


@given(st.lists(ROWS, max_size=10), st.integers(0, 20))
@settings(max_examples=30, deadline=None)
def test_a_step_says_when_something_happens_next(rows: Any, clock: int) -> None:
    spec = TemporalSpec(TYPES, 1, 2, (0,))
    arrived = spec.prepare(0, table([(row, 1) for row in rows], TYPES))
    with tempfile.TemporaryDirectory() as directory:
        trace = Trace.open(Path(directory), spec.layout, 0, 2**64, -1, Chain(-1, ()))
        step = spec.step([arrived], {"pending": trace}, Context(0, 0, 2**64, True, clock))
    moments = [moment for _, *both in rows for moment in both if moment is not None and moment > clock]
    pending = [row for row in rows if is_pending(row, clock)]
    nexts = [start if start is not None and start > clock else end for _, start, end in pending]
    assert step.due == min(nexts, default=None)
    assert step.due is None or step.due in moments


def test_a_row_that_is_for_ever_is_not_kept(tmp_path: Path) -> None:
    runner = Runner(TemporalSpec(TYPES, 1, 2, (0,)), [TYPES], tmp_path, random.Random(1), slot=SLOT)
    runner.clock = 10
    assert sum(runner.epoch([(("a", 3, None), 1), (("b", None, None), 1), (("c", 3, 9), 1)]).values()) == 2
    assert runner.state("pending") == bag([])
