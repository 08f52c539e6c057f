"""Sources as tables of a one-off query: one task per part, which can read it on any executor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

from holdfast.connectors.source import Part, Source
from holdfast.errors import DeclarationError
from holdfast.plan.nodes import Field
from holdfast.plan.types import arrow_type
from holdfast.results.query_results import QueryInput, QueryInputs
from holdfast.spark.schemas import ddl

PARTS = "_holdfast_parts_"
"""Prefix of the name of a column of parts; the table's number follows."""


def register(session: SparkSession, tables: Mapping[str, Source | DataFrame]) -> dict[str, QueryInputs]:
    """Make temporary views of the tables in ``session``. Return the inputs that are known, by the name of the parts'
    column."""
    known: dict[str, QueryInputs] = {}
    for number, (name, table) in enumerate(sorted(tables.items())):
        if not isinstance(table, Source):
            _view(session, name, table)
            continue
        column = f"{PARTS}{number}"
        frame, inputs = _of_source(session, name, table, column)
        known[column] = inputs
        frame.createOrReplaceTempView(name)
    return known


def _view(session: SparkSession, name: str, frame: DataFrame) -> None:
    jvm: Any = session.sparkContext._jvm
    own: Any = session
    plan = frame._jdf.queryExecution().analyzed()
    jvm.org.apache.spark.sql.classic.Dataset.ofRows(own._jsparkSession, plan).createOrReplaceTempView(name)


def _of_source(session: SparkSession, name: str, source: Source, column: str) -> tuple[DataFrame, QueryInputs]:
    if source.retracts or not source.replayable:
        raise DeclarationError(f"query: table '{name}': only a source whose rows stay can be queried", table=name)
    source.in_session(session.conf.get("spark.sql.session.timeZone") or "UTC")
    offer = source.poll()
    frame = None if offer is None else source.frame(session, offer)
    if frame is not None:
        return frame, QueryInputs(name)
    parts = [] if offer is None else list(source.parts(offer))
    read = parts_frame(session, parts, source.fields, column)
    inputs = QueryInputs(name, [_input(name, number, part) for number, part in enumerate(parts)])
    return read, inputs


def parts_frame(
    session: SparkSession, parts: Sequence[Part], fields: Sequence[Field], column: str = "part"
) -> DataFrame:
    """Return the rows of parts, each read by a task of its own."""
    packed = [(cloudpickle.dumps(part),) for part in parts]
    specs: DataFrame = session.createDataFrame(
        session.sparkContext.parallelize(packed, max(1, len(packed))), f"{column} binary", verifySchema=False
    )
    schema = pa.schema([(field.name, arrow_type(field.type)) for field in fields])

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for packed_part in batch.column(0).to_pylist():
                for table in cloudpickle.loads(packed_part).read(schema):
                    yield from table.to_batches(max_chunksize=100_000)

    return specs.mapInArrow(read, ddl(fields))


def _input(table: str, partition: int, part: Part) -> QueryInput:
    size: tuple[int | None, int | None] = getattr(part, "size", (None, None))
    file = getattr(part, "file", None)
    files = () if file is None else ((file.path, 0, file.size),)
    return QueryInput(table, partition, files, *size)
