"""prune_columns: columns that nobody reads are dropped as early as possible, and so are aggregates.

What a keyed node receives is what it keeps, so a column that is dropped below it is state that is not kept. First the
needs of every node are collected, from the top down; a node that several read must satisfy all of them, and stays one
node. Then the plan is built anew, from the bottom up, each node with the columns that are needed, in their old order.

What a node needs of its inputs, and what is left of it, it says itself (`Node.needs`, `Node.pruned`).

A `TopK` or a `Window` breaks ties by the whole row, so pruning below it may settle ties another way: any way is right,
as long as it is always the same one.
"""

from __future__ import annotations

from collections import defaultdict

from holdfast.plan.nodes import Node
from holdfast.plan.walk import Kept, reachable


def prune_columns(node: Node, kept: Kept) -> Node:
    nodes = reachable(node, kept)
    needs: dict[int, set[str]] = defaultdict(set)
    needs[id(node)] |= set(node.columns)
    for each in reversed(nodes):  # those that read a node come before it
        if id(each) not in kept:
            for child, names in zip(each.inputs, each.needs(needs[id(each)]), strict=True):
                needs[id(child)] |= names
    done: dict[int, Node] = {}
    for each in nodes:
        inputs = [done[id(child)] for child in each.inputs if id(each) not in kept]
        done[id(each)] = each if id(each) in kept else each.pruned(needs[id(each)], inputs)
    return done[id(node)]
