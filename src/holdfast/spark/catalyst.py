"""Linear stretches that need Spark's own expressions: rows go from a task through Spark and back.

Every message of the stage passes, in one DataFrame: rows that need Spark ride in a struct column per producer
(``__in0``, ``__in1``, …; null in all other rows), everything else stays packed in ``__buffer``. For each path one
expression ``CASE WHEN row AND predicate THEN struct(outputs) END`` makes ``__out{i}``: the outputs are evaluated only
where the predicate holds, as in Spark's own plan. Then the rows are packed into messages again. So the stage's
operators run once, whatever the number of paths.
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
from holdfast.operators.program import Program, Route, change_schema
from holdfast.operators.stage import Message, Report, Router, failure, finish
from holdfast.plan.dataflow import Dataflow, Path, Types
from holdfast.plan.nodes import Field
from holdfast.spark.told import current_epoch
from holdfast.spark.types import quoted

MESSAGE = "__owner int, __channel int, __buffer binary"
_PACKED = pa.schema([("__owner", pa.int32()), ("__channel", pa.int32()), ("__buffer", pa.binary())])


@dataclass(frozen=True)
class Crossing:
    """The paths of one stage that cross through Spark."""

    producers: tuple[tuple[str, tuple[Field, ...]], ...]
    paths: tuple[tuple[int, Path], ...]
    """(index of its producer, path)."""

    routes: tuple[Route, ...]


def crossing(flow: Dataflow, program: Program, types: Types, producers: Sequence[str]) -> Crossing | None:
    """What of ``producers`` must cross through Spark; None if nothing."""
    found: list[tuple[str, tuple[Field, ...]]] = []
    paths: list[tuple[int, Path]] = []
    routes: list[Route] = []
    for producer in producers:
        mine = [
            (path, route) for path, route in zip(flow.out_of(producer), program.routes.get(producer, ()), strict=True)
        ]
        mine = [(path, route) for path, route in mine if route.catalyst]
        if mine:
            operator = flow.operators.get(producer)
            found.append((producer, operator.fields if operator else flow.sources[producer].fields))
            paths += [(len(found) - 1, path) for path, _ in mine]
            routes += [route for _, route in mine]
    return Crossing(tuple(found), tuple(paths), tuple(routes)) if found else None


def _struct(fields: Sequence[Field]) -> str:
    columns = [f"c{place}:{field.type}" for place, field in enumerate(fields)]
    return f"struct<{','.join([*columns, '_diff:bigint'])}>"


def wide_schema(cross: Crossing) -> str:
    """The schema of a stage's messages on their way into Spark."""
    columns = [f"__in{place} {_struct(fields)}" for place, (_, fields) in enumerate(cross.producers)]
    return ", ".join([MESSAGE, *columns])


def wide_batches(cross: Crossing, messages: Sequence[Message], router: Router) -> Iterator[pa.RecordBatch]:
    """A finished task's messages, and the rows that Spark must see, in the wide schema."""
    schemas = [change_schema(fields) for _, fields in cross.producers]
    structs = [pa.struct(list(schema)) for schema in schemas]
    names = [name for name, _ in cross.producers]

    def batch(owner: pa.Array, channel: pa.Array, buffer: pa.Array, rows: dict[int, pa.Array]) -> pa.RecordBatch:
        columns = [rows.get(place, pa.nulls(len(owner), kind)) for place, kind in enumerate(structs)]
        labels = ["__owner", "__channel", "__buffer", *(f"__in{place}" for place in range(len(structs)))]
        return pa.RecordBatch.from_arrays([owner, channel, buffer, *columns], names=labels)

    for owner, (channel, buffer) in messages:
        yield batch(pa.array([owner], pa.int32()), pa.array([channel], pa.int32()), pa.array([buffer], pa.binary()), {})
    for producer, change in router.catalyst:
        place = names.index(producer)
        for part in change.combine_chunks().to_batches():
            count = part.num_rows
            if count:
                typed = [column.cast(field.type) for column, field in zip(part.columns, schemas[place], strict=True)]
                row = pa.StructArray.from_arrays(typed, fields=list(schemas[place]))
                empty = pa.nulls(count, pa.int32())
                yield batch(empty, empty, pa.nulls(count, pa.binary()), {place: row})


def through_spark(frame: DataFrame, cross: Crossing, program: Any, stage: int) -> DataFrame:
    """Evaluate the crossing's paths over a wide DataFrame, and pack the results into messages again."""
    frame.createOrReplaceTempView("__wide")
    return frame.sparkSession.sql(query(cross)).mapInArrow(_packer(cross, program, stage), MESSAGE)


