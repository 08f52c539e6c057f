"""prune_columns: columns and aggregates that no reader needs are dropped as early as possible.

A keyed node keeps the columns that it receives, so a column that is dropped below it takes no state. First, the needed
columns of every node are collected, from the top down; a node with several readers gets the needs of all of them, and
stays one node. Then the plan is built again, from the bottom up, each node with the needed columns in their old order.

Each node defines which columns it needs of its inputs, and its pruned form (`Node.needs`, `Node.pruned`).

A `TopK` or a `Window` breaks ties by the whole row, so pruning below it may break ties in another way. Every way is
correct, as long as it is always the same.
"""

from __future__ import annotations

from collections import defaultdict

from holdfast.plan.nodes import Node
from holdfast.plan.walk import Kept, reachable


def prune_columns(node: Node, kept: Kept) -> Node:
    nodes = reachable(node, kept)
    needs: dict[int, set[str]] = defaultdict(set)
    needs[id(node)] |= set(node.columns)
    for each in reversed(nodes):  # readers come before the nodes that they read
        if id(each) not in kept:
            for child, names in zip(each.inputs, each.needs(needs[id(each)]), strict=True):
                needs[id(child)] |= names
    done: dict[int, Node] = {}
    for each in nodes:
        inputs = [done[id(child)] for child in each.inputs if id(each) not in kept]
        done[id(each)] = each if id(each) in kept else each.pruned(needs[id(each)], inputs)
    return done[id(node)]
