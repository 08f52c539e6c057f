"""Walking plans. Plans are graphs: a node that two other nodes read is one object, and is visited and rewritten
once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.plan.nodes import Node

Kept = frozenset[int]  # the ids of nodes that must stay as they are
Rule = Callable[["Node", Kept], "Node"]


def reachable(node: Node, closed: Kept = frozenset()) -> list[Node]:
    """All nodes of a plan, each once, inputs before their readers. Nodes below ``closed`` nodes are left out."""
    found: dict[int, Node] = {}
    waiting = [(node, False)]  # an explicit stack: plans of views on views are deeper than Python's recursion limit
    while waiting:
        each, ready = waiting.pop()
        if id(each) in found:
            continue
        if ready or id(each) in closed:
            found[id(each)] = each
        else:
            waiting.append((each, True))
            waiting += [(child, False) for child in reversed(each.inputs)]
    return list(found.values())


def readers(node: Node) -> Counter[int]:
    """The number of readers of each node in the plan, by ``id(node)``."""
    return Counter(id(child) for each in reachable(node) for child in each.inputs)


def rewrite_up(node: Node, change: Callable[[Node, Node], Node], kept: Kept) -> Node:
    """Apply ``change(new, old)`` to every node, inputs first: ``new`` is the node ``old`` over its changed inputs.

    Nodes in ``kept``, and all nodes below them, are not changed.
    """
    done: dict[int, Node] = {}
    for each in reachable(node, kept):
        if id(each) in kept:
            done[id(each)] = each
        else:
            done[id(each)] = change(each.with_inputs([done[id(child)] for child in each.inputs]), each)
    return done[id(node)]
