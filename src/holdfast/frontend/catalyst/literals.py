"""Literals of Spark's plans as trees.

A literal has a text whose meaning depends on nothing: not on the session's time zone, nor on how a parser unescapes.
What has no such text (arrays, bytes, NaN, dates beyond the year 9999) is `Foreign`.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal, localcontext
from functools import lru_cache

from sqlglot import exp

from holdfast.frontend.catalyst.tree import Expression
from holdfast.plan.expression import Tree

TYPES = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}
"""The types that the JSON of a plan calls otherwise than SQL does."""

DAY = 86_400_000_000
"""Microseconds."""

_BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_SIMPLE_TYPES = re.compile(
    r"boolean|byte|short|integer|long|float|double|string|binary|date|timestamp(_ntz)?|decimal.*"
)
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
_UNITS = ((3_600_000_000, "HOUR"), (60_000_000, "MINUTE"), (1_000_000, "SECOND"))


class Foreign(Exception):
    """The expression is not one that is written out."""


def cast(tree: Tree, kind: str) -> Tree:
    """``CAST(tree AS kind)``."""
    return exp.Cast(this=tree, to=_type(kind).copy())


@lru_cache(maxsize=256)
def _type(kind: str) -> exp.DataType:
    return exp.DataType.build(kind, dialect="spark")


def digits(kind: object) -> tuple[int, int] | None:
    """Precision and scale of a decimal type."""
    found = _DECIMAL.fullmatch(kind) if isinstance(kind, str) else None
    return None if found is None else (int(found[1]), int(found[2]))


def literal(expression: Expression) -> Tree:
    """The tree of a ``Literal``; a timestamp's value is in microseconds."""
    value, kind = expression.parameters.get("value"), expression.parameters["dataType"]
    if not isinstance(kind, str):
        raise Foreign("a literal of a structure")
    if value is None:
        if kind != "void" and not _SIMPLE_TYPES.fullmatch(kind):
            raise Foreign(f"NULL of type {kind}")
        return exp.null() if kind == "void" else cast(exp.null(), TYPES.get(kind, kind))
    if kind in _BITS or kind in ("float", "double"):
        return _number(str(value), kind)
    if kind == "boolean":
        return exp.true() if value == "true" else exp.false()
    if kind == "string" and _is_plain(value):
        return exp.Literal.string(value)
    if kind == "date" and _DATE.fullmatch(value):
        return cast(exp.Literal.string(value), "date")
    if kind in ("timestamp", "timestamp_ntz") and re.fullmatch(r"-?\d+", value):
        return cast(exp.Literal.string(_moment(int(value)) + ("Z" if kind == "timestamp" else "")), kind)
    if (type_digits := digits(kind)) is not None:
        return _decimal(Decimal(value), kind, *type_digits)
    raise Foreign(f"a literal of type {kind}")


def _number(value: str, kind: str) -> Tree:
    if not re.fullmatch(r"-?[\d.]+(E-?\d+)?", value):
        raise Foreign(f"the number {value}")
    number: Tree = exp.Literal.number(value.lstrip("-"))
    # A whole number that is no int is a bigint as it stands; 9223372036854775808L would be none before it is negated.
    plain = kind == "integer" or (kind == "long" and not -(2**31) <= int(value) < 2**31)
    number = number if plain else cast(number, TYPES.get(kind, kind))
    return exp.Neg(this=number) if value.startswith("-") else number


def _is_plain(text: str) -> bool:
    """Is the text the same whoever unescapes it? Spark puts variables in the place of ``${…}``."""
    return text.isprintable() and "\\" not in text and "${" not in text


def _moment(micros: int) -> str:
    try:
        found = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
    except OverflowError:
        raise Foreign("a moment before the year 1 or after 9999") from None
    return found.strftime("%Y-%m-%d %H:%M:%S.%f").zfill(26)


def _decimal(value: Decimal, kind: str, precision: int, scale: int) -> Tree:
    text = f"{abs(value):.{max(scale, 0)}f}"
    number: Tree = exp.Literal.number(text)
    number = exp.Neg(this=number) if value < 0 else number
    # Spark takes a number with a point for the shortest decimal that has its digits.
    shortest = max(len(text.replace(".", "").lstrip("0")), scale)
    return number if scale > 0 and shortest == precision else cast(number, kind)


# -- literals of other literals ------------------------------------------------------------------------------------


def folded(expression: Expression) -> Expression | None:
    """The literal that a cast of a number, or its negation, stands for; None if Spark must say it."""
    if expression.kind == "Literal":
        return expression
    if expression.kind not in ("Cast", "UnaryMinus"):
        return None
    inner = folded(expression.children[0])
    if inner is None:
        return None
    value, kind = inner.parameters.get("value"), inner.parameters["dataType"]
    wanted = expression.parameters.get("dataType", kind)
    if value is None or not isinstance(wanted, str) or not (kind in _BITS or digits(kind)):
        return None
    number = Decimal(value)
    with localcontext(prec=80):
        found = _fitted(number if expression.kind == "Cast" else -number, wanted)
    return None if found is None else Expression("Literal", (), {"value": found, "dataType": wanted}, expression.path)


def _fitted(number: Decimal, kind: str) -> str | None:
    """The text of a number in a type that holds it exactly, or that is double."""
    if kind in _BITS:
        end = 1 << (_BITS[kind] - 1)
        return str(int(number)) if number == int(number) and -end <= number < end else None
    if kind == "double":
        return repr(float(number)).replace("e", "E").replace("E+", "E")
    if (type_digits := digits(kind)) is not None:
        precision, scale = type_digits
        scaled = number.scaleb(scale)
        return f"{number:.{scale}f}" if scaled == int(scaled) and abs(scaled) < 10**precision else None
    return None


# -- intervals -----------------------------------------------------------------------------------------------------


def interval(number: int, months: bool) -> list[Tree]:
    """Intervals that make up so many months or microseconds: days apart from the rest, since Spark adds days of the
    calendar. All have the sign of ``number``."""
    if months:
        return [_signed(number, "MONTH")]
    sign = -1 if number < 0 else 1
    days, rest = divmod(abs(number), DAY)
    parts = [_signed(sign * days, "DAY")] if days else []
    if rest or not days:
        size, unit = next((each for each in _UNITS if rest % each[0] == 0), _UNITS[-1])
        parts.append(_signed(sign * Decimal(rest) / size, unit))
    return parts


def _signed(number: int | Decimal, unit: str) -> Tree:
    text = str(abs(number)) if isinstance(number, int) else f"{abs(number):f}"
    found = exp.Interval(this=exp.Literal.string(text), unit=exp.Var(this=unit))
    return exp.Neg(this=found) if number < 0 else found


def plus(tree: Tree, intervals: list[Tree]) -> Tree:
    """``tree`` and these intervals."""
    for each in intervals:
        if isinstance(each, exp.Neg):
            tree = exp.Sub(this=tree, expression=each.this)
        else:
            tree = exp.Add(this=tree, expression=each)
    return tree


def interval_of(expression: Expression) -> tuple[int, bool] | None:
    """Months (True) or microseconds (False) of a literal interval."""
    kind, value = expression.parameters["dataType"], expression.parameters.get("value")
    if value is None or not isinstance(kind, str) or not kind.startswith("interval "):
        return None
    return int(value), "year" in kind or "month" in kind
