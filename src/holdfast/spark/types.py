"""Fields as Spark schemas, and back."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql.types import StructType

from holdfast.plan.nodes import Field

NOTHING = "1 AS `_`"
"""What a query selects when nobody reads a column: it must select something."""


def quoted(name: str) -> str:
    """A name as Spark SQL wants it quoted."""
    return "`" + name.replace("`", "``") + "`"


def ddl(fields: Iterable[Field]) -> str:
    """Fields as a DDL text that Spark reads."""
    return ", ".join(f"{quoted(field.name)} {field.type}" for field in fields)


def fields_of(schema: StructType) -> tuple[Field, ...]:
    return tuple(Field(field.name, field.dataType.simpleString()) for field in schema.fields)


def null_row(fields: Iterable[Field]) -> str:
    """A query of these columns, for Spark to analyse other queries over. It is never run."""
    columns = [
        f"{'NULL' if field.type == 'void' else f'CAST(NULL AS {field.type})'} AS {quoted(field.name)}"
        for field in fields
    ]
    return f"SELECT {', '.join(columns) or NOTHING}"
