"""EXISTS with one comparison, decided by the least and the greatest value.

``EXISTS (SELECT … FROM s WHERE s.k = t.k AND s.x > t.x)`` holds if the greatest x of the group k exceeds t.x. With
``<`` the least x decides; with ``<>`` at least one of the two must differ. So the subquery is one row per group, kept
up to date by an aggregate, and no pairs of rows are compared. A NULL in s.x never makes a comparison true, and least
and greatest skip NULLs; of an empty group both are NULL, and the comparison is not true.

This applies only to types whose least and greatest values follow the order of comparison.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.operators.aggregate import Aggregate, Call
from holdfast.plan.expression import Operation, Tree, chained, condition, is_operation, negated, references
from holdfast.plan.nodes import Linear, Named, Node

_MIRRORED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "<>": "<>"}
_ORDERED = frozenset((
    "tinyint", "smallint", "int", "bigint", "float", "double", "decimal", "string", "date", "timestamp",
    "timestamp_ntz", "boolean", "binary",
))  # fmt: skip


def between(compared: Tree, outer: Node, inner: Node) -> tuple[str, Tree, Tree] | None:
    """Read a condition that compares a value of ``inner`` with a value of ``outer``. Return (comparison, inner value,
    outer value); None if it is another condition, or the type's order is not that of numbers, times or plain texts."""
    differs = is_operation(compared, "not") and is_operation(compared.parts[0], "=")
    whole = compared.parts[0] if differs else compared
    if not isinstance(whole, Operation):
        return None
    kind = "<>" if differs else whole.name
    if kind not in _MIRRORED:
        return None
    ours, theirs = whole.operands
    if not _is_of(ours, inner):
        ours, theirs, kind = theirs, ours, _MIRRORED[kind]
    if not _is_of(ours, inner) or not _is_of(theirs, outer):
        return None
    return (kind, ours, theirs) if ours.type.split("(")[0] in _ORDERED else None


def _is_of(tree: Tree, node: Node) -> bool:
    names = set(references(tree))
    return bool(names) and names <= set(node.columns)


def groups(
    inner: Node, keys: Sequence[str], value: str, kind: str, names: Sequence[str], other: Tree
) -> tuple[Node, Tree]:
    """Return one row per group of ``inner``, with its ``keys`` and extremes, and the condition, over that row and
    ``other``, that the group has a ``value`` for which the comparison holds. ``names``: the new names of the keys, of
    the two extremes, and of the value."""
    *renamed, least, greatest, argument = names
    taken = tuple(Named(new, inner.column(old)) for new, old in zip(renamed, keys, strict=True))
    below = Linear(inner, None, (*taken, Named(argument, inner.column(value))))
    wanted = {"<": "min", "<=": "min", ">": "max", ">=": "max"}.get(kind)
    calls = [
        Call(name, function, (argument,), other.type)
        for name, function in ((least, "min"), (greatest, "max"))
        if wanted in (None, function)
    ]
    found = Aggregate(below, tuple(renamed), tuple(calls))
    return found, chained("or", [_compared(kind, found.column(call.name), other) for call in calls])


def _compared(kind: str, left: Tree, right: Tree) -> Tree:
    return negated(condition("=", left, right)) if kind == "<>" else condition(kind, left, right)
