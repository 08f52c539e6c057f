"""Kept collections as Spark DataFrames, as of an epoch: read by tasks, or, if there are few rows, by the driver
(`spark.local_rows`)."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.functions import col
from pyspark.sql.types import StructType

from holdfast.connectors.source import Offer, Source
from holdfast.plan.expression import quoted
from holdfast.plan.nodes import Field, Order
from holdfast.runtime.view_changes import EditedChange, LoggedSpan
from holdfast.spark.local_rows import few_changes, few_rows, local_frame
from holdfast.spark.placed_work import PlacedWork, check, located
from holdfast.spark.query_tables import parts_frame
from holdfast.spark.schemas import ddl
from holdfast.task.program import partition_range
from holdfast.task.view_log import ViewLog
from holdfast.trace.pins import Pin, hold


def read_frame(
    spark: SparkSession,
    kept: ViewLog,
    at: int,
    partitions: int,
    order: Sequence[Order],
    placement: PlacedWork | None = None,
    without: Collection[int] = (),
    columns: Sequence[str] | None = None,
) -> DataFrame:
    """Return the rows of the collection as of epoch ``at``. ``order``: their order, if the view has one (then they are
    few). ``without``: lost partitions, which are left out. ``columns``: the wanted columns; None: all."""
    fields = list(kept.fields)
    here = placement is None or not placement.scattered
    if here and not without and (few := few_rows(kept, at, order)) is not None:
        frame = local_frame(spark, few, fields)
        return frame if columns is None else frame.select(*map(col, map(quoted, columns)))
    if columns is not None and not order:
        # Read at least one column, since the number of rows counts.
        fields = [field for field in fields if field.name in columns] or fields[:1]
    names = [field.name for field in fields]

    def rows(low: int, high: int) -> pa.Table:
        return kept.rows(low, high, at).select(names)

    frame = _frame(spark, partitions, rows, ddl(fields), placement, without)
    _pin(frame, kept, at)
    if order:
        frame = _ordered(frame, order, placement)
    return frame if columns is None else frame.select(*map(col, map(quoted, columns)))


def _ordered(frame: DataFrame, order: Sequence[Order], placement: PlacedWork | None) -> DataFrame:
    # One task cannot read the layers of several hosts, so the rows, which are few, are exchanged.
    one = frame.repartition(1) if placement is not None and placement.scattered else frame.coalesce(1)
    return one.sortWithinPartitions(*map(_sorting, order))


def empty_frame(spark: SparkSession, fields: Sequence[Field]) -> DataFrame:
    """Return a DataFrame of these columns without rows."""
    schema = StructType.fromDDL(ddl(fields)) if fields else StructType([])
    return spark.createDataFrame(spark.sparkContext.emptyRDD(), schema, verifySchema=False)


def offered_frame(spark: SparkSession, source: Source, offers: Sequence[Offer], columns: Sequence[str]) -> DataFrame:
    """Return the rows of a source's offers, read again."""
    frames, parts = [], []
    for offer in offers:
        frame = source.frame(spark, offer)
        if frame is None:
            parts += source.parts(offer)
        else:
            frames.append(frame.select(*(col(quoted(each.name)).cast(each.type) for each in source.fields)))
    if parts or not frames:
        frames.append(parts_frame(spark, parts, source.fields))
    return reduce(DataFrame.unionAll, frames).select(*map(col, map(quoted, columns)))


def _sorting(item: Order) -> Column:
    column = col(quoted(item.column))
    if item.descending:
        return column.desc_nulls_first() if item.nulls_first else column.desc_nulls_last()
    return column.asc_nulls_first() if item.nulls_first else column.asc_nulls_last()


def changes_frame(
    spark: SparkSession,
    changes: Sequence[LoggedSpan | EditedChange],
    fields: Sequence[Field],
    partitions: int,
    placement: PlacedWork | None = None,
    without: Collection[int] = (),
) -> DataFrame:
    """Return changes of logs (all there are, if after epoch -1) and of edits, with ``_epoch`` and ``_diff``."""
    schema = f"{ddl(fields)}, _epoch bigint, _diff bigint"

    def logged(one: LoggedSpan) -> DataFrame:
        kept, after, upto = one.kept, one.after, one.upto
        here = placement is None or not placement.scattered
        if here and not without and (few := few_changes(kept, after, upto)) is not None:
            return local_frame(spark, few, [*fields, Field("_epoch", "bigint"), Field("_diff", "bigint")])

        def rows(low: int, high: int) -> pa.Table:
            return kept.history(low, high, upto) if after < 0 else kept.changes(low, high, after, upto)

        frame = _frame(spark, partitions, rows, schema, placement, without)
        _pin(frame, kept, after)
        return frame

    def edited(one: EditedChange) -> DataFrame:
        epochs = pa.array(np.full(one.change.num_rows, one.epoch, dtype=np.int64))
        at = one.change.num_columns - 1
        table = one.change.add_column(at, "_epoch", epochs)
        batches = table.rename_columns([*(field.name for field in fields), "_epoch", "_diff"]).to_batches()

        def rows(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield from batches

        return spark.range(0, 1, 1, 1).mapInArrow(rows, schema)

    frames = [logged(one) if isinstance(one, LoggedSpan) else edited(one) for one in changes]
    return reduce(DataFrame.unionAll, frames) if frames else spark.createDataFrame([], schema)


def _pin(frame: DataFrame, kept: ViewLog, live: int) -> None:
    """Keep the layers that the frame reads until no plan reads them: the frame's plan, or a plan made of it. All these
    plans share one function object, and a weak reference in the JVM tells when it is gone."""
    jvm: Any = frame.sparkSession._jvm
    function = frame._jdf.queryExecution().logical().functionExpr().func()
    reference = jvm.java.lang.ref.WeakReference(function)

    def alive() -> bool:
        try:
            return reference.get() is not None
        except Exception:  # the session was stopped, so no plan reads any more
            return False

    hold(kept.directory, Pin(live, kept.chain.end), alive)


def _frame(
    spark: SparkSession,
    partitions: int,
    rows: Callable[[int, int], pa.Table],
    schema: str,
    placement: PlacedWork | None,
    without: Collection[int],
) -> DataFrame:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for partition in batch.column(0).to_pylist():
                yield from rows(*partition_range(partition, partitions)).to_batches(max_chunksize=100_000)

    if placement is None or not placement.scattered:
        return spark.range(0, partitions, 1, partitions).mapInArrow(read, schema)
    owners = placement.owners()
    items = [(pickle.dumps((owner, number)), placement.host(owner)) for number, owner in enumerate(owners)]
    items = [item for number, item in enumerate(items) if number not in without]
    numbers = located(spark.sparkContext, items).map(_where_it_belongs)
    return spark.createDataFrame(numbers, "id bigint", verifySchema=False).mapInArrow(read, schema)


def _where_it_belongs(packed: bytes) -> tuple[int]:
    owner, number = pickle.loads(packed)
    check(owner)
    return (number,)
