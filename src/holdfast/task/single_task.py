"""A small epoch in one task: all stages, all partitions, one after the other, with messages that never leave memory.

An exchange costs tens of milliseconds of Spark's time however little is exchanged, and a flow has one per stage. Where
few rows change, that is most of an epoch. So they stay in one task, which runs what the tasks of all stages would have
run: the same operators over the same messages, partition by partition. The layers that it writes are the same, byte for
byte and by name, so nothing else can tell which way an epoch was run; a retry, or the usual job after this one has
given up, does no harm.

Cost: the work of all partitions in one process. One that may use several ``threads`` has batches that are read, and
then partitions, worked on side by side where there are many rows: kernels are mostly long calls that let go of the
interpreter's lock. A flow that calls users' functions has one thread. A task that finds more rows than it was sent for
(`TooManyRows`), or a loop whose next round is large, stops; the driver then runs the epoch as usual.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from typing import TypeVar

import pyarrow as pa

from holdfast.connectors.source import Part
from holdfast.operators.loops.epoch import LargeRound
from holdfast.task.messages import FAILED, Message
from holdfast.task.program import Program
from holdfast.task.read_sources import read_parts
from holdfast.task.stage import EpochSpec, Router, TaskReport, finish, run_stage

SMALL = 20_000
"""Rows up to which an epoch is small: on two cores, where one core is as fast as two and their exchanges. Rows that the
linear steps drop are cheap: they count as `weight` says."""

_CHEAP = 8
"""So many rows that are only read are as much work as one that goes on to an operator."""

_READ = 2 * _CHEAP
_PASSED = 25
_MOST_PASSED = 4_000_000
"""So many times the limit may be read, or passed from one stage to the next, before an epoch is too large; and never
more rows passed than the last says, which are all in memory."""

_SIDE_BY_SIDE = 50_000
"""Rows from which on it pays to work with several threads."""

_AHEAD = 4
"""So many pieces of what is read are in work at once."""

_One = TypeVar("_One")
_Result = TypeVar("_Result")


def staying(cores: int) -> int:
    """Rows up to which an epoch is small for a task that stays, which costs no job and works with threads. On two cores
    it was faster than stages for all sizes that were measured, up to 1,000,000 rows; stages use all of many cores, and
    threads of one interpreter do not."""
    return max(6 * SMALL, 4_000_000 // cores**2)


def weight(read: int, sent: int) -> int:
    """The size of an epoch: rows that were read, and rows that were left of them behind the linear steps."""
    return max(sent, read // _CHEAP)


class TooManyRows(Exception):
    """More rows than one task should work on."""


def run_single_task(
    program: Program, epoch: EpochSpec, items: Iterable[tuple[str, Part]], *, limit: int = SMALL, threads: int = 1
) -> Iterator[Message]:
    """The messages of the last stage, for the driver. Raises the user's error, or `TooManyRows` if there is much more
    to do than for ``limit`` rows."""
    if program.calls_users:
        threads = 1
    with ThreadPoolExecutor(threads) if threads > 1 else nullcontext() as pool:
        messages = _read(program, epoch, items, limit, pool)
        for stage in range(1, program.stages + 1):
            rows = _rows(messages)
            if rows > min(_PASSED * limit, _MOST_PASSED):
                raise TooManyRows
            mine: list[list[Message]] = [[] for _ in range(epoch.partitions)]
            for message in messages:
                mine[message[0]].append(message)

            def run(partition: int, stage: int = stage, mine: list[list[Message]] = mine) -> list[Message]:
                router, report = run_stage(program, stage, partition, epoch, mine[partition], keep=True)
                return list(finish(router, report, partition))

            done = _side_by_side(pool if rows >= _SIDE_BY_SIDE else None, run, range(epoch.partitions))
            try:
                messages = [message for part in done for message in part]
            except LargeRound:
                raise TooManyRows from None
    assert all(channel != FAILED for _, (channel, _) in messages)  # here an error is raised at once
    yield from messages


def _read(
    program: Program, epoch: EpochSpec, items: Iterable[tuple[str, Part]], limit: int, pool: ThreadPoolExecutor | None
) -> list[Message]:
    """Stage 0. With a pool, large batches of rows are worked on side by side, each as if it were a part of its own."""
    ahead: deque[Future[tuple[Router, TaskReport]]] = deque()
    messages: list[Message] = []
    sent = 0
    budget = _Budget(_READ * limit)

    def check(report: TaskReport) -> None:
        if sent + report.sent > 2 * limit:
            raise TooManyRows

    def finished(router: Router, report: TaskReport) -> None:
        nonlocal sent
        check(report)
        sent += report.sent
        messages.extend(finish(router, report, 0))

    def small() -> Iterator[tuple[str, Part]]:
        for name, part in items:
            counted = _Counted(part, budget)
            if pool is None:
                yield name, counted
                continue
            for table in counted.read(pa.schema(list(program.sources[name])[:-1])):
                if table.num_rows < _SIDE_BY_SIDE:
                    yield name, _Batch(table)
                    continue
                for piece in _pieces(table):
                    if len(ahead) >= _AHEAD:
                        finished(*ahead.popleft().result())
                    ahead.append(pool.submit(read_parts, program, epoch, [(name, _Batch(piece))], 0, keep=True))

    finished(*read_parts(program, epoch, small(), 0, keep=True, check=check))
    while ahead:
        finished(*ahead.popleft().result())
    return messages


def _pieces(table: pa.Table) -> Iterator[pa.Table]:
    size = max(_SIDE_BY_SIDE, -(-table.num_rows // 2))
    return (table.slice(start, size) for start in range(0, table.num_rows, size))


def _side_by_side(
    pool: ThreadPoolExecutor | None, work: Callable[[_One], _Result], parts: Iterable[_One]
) -> Iterator[_Result]:
    """What the work gives for each part, in their order. The first error of any is raised when all have ended."""
    return map(work, parts) if pool is None else pool.map(work, parts)


class _Batch:
    """Rows that were read, as a part."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def read(self, schema: pa.Schema) -> Iterator[pa.Table]:
        yield self._table


class _Budget:
    """Rows that may still be read, of all parts."""

    def __init__(self, rows: int) -> None:
        self._rows = rows

    def take(self, rows: int) -> None:
        self._rows -= rows
        if self._rows < 0:
            raise TooManyRows


class _Counted:
    """A part that is read as far as the budget goes."""

    def __init__(self, part: Part, budget: _Budget) -> None:
        self._part, self._budget = part, budget

    def read(self, schema: pa.Schema) -> Iterator[pa.Table]:
        for table in self._part.read(schema):
            self._budget.take(table.num_rows)
            yield table


def _rows(messages: Sequence[Message]) -> int:
    return sum(content.num_rows for _, (_, content) in messages if isinstance(content, pa.Table))
