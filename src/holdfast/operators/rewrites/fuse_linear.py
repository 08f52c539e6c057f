"""fuse_linear: a `Linear` over a `Linear` becomes one `Linear`; the inner expressions are written into the outer ones.

An inner expression that is more than a column or a constant must be computed only once. So if the outer `Linear` reads
it twice (or inside a lambda function, which reads it once per element), both nodes stay. The inner predicate comes
first in the AND, since it was evaluated first before: it may guard the outer one (``b <> 0 AND a / b > 1``).
"""

from __future__ import annotations

from collections import Counter

from holdfast.plan.expression import Column, Lambda, Literal, Tree, conjunction, conjuncts, substitute
from holdfast.plan.nodes import Linear, Named, Node
from holdfast.plan.walk import Kept, rewrite_up


def fuse_linear(node: Node, kept: Kept) -> Node:
    return rewrite_up(node, lambda new, _: _fuse(new), kept)


def _fuse(node: Node) -> Node:
    while isinstance(node, Linear) and isinstance(node.input, Linear):
        inner = node.input
        trees = {output.name: output.expression for output in inner.outputs}
        predicate = conjuncts(node.predicate)
        if not _may_inline(trees, [*(output.expression for output in node.outputs), *predicate]):
            return node
        outputs = tuple(Named(output.name, substitute(output.expression, trees)) for output in node.outputs)
        parts = conjuncts(inner.predicate) + [substitute(part, trees) for part in predicate]
        node = Linear(inner.input, conjunction(parts), outputs)
    return node


def _may_inline(inner: dict[str, Tree], outer: list[Tree]) -> bool:
    uses: Counter[str] = Counter()
    for tree in outer:
        for each in tree.walk():
            if isinstance(each, Column):
                uses[each.name] += 1
            elif isinstance(each, Lambda):  # its columns are read once per element, so they count again
                uses.update(part.name for part in each.walk() if isinstance(part, Column))
    return all(count == 1 or is_cheap(inner[name]) for name, count in uses.items())


def is_cheap(tree: Tree) -> bool:
    """Whether computing the expression again is as cheap as reading its value."""
    return isinstance(tree, (Column, Literal))
