"""Columns that come from outside, fitted to the types that were declared.

The rule: a conversion that can lose nothing is made; one that can lose something for some values is made if no value of
the column is among them; everything else is refused. So ``int`` fits ``bigint``, a ``bigint`` column fits ``int`` when
every value does, and a ``double`` never fits ``bigint``. Two conversions are for the sake of what files really hold:
a time finer than a microsecond is cut to it (Spark's types end there), and a time without a zone that is to be a
``timestamp`` is taken as UTC.

Cost: none for a column that has its type already; else one vectorised pass.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


class Misfit(ValueError):
    """A column does not have its declared type, or a value of it does not fit. The text says which."""


def fits(found: pa.DataType, expected: pa.DataType) -> bool:
    """Whether a column of type ``found`` may be fitted to ``expected``, as far as types can say."""
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
    """``found`` without members of structs that ``expected`` does not have. Files may have more than was declared, in
    structs as in columns: Spark, too, reads the members that are asked for. Rows that a program pushes may not."""
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
    # Some writers leave the annotation of text away; what is not UTF-8 is refused when it is read.
    (pa.types.is_string, (*_TEXTS, *_BYTES)),
    (pa.types.is_binary, _BYTES),
    (pa.types.is_date, (pa.types.is_date,)),
    (pa.types.is_duration, (pa.types.is_duration,)),
)


def fit(column: pa.ChunkedArray, expected: pa.DataType) -> pa.ChunkedArray:
    """``column`` as ``expected``. Raises `Misfit`."""
    found = column.type
    if found.equals(expected):
        return column
    if not fits(found, expected):
        raise Misfit(f"found {found}")
    try:
        if pa.types.is_timestamp(found) and found.unit == "ns":
            if found.tz is not None:  # an instant: a time that the zone's clocks show twice is none to it
                column = column.cast(pa.timestamp("ns", "UTC"))
            column = pc.floor_temporal(column, unit="microsecond")
        if pa.types.is_integer(found) and pa.types.is_decimal(expected):
            # Arrow asks for room for every possible integer, not for those that are there.
            column = column.cast(pa.decimal256(76, expected.scale))
        return column.cast(expected)
    except pa.ArrowInvalid as error:
        raise Misfit(f"found {found}, and {_decapitalised(str(error))}") from None


def first_misfit(column: pa.ChunkedArray, expected: pa.DataType) -> int:
    """The place of the first value that does not fit, in a column that does not; by bisection, so a few casts."""
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