def messages_of(packed: DataFrame) -> RDD[Message]:
    """Packed messages as an RDD again."""
    return packed.rdd.map(_as_message)


def query(cross: Crossing) -> str:
    """The crossing as one query over ``__wide``: analysing it once is much cheaper than column by column."""
    held = ["__owner", "__channel", "__buffer", *(f"__in{place}" for place in range(len(cross.producers)))]
    text = "__wide"
    for number, (place, path) in enumerate(cross.paths):
        current = f"__in{place}"
        for depth, step in enumerate(path.steps):
            # The step's own names for its columns, in a query of their own: another path may use the same names.
            names = [f"{current}.c{column} AS {quoted(name)}" for column, name in enumerate(step.input.columns)]
            fields = "".join(f"'c{column}', {output.sql}, " for column, output in enumerate(step.outputs))
            guard = f"{current} IS NOT NULL" + (f" AND ({step.predicate})" if step.predicate else "")
            made = f"CASE WHEN {guard} THEN named_struct({fields}'_diff', {current}._diff) END"
            result = f"__out{number}" if step is path.steps[-1] else f"__mid{number}_{depth}"
            named = f"SELECT {', '.join(['*', *names])} FROM {text}"
            text = f"(SELECT {', '.join(held)}, {made} AS {result} FROM ({named}))"
            if current.startswith("__mid"):
                held.remove(current)
            held.append(result)
            current = result
    outputs = [f"__out{number}" for number in range(len(cross.paths))]
    return f"SELECT __owner, __channel, __buffer, {', '.join(outputs)} FROM {text}"


def _as_message(row: Sequence[Any]) -> Message:
    owner, channel, buffer = row
    return owner, (channel, bytes(buffer))


def _packer(
    cross: Crossing, program: Any, stage: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        router = Router(program.value, current_epoch(), Report(stage, 0))
        try:
            for batch in batches:
                passing = batch.column(2).is_valid()
                plain = batch.select([0, 1, 2]).filter(passing)
                if plain.num_rows:
                    yield pa.RecordBatch.from_arrays(
                        [column.cast(field.type) for column, field in zip(plain.columns, _PACKED, strict=True)],
                        schema=_PACKED,
                    )
                for number, route in enumerate(cross.routes):
                    rows = batch.column(3 + number)
                    rows = rows.filter(rows.is_valid())
                    if len(rows):
                        router.deliver(route, _flattened(rows))
            yield from _pack(router.messages)
        except HoldfastError as error:
            yield from _pack(failure(error, current_epoch().partitions))

    return pack


def _flattened(rows: pa.StructArray) -> pa.Table:
    columns = [utc(column) for column in rows.flatten()]
    return pa.table(columns, names=[f"c{place}" for place in range(len(columns) - 1)] + ["_diff"])


def utc(column: pa.Array) -> pa.Array:
    """Spark hands timestamps over in the session's time zone; the instant is what counts."""
    kind = _in_utc(column.type)
    return column if kind == column.type else column.cast(kind)


def _in_utc(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp("us", tz="UTC")
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _in_utc(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct(
            [pa.field(kind.field(place).name, _in_utc(kind.field(place).type)) for place in range(kind.num_fields)]
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
    """A source's DataFrame as wide rows with that one producer."""
    columns = [f"CAST({quoted(field.name)} AS {field.type}) AS c{place}" for place, field in enumerate(fields)]
    diff = "_diff" if retracts else "1L AS _diff"
    return frame.selectExpr(
        "CAST(NULL AS int) AS __owner", "CAST(NULL AS int) AS __channel", "CAST(NULL AS binary) AS __buffer",
        f"struct({', '.join([*columns, diff])}) AS __in0",
    )  # fmt: skip


def send_rows(source: str, program: Any) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For a source that Spark reads: route its rows along the paths that need no Spark expressions."""

    def send(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        report = Report(0, 0)
        router = Router(program.value, current_epoch(), report)
        schema = program.value.sources[source]
        try:
            for batch in batches:
                rows = batch.column(batch.num_columns - 1)
                table = _flattened(rows).cast(schema)
                report.arrived += table.num_rows
                router.send(source, table)
            yield from _pack(list(finish(router, report, 0)))
        except HoldfastError as error:
            yield from _pack(failure(error, current_epoch().partitions))

    return send


def to_frame(spark: SparkSession, rdd: RDD[Message]) -> DataFrame:
    """Messages as a DataFrame, for a stage whose rows cross through Spark."""
    flat = rdd.map(lambda message: (message[0], message[1][0], message[1][1]))
    return spark.createDataFrame(flat, MESSAGE, verifySchema=False)
