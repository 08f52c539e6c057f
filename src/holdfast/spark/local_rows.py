"""Few rows as a DataFrame that needs no Spark job: the rows are part of its plan.

A job costs tens of milliseconds, and the first one that runs Python costs seconds, however few rows there are. So if a
view has few rows and the driver can read its layers, the driver reads them and hands them to the JVM as one Arrow
batch. Spark makes a local relation of it: `collect`, `show` and `toPandas` run no job.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from holdfast.errors import HoldfastError
from holdfast.operators.ordering import sort_rows
from holdfast.plan.nodes import Field, Order
from holdfast.plan.types import arrow_type
from holdfast.spark.schemas import ddl
from holdfast.task.view_log import ViewLog

MOST_ROWS = 10_000
"""Rows stored in layers up to which a collection has few rows."""

_MOST_BYTES = 4 << 20

_WORDS = "boolean|tinyint|smallint|int|bigint|float|double|decimal|string|binary|date|timestamp|timestamp_ntz"
_PLAIN = re.compile(rf"({_WORDS})(\(\d+,\s*\d+\))?")
"""Matches the types whose Arrow form is the same wherever Spark makes it."""


def few_rows(kept: ViewLog, at: int, order: Sequence[Order]) -> pa.Table | None:
    """Return the rows of a collection as of epoch ``at``, in ``order``; None if they are not few or of other types, and
    a job must read them. Also None if reading fails: the job then raises the error."""
    return _few(kept, at, lambda: _ordered(kept.rows(0, 2**64, at), order))


def few_changes(kept: ViewLog, after: int, upto: int) -> pa.Table | None:
    """Return the changes of a collection with after < epoch ≤ ``upto`` (-1: all there are); None as in `few_rows`."""
    return _few(kept, upto, lambda: kept.history(0, 2**64, upto) if after < 0 else kept.changes(0, 2**64, after, upto))


def _few(kept: ViewLog, at: int, read: Callable[[], pa.Table]) -> pa.Table | None:
    if not kept.fields or not all(_PLAIN.fullmatch(field.type) for field in kept.fields):
        return None
    try:
        if kept.open(0, 2**64, at).rows > MOST_ROWS:
            return None
        table = read()
    except (HoldfastError, OSError):
        return None
    return table if table.num_rows <= MOST_ROWS and table.nbytes <= _MOST_BYTES else None


def _ordered(table: pa.Table, order: Sequence[Order]) -> pa.Table:
    if not order:
        return table
    places = {name: place for place, name in enumerate(table.column_names)}
    columns = [column.combine_chunks() for column in table.columns]
    wanted = [(places[item.column], item.descending, item.nulls_first) for item in order]
    return table.take(pa.array(sort_rows(np.zeros(table.num_rows, np.int64), columns, wanted)))


def local_frame(spark: SparkSession, table: pa.Table, fields: Sequence[Field]) -> DataFrame:
    """Return a DataFrame whose plan contains these rows."""
    schema = StructType.fromDDL(ddl(fields))
    kinds = [(name, arrow_type(field.type)) for name, field in zip(table.column_names, fields, strict=True)]
    exact = table.cast(pa.schema(kinds))
    jvm: Any = spark._jvm
    batches = jvm.java.util.ArrayList()
    for batch in exact.combine_chunks().to_batches():
        batches.add(batch.serialize().to_pybytes())
    rows = jvm.scala.jdk.javaapi.CollectionConverters.asScala(batches.iterator())
    return DataFrame(jvm.PythonSQLUtils.toDataFrame(rows, schema.json(), spark._jsparkSession), spark)
