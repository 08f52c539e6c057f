"""Stage 0: tasks read an epoch's input from the sources and route it to the operators."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.connectors.source import Part
from holdfast.task.program import Program
from holdfast.task.stage import EpochSpec, Router, TaskReport


def read_parts(
    program: Program,
    epoch: EpochSpec,
    items: Iterable[tuple[str, Part]],
    partition: int,
    *,
    keep: bool = False,
    check: Callable[[TaskReport], None] | None = None,
) -> tuple[Router, TaskReport]:
    """Read parts of sources, and route their rows. ``check`` gets the report, with the rows so far, after each
    batch."""
    report = TaskReport(0, partition, started=time.time())
    router = Router(program, epoch, report, keep=keep)
    for name, part in items:
        schema = program.sources[name]
        plain = pa.schema(list(schema)[:-1])
        since = time.perf_counter()
        for table in part.read(plain):
            change = as_change(table, schema)
            report.arrived += change.num_rows
            report.spend("read", since)
            router.send(name, change)
            if check is not None:
                check(report)
            since = time.perf_counter()
        report.spend("read", since)
    return router, report


def as_change(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """A source's rows as a change: columns by position, one kind of NaN, a diff of 1 where the source gives none."""
    named = zip(table.column_names, table.columns, strict=True)
    columns = [_one_nan(column) for name, column in named if name != "_diff"]
    ones = pa.array(np.ones(table.num_rows, dtype=np.int64))
    diff = table.column("_diff") if "_diff" in table.column_names else ones
    return pa.table([*columns, diff], names=schema.names).cast(schema)


def _one_nan(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if not pa.types.is_floating(column.type):
        return column
    return pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), column.type), column)
