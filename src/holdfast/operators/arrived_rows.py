"""What arrived at a port of an operator, from several tasks, as one table."""

from __future__ import annotations

import numpy as np
import pyarrow as pa


def zero_filled(tables: list[pa.Table], schema: pa.Schema) -> pa.Table:
    """The tables on top of each other. Additive columns (``+…``) that one of them lacks are zeros there."""
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
