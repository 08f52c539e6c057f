"""first_rows: a filter that wants the first rows of each partition is told to the `Window` that numbers them.

``rn <= 3`` over ``row_number() OVER (…) AS rn`` needs three rows of each partition, and a rank up to 3 those that tie
with them too: a `Window` that knows (`First`) reads no others. A ``dense_rank`` up to 3 may be any number of rows, so
it is not bounded. Other functions of the same window must not look behind the row, or they would miss what is not read.
The filter stays: it may say more, and what is left of it costs next to nothing.

A `Window` that others read too is left as it is: it would become a second one.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from holdfast.plan.expression import Tree, conjuncts, read
from holdfast.plan.nodes import First, Linear, Node, Window
from holdfast.plan.walk import Kept, readers, rewrite_up

_BOUNDED = ("row_number", "rank")
_FROM_THE_FRONT = frozenset({"row_number", "rank", "dense_rank"})
_MIRROR: dict[type[Tree], type[Tree]] = {exp.GTE: exp.LTE, exp.GT: exp.LT, exp.EQ: exp.EQ}


def first_rows(node: Node, kept: Kept) -> Node:
    shared = {each for each, count in readers(node).items() if count > 1}

    def change(new: Node, old: Node) -> Node:
        below = old.input if isinstance(old, Linear) else old
        return new if id(below) in shared or id(below) in kept else _bound(new)

    return rewrite_up(node, change, kept)


def _bound(node: Node) -> Node:
    if not isinstance(node, Linear) or node.predicate is None or not isinstance(node.input, Window):
        return node
    window = node.input
    if window.first is not None or not window.order:
        return node
    if any(call.function not in _FROM_THE_FRONT for call in window.calls):
        return node
    numbers = [call.name for call in window.calls if call.function in _BOUNDED]
    limits = [limit for part in conjuncts(read(node.predicate)) if (limit := _at_most(part)) is not None]
    found = [First(name, count) for name, count in limits if name in numbers and count > 0]
    if not found:
        return node
    return replace(node, input=replace(window, first=min(found, key=lambda first: first.count)))


def _at_most(part: Tree) -> tuple[str, int] | None:
    """The column and the number, if the condition says that the one is at most the other."""
    if isinstance(part, exp.Between):
        return _limit(exp.LTE, part.this, part.args["high"])
    if not isinstance(part, exp.Binary):
        return None
    if (found := _limit(type(part), part.this, part.expression)) is not None:
        return found
    mirrored = _MIRROR.get(type(part))
    return None if mirrored is None else _limit(mirrored, part.expression, part.this)


def _limit(kind: type[Tree], left: Tree, right: Tree) -> tuple[str, int] | None:
    number = right.this if isinstance(right, exp.Cast) else right
    if isinstance(left, exp.Cast) and left.to.this == exp.DataType.Type.BIGINT:
        left = left.this  # it is a whole number, and the wider type keeps its order
    if not isinstance(left, exp.Column) or not isinstance(number, exp.Literal) or number.is_string:
        return None
    if kind not in (exp.LTE, exp.LT, exp.EQ) or not number.name.isdigit():
        return None
    return left.name, int(number.name) - (kind is exp.LT)
