"""The rows in which two views differ, as a Spark DataFrame."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from holdfast.plan.nodes import Field
from holdfast.spark.schemas import ddl


def comparison_frame(spark: SparkSession, rows: pa.Table, fields: Sequence[Field]) -> DataFrame:
    """Return ``rows`` of a comparison of views as a DataFrame. ``fields``: the columns of the views."""
    batches = rows.to_batches()

    def given(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    side, change, count = rows.column_names[len(fields) :]
    schema = f"{ddl(fields)}, {side} string, {change} string, {count} bigint"
    return spark.range(0, 1, 1, 1).mapInArrow(given, schema)
