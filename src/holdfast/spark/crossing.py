"""Linear stretches that need Spark's own expressions: rows cross from a task through Spark and back.

All messages of the stage pass through one DataFrame. Rows that need Spark ride in a struct column per producer
(``__in0``, ``__in1``, …; null in all other rows); everything else stays packed in ``__buffer``. Spark's expressions
(`spark.stretches`) turn them into columns ``__out0``, …, one per path, whose rows are packed into messages again. So
the stage's operators run once, whatever the number of paths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import RDD
from pyspark.sql import DataFrame, SparkSession

from holdfast.errors import HoldfastError
from holdfast.operators.step import NativeStep
from holdfast.plan.dataflow import Dataflow
from holdfast.plan.expression import quoted
from holdfast.plan.nodes import Field, Step
from holdfast.plan.types import ddl_type
from holdfast.spark.epoch_property import current_epoch
from holdfast.spark.spark_expressions import known_to
from holdfast.spark.stretches import Round, SparkStretch, rounds, struct_of
from holdfast.task.messages import Message, counted, counts, failure
from holdfast.task.program import Program, Route, change_schema
from holdfast.task.stage import Entry, Router, TaskReport, finish
from holdfast.trace import physical

MESSAGE = "__owner int, __channel int, __buffer binary"
_PACKED = pa.schema([("__owner", pa.int32()), ("__channel", pa.int32()), ("__buffer", pa.binary())])


@dataclass(frozen=True)
class Crossing:
    """The paths of one stage that cross through Spark."""

    entries: tuple[tuple[Entry, tuple[Field, ...]], ...]
    """The inputs of the crossing, a column each: (producer and native steps done, fields). Paths share an input, except
    a path whose generator multiplies rows: it has an input of its own."""

    stretches: tuple[SparkStretch, ...]
    routes: tuple[Route, ...]

    @property
    def plain(self) -> bool:
        """Whether the only input is one producer's rows, unchanged."""
        return len(self.entries) == 1 and not self.entries[0][0][1]


def crossing(flow: Dataflow, program: Program, producers: Sequence[str]) -> Crossing | None:
    """Return the crossing of the paths out of ``producers``; None if none of them needs Spark."""
    entries: list[tuple[Entry, tuple[Field, ...]]] = []
    shared: dict[Entry, int] = {}
    stretches: list[SparkStretch] = []
    routes: list[Route] = []
    for producer in producers:
        for path, route in zip(flow.out_of(producer), program.routes.get(producer, ()), strict=True):
            if not route.catalyst:
                continue
            before, behind = len(route.steps), len(path.steps) - len(route.after)
            steps, key = path.steps[before:behind], (producer, route.steps)
            index = None if _multiplies(steps) else shared.get(key)
            if index is None:
                operator = flow.operators.get(producer)
                origin = operator.fields if operator else flow.sources[producer].fields
                index = len(entries)
                entries.append((key, path.steps[before - 1].fields if before else origin))
                if not _multiplies(steps):
                    shared[key] = index
            stretches.append(SparkStretch(index, steps, route.channel))
            routes.append(route)
    return Crossing(tuple(entries), tuple(stretches), tuple(routes)) if entries else None


def _multiplies(steps: Sequence[Step]) -> bool:
    return any(step.multiplies for step in steps)


def wide_schema(cross: Crossing) -> str:
    """The schema of a stage's messages on their way into Spark."""
    columns = [f"__in{index} {struct_of(fields)}" for index, (_, fields) in enumerate(cross.entries)]
    return ", ".join([MESSAGE, *columns])


