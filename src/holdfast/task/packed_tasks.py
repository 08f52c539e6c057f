"""Several partitions in one task, and the sources read where the rows are needed: small epochs on several members.

Where members have layers of their own, an epoch cannot run in one task. It can run in few: a task of a keyed stage runs
several partitions of one member, one after the other (`packed`). And where few rows arrive, an exchange costs more than
reading them twice: each task of the first keyed stage reads the whole input itself, and keeps the rows of its own
partitions (`read_and_run`). Then there is no stage of readers, and one exchange less.

Invariant: whatever the tasks are, each partition's operators get the same rows, and write the same layers, byte for
byte and by name. Reading is a function of the parts, so all readers see the same rows (a part is read again in a
replay, too). Each partition is in exactly one task, so each row counts once.

Cost: the rows are read and prepared once per task. So this is for few tasks (`MOST_READERS`) and small epochs
(`READ_BY_ALL`), and not for flows that call users' functions, which may be slow. A task that finds many more rows than
expected raises `TooManyRows`, and the epoch runs with a stage of readers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from holdfast.connectors.source import Part
from holdfast.task.messages import Message, counted, encode
from holdfast.task.missing_layers import fetch_missing_layers
from holdfast.task.program import Program
from holdfast.task.read_sources import read_parts
from holdfast.task.single_task import limited, rows_checked
from holdfast.task.stage import EpochSpec, finish, run_stage

ROWS = 40_000
"""Rows of a member from which on its partitions are spread over another task."""

READ_BY_ALL = 120_000
"""The size of an epoch (`single_task.weight`) up to which all tasks of the first keyed stage read the whole input."""

MOST_READERS = 8
"""The number of tasks up to which all of them read the whole input."""

_PAUSE = 0.5


def packed(owners: Sequence[str], rows: int) -> tuple[tuple[int, ...], ...]:
    """Return the partitions of each task of a keyed stage: those of one member, and as few tasks as ``rows`` rows
    need."""
    shares: dict[str, list[int]] = {}
    for partition, owner in enumerate(owners):
        shares.setdefault(owner, []).append(partition)
    tasks: list[tuple[int, ...]] = []
    for mine in shares.values():
        count = min(len(mine), 1 + rows * len(mine) // (len(owners) * ROWS))
        tasks += [tuple(mine[index::count]) for index in range(count)]
    return tuple(tasks)


def run_packed(
    program: Program,
    stage: int,
    task: int,
    epoch: EpochSpec,
    messages: Iterable[Message],
    *,
    complete: bool = False,
    pause: float = _PAUSE,
) -> Iterator[Message]:
    """Run a stage in the partitions of a task, and yield the messages of all of them. ``complete``: none of the
    ``messages`` can be missing, since this task made them. ``pause``: as in `fetch_missing_layers`."""
    mine: dict[int, list[Message]] = {partition: [] for partition in epoch.tasks[task]}
    for message in messages:
        mine[message[0]].append(message)

    def run() -> Iterator[Message]:
        for partition, some in mine.items():
            fetched = fetch_missing_layers(program, stage, partition, epoch, pause)
            router, report = run_stage(program, stage, partition, epoch, some, complete=complete)
            report.task, report.fetched = task, fetched
            yield from finish(router, report, partition)

    return run() if stage == program.stages else counted(run(), epoch.partitions)


def read_and_run(
    program: Program,
    task: int,
    epoch: EpochSpec,
    items: Iterable[tuple[str, Part]],
    *,
    limit: int = READ_BY_ALL,
    pause: float = _PAUSE,
) -> Iterator[Message]:
    """Read all sources, and run the first keyed stage in the partitions of a task. Raises `TooManyRows` if there is
    much more work than ``limit`` rows make."""
    router, report = read_parts(program, epoch, limited(items, limit), 0, keep=True, check=rows_checked(limit))
    mine = frozenset(epoch.tasks[task])
    first = {channel for operator in program.at(1) for channel in operator.channels}
    messages: list[Message] = []
    for partition, (channel, rows) in router.messages:
        if partition in mine:
            # What only passes through this stage is exchanged after it, as bytes.
            stays = channel in first or not isinstance(rows, pa.Table)
            messages.append((partition, (channel, rows if stays else encode(rows))))
    router.messages = []
    if task == 0:
        report.partition, report.task = epoch.tasks[0][0], 0
        messages += finish(router, report, report.partition)
    return run_packed(program, 1, task, epoch, messages, complete=True, pause=pause)
