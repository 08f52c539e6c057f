"""Fields as Spark schemas, and back."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql.types import ArrayType, DataType, MapType, StructType

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


def doubled_field(kind: DataType) -> str | None:
    """A name that two fields of one struct in ``kind`` have (as Spark compares names), if there is one."""
    match kind:
        case ArrayType():
            return doubled_field(kind.elementType)
        case MapType():
            return doubled_field(kind.keyType) or doubled_field(kind.valueType)
        case StructType():
            names = [field.name.lower() for field in kind.fields]
            inside = (doubled_field(field.dataType) for field in kind.fields)
            own = (field.name for place, field in enumerate(kind.fields) if names[place] in names[:place])
            return next(own, None) or next(filter(None, inside), None)
    return None


def null_row(fields: Iterable[Field]) -> str:
    """A query of these columns, for Spark to analyse other queries over. It is never run."""
    columns = [
        f"{'NULL' if field.type == 'void' else f'CAST(NULL AS {field.type})'} AS {quoted(field.name)}"
        for field in fields
    ]
    return f"SELECT {', '.join(columns) or NOTHING}"
