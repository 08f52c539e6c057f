"""Conditions on the clock: when they hold, as moments of the row.

``ts > now() - INTERVAL 1 HOUR`` holds until an hour after ``ts``. A condition compares something of the row with
something of the clock; where the clock's side never falls as time passes, and can be undone, the condition holds up to
a moment, from a moment on, or between two, and these are expressions of the row alone. `split` finds them; a `Temporal`
keeps the row for that time. Whatever cannot be turned around so is refused (`check_temporal`), never drawn.

The clock's side is undone from the outside in, by `_undo`: it is a chain of steps from the clock outwards, and each
step is taken to the other side of the comparison.

======================== =========================================== =======================================
step                     ``step(c) <= y`` means                      ``step(c) < y`` means
======================== =========================================== =======================================
plus an interval         c <= y - interval                           c < y - interval
date of a timestamp      c < midnight of the day after y             c < midnight of y
a date as a timestamp    c <= date of y                              c <= date of (y - 1 µs)
truncated to a unit      c < y truncated, and one unit more          c < (y - 1 µs) truncated, and one unit more
plus months (of a date)  c <= the last day that is not after y then  c <= the last day that is before y then
======================== =========================================== =======================================

``>`` and ``>=`` are the opposites of these. Timestamps plus months are not monotone (March 31, 9:00 and March 30, 10:00
change places), so they are refused. Timestamps plus days are not monotone where clocks are put forward and back, nor is
local time; dates are, in nearly all time zones. What is assumed of the zone is said (``calendar``), and checked where
the zone is known (`spark.analysis`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from holdfast.errors import Unsupported
from holdfast.frontend.draws import CLOCK, Refusing, wished
from holdfast.plan.expression import Tree, conjunction, conjuncts

_MIRROR: dict[type[Tree], type[Tree]] = {
    exp.LT: exp.GT, exp.LTE: exp.GTE, exp.GT: exp.LT, exp.GTE: exp.LTE, exp.EQ: exp.EQ,
}  # fmt: skip
_OPPOSITE: dict[type[Tree], type[Tree]] = {exp.LT: exp.GTE, exp.LTE: exp.GT, exp.GT: exp.LTE, exp.GTE: exp.LT}
_TRUNCATED = {
    **dict.fromkeys(("YEAR", "YYYY", "YY"), "1 YEAR"),
    "QUARTER": "3 MONTH",
    **dict.fromkeys(("MONTH", "MM", "MON"), "1 MONTH"),
    "WEEK": "7 DAY",
    **dict.fromkeys(("DAY", "DD"), "1 DAY"),
    **{unit: f"1 {unit}" for unit in ("HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND")},
}
_CALENDARS = ("", "days", "fixed")


@dataclass(frozen=True)
class Times:
    """When a row is there: from the latest of ``starts`` until the first of ``ends``, if ``known`` (NULL in what is
    compared makes a condition NULL). ``calendar``: what is assumed of the time zone, as in `plan.nodes.Temporal`."""

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


def is_timed(tree: Tree) -> bool:
    """Does it depend on the clock?"""
    return any(wished(node) == CLOCK for node in tree.walk())


def split(predicate: Tree | None) -> tuple[Times | None, list[Tree]]:
    """When the timed conditions of a predicate hold (None: there are none), and the conditions that are not timed."""
    parts = [] if predicate is None else conjuncts(predicate)
    found: Times | None = None
    for part in parts:
        if is_timed(part):
            times = _times(part)
            assert times is not None, "a condition on the clock was not checked"
            found = times if found is None else found & times
    return found, [part for part in parts if not is_timed(part)]


def check_temporal(tree: Tree, clause: str, text: Refusing) -> None:
    """Refuse conditions on the clock of which it cannot be said when they hold."""
    for part in conjuncts(tree):
        if is_timed(part) and _times(part) is None:
            place = next(node for node in part.walk() if wished(node) == CLOCK)
            raise _refused(part, clause, place, text)


def _refused(part: Tree, clause: str, place: Tree, text: Refusing) -> Unsupported:
    advice = "write it as a comparison of a column with now() or current_date(), plus or minus a literal interval"
    if any(each.args["unit"].name == "MONTH" for each in part.find_all(exp.Interval)):
        advice += "; months can be taken from current_date() alone"
    return text.unsupported(f"this condition on the current time in {clause}", place, advice)


def _times(part: Tree) -> Times | None:
    match part:
        case exp.And():
            return _both(part.this, part.expression)
        case exp.Or():
            return _unless(part)
        case exp.Not():
            return _times_not(part.this)
        case _ if type(part) in _MIRROR:
            return _compared(type(part), part.this, part.expression)
    return None


def _both(left: Tree, right: Tree) -> Times | None:
    one, other = (_times(each) if is_timed(each) else Times(known=(_true(each),)) for each in (left, right))
    return None if one is None or other is None else one & other


def _times_not(part: Tree) -> Times | None:
    if isinstance(part, exp.Not):
        return _times(part.this)
    kind = _OPPOSITE.get(type(part))
    return None if kind is None else _compared(kind, part.this, part.expression)


def _unless(part: Tree) -> Times | None:
    """``p OR timed``: for ever where ``p`` is true."""
    sides = [part.this, part.expression]
    timed = [each for each in sides if is_timed(each)]
    times = _times(timed[0]) if len(timed) == 1 else None
    if times is None:
        return None
    free = next(each for each in sides if each is not timed[0])

    def freed(moments: Sequence[Tree]) -> tuple[Tree, ...]:
        return tuple(_call("if", _true(free), exp.null(), each) for each in moments)

    known = conjunction(list(times.known))
    rest = () if known is None else (exp.Or(this=_true(free), expression=known),)
    return Times(freed(times.starts), freed(times.ends), rest, times.calendar)


def _true(tree: Tree) -> Tree:
    """Whether a condition is true, and not NULL."""
    return _call("coalesce", tree, exp.false())


def _compared(kind: type[Tree], left: Tree, right: Tree) -> Times | None:
    """``left kind right``, one of which is of the clock and the other of the row."""
    if is_timed(left) and is_timed(right):
        return None
    if is_timed(right):
        kind, left, right = _MIRROR[kind], right, left
    if isinstance(left, exp.Anonymous) and left.name == "datediff":
        return _days_between(kind, left, right)
    valued = type_of(left)
    if valued is None:
        return None
    value = _coerced(right, valued)
    if kind is exp.EQ:
        one, other = (_undo(each, left, value) for each in (exp.GTE, exp.LTE))
        times = None if one is None or other is None else one & other
    else:
        times = _undo(kind, left, value)
    if times is None:
        return None
    needs = "fixed" if valued == "timestamp_ntz" else ""
    return times & Times(known=(_known(value),), calendar=needs)


def _days_between(kind: type[Tree], call: Tree, right: Tree) -> Times | None:
    """``datediff(clock, e) <= n`` is ``date of the clock <= e + n``."""
    end, start = call.expressions
    if is_timed(end) and not is_timed(start):
        return _compared(kind, _cast(end, "date"), _call("date_add", _cast(start, "date"), right))
    if is_timed(start) and not is_timed(end):
        return _compared(_MIRROR[kind], _cast(start, "date"), _call("date_sub", _cast(end, "date"), right))
    return None


def _coerced(tree: Tree, valued: str) -> Tree:
    """The row's side as a timestamp; it is of the same type as the clock's, ``valued``."""
    return tree if valued == "timestamp" else _cast(tree, "timestamp")


def _known(value: Tree) -> Tree:
    return exp.Not(this=exp.Is(this=value.copy(), expression=exp.null()))


# -- the clock's side ---------------------------------------------------------------------------------------------


def type_of(tree: Tree) -> str | None:
    """The type of a chain of steps from the clock: ``timestamp``, ``timestamp_ntz`` or ``date``; None if it is none."""
    if wished(tree) == CLOCK:
        return "timestamp"
    step = _step(tree)
    return None if step is None or type_of(step.of) is None else step.type


@dataclass(frozen=True)
class _Step:
    """One step from the clock outwards: over ``of``, a value of ``type``."""

    kind: str
    """``shift`` by an interval, ``passed`` (so many microseconds), ``months``, ``date`` (of a timestamp), ``midnight``
    (of a date), ``trunc``, or the ``same`` in another type."""

    of: Tree
    type: str
    by: Tree | None = None
    calendar: str = ""


def _step(tree: Tree) -> _Step | None:
    """The outermost step."""
    match tree:
        case exp.Cast():
            return _typed_step(tree.this, tree.to.sql(dialect="spark").lower())
        case exp.Add() | exp.Sub() if isinstance(tree.expression, exp.Interval):
            return _shifted(tree.this, tree.expression, isinstance(tree, exp.Add))
        case exp.Anonymous():
            return _call_step(tree)
    return None


def _typed_step(of: Tree, wanted: str) -> _Step | None:
    have = type_of(of)
    if have is None or wanted not in ("date", "timestamp", "timestamp_ntz"):
        return None
    if have == wanted:
        return _Step("same", of, have)
    if wanted == "date":
        return _Step("date", of, "date", calendar="fixed" if have == "timestamp_ntz" else "days")
    if have == "date":
        return _Step("midnight", of, wanted, calendar="days")
    return _Step("same", of, wanted, calendar="fixed")


def _shifted(of: Tree, interval: exp.Interval, later: bool) -> _Step | None:
    """``of`` plus or minus an interval. Of a timestamp, less than a day passes, or days of the calendar do."""
    have, unit = type_of(of), interval.args["unit"].name
    by: Tree = interval if later else exp.Neg(this=interval.copy())
    if unit == "MONTH":
        return _Step("months", of, "date", by) if have == "date" else None
    return None if have in (None, "date") else _Step("shift", of, str(have), by, "fixed" if unit == "DAY" else "")


def _call_step(call: exp.Anonymous) -> _Step | None:
    arguments = call.expressions
    match call.name:
        case "date_add" if type_of(arguments[0]) == "date":
            return _Step("shift", arguments[0], "date", _days(arguments[1]))
        case "timestamp_micros":
            return _passed_step(arguments[0])
        case "date_trunc" if arguments[0].name.upper() in _TRUNCATED and type_of(arguments[1]) == "timestamp":
            return _Step("trunc", arguments[1], "timestamp", arguments[0], "fixed")
    return None


def passed(tree: Tree, micros: int) -> Tree:
    """The timestamp ``tree`` so many microseconds later, however long its days are."""
    number = _cast(exp.Literal.number(abs(micros)), "bigint")
    moved = (exp.Add if micros > 0 else exp.Sub)(this=_call("unix_micros", tree), expression=number)
    return _call("timestamp_micros", moved)


def _passed_step(moved: Tree) -> _Step | None:
    """The step that `passed` makes."""
    if not isinstance(moved, (exp.Add, exp.Sub)) or not isinstance(moved.expression, exp.Cast):
        return None
    of, number = moved.this, moved.expression.this
    if not isinstance(of, exp.Anonymous) or of.name != "unix_micros" or type_of(of.expressions[0]) != "timestamp":
        return None
    micros = int(number.name) * (1 if isinstance(moved, exp.Add) else -1)
    return _Step("passed", of.expressions[0], "timestamp", exp.Literal.number(str(micros)))


def _undo(kind: type[Tree], clock: Tree, value: Tree) -> Times | None:
    """``clock kind value`` as times; ``value`` is a timestamp, or a date where the clock is one and this says so."""
    return _undo_as(kind, clock if type_of(clock) != "date" else _cast(clock, "timestamp"), value)


def _undo_as(kind: type[Tree], clock: Tree, value: Tree) -> Times | None:
    """The same, with ``value`` of the clock's own type."""
    if wished(clock) == CLOCK:
        inclusive = kind in (exp.LTE, exp.GT)
        moment = exp.Add(this=value, expression=_MICROSECOND.copy()) if inclusive else value
        return Times(ends=(moment,)) if kind in (exp.LT, exp.LTE) else Times(starts=(moment,))
    step = _step(clock)
    if step is None:
        return None
    # What holds up to and with y (<=, and its opposite >), or up to y without it (<, and its opposite >=).
    whole = kind in (exp.LTE, exp.GT)
    up_to, below = (exp.LTE, exp.LT) if kind in (exp.LT, exp.LTE) else (exp.GT, exp.GTE)
    before = value if whole else exp.Sub(this=value, expression=_MICROSECOND.copy())
    match step.kind:
        case "same":
            times = _undo_as(kind, step.of, value)
        case "shift":
            assert step.by is not None
            moved = _minus(value, step.by)
            times = _undo_as(kind, step.of, _cast(moved, "date") if step.type == "date" else moved)
        case "passed":
            assert step.by is not None
            times = _undo_as(kind, step.of, passed(value, -int(step.by.name)))
        case "months":
            assert step.by is not None
            last = value if whole else _call("date_sub", value, exp.Literal.number(1))
            times = _undo_as(up_to, step.of, _last_in_time(last, step.by))
        case "date":
            midnight = _cast(_call("date_add", value, exp.Literal.number(1)) if whole else value, "timestamp")
            times = _undo_as(below, step.of, midnight)
        case "midnight":
            times = _undo_as(up_to, step.of, _cast(before, "date"))
        case _:
            assert step.by is not None
            number, unit = _TRUNCATED[step.by.name.upper()].split()
            cut = _call("date_trunc", step.by, before)
            times = _undo_as(below, step.of, exp.Add(this=cut, expression=_unit(number, unit)))
    return None if times is None else times & Times(calendar=step.calendar)


