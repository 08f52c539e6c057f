"""Building plan nodes from expressions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from holdfast.frontend.column_names import label, unique
from holdfast.frontend.placeholders import Placeholder, has_placeholder, innermost
from holdfast.frontend.temporal_filters import split
from holdfast.frontend.uncorrelated_subqueries import Item, attach, has_subquery
from holdfast.operators.apply import Applied, Apply
from holdfast.operators.draw import Draw, Drawn
from holdfast.operators.temporal import Temporal
from holdfast.plan.expression import Operation, Tree, conjunction, conjuncts, plain
from holdfast.plan.nodes import Function, Linear, Named, Node


def linear(node: Node, predicate: Tree | None, items: Sequence[Item]) -> Node:
    """Build ``items`` over the rows of ``node`` that ``predicate`` keeps; return ``node`` itself if that changes
    nothing.

    Conditions on the clock become a `Temporal` below. Placeholders in the expressions become draws and calls of users'
    functions below, made for the rows that the part of the predicate without placeholders keeps. Subqueries are joined
    below.
    """
    node, predicate, trees = drawn(node, predicate, [tree for _, tree in items])
    items = [(name, tree) for (name, _), tree in zip(items, trees, strict=True)]
    if any(has_subquery(tree) for tree in [*trees, *([] if predicate is None else [predicate])]):
        node, predicate, items = attach(node, predicate, items)
    same = tuple(name for name, _ in items) == node.columns
    if predicate is None and same and all(plain(tree) == name for name, tree in items):
        return node
    return Linear(node, predicate, tuple(Named(name, tree) for name, tree in items))


def drawn(node: Node, predicate: Tree | None, trees: Sequence[Tree]) -> tuple[Node, Tree | None, list[Tree]]:
    """Return the rows of ``node`` with columns for the placeholders of the trees, and predicate and trees over these
    columns."""
    node, predicate = timed(node, predicate)
    trees = list(trees)
    while wishes := innermost(trees + ([] if predicate is None else [predicate])):
        parts = conjuncts(predicate)
        node, known = _draw(node, conjunction([part for part in parts if not has_placeholder(part)]), wishes)
        predicate = conjunction([_filled(part, known) for part in parts if has_placeholder(part)])
        trees = [_filled(tree, known) for tree in trees]
    return node, predicate, trees


def timed(node: Node, predicate: Tree | None) -> tuple[Node, Tree | None]:
    """Return the rows of ``node`` while the conditions on the clock hold, and the rest of the predicate."""
    times, parts = split(predicate)
    if times is None:
        return node, predicate
    plain = [part for part in parts if not has_placeholder(part) and not has_subquery(part)]
    rest = [part for part in parts if has_placeholder(part) or has_subquery(part)]
    items = columns(node)
    moments: list[str | None] = []
    for name, function, trees in (("since", "greatest", times.starts), ("until", "least", times.ends)):
        found = tuple(dict.fromkeys(trees))
        moments.append(unique(name, [each for each, _ in items]) if found else None)
        if found:
            # Both functions skip NULLs, which stand for no bound.
            tree = found[0] if len(found) == 1 else Operation(function, found, "timestamp")
            items.append((moments[-1] or "", tree))
    below = linear(node, conjunction([*plain, *dict.fromkeys(times.known)]), items)
    return Temporal(below, moments[0], moments[1], times.calendar), conjunction(rest)


def _draw(node: Node, predicate: Tree | None, wishes: Sequence[Placeholder]) -> tuple[Node, dict[Tree, Tree]]:
    """Return the rows of ``node`` that ``predicate`` keeps, with the placeholders' values, and the columns that hold
    them."""
    held: dict[Tree, str] = {tree: name for name, tree in columns(node)}
    for argument in (each for wish in wishes for each in wish.arguments):
        if argument not in held:
            held[argument] = unique(label(argument), held.values())
    names: dict[Placeholder, str] = {}
    draws: list[Drawn] = []
    calls: list[Applied] = []
    for wish in wishes:
        names[wish] = unique(label(wish), [*held.values(), *names.values()])
        arguments = tuple(held[each] for each in wish.arguments)
        if isinstance(wish.draw, Function):
            calls.append(Applied(names[wish], wish.draw, arguments))
        else:
            draws.append(replace(wish.draw, name=names[wish], arguments=arguments))
    node = linear(node, predicate, [(name, tree) for tree, name in held.items()])
    node = Draw(node, tuple(draws)) if draws else node
    node = Apply(node, tuple(calls)) if calls else node
    return node, {wish: node.column(name) for wish, name in names.items()}


def _filled(tree: Tree, known: Mapping[Tree, Tree]) -> Tree:
    """Return ``tree`` with each placeholder in ``known`` replaced by its column."""
    return tree.transform(lambda each: known.get(each) if isinstance(each, Placeholder) else None)


def columns(node: Node, names: Sequence[str] | None = None) -> list[Item]:
    """The columns ``names`` of ``node``, or all of them, unchanged."""
    return [(name, node.column(name)) for name in (node.columns if names is None else names)]


def extend(node: Node, items: Sequence[Item]) -> Node:
    """Return ``node`` with further columns."""
    return linear(node, None, [*columns(node), *items])
