"""narrow_outer: an outer join becomes an inner or left join if a condition above drops its rows without a match.

A condition above a join *rejects* a side if it cannot be true where all columns of that side are NULL: for example a
comparison with one of these columns, or IS NOT NULL. A condition that rejects the right side of a left join drops all
rows without a match, so the join becomes an inner join. A condition that rejects the left side of a full join drops the
right rows without a match, so the join becomes a left join; if the right side is rejected, it becomes a left join with
the sides swapped; if both are rejected, an inner join.

An inner join keeps less state, can be reordered with other joins, and lets filters pass to both sides.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from holdfast.operators.join import Join
from holdfast.plan.expression import Column, Tree, conjuncts, is_operation
from holdfast.plan.nodes import Linear, Node, projection
from holdfast.plan.walk import Kept, readers, rewrite_up

_COMPARISONS = ("=", "<", "<=", ">", ">=")
_STRICT = ("+", "-", "*", "negative", "cast")


def narrow_outer(node: Node, kept: Kept) -> Node:
    shared = {each for each, count in readers(node).items() if count > 1}

    def change(new: Node, old: Node) -> Node:
        below = old.input if isinstance(old, Linear) else old
        return new if id(below) in shared or id(below) in kept else _narrow(new)

    return rewrite_up(node, change, kept)


def _narrow(node: Node) -> Node:
    if not isinstance(node, Linear) or node.predicate is None or not isinstance(node.input, Join):
        return node
    join = node.input
    if join.how not in ("left", "full"):
        return node
    parts = conjuncts(node.predicate)
    no_left, no_right = (
        any(rejects(part, side.columns) for part in parts) for side in (join.left, join.right)
    )  # whether rows in which this side is padded with NULLs are dropped
    if join.how == "left":
        return replace(node, input=replace(join, how="inner")) if no_right else node
    if no_left and no_right:
        return replace(node, input=replace(join, how="inner"))
    if no_left:
        return replace(node, input=replace(join, how="left"))
    if no_right:
        swapped = Join(join.right, join.left, join.right_keys, join.left_keys, "left", join.null_safe)
        return replace(node, input=projection(swapped, join.columns))
    return node


def rejects(part: Tree, columns: Collection[str]) -> bool:
    """Whether the condition cannot be true where all these columns are NULL."""
    inner = part.parts[0] if is_operation(part, "not") else part
    if is_operation(inner, *_COMPARISONS):
        return any(_is_null(each, columns) for each in inner.parts)
    if is_operation(inner, "in", "like") or (inner is not part and is_operation(inner, "is null")):
        return _is_null(inner.parts[0], columns)
    if is_operation(part, "or"):
        return all(rejects(each, columns) for each in part.parts)
    if is_operation(part, "and"):
        return any(rejects(each, columns) for each in part.parts)
    return False


def _is_null(tree: Tree, columns: Collection[str]) -> bool:
    """Whether the expression is NULL where all these columns are NULL."""
    if isinstance(tree, Column):
        return tree.name in columns
    return is_operation(tree, *_STRICT) and any(_is_null(each, columns) for each in tree.parts)
