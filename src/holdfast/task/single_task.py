"""A small epoch in one task: all stages, all partitions, one after the other, with messages that never leave memory.

An exchange costs tens of milliseconds of Spark's time however little is exchanged, and a flow has one per stage. Where
few rows change, that is most of an epoch. So they stay in one task, which runs what the tasks of all stages would have
run: the same operators over the same messages, partition by partition. The layers that it writes are the same, byte for
byte and by name, so nothing else can tell which way an epoch was run; a retry, or the usual job after this one has
given up, does no harm.

Cost: the work of all partitions on one core. A task that finds more rows than it was sent for (`TooManyRows`) stops;
the driver then runs the epoch as usual.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from holdfast.connectors.source import Part
from holdfast.task.messages import FAILED, Message
from holdfast.task.program import Program
from holdfast.task.read_sources import read_parts
from holdfast.task.stage import EpochSpec, finish, run_stage

SMALL = 20_000
"""Rows up to which an epoch is small: on two cores, where one core is as fast as two and their exchanges. Rows that the
linear steps drop are cheap: they count as `weight` says."""

STAYING = 6 * SMALL
"""The same for a task that stays, which costs no job."""

_CHEAP = 8
"""So many rows that are only read are as much work as one that goes on to an operator."""

_READ = 2 * _CHEAP
_PASSED = 25
"""So many times the limit may be read in one part, or passed from one stage to the next, before an epoch is too
large."""


def weight(read: int, sent: int) -> int:
    """The size of an epoch: rows that were read, and rows that were left of them behind the linear steps."""
    return max(sent, read // _CHEAP)


class TooManyRows(Exception):
    """More rows than one task should work on."""


def run_single_task(
    program: Program, epoch: EpochSpec, items: Iterable[tuple[str, Part]], *, limit: int = SMALL
) -> Iterator[Message]:
    """The messages of the last stage, for the driver. Raises the user's error, or `TooManyRows` if there is much more
    to do than for ``limit`` rows."""
    router, report = read_parts(program, epoch, _counted(items, _READ * limit), 0, keep=True)
    if report.sent > 2 * limit:
        raise TooManyRows
    messages = list(finish(router, report, 0))
    for stage in range(1, program.stages + 1):
        _check(messages, _PASSED * limit)
        mine: list[list[Message]] = [[] for _ in range(epoch.partitions)]
        for message in messages:
            mine[message[0]].append(message)
        messages = []
        for partition, arrived in enumerate(mine):
            router, report = run_stage(program, stage, partition, epoch, arrived, keep=True)
            messages += finish(router, report, partition)
    assert all(channel != FAILED for _, (channel, _) in messages)  # here an error is raised at once
    yield from messages


class _Counted:
    """A part that is read so far and no further."""

    def __init__(self, part: Part, limit: int) -> None:
        self._part, self._limit = part, limit

    def read(self, schema: pa.Schema) -> Iterator[pa.Table]:
        rows = 0
        for table in self._part.read(schema):
            rows += table.num_rows
            if rows > self._limit:
                raise TooManyRows
            yield table


def _counted(items: Iterable[tuple[str, Part]], limit: int) -> Iterator[tuple[str, Part]]:
    return ((name, _Counted(part, limit)) for name, part in items)


def _check(messages: Iterable[Message], limit: int) -> None:
    rows = sum(content.num_rows for _, (_, content) in messages if isinstance(content, pa.Table))
    if rows > limit:
        raise TooManyRows
