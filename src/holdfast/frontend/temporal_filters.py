"""Conditions on the clock: the times when they hold, computed from the row.

``ts > now() - INTERVAL 1 HOUR`` holds until an hour after ``ts``. A condition compares an expression of the row with an
expression of the clock. If the clock's side never falls as time passes, and can be undone, the condition holds up to a
moment, from a moment on, or between two moments, and these moments are expressions of the row alone. `split` finds
them; a `Temporal` keeps the row for that time. A condition that cannot be transformed like this is refused
(`check_temporal`), never drawn.

The clock's side is a chain of steps from the clock outwards. `_undo` undoes it from the outside in: it moves each step
to the other side of the comparison.

======================== =========================================== =======================================
step                     ``step(c) <= y`` means                      ``step(c) < y`` means
======================== =========================================== =======================================
plus an interval         c <= y - interval                           c < y - interval
date of a timestamp      c < midnight of the day after y             c < midnight of y
a date as a timestamp    c <= date of y                              c <= date of (y - 1 µs)
truncated to a unit      c < y truncated, and one unit more          c < (y - 1 µs) truncated, and one unit more
plus months (of a date)  c <= the last day that is not after y then  c <= the last day that is before y then
======================== =========================================== =======================================

``>`` and ``>=`` are the negations of these. Timestamps plus months are not monotone (March 31, 9:00 and March 30, 10:00
change places), so they are refused. Timestamps plus days are not monotone where clocks are put forward and back, nor is
local time; dates are, in nearly all time zones. ``calendar`` says what is assumed of the zone; `spark.keepable`, which
knows the zone, checks it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.errors import Unsupported
from holdfast.frontend.placeholders import Placeholder, Refusing, clock_in, is_clock, is_timed
from holdfast.plan.expression import (
    DAY,
    FALSE,
    MONTHS,
    SPAN,
    Literal,
    Operation,
    Tree,
    cast,
    choice,
    condition,
    conjunction,
    conjuncts,
    is_known,
    null,
    number,
    plus,
)

_MIRROR = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}
_OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_MOMENTS = ("date", "timestamp", "timestamp_ntz")
_TRUNCATED = {
    **dict.fromkeys(("YEAR", "YYYY", "YY"), (12, MONTHS)),
    "QUARTER": (3, MONTHS),
    **dict.fromkeys(("MONTH", "MM", "MON"), (1, MONTHS)),
    "WEEK": (7 * DAY, SPAN),
    **dict.fromkeys(("DAY", "DD"), (DAY, SPAN)),
    "HOUR": (3_600_000_000, SPAN),
    "MINUTE": (60_000_000, SPAN),
    "SECOND": (1_000_000, SPAN),
    "MILLISECOND": (1_000, SPAN),
    "MICROSECOND": (1, SPAN),
}
"""Unit of truncation → its length."""

_CALENDARS = ("", "days", "fixed")


@dataclass(frozen=True)
class Times:
    """When a row is present: from the latest of ``starts`` until the first of ``ends``, if all of ``known`` hold (a
    NULL in a compared value makes a condition NULL). ``calendar``: what is assumed of the time zone, as in
    `Temporal`."""

    starts: tuple[Tree, ...] = ()
    ends: tuple[Tree, ...] = ()
    known: tuple[Tree, ...] = ()
    calendar: str = ""

    def __and__(self, other: Times) -> Times:
        return Times(
            self.starts + other.starts,
            self.ends + other.ends,
            self.known + other.known,
            max(self.calendar, other.calendar, key=_CALENDARS.index),
        )


def split(predicate: Tree | None) -> tuple[Times | None, list[Tree]]:
    """Return the times when the conditions on the clock in a predicate hold (None: there are none), and its other
    conditions."""
    parts = conjuncts(predicate)
    found: Times | None = None
    for part in parts:
        if is_timed(part):
            times = _times(part)
            assert times is not None, "a condition on the clock was not checked"
            found = times if found is None else found & times
    return found, [part for part in parts if not is_timed(part)]


def check_temporal(tree: Tree, clause: str, text: Refusing) -> None:
    """Refuse conditions on the clock if the times when they hold cannot be computed."""
    for part in conjuncts(tree):
        place = clock_in(part)
        if place is not None and _times(part) is None:
            raise _refused(part, clause, place, text)


def _refused(part: Tree, clause: str, place: Placeholder, text: Refusing) -> Unsupported:
    advice = "write it as a comparison of a column with now() or current_date(), plus or minus a literal interval"
    if any(each.type == MONTHS for each in part.walk()):
        advice += "; months can be taken from current_date() alone"
    return text.unsupported(f"this condition on the current time in {clause}", place, advice)


def _times(part: Tree) -> Times | None:
    if not isinstance(part, Operation):
        return None
    match part.name:
        case "and":
            return _both(*part.operands)
        case "or":
            return _unless(part)
        case "not":
            return _times_not(part.operands[0])
        case name if name in _MIRROR:
            return _compared(name, *part.operands)
    return None


def _both(left: Tree, right: Tree) -> Times | None:
    one, other = (_times(each) if is_timed(each) else Times(known=(_true(each),)) for each in (left, right))
    return None if one is None or other is None else one & other


def _times_not(part: Tree) -> Times | None:
    if not isinstance(part, Operation):
        return None
    if part.name == "not":
        return _times(part.operands[0])
    name = _OPPOSITE.get(part.name)
    return None if name is None else _compared(name, *part.operands)


def _unless(part: Operation) -> Times | None:
    """``p OR timed`` holds for ever where ``p`` is true."""
    timed = [each for each in part.operands if is_timed(each)]
    times = _times(timed[0]) if len(timed) == 1 else None
    if times is None:
        return None
    free = _true(next(each for each in part.operands if each is not timed[0]))

    def freed(moments: Sequence[Tree]) -> tuple[Tree, ...]:
        return tuple(choice(free, null("timestamp"), each) for each in moments)

    known = conjunction(times.known)
    rest = () if known is None else (condition("or", free, known),)
    return Times(freed(times.starts), freed(times.ends), rest, times.calendar)


def _true(tree: Tree) -> Tree:
    """A condition that is true where ``tree`` is true, and false where it is false or NULL."""
    return condition("coalesce", tree, FALSE)


def _compared(name: str, left: Tree, right: Tree) -> Times | None:
    """The times when ``left name right`` holds; one side is of the clock, the other of the row. None if unknown."""
    if is_timed(left) and is_timed(right):
        return None
    if is_timed(right):
        name, left, right = _MIRROR[name], right, left
    if isinstance(left, Operation) and left.name == "datediff":
        end, start = left.operands
        return _days_between(name, end, start, right)
    if not _is_chain(left) or left.type not in _MOMENTS:
        return None
    needs = "fixed" if left.type == "timestamp_ntz" else ""
    known = Times(known=(is_known(right),), calendar=needs)
    if left.type == "date":
        left, right = cast(left, "timestamp"), cast(right, "timestamp")
    for each in (">=", "<=") if name == "=" else (name,):
        times = _undo(each, left, right)
        if times is None:
            return None
        known &= times
    return known


def _days_between(name: str, end: Tree, start: Tree, days: Tree) -> Times | None:
    """``datediff(clock, e) <= n`` is ``date of the clock <= e + n``."""
    if is_timed(end) and not is_timed(start):
        return _compared(name, cast(end, "date"), Operation("date_add", (cast(start, "date"), days), "date"))
    if is_timed(start) and not is_timed(end):
        other = Operation("date_sub", (cast(end, "date"), days), "date")
        return _compared(_MIRROR[name], cast(start, "date"), other)
    return None


# -- the clock's side ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Step:
    """One step from the clock outwards, applied to ``of``."""

    kind: str
    """``shift`` by an interval, ``days`` (of a date), ``passed`` (elapsed microseconds), ``months``, ``date`` (of a
    timestamp), ``midnight`` (of a date), ``trunc``, or ``same`` (a cast to another type)."""

    of: Tree
    amount: int = 0
    calendar: str = ""
    unit: str = ""


def _is_chain(tree: Tree) -> bool:
    """Whether the tree is the clock, or steps applied to it."""
    while not is_clock(tree):
        step = _step(tree)
        if step is None:
            return False
        tree = step.of
    return True


def _step(tree: Tree) -> _Step | None:
    """Return the outermost step; None if it is not a known one."""
    if not isinstance(tree, Operation):
        return None
    if tree.name == "cast":
        return _cast_step(tree.operands[0], tree.type)
    if len(tree.operands) != 2:
        return None
    of, by = tree.operands
    if tree.name == "date_trunc" and isinstance(of, Literal) and str(of.value).upper() in _TRUNCATED:
        unit = str(of.value).upper()
        return _Step("trunc", by, calendar="fixed", unit=unit) if by.type == "timestamp" else None
    if not isinstance(by, Literal) or not isinstance(by.value, int):
        return None
    match tree.name, of.type:
        case "+", "date" if by.type == MONTHS:
            return _Step("months", of, by.value)
        case "+", "timestamp" | "timestamp_ntz" if by.type == SPAN:
            return _Step("shift", of, by.value, "fixed" if abs(by.value) >= DAY else "")
        case "date_add", "date":
            return _Step("days", of, by.value)
        case "timestampadd", "timestamp":
            return _Step("passed", of, by.value)
    return None


def _cast_step(of: Tree, wanted: str) -> _Step | None:
    have = of.type
    if have not in _MOMENTS or wanted not in _MOMENTS:
        return None
    if wanted == "date":
        return _Step("date", of, calendar="fixed" if have == "timestamp_ntz" else "days")
    if have == "date":
        return _Step("midnight", of, calendar="days")
    return _Step("same", of, calendar="fixed")


def passed(tree: Tree, micros: int) -> Tree:
    """The timestamp ``tree`` plus elapsed microseconds, regardless of the length of days."""
    return Operation("timestampadd", (tree, number(micros, "bigint")), tree.type)


def days_later(tree: Tree, days: int) -> Tree:
    """The date ``tree`` plus a number of days."""
    return Operation("date_add", (tree, number(days)), "date")


def _undo(name: str, clock: Tree, value: Tree) -> Times | None:
    """The times when ``clock name value`` holds; both sides have one type. None if a step is unknown."""
    whole = name in ("<=", ">")  # whether the bound includes y itself (<= and its negation) or not
    if is_clock(clock):
        moment = plus(value, 1) if whole else value
        return Times(ends=(moment,)) if name in ("<", "<=") else Times(starts=(moment,))
    step = _step(clock)
    if step is None:
        return None
    up_to, below = ("<=", "<") if name in ("<", "<=") else (">", ">=")
    before = value if whole or value.type == "date" else plus(value, -1)
    match step.kind:
        case "same":
            times = _undo(name, step.of, cast(value, step.of.type))
        case "shift":
            times = _undo(name, step.of, plus(value, -step.amount))
        case "days":
            times = _undo(name, step.of, days_later(value, -step.amount))
        case "passed":
            times = _undo(name, step.of, passed(value, -step.amount))
        case "months":
            last = value if whole else days_later(value, -1)
            times = _undo(up_to, step.of, _last_in_time(last, step.amount))
        case "date":
            times = _undo(below, step.of, cast(days_later(value, 1) if whole else value, step.of.type))
        case "midnight":
            times = _undo(up_to, step.of, cast(before, "date"))
        case _:
            cut = Operation("date_trunc", (Literal(step.unit, "string"), before), "timestamp")
            times = _undo(below, step.of, plus(cut, *_TRUNCATED[step.unit]))
    return None if times is None else times & Times(calendar=step.calendar)


def _last_in_time(value: Tree, months: int) -> Tree:
    """The last date d for which d plus ``months`` is not after the date ``value``. A day that the target month does not
    have becomes its last day, so several dates may give one."""
    moved = plus(value, -months, MONTHS)
    return choice(condition("=", value, _last_day(value)), _last_day(moved), moved)


def _last_day(value: Tree) -> Tree:
    return Operation("last_day", (value,), "date")
