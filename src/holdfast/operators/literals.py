"""Literals: what Spark takes a literal's text for, and when a literal can stand in for one of another type.

A literal is a `Constant` whose content is a plain Python value: int, Decimal, float, str, bool, a number of days
(date) or of microseconds (timestamp); None is NULL. Everything here is exact: a text or a conversion whose result in
Spark depends on a setting, a time zone, or on rounding that we do not reproduce gives None, and then Spark runs the
expression.
"""

from __future__ import annotations

import datetime
import math
import re
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa

from holdfast.operators.terms import Constant

INTEGERS: tuple[pa.DataType, ...] = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
DOUBLE = pa.float64()
FLOAT = pa.float32()

_WHOLE = re.compile(r"-?\d+")
_DECIMAL = re.compile(r"-?(\d+\.\d*|\.\d+)")
_DOUBLE = re.compile(r"-?(\d+\.?\d*|\.\d+)[eE][+-]?\d+")
_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)")
_TIMESTAMP = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d):(\d\d):(\d\d)(\.\d{1,6})?(Z|[+-]\d\d:\d\d)?")
_DAY = 86_400_000_000
_EPOCH = datetime.date(1970, 1, 1).toordinal()


def is_integer(kind: pa.DataType) -> bool:
    """Spark's integers: the signed ones."""
    return kind in INTEGERS


def is_number(kind: pa.DataType) -> bool:
    return is_integer(kind) or kind in (FLOAT, DOUBLE) or pa.types.is_decimal128(kind)


def fits(number: int, kind: pa.DataType) -> bool:
    """True if the integer type holds the number."""
    end: int = 1 << (kind.bit_width - 1)
    return -end <= number < end


def read_number(text: str) -> Constant | None:
    """An unquoted number: int, else bigint; with a point, decimal; with an exponent, double."""
    if _WHOLE.fullmatch(text):
        number = int(text)
        kind = next((kind for kind in (pa.int32(), pa.int64()) if fits(number, kind)), None)
        return None if kind is None else Constant(kind, number)
    if _DECIMAL.fullmatch(text):
        exact = Decimal(text)
        if exact == 0:
            exact = exact.copy_abs()  # Spark's decimals know no -0.0
        _, digits, exponent = exact.as_tuple()
        scale = -int(exponent)
        precision = max(len(digits), scale)
        return Constant(pa.decimal128(precision, scale), exact) if precision <= 38 else None
    if _DOUBLE.fullmatch(text) and math.isfinite(float(text)) and not is_negative_zero(float(text)):
        return Constant(DOUBLE, float(text))
    return None


def is_negative_zero(number: float) -> bool:
    """-0.0 is no literal of ours: Spark, like Python, takes it for equal to 0.0, and may put the one for the other."""
    return number == 0 and math.copysign(1.0, number) < 0


def read_date(text: str) -> Constant | None:
    """``2024-02-29``: nothing shorter, longer, or without its zeros."""
    days = _days(text)
    return None if days is None else Constant(pa.date32(), days)


def read_timestamp(text: str, kind: pa.DataType) -> Constant | None:
    """A date and a time to the second or finer. With a zone for ``timestamp``: without one it would depend on the
    session's time zone. Without a zone for ``timestamp_ntz``."""
    found = _TIMESTAMP.fullmatch(text)
    if found is None or (found[6] is None) != (kind.tz is None):
        return None
    days = _days(found[1])
    hour, minute, second = int(found[2]), int(found[3]), int(found[4])
    if days is None or hour > 23 or minute > 59 or second > 59:
        return None
    micros = int((found[5] or ".")[1:].ljust(6, "0"))
    ahead = 0
    if found[6] not in (None, "Z"):
        hours, minutes = int(found[6][1:3]), int(found[6][4:6])
        if hours > 17 or minutes > 59:  # Java knows no zones beyond 18 hours
            return None
        ahead = (hours * 60 + minutes) * (-60 if found[6][0] == "-" else 60)
    return Constant(kind, days * _DAY + (hour * 3600 + minute * 60 + second - ahead) * 1_000_000 + micros)


