"""Arrow types as Spark types, for files that bring their own schema."""

from __future__ import annotations

import pyarrow as pa

from holdfast.errors import SchemaError
from holdfast.plan.types import field_name

_NAMES = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    # Spark has no unsigned integers: the next wider signed type holds them all, and 64 bits are checked value by value.
    pa.uint8(): "smallint",
    pa.uint16(): "int",
    pa.uint32(): "bigint",
    pa.uint64(): "bigint",
    pa.float16(): "float",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.string_view(): "string",
    pa.binary(): "binary",
    pa.large_binary(): "binary",
    pa.binary_view(): "binary",
    pa.date32(): "date",
    pa.date64(): "date",
    pa.null(): "void",
}


def spark_type(found: pa.DataType, *, subject: str) -> str:
    """The Spark type, as simpleString, that holds every value of ``found``. ``subject`` names the column in errors."""
    kind = pa.types
    if found in _NAMES:
        return _NAMES[found]
    if kind.is_dictionary(found):
        return spark_type(found.value_type, subject=subject)
    if kind.is_timestamp(found):
        return "timestamp_ntz" if found.tz is None else "timestamp"
    if kind.is_decimal(found) and found.precision <= 38:
        return f"decimal({found.precision},{found.scale})"
    if kind.is_fixed_size_binary(found):
        return "binary"
    if kind.is_duration(found):
        return "interval day to second"
    if kind.is_map(found):
        key, value = spark_type(found.key_type, subject=subject), spark_type(found.item_type, subject=subject)
        return f"map<{key},{value}>"
    if kind.is_list(found) or kind.is_large_list(found) or kind.is_fixed_size_list(found):
        return f"array<{spark_type(found.value_type, subject=subject)}>"
    if kind.is_struct(found):
        members = [f"{field_name(field.name)}:{spark_type(field.type, subject=subject)}" for field in found]
        return f"struct<{','.join(members)}>"
    raise SchemaError(
        f"{subject}: Spark has no type for {found}; declare a schema without this column", type=str(found)
    )
