"""Fields as Spark schemas, and back."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql.types import StructType

from holdfast.plan.expression import quoted
from holdfast.plan.nodes import Field


def ddl(fields: Iterable[Field]) -> str:
    """Fields as a DDL text that Spark reads."""
    return ", ".join(f"{quoted(field.name)} {field.type}" for field in fields)


def fields_of(schema: StructType) -> tuple[Field, ...]:
    return tuple(Field(field.name, field.dataType.simpleString()) for field in schema.fields)