def wide_batches(cross: Crossing, messages: Sequence[Message], router: Router) -> Iterator[pa.RecordBatch]:
    """Yield a finished task's messages, and its rows for Spark, in the wide schema."""
    schemas = [change_schema(fields) for _, fields in cross.entries]
    structs = [pa.struct(list(schema)) for schema in schemas]

    def batch(owner: pa.Array, channel: pa.Array, buffer: pa.Array, rows: dict[int, pa.Array]) -> pa.RecordBatch:
        columns = [rows.get(index, pa.nulls(len(owner), kind)) for index, kind in enumerate(structs)]
        labels = ["__owner", "__channel", "__buffer", *(f"__in{index}" for index in range(len(structs)))]
        return pa.RecordBatch.from_arrays([owner, channel, buffer, *columns], names=labels)

    for owner, (channel, buffer) in messages:
        yield batch(pa.array([owner], pa.int32()), pa.array([channel], pa.int32()), pa.array([buffer], pa.binary()), {})
    for entry, change in router.catalyst:
        for index in (index for index, (wanted, _) in enumerate(cross.entries) if wanted == entry):
            for part in change.combine_chunks().to_batches():
                count = part.num_rows
                typed = [column.cast(field.type) for column, field in zip(part.columns, schemas[index], strict=True)]
                row = pa.StructArray.from_arrays(typed, fields=list(schemas[index]))
                empty = pa.nulls(count, pa.int32())
                yield batch(empty, empty, pa.nulls(count, pa.binary()), {index: row})


def through_spark(frame: DataFrame, cross: Crossing, program: Any, stage: int) -> DataFrame:
    """Evaluate the crossing's paths over a wide DataFrame, and pack the results into messages again."""
    for one in rounds(len(cross.entries), cross.stretches):
        frame.createOrReplaceTempView("__wide")
        known_to(frame.sparkSession, one.query)
        frame = frame.sparkSession.sql(one.query)
        if one.calls:
            frame = frame.mapInArrow(_caller(one), ", ".join([MESSAGE, one.schema]))
    return frame.mapInArrow(_packer(cross, program, stage), MESSAGE)


def messages_of(packed: DataFrame) -> RDD[Message]:
    """Packed messages as an RDD again."""
    return packed.rdd.map(_as_message)


def _as_message(row: Sequence[Any]) -> Message:
    owner, channel, buffer = row
    return owner, (channel, bytes(buffer))


