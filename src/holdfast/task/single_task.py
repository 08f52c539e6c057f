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
"""Rows of input up to which an epoch is small: on two cores, where one core is as fast as two and their exchanges."""

_READ = 2 * SMALL
_PASSED = 25 * SMALL
"""Rows that are read, or passed from one stage to the next, before it is no longer a small epoch."""


class TooManyRows(Exception):
    """More rows than one task should work on."""


def run_single_task(program: Program, epoch: EpochSpec, items: Iterable[tuple[str, Part]]) -> Iterator[Message]:
    """The messages of the last stage, for the driver. Raises the user's error, or `TooManyRows`."""
    router, report = read_parts(program, epoch, _counted(items), 0, keep=True)
    messages = list(finish(router, report, 0))
    for stage in range(1, program.stages + 1):
        _check(messages)
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

    def __init__(self, part: Part) -> None:
        self._part = part

    def read(self, schema: pa.Schema) -> Iterator[pa.Table]:
        rows = 0
        for table in self._part.read(schema):
            rows += table.num_rows
            if rows > _READ:
                raise TooManyRows
            yield table


def _counted(items: Iterable[tuple[str, Part]]) -> Iterator[tuple[str, Part]]:
    return ((name, _Counted(part)) for name, part in items)


def _check(messages: Iterable[Message]) -> None:
    rows = sum(content.num_rows for _, (_, content) in messages if isinstance(content, pa.Table))
    if rows > _PASSED:
        raise TooManyRows
