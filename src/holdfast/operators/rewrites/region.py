"""Regions: trees of inner joins, seen as the relations that they join and the conditions between them.

A region is as large as it can be: inner joins, and what is between them: a `Linear` that filters, renames and leaves
columns away. Its *leaves* are whatever is below. Inner joins may be made in any order, so all that matters is which
columns must be equal (*classes*: if a = b and b = c then a = c, and any two of a class may be a key), and what else
must hold (*conditions*). Every column of every leaf has a name of its own here.

A node that another reader shares is a leaf: it must stay as it is. So is a join in which NULL equals NULL.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, field

from holdfast.operators.join import Join
from holdfast.plan.expression import Column, Tree, condition, plain, renamed
from holdfast.plan.nodes import Linear, Named, Node

Shape = int | tuple["Shape", "Shape", frozenset[frozenset[str]]]
"""A leaf's number, or two shapes and the classes that they are joined by."""


@dataclass
class Region:
    """The leaves of a tree of inner joins, and what holds between them."""

    leaves: list[Node] = field(default_factory=list)
    """With names of columns that are unique among them."""

    equal: list[tuple[str, str]] = field(default_factory=list)
    conditions: list[Tree] = field(default_factory=list)
    shape: Shape = 0
    """How they are joined now."""

    outputs: tuple[Named, ...] = ()
    """The columns of the region's root, by those of the leaves."""

    def owner(self) -> dict[str, int]:
        """Column → number of its leaf."""
        return {name: index for index, leaf in enumerate(self.leaves) for name in leaf.columns}

    def classes(self) -> list[frozenset[str]]:
        """The classes of equal columns, in an order that does not depend on that of the leaves' joins."""
        groups: dict[str, set[str]] = {}
        for one, other in self.equal:
            merged = groups.get(one, {one}) | groups.get(other, {other})
            for name in merged:
                groups[name] = merged
        return sorted({frozenset(group) for group in groups.values()}, key=sorted)

    def inside(self, classes: Sequence[frozenset[str]]) -> list[Tree]:
        """What the classes say of single leaves: columns of one that must be equal, since both equal a third."""
        found = []
        for group in classes:
            for leaf in self.leaves:
                mine = [name for name in sorted(group) if name in leaf.columns]
                found += [condition("=", leaf.column(mine[0]), leaf.column(other)) for other in mine[1:]]
        return found


def is_between(node: Node) -> bool:
    """A `Linear` that filters, renames and leaves columns away, over an inner join."""
    return isinstance(node, Linear) and is_inner(below(node)) and all(plain(each.expression) for each in node.outputs)


def is_inner(node: Node) -> bool:
    return isinstance(node, Join) and node.how == "inner" and not any(node.null_safe)


def below(node: Node) -> Node:
    """What is below a stack of `Linear` nodes."""
    while isinstance(node, Linear):
        node = node.input
    return node


def roots(nodes: list[Node], closed: Container[int]) -> set[int]:
    """The ids of the inner joins that are the top of a region. ``nodes``: all, inputs first."""
    inside: set[int] = set()
    for each in reversed(nodes):
        if not is_inner(each) and id(each) not in inside:
            continue
        for child in each.inputs:
            if id(child) not in closed and (is_inner(child) or is_between(child)):
                inside.add(id(child))
    return {id(each) for each in nodes if is_inner(each) and id(each) not in inside}


def region(root: Node, closed: Container[int]) -> Region:
    """The region below ``root``, an inner join."""
    found = Region()
    taken: set[str] = set()

    def flatten(node: Node, top: bool) -> tuple[dict[str, str], Shape]:
        """Column → its name here, and how the leaves below are joined."""
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