def _packer(
    cross: Crossing, program: Any, stage: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        epoch = current_epoch()
        router = Router(program.value, epoch, TaskReport(stage, 0))
        sent = np.zeros(epoch.partitions, np.int64)
        try:
            for batch in batches:
                passing = batch.column(2).is_valid()
                plain = batch.select([0, 1, 2]).filter(passing)
                if plain.num_rows:
                    sent += np.bincount(plain.column(0).to_numpy(), minlength=epoch.partitions)
                    yield pa.RecordBatch.from_arrays(
                        [column.cast(field.type) for column, field in zip(plain.columns, _PACKED, strict=True)],
                        schema=_PACKED,
                    )
                for number, route in enumerate(cross.routes):
                    rows = batch.column(3 + number)
                    rows = rows.filter(rows.is_valid())
                    if len(rows):
                        router.deliver(route, _flattened(rows))
            sent += np.bincount(np.array([owner for owner, _ in router.messages], np.int64), minlength=epoch.partitions)
            yield from _pack([*router.messages, *counts(sent.tolist())])
        except HoldfastError as error:
            yield from _pack(failure(error, epoch.partitions))

    return pack


def _caller(one: Round) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Call users' functions on rows between two of Spark's expressions."""

    def call(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        names = ["__owner", "__channel", "__buffer", *(name for name, _ in one.columns)]
        structs = [pa.struct(list(change_schema(fields))) for _, fields in one.columns]
        try:
            for batch in batches:
                columns = [utc(column) for column in batch.columns]
                for index, steps in one.calls:
                    columns[3 + index] = _called(columns[3 + index], steps)
                columns[3:] = [
                    column if column.type == kind else column.cast(kind)
                    for column, kind in zip(columns[3:], structs, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(columns, names=names)
        except HoldfastError as error:
            for packed in _pack(failure(error, current_epoch().partitions)):
                nothing = [pa.nulls(packed.num_rows, kind) for kind in structs]
                yield pa.RecordBatch.from_arrays([*packed.columns, *nothing], names=names)

    return call


def _called(rows: pa.StructArray, steps: Sequence[NativeStep]) -> pa.StructArray:
    """Run the steps on the rows that are not NULL; NULL rows stay NULL."""
    there = np.asarray(rows.is_valid())
    table = _flattened(rows.filter(pa.array(there)))
    for step in steps:
        table = step.run(table)
    made = pa.StructArray.from_arrays(
        [physical.plain(column) for column in table.columns],
        fields=[table.schema.field(i) for i in range(table.num_columns)],
    )
    return made.take(pa.array(np.cumsum(there) - 1, mask=~there))


def _flattened(rows: pa.StructArray) -> pa.Table:
    columns = [utc(column) for column in rows.flatten()]
    return pa.table(columns, names=[f"c{index}" for index in range(len(columns) - 1)] + ["_diff"])


def utc(column: pa.Array) -> pa.Array:
    """Return the column with its timestamps labelled UTC. Spark labels them with the session's time zone; instants are
    equal."""
    kind = _in_utc(column.type)
    return column if kind == column.type else column.cast(kind)


def _in_utc(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp("us", tz="UTC")
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _in_utc(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct(
            [pa.field(kind.field(index).name, _in_utc(kind.field(index).type)) for index in range(kind.num_fields)]
        )
    return kind


def _pack(messages: Sequence[Message]) -> Iterator[pa.RecordBatch]:
    if messages:
        yield pa.RecordBatch.from_arrays(
            [
                pa.array(np.array([owner for owner, _ in messages], dtype=np.int32)),
                pa.array(np.array([channel for _, (channel, _) in messages], dtype=np.int32)),
                pa.array([buffer for _, (_, buffer) in messages], pa.binary()),
            ],
            schema=_PACKED,
        )


def frame_of_source(frame: DataFrame, fields: Sequence[Field], retracts: bool) -> DataFrame:
    """Return a source's DataFrame as wide rows, with the source as the only producer."""
    columns = [
        f"CAST({quoted(field.name)} AS {ddl_type(field.type)}) AS c{index}" for index, field in enumerate(fields)
    ]
    diff = "_diff" if retracts else "1L AS _diff"
    return frame.selectExpr(
        "CAST(NULL AS int) AS __owner", "CAST(NULL AS int) AS __channel", "CAST(NULL AS binary) AS __buffer",
        f"struct({', '.join([*columns, diff])}) AS __in0",
    )  # fmt: skip


def wide_rows(
    source: str, program: Any, cross: Crossing
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For a source that Spark reads: route its rows along all paths, and give the rows that must cross to Spark."""

    def send(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        report = TaskReport(0, 0)
        router = Router(program.value, current_epoch(), report)
        schema = program.value.sources[source]
        try:
            for batch in batches:
                table = _flattened(batch.column(batch.num_columns - 1)).cast(schema)
                report.arrived += table.num_rows
                router.send(source, table)
            done = list(finish(router, report, 0))
        except HoldfastError as error:
            router.catalyst.clear()
            done = failure(error, current_epoch().partitions)
        yield from wide_batches(cross, done, router)

    return send


def send_rows(source: str, program: Any) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For a source that Spark reads: route its rows along the paths that need no Spark expressions."""

    def send(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        report, epoch = TaskReport(0, 0), current_epoch()
        router = Router(program.value, epoch, report)
        schema = program.value.sources[source]
        try:
            for batch in batches:
                rows = batch.column(batch.num_columns - 1)
                table = _flattened(rows).cast(schema)
                report.arrived += table.num_rows
                router.send(source, table)
            yield from _pack(list(counted(finish(router, report, 0), epoch.partitions)))
        except HoldfastError as error:
            yield from _pack(failure(error, epoch.partitions))

    return send


def to_frame(spark: SparkSession, rdd: RDD[Message]) -> DataFrame:
    """Return messages as a DataFrame, for a stage whose rows cross through Spark."""
    flat = rdd.map(lambda message: (message[0], message[1][0], message[1][1]))
    return spark.createDataFrame(flat, MESSAGE, verifySchema=False)
