"""share_constants: a condition that a column equals a constant is copied to all columns that equal this column.

``o.user = u.user AND o.user = 'ada'`` keeps only the users with that name, too. Within a region of inner joins, the
condition is copied to every column of the class (`operators/rewrites/region.py`: equal columns of one type), and then
pushed down to the relation. Only relations that are a source under `Linear` nodes get it, since only for them it is
visible in the plan whether they already have it.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.operators.rewrites.region import Region, region, roots
from holdfast.plan.expression import (
    Column,
    Literal,
    Tree,
    condition,
    conjunction,
    conjuncts,
    is_operation,
    plain,
    readable,
)
from holdfast.plan.nodes import Linear, Node, Source, projection
from holdfast.plan.walk import Kept, reachable, readers, rewrite_up


def share_constants(node: Node, kept: Kept) -> Node:
    shared = {each for each, count in readers(node).items() if count > 1}
    closed = {*kept, *shared}
    tops = roots(reachable(node, kept), closed)

    def change(new: Node, old: Node) -> Node:
        result = new
        if id(old) in tops and (said := _said(region(new, closed))):
            result = projection(new, new.columns, conjunction(said))
        if id(old) in shared:
            closed.add(id(result))
        return result

    return rewrite_up(node, change, kept)


def _said(found: Region) -> list[Tree]:
    """The conditions to add, over the columns of the region's root."""
    names = {plain(each.expression): each.name for each in found.outputs}
    owner = found.owner()
    known: dict[str, set[Tree]] = {}
    """Column → the constants that it must equal."""

    for leaf in found.leaves:
        for name in leaf.columns:
            known[name] = set(_constants(leaf, name))
    for part in (part for each in found.conditions for part in conjuncts(each)):
        if (pair := _equality(part)) is not None and pair[0] in known:
            known[pair[0]].add(pair[1])
    added = []
    for group in found.classes():
        wanted = sorted({constant for name in group for constant in known[name]}, key=readable)
        for name in sorted(group):
            if _is_plain(found.leaves[owner[name]]) and name in names:
                missing = [each for each in wanted if each not in known[name]]
                added += [condition("=", Column(names[name], each.type), each) for each in missing]
    return added


def _is_plain(node: Node) -> bool:
    while isinstance(node, Linear):
        node = node.input
    return isinstance(node, Source)


def _constants(node: Node, name: str) -> Iterator[Tree]:
    """The constants that a column of a relation must equal, by the conditions of its `Linear` nodes."""
    inner: str | None = name
    while isinstance(node, Linear) and inner is not None:
        inner = plain(next(each.expression for each in node.outputs if each.name == inner))
        for part in conjuncts(node.predicate):
            if (pair := _equality(part)) is not None and pair[0] == inner:
                yield pair[1]
        node = node.input


def _equality(part: Tree) -> tuple[str, Tree] | None:
    """(column, constant) if the condition is that they are equal; else None."""
    for one, other in (part.parts, part.parts[::-1]) if is_operation(part, "=") else ():
        if isinstance(one, Column) and isinstance(other, Literal):
            return one.name, other
    return None