def shifted(date: Constant, count: int, unit: str) -> Constant | None:
    """A date so many ``unit``s (days, months, years) later. A month that has no such day ends earlier."""
    if not isinstance(date.content, int):
        return None
    try:
        day = datetime.date.fromordinal(date.content + _EPOCH)
        if unit == "DAY":
            day = datetime.date.fromordinal(day.toordinal() + count)
        elif unit in ("MONTH", "YEAR"):
            months = day.year * 12 + day.month - 1 + count * (12 if unit == "YEAR" else 1)
            first = datetime.date(months // 12, months % 12 + 1, 1)
            last = datetime.date((months + 1) // 12, (months + 1) % 12 + 1, 1) - datetime.timedelta(days=1)
            day = first.replace(day=min(day.day, last.day))
        else:
            return None
    except (ValueError, OverflowError):
        return None
    return Constant(pa.date32(), day.toordinal() - _EPOCH)


def _days(text: str) -> int | None:
    found = _DATE.fullmatch(text)
    if found is None:
        return None
    try:
        return datetime.date(int(found[1]), int(found[2]), int(found[3])).toordinal() - _EPOCH
    except ValueError:
        return None


def cast_literal(literal: Constant, kind: pa.DataType) -> Constant | None:
    """``CAST(literal AS kind)`` where that is certain."""
    content = literal.content
    if content is None or literal.type == kind:
        return Constant(kind, content)
    if isinstance(content, str):
        if pa.types.is_large_string(kind):
            return Constant(kind, content)
        if pa.types.is_date32(kind):
            return read_date(content)
        return read_timestamp(content, kind) if pa.types.is_timestamp(kind) and kind.unit == "us" else None
    if pa.types.is_timestamp(literal.type) and pa.types.is_timestamp(kind):
        # The same instant under another name of its zone; to and from timestamp_ntz it would move.
        return Constant(kind, content) if kind.unit == "us" and (literal.type.tz is None) == (kind.tz is None) else None
    if not isinstance(content, int | Decimal) or not (is_integer(literal.type) or pa.types.is_decimal(literal.type)):
        return None
    if is_integer(kind):
        return Constant(kind, int(content)) if content == int(content) and fits(int(content), kind) else None
    if kind == DOUBLE:
        return Constant(kind, float(content))
    if kind == FLOAT:
        return Constant(kind, float(content)) if _is_exact_float(float(content), content) else None
    if pa.types.is_decimal128(kind):
        return _as_decimal(content, kind)
    return None


def compared_to(literal: Constant, kind: pa.DataType) -> Constant | None:
    """The literal in a column's type, if comparing with it there is the same as comparing in the type Spark chooses."""
    content = literal.content
    if content is None or literal.type == kind:
        return Constant(kind, content)
    if kind == FLOAT and isinstance(content, int | Decimal | float) and is_number(literal.type):
        # Spark compares as doubles; that is the same only for a literal that is a float exactly.
        return Constant(kind, float(content)) if _is_exact_float(float(content), content) else None
    if kind == DOUBLE and isinstance(content, int) and int(float(content)) != content:
        return None
    if pa.types.is_decimal128(kind):
        # Spark may count an integer literal as 10 or 20 digits; beyond 38 digits it would round.
        whole = max(kind.precision - kind.scale, 20 if is_integer(literal.type) else 0)
        if whole + kind.scale > 38:
            return None
    if is_integer(kind) and pa.types.is_decimal(literal.type) and literal.type.scale > 18:
        return None
    return cast_literal(literal, kind)


def _is_exact_float(number: float, exact: int | Decimal | float) -> bool:
    with np.errstate(over="ignore"):
        return math.isfinite(number) and float(np.float32(number)) == number and Decimal(number) == Decimal(exact)


def _as_decimal(number: int | Decimal, kind: pa.DataType) -> Constant | None:
    scaled = Fraction(number) * 10**kind.scale
    if scaled.denominator != 1 or abs(scaled) >= 10**kind.precision:
        return None
    # Built from its digits: Decimal's own arithmetic would round to 28 of them.
    digits = tuple(int(digit) for digit in str(abs(scaled.numerator)))
    return Constant(kind, Decimal((int(scaled < 0), digits, -kind.scale)))
