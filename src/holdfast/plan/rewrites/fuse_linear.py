"""fuse_linear: a `Linear` over a `Linear` becomes one, the inner expressions written into the outer.

An inner expression that costs something is written into one place only: if the outer `Linear` reads it twice (or
inside a lambda function, once per element), both stay, so that it is computed once. The inner predicate goes first in
the AND, as it went first before: it may guard the outer one (``b <> 0 AND a / b > 1``).
"""

from __future__ import annotations

from collections import Counter

from sqlglot import exp

from holdfast.plan.expression import Tree, conjunction, conjuncts, read, render, replace_columns
from holdfast.plan.nodes import Linear, Named, Node
from holdfast.plan.walk import Kept, rewrite_up


def fuse_linear(node: Node, kept: Kept) -> Node:
    return rewrite_up(node, lambda new, _: _fuse(new), kept)


def _fuse(node: Node) -> Node:
    while isinstance(node, Linear) and isinstance(node.input, Linear):
        inner = node.input
        trees = {output.name: read(output.sql) for output in inner.outputs}
        outer = [read(output.sql) for output in node.outputs]
        predicate = [] if node.predicate is None else conjuncts(read(node.predicate))
        if not _may_inline(trees, outer + predicate):
            return node
        outputs = tuple(
            Named(output.name, render(replace_columns(tree, trees)))
            for output, tree in zip(node.outputs, outer, strict=True)
        )
        parts = [] if inner.predicate is None else conjuncts(read(inner.predicate))
        parts += [replace_columns(part, trees) for part in predicate]
        whole = conjunction(parts)
        node = Linear(inner.input, None if whole is None else render(whole), outputs)
    return node


def _may_inline(inner: dict[str, Tree], outer: list[Tree]) -> bool:
    uses: Counter[str] = Counter()
    for tree in outer:
        for node in tree.find_all(exp.Column):
            uses[node.name] += 2 if node.find_ancestor(exp.Lambda) is not None else 1
    return all(count == 1 or is_cheap(inner[name]) for name, count in uses.items())


def is_cheap(tree: Tree) -> bool:
    """Is computing it again as cheap as reading it?"""
    return isinstance(tree, (exp.Column, exp.Literal, exp.Boolean, exp.Null))