def _last_in_time(value: Tree, months: Tree) -> Tree:
    """The last date d for which d plus ``months`` is not after the date ``value``: days of a month that has no such day
    are cut to its last one, so that several dates may become one."""
    moved = _cast(_minus(value, months), "date")
    last = exp.EQ(this=value.copy(), expression=_call("last_day", value))
    return _call("if", last, _call("last_day", moved), moved)


# -- trees --------------------------------------------------------------------------------------------------------


def _call(name: str, *arguments: Tree) -> Tree:
    return exp.Anonymous(this=name, expressions=[each.copy() for each in arguments])


def _cast(tree: Tree, kind: str) -> Tree:
    return exp.Cast(this=tree.copy(), to=exp.DataType.build(kind, dialect="spark"))


def _unit(number: str, unit: str) -> Tree:
    return exp.Interval(this=exp.Literal.string(number), unit=exp.Var(this=unit))


_MICROSECOND = _unit("0.000001", "SECOND")
"""A microsecond, the least there is between two moments."""


def _minus(tree: Tree, by: Tree) -> Tree:
    if isinstance(by, exp.Neg):
        return exp.Add(this=tree.copy(), expression=by.this.copy())
    return exp.Sub(this=tree.copy(), expression=by.copy())


def _days(number: Tree) -> Tree:
    if isinstance(number, exp.Neg):
        return exp.Neg(this=_unit(number.this.name, "DAY"))
    return _unit(number.name, "DAY")
