"""Sessions: groups of rows that follow each other closely.

A row's own session lasts from its time until a gap later. Sessions of one group that overlap or touch are one. In the
order of their starts, a row begins a new session if its start lies behind the end of all before it; the running number
of beginnings tells sessions apart, and grouping by it gives each its start and end. So a late row that lies between two
sessions makes them one, and one that goes splits them again.

Rows that start together are in one session: the number counts them all (a frame by value), whatever their order.

Cost: that of a window, the rows of the group.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from holdfast.frontend.build import Item, extend, linear
from holdfast.frontend.labels import unique
from holdfast.plan.expression import Tree, column
from holdfast.plan.nodes import Aggregate, Call, Frame, Node, Order, Window, WindowCall


def by_session(rows: Node, keys: Sequence[str], session: str, calls: Sequence[Call]) -> Node:
    """The groups of ``rows`` by ``keys``, one of which is the column ``session`` with the session of each row."""
    taken = [*rows.columns, *(call.name for call in calls)]
    names: list[str] = []
    for wanted in ("start", "end", "before", "begins", "session", "first", "last"):
        names.append(unique(wanted, [*taken, *names]))
    start, end, before, begins, number, first, last = names
    partition = tuple(key for key in keys if key != session)
    order = (Order(start, descending=False, nulls_first=True),)
    node = extend(rows, [(start, _field(session, "start")), (end, _field(session, "end"))])
    node = Window(node, partition, order, (WindowCall(before, "max", (end,), frame=Frame(True, None, -1)),))
    none: Tree = exp.Is(this=column(before), expression=exp.null())
    behind: Tree = exp.Or(this=none, expression=exp.GT(this=column(start), expression=column(before)))
    flag = exp.Anonymous(this="if", expressions=[behind, exp.Literal.number(1), exp.Literal.number(0)])
    node = extend(node, [(begins, flag)])
    node = Window(node, partition, order, (WindowCall(number, "sum", (begins,), frame=Frame(False, None, 0)),))
    ends = (Call(first, "min", (start,)), Call(last, "max", (end,)))
    node = Aggregate(node, (*partition, number), (*calls, *ends))
    fields = [exp.Literal.string("start"), column(first), exp.Literal.string("end"), column(last)]
    whole = exp.Anonymous(this="named_struct", expressions=fields)
    items: list[Item] = [(key, whole if key == session else column(key)) for key in keys]
    return linear(node, None, [*items, *((call.name, column(call.name)) for call in calls)])


def _field(name: str, field: str) -> Tree:
    return exp.Dot(this=column(name), expression=exp.Identifier(this=field, quoted=True))
