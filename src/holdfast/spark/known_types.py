"""Types of a plan's columns that are known without asking Spark.

Spark has analysed the view, so every expression of its plan is right. What is left to find is the type of each column
that a node computes: that of a column that is passed on, of a native expression (its term knows it), of one of Spark's
own expressions (`spark.foreign` remembers it), of an aggregate. None: Spark is to be asked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import pyarrow as pa

from holdfast.operators.reading import read
from holdfast.operators.terms import Column
from holdfast.plan.expression import plain
from holdfast.plan.types import arrow_type
from holdfast.spark.foreign import type_of_call

Types = Mapping[str, str]
"""Column → its Spark type."""

_NATIVE: dict[pa.DataType, str] = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.date32(): "date",
    pa.timestamp("us", tz="UTC"): "timestamp",
    pa.timestamp("us"): "timestamp_ntz",
}
_WHOLE = ("tinyint", "smallint", "int", "bigint")
_SAME = frozenset((
    "min", "max", "any_value", "mode", "first_value", "last_value", "nth_value", "lag", "lead",
    "bit_and", "bit_or", "bit_xor",
))  # fmt: skip
_DOUBLE = frozenset((
    "stddev_samp", "stddev_pop", "var_samp", "var_pop", "skewness", "kurtosis", "covar_pop", "covar_samp",
    "percent_rank", "cume_dist",
))  # fmt: skip
_BOOLEAN = frozenset(("bool_and", "bool_or"))
_LISTS = frozenset(("collect_list", "collect_set"))
_INT = frozenset(("row_number", "rank", "dense_rank", "ntile"))
_LONG = frozenset(("count", "count_if"))
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


def expression_type(sql: str, types: Types) -> str | None:
    """The type of an expression over columns of these types."""
    name = plain(sql)
    if name is not None:
        return types.get(name)
    if (found := type_of_call(sql)) is not None:
        return found
    # Collated texts and texts of a bounded length are texts to Arrow.
    columns = {name: Column(arrow_type(kind), place) for place, (name, kind) in enumerate(types.items())}
    other = [name for name, kind in types.items() if kind.startswith(("string ", "char", "varchar"))]
    term = None if any(f"`{name}`" in sql for name in other) else read(sql, columns)
    if term is None:
        return None
    if pa.types.is_decimal128(term.type):
        return f"decimal({term.type.precision},{term.type.scale})"
    return _NATIVE.get(term.type)


def call_type(function: str, arguments: list[str]) -> str | None:
    """The type of an aggregate or window function of arguments of these types."""
    if function in _LONG:
        return "bigint"
    if function in _INT:
        return "int"
    if function in _DOUBLE:
        return "double"
    if function in _BOOLEAN:
        return "boolean"
    if not arguments:
        return None
    first = arguments[0]
    if function in _SAME:
        return first
    if function in _LISTS:
        return f"array<{first}>"
    if function == "sum":
        if first in _WHOLE:
            return "bigint"
        if first in ("float", "double"):
            return "double"
        if match := _DECIMAL.fullmatch(first):
            return f"decimal({min(int(match[1]) + 10, 38)},{match[2]})"
    if function == "avg" and first in (*_WHOLE, "float", "double"):
        return "double"
    return None
