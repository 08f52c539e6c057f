"""One epoch as one Spark job.

    parts of the offers ─ stage 0 ─ exchange ─ stage 1 ─ exchange ─ … ─ last stage ─ driver

The exchange moves messages ``(partition, (channel, buffer))``; a partition is a range of key hashes. All operators of a
stage run in one task per partition, so a job has as many exchanges as the dataflow has stages, however many operators.
The RDDs are built anew each epoch (an RDD that ran has its exchange behind it); the program is broadcast once.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import RDD
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from holdfast.connectors.source import Offer, Source
from holdfast.errors import HoldfastError
from holdfast.operators.program import Program
from holdfast.operators.stage import RESULT, Epoch, Message, Report, Router, finish, run_stage, ticks
from holdfast.plan.dataflow import Dataflow, Types
from holdfast.spark.catalyst import (
    Crossing, crossing, frame_of_source, send_rows, through_spark, to_frame, wide_batches, wide_schema,
)  # fmt: skip
from holdfast.spark.failure import failure, translated


@dataclass(frozen=True)
class Work:
    """What an epoch takes of a source."""

    name: str
    source: Source
    offers: Sequence[Offer]


@dataclass(frozen=True)
class Outcome:
    """What an epoch's tasks reported."""

    reports: tuple[Report, ...]
    planning: float
    seconds: float


class EpochJob:
    """Runs the epochs of a compiled dataflow."""

    def __init__(self, spark: SparkSession, flow: Dataflow, program: Program, types: Types, partitions: int) -> None:
        self._spark = spark
        self._flow = flow
        self._program = program
        self._types = types
        self._partitions = partitions
        self._broadcast = spark.sparkContext.broadcast(program)
        self._crossings = {
            stage: crossing(flow, program, types, [operator.id for operator in program.at(stage)])
            for stage in range(1, program.stages + 1)
        }

    def run(self, epoch: Epoch, work: Sequence[Work], subject: str) -> Outcome:
        """Run an epoch to its end. Raises the user's error, if there is one; then nothing of the epoch counts."""
        started = time.perf_counter()
        self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", "epoch")
        self._spark.sparkContext.setJobDescription(subject)
        rdd = self.plan(epoch, work)
        planned = time.perf_counter()
        try:
            messages = rdd.collect()
        except Exception as error:
            known = translated(error, subject)
            if known is None:
                raise
            raise known from None
        results = [pickle.loads(buffer) for _, (channel, buffer) in messages if channel == RESULT]
        errors = [result for result in results if isinstance(result, HoldfastError)]
        if errors:
            raise errors[0]
        return Outcome(tuple(results), planned - started, time.perf_counter() - started)

    def plan(self, epoch: Epoch, work: Sequence[Work]) -> RDD[Message]:
        """The job's RDD."""
        rdd = self._source_stage(epoch, work)
        for stage in range(1, self._program.stages + 1):
            exchanged = rdd.partitionBy(self._partitions, _own_partition)
            cross = self._crossings[stage]
            if cross is None:
                rdd = exchanged.mapPartitionsWithIndex(
                    _stage_task(self._broadcast, stage, epoch)
                )
            else:
                wide = to_frame(self._spark, exchanged).mapInArrow(
                    _wide_stage_task(self._broadcast, stage, epoch, cross), wide_schema(cross)
                )
                rdd = through_spark(wide, cross, self._program, epoch, stage)
        return rdd

    def _source_stage(self, epoch: Epoch, work: Sequence[Work]) -> RDD[Message]:
        context = self._spark.sparkContext
        items: list[tuple[str, bytes]] = []
        rdds: list[RDD[Message]] = []
        for one in work:
            for offer in one.offers:
                frame = one.source.frame(self._spark, offer)
                if frame is None:
                    items += [(one.name, cloudpickle.dumps(part)) for part in one.source.parts(offer)]
                else:
                    rdds += self._frame_source(epoch, one, frame)
        specs = context.parallelize(items, max(1, min(len(items), 4 * context.defaultParallelism)))
        cross = crossing(self._flow, self._program, self._types, sorted({name for name, _ in items}))
        if cross is None:
            rdds.append(specs.mapPartitionsWithIndex(_source_task(self._broadcast, epoch)))
        else:
            flat = self._spark.createDataFrame(specs, "name string, part binary", verifySchema=False)
            wide = flat.mapInArrow(_wide_source_task(self._broadcast, epoch, cross), wide_schema(cross))
            rdds.append(through_spark(wide, cross, self._program, epoch, 0))
        return rdds[0] if len(rdds) == 1 else context.union(rdds)

    def _frame_source(self, epoch: Epoch, work: Work, frame: Any) -> Iterator[RDD[Message]]:
        wide = frame_of_source(frame, work.source.fields, work.source.retracts)
        cross = crossing(self._flow, self._program, self._types, [work.name])
        if cross is not None:
            yield through_spark(wide, cross, self._program, epoch, 0)
        if any(not route.catalyst for route in self._program.routes.get(work.name, ())):
            send = send_rows(work.name, self._program.sources[work.name], self._program, epoch)
            packed = wide.mapInArrow(send, "__owner int, __channel int, __buffer binary")
            yield packed.rdd.map(lambda row: (row[0], (row[1], bytes(row[2]))))


