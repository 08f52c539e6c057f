"""Literals of Spark's plans.

A value raises `NotNative` if it is not exact in the plan's JSON, or if Python's equality does not distinguish it from
others (arrays, bytes, NaN, -0.0, dates beyond the year 9999).
"""

from __future__ import annotations

import math
import re
from datetime import date
from decimal import Decimal, localcontext

from holdfast.frontend.catalyst.tree import CatalystExpression, sql_type
from holdfast.plan import expression as plan
from holdfast.plan.expression import MONTHS, SPAN, Tree

_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_MOMENTS = range(-62_135_596_800_000_000, 253_402_300_800_000_000)
"""Microseconds of the years 1 to 9999."""


class NotNative(Exception):
    """The expression cannot be written out as operations."""


def digits(kind: str) -> tuple[int, int] | None:
    """Precision and scale of a decimal type; None for any other type."""
    found = _DECIMAL.fullmatch(kind)
    return None if found is None else (int(found[1]), int(found[2]))


def literal(expression: CatalystExpression) -> Tree:
    """Return the ``Literal``; a timestamp's value is in microseconds. Raises `NotNative`."""
    value, kind = expression.parameters.get("value"), sql_type(expression.parameters["dataType"])
    if kind is None:
        raise NotNative("a literal of a type of the user's")
    return plan.Literal(None if value is None else _value(value, kind), kind)


def _value(value: str, kind: str) -> plan.Value:
    if kind in _BITS:
        return int(value)
    if kind in ("float", "double"):
        number = float(value)
        if not math.isfinite(number) or (number == 0 and math.copysign(1.0, number) < 0):
            raise NotNative(f"the number {value}")
        return number
    if kind == "boolean":
        return value == "true"
    if kind == "string":
        return value
    if kind == "date" and _DATE.fullmatch(value):
        return (date.fromisoformat(value) - date(1970, 1, 1)).days
    if kind in ("timestamp", "timestamp_ntz") and re.fullmatch(r"-?\d+", value) and int(value) in _MOMENTS:
        return int(value)
    if (type_digits := digits(kind)) is not None:
        return _scaled(Decimal(value), type_digits[1])
    raise NotNative(f"a literal of type {kind}")


def _scaled(number: Decimal, scale: int) -> Decimal:
    with localcontext(prec=80):
        return number.quantize(Decimal(1).scaleb(-scale))


# -- literals of other literals ------------------------------------------------------------------------------------


def folded(expression: CatalystExpression) -> CatalystExpression | None:
    """Return the literal that a cast of a number, or its negation, equals; None if Spark must compute it."""
    if expression.kind == "Literal":
        return expression
    if expression.kind not in ("Cast", "UnaryMinus"):
        return None
    inner = folded(expression.children[0])
    if inner is None:
        return None
    value, own = inner.parameters.get("value"), inner.parameters["dataType"]
    wanted = expression.parameters.get("dataType", own)
    have, kind = sql_type(own) or "", sql_type(wanted) or ""
    if value is None or not (have in _BITS or digits(have)):
        return None
    number = Decimal(value)
    with localcontext(prec=80):
        found = _fitted(number if expression.kind == "Cast" else -number, kind)
    return (
        None
        if found is None
        else CatalystExpression("Literal", (), {"value": found, "dataType": wanted}, expression.path)
    )


def _fitted(number: Decimal, kind: str) -> str | None:
    """The text of a number in a type that holds it exactly, or in double; None if the type does not hold it."""
    if kind in _BITS:
        end = 1 << (_BITS[kind] - 1)
        return str(int(number)) if number == int(number) and -end <= number < end else None
    if kind == "double":
        return repr(float(number))
    if (type_digits := digits(kind)) is not None:
        precision, scale = type_digits
        scaled = number.scaleb(scale)
        return f"{number:.{scale}f}" if scaled == int(scaled) and abs(scaled) < 10**precision else None
    return None


# -- intervals -----------------------------------------------------------------------------------------------------


def interval_of(expression: CatalystExpression) -> tuple[int, str] | None:
    """Return the amount of a literal interval, and its unit: months (`MONTHS`) or microseconds (`SPAN`). None if it is
    none."""
    kind, value = expression.parameters["dataType"], expression.parameters.get("value")
    if value is None or not isinstance(kind, str) or not kind.startswith("interval "):
        return None
    return int(value), MONTHS if "year" in kind or "month" in kind else SPAN
