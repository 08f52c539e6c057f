"""Time windows: ``window(ts, '10 minutes', '5 minutes')`` and ``session_window(ts, '5 minutes')``.

As in Spark, a SELECT has one of them at most, and it stands for a column of its input, ``window`` or
``session_window``, which is computed before everything else and may be named anywhere in the SELECT. A row whose time
is NULL is in no window. A row is in one tumbling window; it is in several sliding ones, and then the input is a `Union`
with a branch for each. What a session is depends on other rows: the column holds the session of the row alone, and
grouping by it merges those that touch (`frontend.sessions`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal

from sqlglot import exp

from holdfast.errors import SqlError
from holdfast.frontend.build import Item, linear
from holdfast.frontend.labels import unique
from holdfast.frontend.names import Scope
from holdfast.frontend.place import Text
from holdfast.frontend.resolve import resolve
from holdfast.frontend.sessions import Session
from holdfast.plan.deferred import GAP, TIME, WINDOW
from holdfast.plan.expression import Tree, column, conjunction
from holdfast.plan.nodes import Node, Union

_MICROS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 7 * 86_400_000_000,
}
_DURATION = re.compile(r"([+-]?)\s*(\d+(?:\.\d+)?)\s+([a-z]+?)s?(?=\s|$)")
_MOST = 512
"""So many sliding windows a row may be in: each is a branch of the plan."""


@dataclass(frozen=True)
class Timed:
    """A SELECT over an input that has a column for its time window."""

    select: exp.Select
    scope: Scope
    node: Node
    predicate: Tree | None
    session: Session | None = None


@dataclass(frozen=True)
class _Wanted:
    """A time window: its name, the row's time, and microseconds (a window) or the gap (a session)."""

    name: str
    time: Tree
    numbers: tuple[int, ...] = ()
    gap: Tree | None = None


def with_time(select: exp.Select, scope: Scope, node: Node, predicate: Tree | None, text: Text) -> Timed:
    """``select`` over ``node``'s rows (those that ``predicate`` keeps) with its time window computed."""
    calls = list(_calls(select))
    if not calls:
        return Timed(select, scope, node, predicate)
    wanted = {call.name.lower(): _read(call, scope, text) for call in calls}
    for call in calls:
        if len(wanted) > 1 or _read(call, scope, text) != wanted[call.name.lower()]:
            advice = "each would multiply the rows of the other; compute one of them in a subquery"
            raise text.unsupported("a second time window in one SELECT", call, advice)
    (found,) = wanted.values()
    taken = [*node.columns, *(shown for each in scope.relations for shown in each.columns)]
    inner = unique(found.name, taken)
    called = inner if any(name.lower() == found.name for name in taken) else found.name
    scope = replace(scope, computed={**scope.computed, found.name: inner, called.lower(): inner})
    node = (
        _sessions(node, predicate, found, inner) if found.gap is not None else _windows(node, predicate, found, inner)
    )
    session = Session(inner, calls[0]) if found.gap is not None else None
    return Timed(_renamed(select, found.name, called), scope, node, None, session)


def _calls(select: exp.Select) -> Iterator[exp.Anonymous]:
    """The time windows of a SELECT, but for those of its WHERE and of queries inside of it."""
    clauses = [select.args.get(key) for key in ("group", "having", "order", "qualify")]
    for tree in [*select.expressions, *(clause for clause in clauses if clause is not None)]:
        for node in tree.walk(prune=lambda node: isinstance(node, exp.Query)):
            if _is_call(node):
                yield node


def _is_call(node: Tree) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.lower() in ("window", "session_window")


def _renamed(select: exp.Select, name: str, called: str) -> exp.Select:
    """The SELECT with the column in the place of the calls."""
    result = select.copy()

    def named(node: Tree) -> Tree:
        if not _is_call(node) or node.name.lower() != name:
            return node
        return exp.Column(this=exp.to_identifier(called, quoted=True).update_positions(node))

    def item(tree: Tree) -> Tree:
        new = tree.transform(named)
        if isinstance(tree, exp.Dot) and _is_call(tree.this):
            return exp.alias_(new, f"{name}.{tree.expression.name}", quoted=True)
        return exp.alias_(new, name, quoted=True) if _is_call(tree) else new

    result.set("expressions", [item(each) for each in result.expressions])
    for key in ("group", "having", "order", "qualify"):
        if (clause := result.args.get(key)) is not None:
            result.set(key, clause.transform(named))
    return result


