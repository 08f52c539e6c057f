"""Casts that cannot fail: the mode (ANSI, ``try_cast``, legacy) makes no difference to them."""

from __future__ import annotations

from holdfast.frontend.catalyst.literals import digits

WIDTHS = {name: place for place, name in enumerate(("tinyint", "smallint", "int", "bigint", "float", "double"))}
"""The types of numbers that are no decimals, from narrow to wide."""

_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
_MOMENTS = frozenset(("date", "timestamp", "timestamp_ntz"))


def is_certain(have: str, wanted: str) -> bool:
    """Whether a cast from one type to the other cannot fail, and has one meaning in all modes."""
    if have == wanted or (have in _MOMENTS and wanted in _MOMENTS):
        return True
    return _widens(have, wanted) or _rounds(have, wanted)


def _widens(have: str, wanted: str) -> bool:
    """Whether a cast keeps every value exactly, or, if to double, as the nearest value."""
    if have == "void":
        return True
    if have in WIDTHS and wanted in WIDTHS:
        return WIDTHS[have] < WIDTHS[wanted] and wanted != "float"
    if (type_digits := digits(wanted)) is None:
        return wanted == "double" and digits(have) is not None
    precision, scale = type_digits
    if have in _DIGITS:
        return precision - scale >= _DIGITS[have]
    own = digits(have)
    return own is not None and precision - scale >= own[0] - own[1] and scale >= own[1]


def _rounds(have: str, wanted: str) -> bool:
    """Whether a cast rounds decimals to fewer digits after the point, and has room for each result. Rounding may add a
    digit before the point: 9.99 becomes 10.0."""
    own, new = digits(have), digits(wanted)
    return own is not None and new is not None and new[1] < own[1] and new[0] - new[1] > own[0] - own[1]
