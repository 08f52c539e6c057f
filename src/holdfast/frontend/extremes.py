"""EXISTS with one comparison, decided by the least and the greatest value.

``EXISTS (SELECT … FROM s WHERE s.k = t.k AND s.x > t.x)`` asks whether the greatest x of the group k exceeds t.x; with
``<`` it is the least one, and with ``<>`` one of the two differs. So the subquery is one row per group, kept up to date
by an aggregate, and no pair of rows is ever looked at. NULLs among s.x are never compared with success, and least and
greatest leave them out; of an empty group both are NULL, and the comparison is not true.

Only where the type is known to be one whose least and greatest values are those by which it is compared. (Spark casts
both sides of a comparison to one type first: what is least or greatest is the value after that.)
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from holdfast.plan.expression import Tree, column, quoted
from holdfast.plan.nodes import Aggregate, Call, Linear, Named, Node
from holdfast.plan.origin import source_type

_MIRRORED: dict[type[Tree], type[exp.Binary]] = {
    exp.LT: exp.GT,
    exp.GT: exp.LT,
    exp.LTE: exp.GTE,
    exp.GTE: exp.LTE,
    exp.NEQ: exp.NEQ,
}


def between(condition: Tree, outer: Node, inner: Node) -> tuple[type[exp.Binary], Tree, Tree] | None:
    """A condition that compares something of ``inner`` with something of ``outer``: how the former is compared with the
    latter, and both. None if it is another condition, or the order of the values is not known to be that of numbers,
    times or plain texts."""
    is_negated = isinstance(condition, exp.Not) and isinstance(condition.this, exp.EQ)
    compared = condition.this if is_negated else condition
    kind: type[Tree] = exp.NEQ if is_negated else type(condition)
    if kind not in _MIRRORED:
        return None
    ours, theirs = compared.this, compared.expression
    if not _is_of(ours, inner):
        ours, theirs, kind = theirs, ours, _MIRRORED[kind]
    if not _is_of(ours, inner) or not _is_of(theirs, outer) or not issubclass(kind, exp.Binary):
        return None
    # Spark compares values of one type only.
    known = _type(inner, ours) or _type(outer, theirs) or ""
    return (kind, ours, theirs) if known.split("(")[0] in _ORDERED else None


_ORDERED = frozenset((
    "tinyint", "smallint", "int", "bigint", "float", "double", "decimal", "string", "date", "timestamp",
    "timestamp_ntz", "boolean", "binary",
))  # fmt: skip


def _is_of(tree: Tree, node: Node) -> bool:
    names = {each.name for each in tree.find_all(exp.Column)}
    return bool(names) and names <= set(node.columns)


def _type(node: Node, tree: Tree) -> str | None:
    if isinstance(tree, exp.Cast):
        return str(tree.to.sql(dialect="spark")).lower()
    return source_type(node, tree.name) if isinstance(tree, exp.Column) else None


def groups(
    inner: Node, keys: Sequence[str], value: str, kind: type[exp.Binary], names: Sequence[str], other: Tree
) -> tuple[Node, Tree]:
    """One row per group of ``inner``, with the ``keys`` under the new ``names``, and two names more for the extremes;
    and the condition, over that row and ``other``, that the group has a ``value`` that compares so."""
    *renamed, least, greatest, argument = names
    taken = tuple(Named(new, quoted(old)) for new, old in zip(renamed, keys, strict=True))
    below = Linear(inner, None, (*taken, Named(argument, quoted(value))))
    wanted = {exp.LT: "min", exp.LTE: "min", exp.GT: "max", exp.GTE: "max"}.get(kind)
    calls = [
        Call(name, function, (argument,))
        for name, function in ((least, "min"), (greatest, "max"))
        if wanted in (None, function)
    ]
    condition: Tree | None = None
    for each in calls:
        one = kind(this=column(each.name), expression=other.copy())
        condition = one if condition is None else exp.Or(this=condition, expression=one)
    assert condition is not None
    return Aggregate(below, tuple(renamed), tuple(calls)), condition
