"""Fields as Spark schemas, and back."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql.types import StructType, _parse_datatype_json_string

from holdfast.plan.expression import quoted
from holdfast.plan.nodes import Field
from holdfast.plan.types import ddl_type, type_text


def ddl(fields: Iterable[Field]) -> str:
    """Fields as a DDL text that Spark reads."""
    return ", ".join(f"{quoted(field.name)} {ddl_type(field.type)}" for field in fields)


def type_of_json(kind: str) -> str:
    """Return the text of a type that the JVM wrote as JSON (``DataType.json``)."""
    return type_text(_parse_datatype_json_string(kind))


def fields_of(schema: StructType) -> tuple[Field, ...]:
    return tuple(Field(field.name, type_text(field.dataType)) for field in schema.fields)
