"""push_filter: a condition moves below the node it filters, so that the node keeps fewer rows.

Each node defines which conditions pass it, and their form below it (`Node.pushed`). A node with another reader, in
another view or in this plan, is closed: a filter pushed into it would make a second node with its own state, and all
readers of a `Draw` must see the same values.
"""

from __future__ import annotations

from holdfast.plan.expression import Tree, conjunction, conjuncts
from holdfast.plan.nodes import Linear, Node, filtered
from holdfast.plan.walk import Kept, readers, rewrite_up


def push_filter(node: Node, kept: Kept) -> Node:
    shared = {each for each, count in readers(node).items() if count > 1}
    closed = {*kept, *shared}

    def change(new: Node, old: Node) -> Node:
        result = _push(new, closed)
        if id(old) in shared:
            closed.add(id(result))
        return result

    return rewrite_up(node, change, kept)


def _push(node: Node, closed: set[int]) -> Node:
    if not isinstance(node, Linear) or node.predicate is None or id(node.input) in closed:
        return node
    parts = conjuncts(node.predicate)
    below: list[list[Tree]] = [[] for _ in node.input.inputs]
    moved = []
    for part in parts:
        pushed = node.input.pushed(part)
        if pushed is None:
            continue
        moved.append(part)
        for conditions, condition in zip(below, pushed, strict=True):
            conditions += [] if condition is None else [condition]
    if not moved:
        return node
    inputs = [filtered(each, conditions) for each, conditions in zip(node.input.inputs, below, strict=True)]
    rest = conjunction([part for part in parts if part not in moved])
    return Linear(node.input.with_inputs(inputs), rest, node.outputs)