def _own_partition(partition: int) -> int:
    return partition


def _stage_task(broadcast: Any, stage: int, epoch: Epoch) -> Callable[[int, Iterable[Message]], Iterator[Message]]:
    def task(partition: int, messages: Iterable[Message]) -> Iterator[Message]:
        try:
            router, report = run_stage(broadcast.value, stage, partition, epoch, messages)
        except HoldfastError as error:
            return iter([failure(partition, error)])
        return finish(router, report, partition)

    return task


def _wide_stage_task(
    broadcast: Any, stage: int, epoch: Epoch, cross: Crossing
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        partition = context.partitionId() if context else 0
        messages = (
            (owner.as_py(), (channel.as_py(), buffer.as_py()))
            for batch in batches
            for owner, channel, buffer in zip(*batch.columns, strict=True)
        )
        router = Router(broadcast.value, epoch, Report(stage, partition))
        try:
            router, report = run_stage(broadcast.value, stage, partition, epoch, messages)
            done = list(finish(router, report, partition))
        except HoldfastError as error:
            router.catalyst.clear()
            done = [failure(partition, error)]
        yield from wide_batches(cross, done, router)

    return task


def _read_parts(
    program: Program, epoch: Epoch, items: Iterable[tuple[str, bytes]], partition: int
) -> tuple[Router, Report]:
    report = Report(0, partition, started=time.time())
    router = Router(program, epoch, report)
    for name, part in items:
        schema = program.sources[name]
        plain = pa.schema(list(schema)[:-1])
        since = time.perf_counter()
        for table in cloudpickle.loads(part).read(plain):
            change = as_change(table, schema)
            report.arrived += change.num_rows
            report.spend("read", since)
            router.send(name, change)
            since = time.perf_counter()
        report.spend("read", since)
    return router, report


def as_change(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """A source's rows as a change: columns by position, one kind of NaN, a diff of 1 where the source gives none."""
    columns = [
        _one_nan(column) for name, column in zip(table.column_names, table.columns, strict=True) if name != "_diff"
    ]
    if "_diff" in table.column_names:
        diff = table.column("_diff")
    else:
        diff = pa.array(np.ones(table.num_rows, dtype=np.int64))
    return pa.table([*columns, diff], names=schema.names).cast(schema)


def _one_nan(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if not pa.types.is_floating(column.type):
        return column
    return pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), column.type), column)


def _source_task(broadcast: Any, epoch: Epoch) -> Callable[[int, Iterable[tuple[str, bytes]]], Iterator[Message]]:
    def task(index: int, items: Iterable[tuple[str, bytes]]) -> Iterator[Message]:
        partition = index % epoch.partitions
        try:
            router, report = _read_parts(broadcast.value, epoch, items, partition)
        except HoldfastError as error:
            return iter([failure(partition, error)])
        if index == 0:
            router.messages += ticks(epoch.partitions)
        return finish(router, report, partition)

    return task


def _wide_source_task(
    broadcast: Any, epoch: Epoch, cross: Crossing
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        items = [(name.as_py(), part.as_py()) for batch in batches for name, part in zip(*batch.columns, strict=True)]
        router = Router(broadcast.value, epoch, Report(0, 0))
        try:
            router, report = _read_parts(broadcast.value, epoch, items, 0)
            router.messages += ticks(epoch.partitions)
            done = list(finish(router, report, 0))
        except HoldfastError as error:
            router.catalyst.clear()
            done = [failure(0, error)]
        yield from wide_batches(cross, done, router)

    return task
