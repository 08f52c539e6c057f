"""threshold: a comparison above a join with a scalar becomes a `Threshold`; it costs what changes sides.

``total > (SELECT avg(total) FROM …)`` is a join with the one row of the subquery, and a condition above it. Each change
of that row changes all joined rows, though few of them pass or fail the condition in another way than before. A
`Threshold` reads only these.

The rule applies where

* the join is an inner join, and one of its sides has at most one row per key: an aggregate by columns of the key;
* a condition above compares an expression over the other side with an expression over that side;
* nothing else above the join reads that side.

Both expressions are computed below the join then, also for rows that match nothing, so they must not be able to fail.
That, and whether the comparison is Spark's bit for bit, the native expressions tell.

A join with several readers is not changed.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import get_args

from holdfast.operators.aggregate import Aggregate
from holdfast.operators.expressions.compile_term import read
from holdfast.operators.expressions.native_stretch import columns_by_name
from holdfast.operators.join import Join
from holdfast.operators.threshold import Comparison, Threshold
from holdfast.operators.topk import TopK
from holdfast.plan.expression import Tree, conjunction, conjuncts, is_operation, plain, readable, references
from holdfast.plan.nodes import Linear, Named, Node, same, touches
from holdfast.plan.walk import Kept, readers, rewrite_up

_MIRRORED: dict[Comparison, Comparison] = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def threshold(node: Node, kept: Kept) -> Node:
    shared = {each for each, count in readers(node).items() if count > 1}

    def change(new: Node, old: Node) -> Node:
        below = old.input if isinstance(old, Linear) else old
        return new if id(below) in shared or id(below) in kept else _compared(new)

    return rewrite_up(node, change, kept)


@dataclass(frozen=True)
class _Sides:
    """The sides of a join: the rows that are compared, and the bounds."""

    rows: Node
    bounds: Node
    row_keys: tuple[str, ...]
    bound_keys: tuple[str, ...]


def _compared(node: Node) -> Node:
    if not isinstance(node, Linear) or not isinstance(node.input, Join) or node.input.how != "inner":
        return node
    join = node.input
    parts = conjuncts(node.predicate)
    outputs = [each.expression for each in node.outputs]
    for sides in (
        _Sides(join.left, join.right, join.left_keys, join.right_keys),
        _Sides(join.right, join.left, join.right_keys, join.left_keys),
    ):
        decisive = [part for part in parts if not set(references(part)) <= set(sides.rows.columns)]
        if len(decisive) != 1 or not set(references(*outputs)) <= set(sides.rows.columns):
            continue
        found = _comparison(decisive[0], sides)
        if found is None or not _is_certain(decisive[0], join) or not _has_one(sides.bounds, sides.bound_keys):
            continue
        comparison, mine, theirs = found
        rows, value = _with(sides.rows, mine, sides.rows.columns)
        bounds, bound = _with(sides.bounds, theirs, sides.bound_keys)
        passing = Threshold(rows, bounds, sides.row_keys, sides.bound_keys, value, comparison, bound, join.null_safe)
        return Linear(passing, conjunction([part for part in parts if part is not decisive[0]]), node.outputs)
    return node


def _comparison(part: Tree, sides: _Sides) -> tuple[Comparison, Tree, Tree] | None:
    """(comparison, expression over the rows, expression over the bounds) if the condition is that; else None."""
    inner = part.parts[0] if is_operation(part, "not") else part
    name: Comparison
    if inner is not part and is_operation(inner, "="):
        name = "<>"
    elif inner is part and is_operation(inner, *get_args(Comparison)):
        name = inner.name  # type: ignore[attr-defined]  # an operation with one of these names
    else:
        return None
    left, right = inner.parts
    if touches(left, sides.rows.columns) and touches(right, sides.bounds.columns):
        return name, left, right
    if touches(right, sides.rows.columns) and touches(left, sides.bounds.columns):
        return _MIRRORED[name], right, left
    return None


def _is_certain(part: Tree, join: Join) -> bool:
    """Whether the condition is native and cannot fail."""
    term = read(part, columns_by_name(join))
    return term is not None and not term.raises


def _has_one(node: Node, keys: Collection[str]) -> bool:
    """Whether the plan has at most one row for all values of these columns. Without keys, its rows are not spread by
    any column then."""
    while isinstance(node, Linear):
        names = {each.name: plain(each.expression) for each in node.outputs}
        keys = [name for key in keys if (name := names[key]) is not None]
        node = node.input
    if isinstance(node, Aggregate):
        return set(node.keys) <= set(keys)
    return isinstance(node, TopK) and node.limit <= 1


def _with(node: Node, tree: Tree, kept: Collection[str]) -> tuple[Node, str]:
    """The columns ``kept`` of ``node`` with the value of ``tree``, and the name of its column."""
    outputs = tuple(each for each in same(node) if each.name in kept)
    if (name := plain(tree)) is not None:
        wanted = tuple(each for each in same(node) if each.name in kept or each.name == name)
        return (node if len(wanted) == len(node.columns) else Linear(node, None, wanted)), name
    name, number = readable(tree), 1
    while name in node.columns:
        number += 1
        name = f"{readable(tree)} {number}"
    return Linear(node, None, (*outputs, Named(name, tree))), name
