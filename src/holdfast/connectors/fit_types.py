"""Conversion of columns from outside to their declared types.

The rule: a conversion that cannot lose anything is made; a conversion that is exact for some values is made if it is
exact for all values of the column; any other is refused. So ``int`` fits ``bigint``, a ``bigint`` column fits ``int``
if every value does, and a ``double`` never fits ``bigint``. Two conversions lose something, since real files need them:
a time is cut to microseconds (Spark's types are not finer), and a time without a zone becomes a ``timestamp`` as UTC.

Cost: none for a column that has its type already; else one vectorised pass.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


class Misfit(ValueError):
    """A column, or a value of it, does not fit the declared type. The text says which."""


def fits(found: pa.DataType, expected: pa.DataType) -> bool:
    """Whether a column of type ``found`` may be converted to ``expected``, as far as the types decide: `fit` may still
    refuse its values."""
    kind = pa.types
    if kind.is_dictionary(found):
        return fits(found.value_type, expected)
    if found.equals(expected) or kind.is_null(found):
        return True
    for is_expected, may_be in _CONVERSIONS:
        if is_expected(expected):
            return any(is_found(found) for is_found in may_be)
    if kind.is_float32(expected):
        return bool(kind.is_float16(found))
    if kind.is_timestamp(expected):
        return bool(kind.is_timestamp(found)) and (expected.tz is not None or found.tz is None)
    if kind.is_map(expected):
        pairs = ("key_type", "item_type")
        return kind.is_map(found) and all(fits(getattr(found, one), getattr(expected, one)) for one in pairs)
    if kind.is_list(expected):
        return any(is_list(found) for is_list in _LISTS) and fits(found.value_type, expected.value_type)
    if kind.is_struct(expected):
        return (
            kind.is_struct(found)
            and {field.name for field in found} == {field.name for field in expected}
            and all(fits(found.field(field.name).type, field.type) for field in expected)
        )
    return False


def without_extra_members(found: pa.DataType, expected: pa.DataType) -> pa.DataType:
    """``found`` without the members of structs that ``expected`` does not have. A file may have more members than
    declared, just as it may have more columns: Spark, too, reads only the members that are asked for. Rows that code
    pushes may not have more."""
    kind = pa.types
    if kind.is_struct(found) and kind.is_struct(expected):
        wanted = {field.name: field.type for field in expected}
        members = [field for field in found if field.name in wanted]
        return pa.struct([field.with_type(without_extra_members(field.type, wanted[field.name])) for field in members])
    if kind.is_list(found) and kind.is_list(expected):
        return pa.list_(found.value_field.with_type(without_extra_members(found.value_type, expected.value_type)))
    if kind.is_map(found) and kind.is_map(expected):
        item = without_extra_members(found.item_type, expected.item_type)
        return pa.map_(found.key_type, found.item_field.with_type(item))
    return found


_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BYTES = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary)
_LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
_CONVERSIONS = (
    (pa.types.is_integer, (pa.types.is_integer,)),
    (pa.types.is_float64, (pa.types.is_integer, pa.types.is_floating)),
    (pa.types.is_decimal, (pa.types.is_decimal, pa.types.is_integer)),
    # Some writers do not mark texts as such; bytes that are not UTF-8 are refused when they are read.
    (pa.types.is_string, (*_TEXTS, *_BYTES)),
    (pa.types.is_binary, _BYTES),
    (pa.types.is_date, (pa.types.is_date,)),
    (pa.types.is_duration, (pa.types.is_duration,)),
)


def fit(column: pa.ChunkedArray, expected: pa.DataType) -> pa.ChunkedArray:
    """``column`` converted to the type ``expected``. Raises `Misfit` if it does not fit."""
    found = column.type
    if found.equals(expected):
        return column
    if not fits(found, expected):
        raise Misfit(f"found {found}")
    try:
        if pa.types.is_timestamp(found) and found.unit == "ns":
            if found.tz is not None:  # an instant: in UTC no time is ambiguous, as it may be in another zone
                column = column.cast(pa.timestamp("ns", "UTC"))
            column = pc.floor_temporal(column, unit="microsecond")
        if pa.types.is_integer(found) and pa.types.is_decimal(expected):
            # Arrow demands digits for every possible integer, not only for the values that are there.
            column = column.cast(pa.decimal256(76, expected.scale))
        return column.cast(expected)
    except pa.ArrowInvalid as error:
        raise Misfit(f"found {found}, and {_decapitalised(str(error))}") from None


def first_misfit(column: pa.ChunkedArray, expected: pa.DataType) -> int:
    """The place of the first value that does not fit, in a column that does not fit. Cost: a bisection, so a few
    casts."""
    low, high = 0, len(column)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            fit(column.slice(low, middle - low), expected)
        except Misfit:
            high = middle
        else:
            low = middle
    return low


def _decapitalised(text: str) -> str:
    text = text.split("\n", 1)[0]
    return text[:1].lower() + text[1:]
