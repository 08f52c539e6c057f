"""first_rows: a filter for the first rows of each partition becomes a limit (`First`) of the `Window` below it.

``rn <= 3`` over ``row_number() OVER (…) AS rn`` needs three rows of each partition; a rank up to 3 also needs the rows
that tie with them. A `Window` with `First` reads no other rows. A ``dense_rank`` up to 3 may need any number of rows,
so it is not a limit. Other functions of the same window must not depend on later rows, since these are not read. The
filter stays above the window: it may have more conditions, and costs next to nothing.

A `Window` with several readers is not changed: it would become a second node with its own state.
"""

from __future__ import annotations

from dataclasses import replace

from holdfast.operators.window import First, Window
from holdfast.plan.expression import Column, Literal, Operation, Tree, conjuncts, is_operation
from holdfast.plan.nodes import Linear, Node
from holdfast.plan.walk import Kept, readers, rewrite_up

_BOUNDED = ("row_number", "rank")
_FROM_THE_FRONT = frozenset({"row_number", "rank", "dense_rank"})
_MIRROR = {">=": "<=", ">": "<", "=": "="}


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
    limits = [limit for part in conjuncts(node.predicate) if (limit := _at_most(part)) is not None]
    found = [First(name, count) for name, count in limits if name in numbers and count > 0]
    if not found:
        return node
    return replace(node, input=replace(window, first=min(found, key=lambda first: first.count)))


def _at_most(part: Tree) -> tuple[str, int] | None:
    """(column, number) if the condition implies that the column is at most the number; else None."""
    if not isinstance(part, Operation) or len(part.operands) != 2:
        return None
    left, right = part.operands
    return _limit(part.name, left, right) or _limit(_MIRROR.get(part.name, ""), right, left)


def _limit(name: str, left: Tree, right: Tree) -> tuple[str, int] | None:
    if is_operation(left, "cast") and left.type == "bigint":
        (left,) = left.parts  # casting a whole number to a wider type keeps the order
    if name not in ("<=", "<", "=") or not isinstance(left, Column) or not isinstance(right, Literal):
        return None
    return (left.name, right.value - (name == "<")) if isinstance(right.value, int) else None
