"""The functions that an epoch's job sends to Spark's workers.

A task takes the program from a broadcast and its epoch from a property of the job (`epoch_property`), so the functions
are the same in every epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle

from holdfast.connectors.source import Part
from holdfast.errors import HoldfastError
from holdfast.operators.loop import LoopSpec
from holdfast.operators.loops.epoch import LargeRound
from holdfast.spark.crossing import Crossing, wide_batches
from holdfast.spark.epoch_property import Told, current_epoch, current_partition
from holdfast.spark.placed_work import check
from holdfast.task.messages import COUNT, Message, TruncatedInput, counted, failure
from holdfast.task.missing_layers import fetch_missing_layers
from holdfast.task.packed_tasks import read_and_run, run_packed
from holdfast.task.program import Program
from holdfast.task.read_sources import read_parts
from holdfast.task.single_task import TooManyRows, run_single_task
from holdfast.task.stage import Router, TaskReport, finish, run_stage
from holdfast.trace.inner_loops import memory_kept

ArrowTask = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
KEPT = 1 << 30
"""Free bytes that a task with a loop keeps while it runs: it allocates columns of the same sizes in every round."""

ENOUGH: Message = (0, (COUNT, b"enough"))
"""The message of a single task that found more work than it should do."""


def where_it_belongs(packed: bytes) -> tuple[str, bytes]:
    owner, item = cloudpickle.loads(packed)
    if owner:
        check(owner)
    result: tuple[str, bytes] = item
    return result


def whole_task(broadcast: Any, private: Told) -> Callable[[Iterable[list[tuple[str, bytes]]]], Iterator[Message]]:
    def task(lists: Iterable[list[tuple[str, bytes]]]) -> Iterator[Message]:
        epoch = current_epoch(private)
        found = list(lists)
        if not found:
            raise TruncatedInput("its list of parts did not come")
        items = [item for one in found for item in one]
        try:
            return iter(list(run_single_task(broadcast.value, epoch, _unpacked(items))))
        except TooManyRows:
            return iter([ENOUGH])
        except HoldfastError as error:
            return iter(failure(error, epoch.partitions))

    return task


def own_partition(partition: int) -> int:
    return partition


def task_of(tasks: Sequence[Sequence[int]]) -> Callable[[int], int]:
    """Return the function from a partition to its task."""
    found = {partition: task for task, mine in enumerate(tasks) for partition in mine}
    return found.__getitem__


def stage_task(broadcast: Any, stage: int, private: Told) -> Callable[[int, Iterable[Message]], Iterator[Message]]:
    def task(partition: int, messages: Iterable[Message]) -> Iterator[Message]:
        epoch = current_epoch(private)
        fetched = fetch_missing_layers(broadcast.value, stage, partition, epoch)
        try:
            with _memory(broadcast.value, stage):
                router, report = run_stage(broadcast.value, stage, partition, epoch, messages)
        except (HoldfastError, LargeRound) as error:
            return iter(failure(error, epoch.partitions))
        report.fetched = fetched
        done = finish(router, report, partition)
        return done if stage == broadcast.value.stages else counted(done, epoch.partitions)

    return task


def _memory(program: Program, stage: int) -> AbstractContextManager[None]:
    has_loop = any(isinstance(operator.spec, LoopSpec) for operator in program.at(stage))
    return memory_kept(KEPT) if has_loop else nullcontext()


def packed_task(broadcast: Any, stage: int, private: Told) -> Callable[[int, Iterable[Message]], Iterator[Message]]:
    """A task that runs several partitions."""

    def task(index: int, messages: Iterable[Message]) -> Iterator[Message]:
        epoch = current_epoch(private)
        try:
            with _memory(broadcast.value, stage):
                return iter(list(run_packed(broadcast.value, stage, index, epoch, messages)))
        except HoldfastError as error:
            return iter(failure(error, epoch.partitions))

    return task


def reading_task(broadcast: Any, private: Told) -> Callable[[int, Iterable[bytes]], Iterator[Message]]:
    """A task that reads all sources, and runs several partitions of the first keyed stage."""

    def task(index: int, packed: Iterable[bytes]) -> Iterator[Message]:
        epoch = current_epoch(private)
        found = list(packed)
        if not found:
            raise TruncatedInput("its list of parts did not come")
        items = _unpacked(item for one in found for item in cloudpickle.loads(one))
        try:
            with _memory(broadcast.value, 1):
                return iter(list(read_and_run(broadcast.value, index, epoch, items)))
        except (HoldfastError, TooManyRows) as error:
            return iter(failure(error, epoch.partitions))

    return task


def wide_stage_task(broadcast: Any, stage: int, cross: Crossing, private: Told) -> ArrowTask:
    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        partition, epoch = current_partition(), current_epoch(private)
        fetched = fetch_missing_layers(broadcast.value, stage, partition, epoch)
        messages = ((owner, (channel, buffer)) for batch in batches for owner, channel, buffer in _plain_rows(batch))
        router = Router(broadcast.value, epoch, TaskReport(stage, partition))
        try:
            router, report = run_stage(broadcast.value, stage, partition, epoch, messages)
            report.fetched = fetched
            done = list(finish(router, report, partition))
        except (HoldfastError, LargeRound) as error:
            router.catalyst.clear()
            done = failure(error, epoch.partitions)
        yield from wide_batches(cross, done, router)

    return task


def _plain_rows(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    # Each row holds a whole buffer of rows, so there are few.
    return zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _unpacked(items: Iterable[tuple[str, bytes]]) -> Iterator[tuple[str, Part]]:
    return ((name, cloudpickle.loads(part)) for name, part in items)


def source_task(broadcast: Any) -> Callable[[int, Iterable[tuple[str, bytes]]], Iterator[Message]]:
    def task(index: int, items: Iterable[tuple[str, bytes]]) -> Iterator[Message]:
        epoch = current_epoch()
        partition = index % epoch.partitions
        try:
            router, report = read_parts(broadcast.value, epoch, _unpacked(items), partition)
        except HoldfastError as error:
            return iter(failure(error, epoch.partitions))
        return counted(finish(router, report, partition), epoch.partitions)

    return task


def wide_source_task(broadcast: Any, cross: Crossing) -> ArrowTask:
    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        epoch = current_epoch()
        items = [(name, part) for batch in batches for name, part in _plain_rows(batch)]
        router = Router(broadcast.value, epoch, TaskReport(0, 0))
        try:
            router, report = read_parts(broadcast.value, epoch, _unpacked(items), 0)
            done = list(finish(router, report, 0))
        except HoldfastError as error:
            router.catalyst.clear()
            done = failure(error, epoch.partitions)
        yield from wide_batches(cross, done, router)

    return task
