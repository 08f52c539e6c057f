"""narrow_outer: an outer join whose rows without a match are dropped anyway is an inner join, or one half of it.

A condition above a join *rejects* a side if it cannot be true where all columns of that side are NULL: a comparison
with one of them, or IS NOT NULL. Rows that a left join makes up for what matches nothing on the right are dropped by a
condition that rejects the right side: then it is an inner join. A full join whose left side is rejected keeps no row
that is the right side's alone: it is a left join, and the other way round; if both are rejected it is an inner one.

An inner join keeps less, may be ordered with others, and lets filters through to both sides.
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
    )  # rows in which this side is made up are dropped
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
    """Whether the condition is never true where all these columns are NULL."""
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
    """Whether the expression is NULL where all these columns are."""
    if isinstance(tree, Column):
        return tree.name in columns
    return is_operation(tree, *_STRICT) and any(_is_null(each, columns) for each in tree.parts)
