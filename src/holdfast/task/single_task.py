"""A small epoch in one task: all stages and partitions, one after the other, with messages that never leave memory.

An exchange costs tens of milliseconds of Spark's time however little is exchanged, and a flow has one per stage. Where
few rows change, that is most of an epoch. So a small epoch runs in one task, which does the work of all stages' tasks:
the same operators over the same messages, partition by partition. The layers that it writes are the same, byte for byte
and by name, so a reader cannot tell how an epoch was run. A retry, or the usual job after this task has given up, does
no harm.

Cost: the work of all partitions in one process. A task with several ``threads`` works on large batches, and then on
partitions, in parallel: kernels are mostly long calls that release the interpreter's lock. A flow that calls users'
functions has one thread. A task that finds more rows than expected (`TooManyRows`), or a loop whose next round is
large, stops; the driver then runs the epoch as usual.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TypeVar

import pyarrow as pa

from holdfast.connectors.source import Part
from holdfast.operators.loops.epoch import LargeRound
from holdfast.task.messages import FAILED, Message
from holdfast.task.program import Program
from holdfast.task.read_sources import read_parts
from holdfast.task.stage import EpochSpec, Router, TaskReport, finish, run_stage

SMALL = 20_000
"""Rows up to which an epoch is small, on two cores: up to there, one core takes no longer than two cores and their
exchanges. Rows that the linear steps drop are cheap, and count as `weight` says."""

_CHEAP = 8
"""This many rows that are only read cost as much as one row that goes on to an operator."""

_READ = 2 * _CHEAP
_PASSED = 25
_MOST_PASSED = 4_000_000
"""An epoch is too large for one task if it reads more than `_READ` times the limit, or passes more than `_PASSED` times
the limit, or `_MOST_PASSED` rows, from one stage to the next; passed rows are all in memory."""

_SIDE_BY_SIDE = 50_000
"""Rows from which on several threads are faster than one."""

_AHEAD = 4
"""Pieces of the input that are in work at once."""

_One = TypeVar("_One")
_Result = TypeVar("_Result")


def staying(cores: int) -> int:
    """Return the rows up to which an epoch is small for the resident task, which costs no job and has threads. On two
    cores it was faster than stages for all sizes measured, up to 1,000,000 rows. With many cores stages win earlier:
    they use all cores, and threads of one interpreter do not."""
    return max(6 * SMALL, 4_000_000 // cores**2)


def weight(read: int, sent: int) -> int:
    """The size of an epoch in rows, from the rows ``read`` and the rows ``sent`` to operators after the linear
    steps."""
    return max(sent, read // _CHEAP)


class TooManyRows(Exception):
    """More rows than one task should work on."""


@dataclass
class Routed:
    """Rows of sources after stage 0: the messages for the operators, and the counts of rows."""

    messages: list[Message] = field(default_factory=list)
    read: int = 0
    sent: int = 0


def run_single_task(
    program: Program,
    epoch: EpochSpec,
    items: Iterable[tuple[str, Part]],
    *,
    limit: int = SMALL,
    threads: int = 1,
    ready: Sequence[Routed] = (),
) -> Iterator[Message]:
    """Run the epoch, and yield the messages of the last stage, for the driver. ``ready``: parts that were routed
    before, with the epoch's number of partitions. Raises the user's error, or `TooManyRows` if there is much more work
    than ``limit`` rows make."""
    with _threads(program, threads) as pool:
        messages = _read(program, epoch, items, limit, pool, ready).messages
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
    assert all(channel != FAILED for _, (channel, _) in messages)  # in one task, an error is raised at once
    yield from messages


def route(
    program: Program, epoch: EpochSpec, items: Iterable[tuple[str, Part]], limit: int, threads: int, read: Routed
) -> Routed:
    """Run stage 0 over parts, for a later `run_single_task`. ``read``: what was routed for the same epoch before, which
    counts towards the limit. Of the epoch, only the number of partitions is used."""
    with _threads(program, threads) as pool:
        budget = Routed([], read.read, read.sent)
        found = _read(program, epoch, items, limit, pool, [budget])
    return Routed(found.messages, found.read - read.read, found.sent - read.sent)


def _threads(program: Program, threads: int) -> AbstractContextManager[ThreadPoolExecutor | None]:
    return ThreadPoolExecutor(threads) if threads > 1 and not program.calls_users else nullcontext()


def _read(
    program: Program,
    epoch: EpochSpec,
    items: Iterable[tuple[str, Part]],
    limit: int,
    pool: ThreadPoolExecutor | None,
    ready: Sequence[Routed] = (),
) -> Routed:
    """Run stage 0. With a pool, large batches of rows are worked on in parallel, each as if it were a part of its
    own. The result includes the parts that are ``ready``."""
    ahead: deque[Future[tuple[Router, TaskReport]]] = deque()
    done = Routed([message for each in ready for message in each.messages])
    done.read, done.sent = sum(each.read for each in ready), sum(each.sent for each in ready)

    def check(report: TaskReport) -> None:
        if done.sent + report.sent > 2 * limit:
            raise TooManyRows

    def finished(router: Router, report: TaskReport) -> None:
        check(report)
        done.read += report.arrived
        done.sent += report.sent
        done.messages.extend(finish(router, report, 0))

    def small() -> Iterator[tuple[str, Part]]:
        for name, counted in limited(items, limit, done.read):
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
    return done


def limited(items: Iterable[tuple[str, Part]], limit: int, read: int = 0) -> Iterator[tuple[str, Part]]:
    """Yield the parts, which raise `TooManyRows` if they read many more rows together than an epoch of ``limit`` rows
    does. ``read``: the rows that were read before."""
    budget = _Budget(_READ * limit - read)
    return ((name, _Counted(part, budget)) for name, part in items)


def rows_checked(limit: int) -> Callable[[TaskReport], None]:
    """Return a check that raises `TooManyRows` if many more than ``limit`` rows were sent to operators."""

    def check(report: TaskReport) -> None:
        if report.sent > 2 * limit:
            raise TooManyRows

    return check


def _pieces(table: pa.Table) -> Iterator[pa.Table]:
    size = max(_SIDE_BY_SIDE, -(-table.num_rows // 2))
    return (table.slice(start, size) for start in range(0, table.num_rows, size))


def _side_by_side(
    pool: ThreadPoolExecutor | None, work: Callable[[_One], _Result], parts: Iterable[_One]
) -> Iterator[_Result]:
    """Yield the result of ``work`` for each part, in order. With a pool, parts are worked on in parallel."""
    return map(work, parts) if pool is None else pool.map(work, parts)


class _Batch:
    """Rows that were read, as a part."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def read(self, schema: pa.Schema) -> Iterator[pa.Table]:
        yield self._table


class _Budget:
    """Counts down the rows that all parts together may still read. Raises `TooManyRows` at the end."""

    def __init__(self, rows: int) -> None:
        self._rows = rows

    def take(self, rows: int) -> None:
        self._rows -= rows
        if self._rows < 0:
            raise TooManyRows


class _Counted:
    """A part whose reading stops with `TooManyRows` when the budget is used up."""

    def __init__(self, part: Part, budget: _Budget) -> None:
        self._part, self._budget = part, budget

    def read(self, schema: pa.Schema) -> Iterator[pa.Table]:
        for table in self._part.read(schema):
            self._budget.take(table.num_rows)
            yield table


def _rows(messages: Sequence[Message]) -> int:
    return sum(content.num_rows for _, (_, content) in messages if isinstance(content, pa.Table))
