"""push_semi: a semi or anti join moves below joins, to the relation that has its key.

A semi or anti join keeps or drops rows of its left side by their key alone, like a filter. So it may move wherever a
filter on these columns may: to either side of an inner join, to the left side of a left join. There it has fewer rows
to keep, and the rows it drops are not joined. It moves as deep as possible at once, but only if that needs no more
exchanges (after the inner joins around it were put into their best order). A node with several readers is not changed.
"""

from __future__ import annotations

from dataclasses import replace

from holdfast.operators.join import Join
from holdfast.operators.rewrites.order_joins import order_joins
from holdfast.plan.expression import plain
from holdfast.plan.nodes import Linear, Node
from holdfast.plan.placement import placement
from holdfast.plan.walk import Kept, readers, rewrite_up


def push_semi(node: Node, kept: Kept) -> Node:
    shared = {each for each, count in readers(node).items() if count > 1}
    closed = {*kept, *shared}

    def change(new: Node, old: Node) -> Node:
        result = _push(new, closed)
        if id(old) in shared:
            closed.add(id(result))
        return result

    return rewrite_up(node, change, kept)


def _push(node: Node, closed: set[int]) -> Node:
    if not isinstance(node, Join) or node.how not in ("semi", "anti") or not node.left_keys:
        return node
    moved = _sunk(node, node.left, node.left_keys, closed)
    if moved is None:
        return node
    moved = order_joins(moved, frozenset(closed))
    return moved if placement(moved).stage <= placement(node).stage else node


def _sunk(semi: Join, below: Node, keys: tuple[str, ...], closed: set[int]) -> Node | None:
    """``below`` with the semi join moved as deep inside as possible; None if it cannot move below a join."""
    if id(below) in closed:
        return None
    if isinstance(below, Linear):
        names = {each.name: plain(each.expression) for each in below.outputs}
        inner = tuple(name for key in keys if (name := names[key]) is not None)
        moved = _sunk(semi, below.input, inner, closed) if len(inner) == len(keys) else None
        return None if moved is None else replace(below, input=moved)
    if not isinstance(below, Join) or below.how not in ("inner", "left"):
        return None
    for side in ("left", "right") if below.how == "inner" else ("left",):
        child: Node = getattr(below, side)
        if set(keys) <= set(child.columns):
            deeper = _sunk(semi, child, keys, closed) or replace(semi, left=child, left_keys=keys)
            return replace(below, left=deeper) if side == "left" else replace(below, right=deeper)
    return None
