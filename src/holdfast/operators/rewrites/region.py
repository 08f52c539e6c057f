"""Regions: trees of inner joins, represented by the relations that they join and the conditions between them.

A region is as large as possible: it consists of inner joins, and of each `Linear` between them that only filters,
renames and drops columns. Its *leaves* are the nodes below. Inner joins may be computed in any order, so a region is
defined by the columns that must be equal (*classes*: if a = b and b = c then a = c, and any two columns of a class may
be a key) and by all other *conditions*. In a region, all columns of all leaves have different names.

A node with several readers is a leaf, since it must not be changed. A join in which NULL equals NULL is a leaf too.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, field

from holdfast.operators.join import Join
from holdfast.plan.expression import Column, Tree, condition, plain, renamed
from holdfast.plan.nodes import Linear, Named, Node

Shape = int | tuple["Shape", "Shape", frozenset[frozenset[str]]]
"""The index of a leaf; or two shapes and the classes by which they are joined."""


@dataclass
class Region:
    """The leaves of a tree of inner joins, and the conditions between them."""

    leaves: list[Node] = field(default_factory=list)
    """The leaves. The names of their columns are unique among all leaves."""

    equal: list[tuple[str, str]] = field(default_factory=list)
    """Pairs of columns that must be equal."""

    conditions: list[Tree] = field(default_factory=list)
    shape: Shape = 0
    """The current tree of joins."""

    outputs: tuple[Named, ...] = ()
    """The columns of the region's root, computed from the columns of the leaves."""

    def owner(self) -> dict[str, int]:
        """Column → index of its leaf."""
        return {name: index for index, leaf in enumerate(self.leaves) for name in leaf.columns}

    def classes(self) -> list[frozenset[str]]:
        """The classes of equal columns, in an order that does not depend on the order of the joins."""
        groups: dict[str, set[str]] = {}
        for one, other in self.equal:
            merged = groups.get(one, {one}) | groups.get(other, {other})
            for name in merged:
                groups[name] = merged
        return sorted({frozenset(group) for group in groups.values()}, key=sorted)

    def inside(self, classes: Sequence[frozenset[str]]) -> list[Tree]:
        """Conditions on single leaves that follow from the classes: two columns of a leaf in one class must be
        equal."""
        found = []
        for group in classes:
            for leaf in self.leaves:
                mine = [name for name in sorted(group) if name in leaf.columns]
                found += [condition("=", leaf.column(mine[0]), leaf.column(other)) for other in mine[1:]]
        return found


def is_between(node: Node) -> bool:
    """Whether the node is a `Linear` over an inner join that only filters, renames and drops columns."""
    return isinstance(node, Linear) and is_inner(below(node)) and all(plain(each.expression) for each in node.outputs)


def is_inner(node: Node) -> bool:
    return isinstance(node, Join) and node.how == "inner" and not any(node.null_safe)


def below(node: Node) -> Node:
    """The first node below a stack of `Linear` nodes."""
    while isinstance(node, Linear):
        node = node.input
    return node


def roots(nodes: list[Node], closed: Container[int]) -> set[int]:
    """The ids of the inner joins that are the root of a region. ``nodes``: all nodes of the plan, inputs first."""
    inside: set[int] = set()
    for each in reversed(nodes):
        if not is_inner(each) and id(each) not in inside:
            continue
        for child in each.inputs:
            if id(child) not in closed and (is_inner(child) or is_between(child)):
                inside.add(id(child))
    return {id(each) for each in nodes if is_inner(each) and id(each) not in inside}


def region(root: Node, closed: Container[int]) -> Region:
    """Build the region below ``root``, an inner join."""
    found = Region()
    taken: set[str] = set()

    def flatten(node: Node, top: bool) -> tuple[dict[str, str], Shape]:
        """Column of ``node`` → its name in the region; and the shape of the joins below."""
        inside = top or id(node) not in closed
        if inside and isinstance(node, Join) and is_inner(node):
            left, of_left = flatten(node.left, False)
            right, of_right = flatten(node.right, False)
            pairs = [(left[a], right[b]) for a, b in zip(node.left_keys, node.right_keys, strict=True)]
            found.equal += pairs
            return {**left, **right}, (of_left, of_right, frozenset(frozenset(pair) for pair in pairs))
        if inside and isinstance(node, Linear) and is_between(node):
            names, shape = flatten(node.input, False)
            if node.predicate is not None:
                found.conditions.append(renamed(node.predicate, names))
            return {each.name: names[plain(each.expression) or ""] for each in node.outputs}, shape
        names = {}
        for name in node.columns:
            fresh, number = name, 1
            while fresh in taken:
                number += 1
                fresh = f"{name} {number}"
            taken.add(fresh)
            names[name] = fresh
        if any(old != new for old, new in names.items()):
            node = Linear(node, None, tuple(Named(new, node.column(old)) for old, new in names.items()))
        found.leaves.append(node)
        return names, len(found.leaves) - 1

    names, found.shape = flatten(root, True)
    found.outputs = tuple(Named(each.name, Column(names[each.name], each.type)) for each in root.fields)
    return found