def _read(call: exp.Anonymous, scope: Scope, text: Text) -> _Wanted:
    name, arguments = call.name.lower(), list(call.expressions)
    most = 2 if name == "session_window" else 4
    if not 2 <= len(arguments) <= most:
        expected = "a time and a gap" if most == 2 else "a time, a duration, a slide and a start"
        raise text.error(SqlError, f"{name} takes {expected}, found {len(arguments)} arguments", call)
    time = resolve(arguments[0], scope, text, aggregates=name, windows=name)
    if name == "session_window":
        return _Wanted(name, time, gap=resolve(arguments[1], scope, text, aggregates=name, windows=name))
    duration, *rest = (_micros(each, text, call) for each in arguments[1:])
    slide, start = rest[0] if rest else duration, rest[1] if len(rest) > 1 else 0
    if not 0 < slide <= duration or abs(start) >= slide:
        message = "window needs 0 < slide <= duration, and a start within one slide"
        raise text.error(SqlError, f"{message}; found {duration}, {slide} and {start} microseconds", call)
    if -(-duration // slide) > _MOST:
        construct = f"a sliding window of {-(-duration // slide)} slides"
        raise text.unsupported(construct, call, f"a row may be in {_MOST} windows at most; take a longer slide")
    return _Wanted(name, time, (duration, slide, start % slide))


def _micros(tree: Tree, text: Text, call: Tree) -> int:
    """A duration as Spark's windows take it: a text such as '10 minutes', or a number of microseconds."""
    negative = isinstance(tree, exp.Neg)
    literal = tree.this if negative else tree
    literal = literal.this if isinstance(literal, exp.Cast) else literal
    if not isinstance(literal, exp.Literal):
        raise text.unsupported("a time window whose duration is not a text", call, "write it as '10 minutes'")
    if not literal.is_string:
        return -int(literal.name) if negative else int(literal.name)
    words = literal.name.strip().lower().removeprefix("interval ").strip()
    parts = list(_DURATION.finditer(words))
    if not parts or _DURATION.sub("", words).strip():
        raise text.error(SqlError, f"{literal.name!r} is not a duration such as '10 minutes'", call)
    total = Decimal(0)
    for sign, number, unit in (part.groups() for part in parts):
        if unit not in _MICROS:
            advice = "write days" if unit in ("month", "year") else f"known are {', '.join(_MICROS)}"
            raise text.error(SqlError, f"{literal.name!r}: a time window cannot be in {unit}s; {advice}", call)
        total += (-1 if sign == "-" else 1) * Decimal(number) * _MICROS[unit]
    return int(total)


def _timed(node: Node, predicate: Tree | None, wanted: _Wanted) -> tuple[Node, str]:
    """The rows that have a time, and the column with it."""
    time = unique("time", node.columns)
    parts = [] if predicate is None else [predicate]
    known = exp.Not(this=exp.Is(this=wanted.time.copy(), expression=exp.null()))
    value = exp.Anonymous(this=TIME, expressions=[wanted.time.copy()])
    return linear(node, conjunction([*parts, known]), [*_all(node), (time, value)]), time


def _windows(node: Node, predicate: Tree | None, wanted: _Wanted, name: str) -> Node:
    duration, slide, _ = wanted.numbers
    kept = _all(node)
    rows, time = _timed(node, predicate, wanted)
    branches: list[Node] = []
    for shift in range(-(-duration // slide)):
        numbers = [exp.Literal.number(each) for each in (*wanted.numbers, shift)]
        value = exp.Anonymous(this=WINDOW, expressions=[column(time), *numbers])
        branch = linear(rows, None, [*_all(rows), (name, value)])
        inside = None
        if duration % slide:  # then the earliest of these windows is over before some of the rows
            inside = exp.LT(this=column(time), expression=_field(name, "end"))
        branches.append(linear(branch, inside, [*kept, (name, column(name))]))
    return Union(tuple(branches)) if len(branches) > 1 else branches[0]


def _sessions(node: Node, predicate: Tree | None, wanted: _Wanted, name: str) -> Node:
    kept = _all(node)
    rows, time = _timed(node, predicate, wanted)
    assert wanted.gap is not None
    gap = exp.Anonymous(this=GAP, expressions=[wanted.gap.copy()])
    end = exp.Add(this=column(time), expression=gap)
    fields = [exp.Literal.string("start"), column(time), exp.Literal.string("end"), end]
    rows = linear(rows, None, [*kept, (name, exp.Anonymous(this="named_struct", expressions=fields))])
    longer = exp.GT(this=_field(name, "end"), expression=_field(name, "start"))
    return linear(rows, longer, [*kept, (name, column(name))])


def _all(node: Node) -> list[Item]:
    return [(name, column(name)) for name in node.columns]


def _field(name: str, field: str) -> Tree:
    return exp.Dot(this=column(name), expression=exp.Identifier(this=field, quoted=True))
