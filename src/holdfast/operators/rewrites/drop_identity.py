"""drop_identity: a `Linear` that keeps all rows and outputs its input's columns unchanged is replaced by its input."""

from __future__ import annotations

from holdfast.plan.expression import plain
from holdfast.plan.nodes import Linear, Node
from holdfast.plan.walk import Kept, rewrite_up


def drop_identity(node: Node, kept: Kept) -> Node:
    return rewrite_up(node, lambda new, _: _drop(new), kept)


def _drop(node: Node) -> Node:
    if not isinstance(node, Linear) or node.predicate is not None or node.columns != node.input.columns:
        return node
    same = all(plain(output.expression) == output.name for output in node.outputs)
    return node.input if same else node
