"""The clock in Catalyst's expressions, and where it may stand.

A `Temporal` keeps conditions on the clock. `frontend.temporal_filters` makes it from a comparison, by undoing, step by
step, the operations on the clock. `beside_clock` writes such a comparison with the steps that it knows (add a constant
interval, take the date, truncate a timestamp). ``now() - ts < INTERVAL 1 HOUR`` is written as a comparison of the clock
with ``ts`` plus the interval, in local time, as Spark subtracts timestamps.

`check_temporal` refuses a condition if the times when it holds cannot be computed. `check_timeless` refuses the clock
where a view would have to change without any change of its inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.errors import Unsupported
from holdfast.frontend import temporal_filters
from holdfast.frontend.catalyst.literals import NotNative, interval_of
from holdfast.frontend.catalyst.statement import Statement
from holdfast.frontend.catalyst.tree import CatalystExpression
from holdfast.frontend.placeholders import CLOCK, Placeholder, clock_in
from holdfast.frontend.temporal_filters import days_later
from holdfast.plan.expression import DAY, MONTHS, SPAN, Operation, Tree, cast, plus, text

CLOCKS = frozenset(("CurrentTimestamp", "Now", "CurrentDate", "LocalTimestamp"))
_MOMENTS = ("date", "timestamp", "timestamp_ntz")
_PHYSICAL = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
}
_CALENDAR = {
    "DAY": (DAY, SPAN),
    "WEEK": (7 * DAY, SPAN),
    "MONTH": (1, MONTHS),
    "QUARTER": (3, MONTHS),
    "YEAR": (12, MONTHS),
}
_TRUNCATED = ("YEAR", "YYYY", "YY", "QUARTER", "MONTH", "MM", "MON", "WEEK")

Convert = Callable[[CatalystExpression], Tree]
Constant = Callable[[CatalystExpression], CatalystExpression | None]


def clock(expression: CatalystExpression) -> Tree:
    """Return the placeholder for a call of the clock, with its place for errors."""
    wish = Placeholder(CLOCK, place=expression.path)
    match expression.kind:
        case "CurrentDate":
            return cast(wish, "date")
        case "LocalTimestamp":
            return cast(wish, "timestamp_ntz")
    return wish


def has_clock(expression: CatalystExpression) -> bool:
    return any(part.kind in CLOCKS for part in expression.walk())


# -- where it may stand --------------------------------------------------------------------------------------------


class _Placed:
    """Refuses a construct, at the place of the clock in it."""

    def __init__(self, statement: Statement) -> None:
        self._statement = statement

    def unsupported(self, construct: str, place: Placeholder | None, advice: str = "") -> Unsupported:
        node = None if place is None or place.place is None else CatalystExpression("", (), {}, place.place)
        return self._statement.unsupported(construct, node, advice)


def check_temporal(tree: Tree, clause: str, statement: Statement) -> None:
    """Refuse conditions on the clock if the times when they hold cannot be computed."""
    temporal_filters.check_temporal(tree, clause, _Placed(statement))


def check_timeless(tree: Tree, clause: str, statement: Statement) -> None:
    """Refuse the clock where a view would have to change without any change of its inputs."""
    found = clock_in(tree)
    if found is not None:
        if clause == "GROUP BY":
            advice = "name it in a subquery, where it is the time at which each row came, and group by that name"
        else:
            advice = "filter by it in WHERE, in a subquery"
        raise _Placed(statement).unsupported(f"the current time in {clause}", found, advice)


# -- comparisons ---------------------------------------------------------------------------------------------------


def beside_clock(
    sides: Sequence[CatalystExpression], timed: int, convert: Convert, constant: Constant
) -> tuple[Tree, Tree]:
    """Convert both sides of a comparison; the side at ``timed`` has the clock. Raises `NotNative` if a step is
    unknown."""
    steps = _Steps(convert, constant)
    own, other = sides[timed], sides[1 - timed]
    while _is_transparent(own):
        own = own.children[0]
    if own.kind in ("SubtractTimestamps", "SubtractDates"):
        trees = steps.difference(own, other)
    else:
        trees = steps.tree(own), convert(other)
    return trees if timed == 0 else (trees[1], trees[0])


class _Steps:
    """Writes the operations on the clock. ``convert``: converts expressions without the clock. ``constant``: gives
    literals."""

    def __init__(self, convert: Convert, constant: Constant) -> None:
        self._convert, self._constant = convert, constant

    def tree(self, expression: CatalystExpression) -> Tree:
        kind, children = expression.kind, expression.children
        if kind in CLOCKS:
            return clock(expression)
        if _is_transparent(expression):
            return self.tree(children[0])
        match kind:
            case "Cast" if expression.parameters["dataType"] in _MOMENTS:
                return cast(self.tree(children[0]), expression.parameters["dataType"])
            case "ParseToDate" if len(children) == 1:
                return cast(self.tree(children[0]), "date")
            case "ParseToTimestamp" if len(children) == 1:
                return cast(self.tree(children[0]), expression.parameters["dataType"])
            case "TimestampAddInterval" | "TimestampAddYMInterval" | "DateAddYMInterval":
                return plus(self.tree(children[0]), *self._interval(children[1]))
            case "DateAdd" | "DateSub":
                days = self._number(children[1]) * (-1 if kind == "DateSub" else 1)
                return days_later(self.tree(children[0]), days)
            case "AddMonths":
                return plus(self.tree(children[0]), self._number(children[1]), MONTHS)
            case "TimestampAdd":
                return self._added(expression)
            case "TruncTimestamp":
                unit = self._text(children[0])
                return _truncated(unit, self.tree(children[1]))
            case "TruncDate":
                unit = self._text(children[1])
                if unit.upper() in _TRUNCATED:
                    return cast(_truncated(unit, self.tree(children[0])), "date")
            case "DateDiff":
                end, start = (self.tree(each) if has_clock(each) else self._convert(each) for each in children)
                return Operation("datediff", (end, start), "int")
        raise NotNative(kind)

    def difference(self, own: CatalystExpression, other: CatalystExpression) -> tuple[Tree, Tree]:
        """Rewrite the comparison of ``clock - x`` with an interval as one of the clock with ``x`` plus the interval; of
        ``x - clock``, as one of ``x`` minus the interval with the clock."""
        left, right = own.children
        if has_clock(left) and has_clock(right):
            raise NotNative("the clock and itself")
        number, kind = self._interval(other)
        if kind == MONTHS:
            raise NotNative("months")
        sign = 1 if has_clock(left) else -1
        side, value = (left, right) if has_clock(left) else (right, left)
        if own.kind == "SubtractDates":
            if number % DAY:
                raise NotNative("a part of a day")
            timed, moved = self.tree(side), days_later(self._convert(value), sign * number // DAY)
        else:
            timed = cast(self.tree(side), "timestamp_ntz")
            moved = plus(cast(self._convert(value), "timestamp_ntz"), sign * number)
        return (timed, moved) if sign > 0 else (moved, timed)

    def _added(self, expression: CatalystExpression) -> Tree:
        """Convert ``timestampadd``, which adds hours as elapsed time, and days as days of the calendar."""
        unit, number = str(expression.parameters["unit"]).upper(), self._number(expression.child("quantity"))
        moment = self.tree(expression.child("timestamp"))
        if unit in _CALENDAR:
            size, kind = _CALENDAR[unit]
            return plus(moment, number * size, kind)
        if unit not in _PHYSICAL:
            raise NotNative(unit)
        micros = number * _PHYSICAL[unit]
        return plus(moment, micros) if abs(micros) < DAY else temporal_filters.passed(moment, micros)

    def _literal(self, expression: CatalystExpression) -> CatalystExpression:
        found = None if has_clock(expression) else self._constant(expression)
        if found is None:
            raise NotNative("what is not constant")
        return found

    def _interval(self, expression: CatalystExpression) -> tuple[int, str]:
        if any(part.kind == "AttributeReference" for part in expression.walk()):
            raise NotNative("an interval of the row's")
        found = interval_of(self._literal(expression))
        if found is None:
            raise NotNative("an interval that is none")
        return found

    def _number(self, expression: CatalystExpression) -> int:
        if any(part.kind == "AttributeReference" for part in expression.walk()):
            raise NotNative("a number of the row's")
        value = self._literal(expression).parameters.get("value")
        if value is None:
            raise NotNative("NULL")
        return int(value)

    def _text(self, expression: CatalystExpression) -> str:
        value = expression.parameters.get("value") if expression.kind == "Literal" else None
        if not isinstance(value, str) or not value.isalpha():
            raise NotNative("a unit that is not written")
        return value


def _truncated(unit: str, moment: Tree) -> Tree:
    return Operation("date_trunc", (text(unit), cast(moment, "timestamp")), "timestamp")


def _is_transparent(expression: CatalystExpression) -> bool:
    if expression.kind == "Alias":
        return True
    return "replacement" in expression.parameters and not expression.kind.startswith("Try")
