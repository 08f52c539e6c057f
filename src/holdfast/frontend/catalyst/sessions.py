"""Session windows: groups of rows that follow each other closely.

A row's own session lasts from its time until a gap later. Sessions of one group that overlap or touch are merged. In
the order of their starts, a row begins a new session if its start is after the end of all rows before it. The running
number of such beginnings identifies the session, and grouping by it gives its start and end. So a late row between two
sessions merges them, and deleting it splits them again.

Rows with equal starts are in one session: the running number counts all of them (a frame by value), whatever their
order.

Cost: that of a window, the rows of the group.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.frontend.build_nodes import extend, linear
from holdfast.frontend.column_names import unique
from holdfast.frontend.uncorrelated_subqueries import Item
from holdfast.operators.aggregate import Aggregate, Call
from holdfast.operators.window import Window
from holdfast.operators.window_frames import Frame
from holdfast.operators.window_functions import WindowCall
from holdfast.plan.expression import choice, condition, field, is_null, number, struct
from holdfast.plan.nodes import Node, Order


def by_session(rows: Node, keys: Sequence[str], session: str, calls: Sequence[Call]) -> Node:
    """Return the groups of ``rows`` by ``keys``. One key is the column ``session``, which has the session of each
    row."""
    taken = [*rows.columns, *(call.name for call in calls)]
    names: list[str] = []
    for wanted in ("start", "end", "before", "begins", "session", "first", "last"):
        names.append(unique(wanted, [*taken, *names]))
    start, end, before, begins, number_of, first, last = names
    partition = tuple(key for key in keys if key != session)
    order = (Order(start, descending=False, nulls_first=True),)
    kind = rows.types[session].removeprefix("struct<start:").split(",")[0]
    own = rows.column(session)
    node = extend(rows, [(start, field(own, "start", kind)), (end, field(own, "end", kind))])
    node = Window(node, partition, order, (WindowCall(before, "max", kind, (end,), frame=Frame(True, None, -1)),))
    behind = condition(">", node.column(start), node.column(before))
    flag = choice(condition("or", is_null(node.column(before)), behind), number(1), number(0))
    node = extend(node, [(begins, flag)])
    running = WindowCall(number_of, "sum", "bigint", (begins,), frame=Frame(False, None, 0))
    node = Window(node, partition, order, (running,))
    ends = (Call(first, "min", (start,), kind), Call(last, "max", (end,), kind))
    node = Aggregate(node, (*partition, number_of), (*calls, *ends))
    whole = struct(start=node.column(first), end=node.column(last))
    items: list[Item] = [(key, whole if key == session else node.column(key)) for key in keys]
    return linear(node, None, [*items, *((call.name, node.column(call.name)) for call in calls)])
