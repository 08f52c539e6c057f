"""Rows on their way to a port of an operator: cutting them by hash range, and joining the tables that arrived."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from holdfast.trace.physical import Words


def cut(table: pa.Table, starts: Words) -> Iterator[tuple[int, pa.Table]]:
    """Cut rows by hash range: yield (index of the range, rows) for each range with rows. ``starts``: the first hash of
    each range, ascending. Sorted rows are not copied."""
    if table.num_rows == 0:
        return
    if len(starts) == 1:
        yield 0, table
        return
    owner = np.searchsorted(starts, table.column("_hash").to_numpy(), side="right") - 1
    if not (owner[1:] >= owner[:-1]).all():
        order = np.argsort(owner.astype(np.uint8), kind="stable")
        table, owner = table.take(pa.array(order)), owner[order]
    cuts = np.searchsorted(owner, np.arange(len(starts) + 1))
    for index in range(len(starts)):
        start, stop = int(cuts[index]), int(cuts[index + 1])
        if stop > start:
            yield index, table.slice(start, stop - start)


def zero_filled(tables: list[pa.Table], schema: pa.Schema) -> pa.Table:
    """Concatenate the tables. An additive column (``+…``) that a table does not have is zero in its rows."""
    if not tables:
        return schema.empty_table()
    if all(table.schema.equals(tables[0].schema) for table in tables):
        return pa.concat_tables(tables)
    names = list(dict.fromkeys(name for table in tables for name in table.column_names))
    return pa.concat_tables([_with_columns(table, names) for table in tables])


def _with_columns(table: pa.Table, names: list[str]) -> pa.Table:
    have = set(table.column_names)
    zeros = pa.array(np.zeros(table.num_rows, dtype=np.int64))
    return pa.table([table.column(name) if name in have else zeros for name in names], names=names)
