"""share_constants: what a condition says of one side of an equality it says of the other.

``o.user = u.user AND o.user = 'ada'`` keeps only the users of that name, too. Within a region of inner joins, a
condition that a column equals a constant is repeated for every column of its class (`rewrites/region.py`: equal columns
of one type), and then pushed down to the relation. Only relations that are a source and what is done to its rows get
it: there it can be seen that they have it.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from holdfast.plan.expression import Tree, conjuncts, plain, quoted, read, render
from holdfast.plan.nodes import Linear, Node, Source
from holdfast.plan.rewrites.region import Region, region, roots
from holdfast.plan.walk import Kept, projection, reachable, readers, rewrite_up


def share_constants(node: Node, kept: Kept) -> Node:
    shared = {each for each, count in readers(node).items() if count > 1}
    closed = {*kept, *shared}
    tops = roots(reachable(node, kept), closed)

    def change(new: Node, old: Node) -> Node:
        result = new
        if id(old) in tops and (said := _said(region(new, closed))):
            result = projection(new, new.columns, " AND ".join(said))
        if id(old) in shared:
            closed.add(id(result))
        return result

    return rewrite_up(node, change, kept)


def _said(found: Region) -> list[str]:
    """The conditions that are to be added, over the columns of the region's root."""
    names = {plain(each.sql): each.name for each in found.outputs}
    owner = found.owner()
    known: dict[str, set[str]] = {}
    """Column → the constants that it equals."""

    for leaf in found.leaves:
        for name in leaf.columns:
            known[name] = set(_constants(leaf, name))
    above = [part for each in found.conditions for part in conjuncts(read(each))]
    for part in above:
        if (pair := _equality(part)) is not None and pair[0] in known:
            known[pair[0]].add(pair[1])
    added = []
    for group in found.classes():
        if not found.is_transitive(group):
            continue
        wanted = sorted({constant for name in group for constant in known[name]})
        for name in sorted(group):
            if _is_plain(found.leaves[owner[name]]) and name in names:
                missing = [each for each in wanted if each not in known[name]]
                added += [f"{quoted(names[name])} = {each}" for each in missing]
    return added


def _is_plain(node: Node) -> bool:
    while isinstance(node, Linear):
        node = node.input
    return isinstance(node, Source)


def _constants(node: Node, name: str) -> Iterator[str]:
    """The constants that a column of a relation equals, by the conditions on its rows."""
    inner: str | None = name
    while isinstance(node, Linear) and inner is not None:
        inner = plain(next(each.sql for each in node.outputs if each.name == inner))
        for part in [] if node.predicate is None else conjuncts(read(node.predicate)):
            if (pair := _equality(part)) is not None and pair[0] == inner:
                yield pair[1]
        node = node.input


def _equality(part: Tree) -> tuple[str, str] | None:
    """The column and the constant, if the condition is that they are equal."""
    if not isinstance(part, exp.EQ):
        return None
    for one, other in ((part.this, part.expression), (part.expression, part.this)):
        if isinstance(one, exp.Column) and isinstance(other, exp.Literal):
            return one.name, render(other)
    return None
