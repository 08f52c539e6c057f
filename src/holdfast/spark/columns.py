"""PySpark's `Column` expressions as SQL text, so that both fronts build the same plan."""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column

from holdfast.errors import DeclarationError


def column_sql(column: Any) -> str:
    """The SQL text of a Column."""
    if not isinstance(column, Column):
        raise DeclarationError(f"expected a column name, a SQL text or a Column, found {column!r}")
    return str(column._jc.node().sql())  # the only way to a Column's SQL in PySpark 4
