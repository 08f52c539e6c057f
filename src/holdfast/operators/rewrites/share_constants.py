"""share_constants: what a condition says of one side of an equality it says of the other.

``o.user = u.user AND o.user = 'ada'`` keeps only the users of that name, too. Within a region of inner joins, a
condition that a column equals a constant is repeated for every column of its class (`operators/rewrites/region.py`:
equal columns of one type), and then pushed down to the relation. Only relations that are a source and what is done to
its rows get it: there it can be seen that they have it.
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
    """The conditions that are to be added, over the columns of the region's root."""
    names = {plain(each.expression): each.name for each in found.outputs}
    owner = found.owner()
    known: dict[str, set[Tree]] = {}
    """Column → the constants that it equals."""

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
    """The constants that a column of a relation equals, by the conditions on its rows."""
    inner: str | None = name
    while isinstance(node, Linear) and inner is not None:
        inner = plain(next(each.expression for each in node.outputs if each.name == inner))
        for part in conjuncts(node.predicate):
            if (pair := _equality(part)) is not None and pair[0] == inner:
                yield pair[1]
        node = node.input


def _equality(part: Tree) -> tuple[str, Tree] | None:
    """The column and the constant, if the condition is that they are equal."""
    for one, other in (part.parts, part.parts[::-1]) if is_operation(part, "=") else ():
        if isinstance(one, Column) and isinstance(other, Literal):
            return one.name, other
    return None
