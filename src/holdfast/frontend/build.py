"""Building plan nodes from resolved trees."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from sqlglot import exp

from holdfast.frontend.attach import attach, has_subquery
from holdfast.frontend.draws import has_wish, innermost, wished
from holdfast.frontend.labels import label, unique
from holdfast.frontend.moments import split
from holdfast.plan.expression import Tree, column, conjunction, conjuncts, quoted, render
from holdfast.plan.nodes import Applied, Apply, Draw, Drawn, Function, Linear, Named, Node, Temporal

Item = tuple[str, Tree]  # an output column: its name, and the bare tree that computes it


def linear(node: Node, predicate: Tree | None, items: Sequence[Item]) -> Node:
    """``items`` of the rows of ``node`` that ``predicate`` keeps; ``node`` itself where that changes nothing.

    Conditions on the clock are kept by a `Temporal` below. What the expressions wish to draw is drawn below, and users'
    functions are called there, for the rows that the part of the predicate without wishes keeps. The subqueries in them
    are joined below.
    """
    node, predicate, trees = drawn(node, predicate, [tree for _, tree in items])
    items = [(name, tree) for (name, _), tree in zip(items, trees, strict=True)]
    if any(has_subquery(tree) for tree in [*trees, *([] if predicate is None else [predicate])]):
        node, predicate, items = attach(node, predicate, items)
    outputs = tuple(Named(name, render(tree)) for name, tree in items)
    same = tuple(output.name for output in outputs) == node.columns
    if predicate is None and same and all(output.sql == quoted(output.name) for output in outputs):
        return node
    return Linear(node, None if predicate is None else render(predicate), outputs)


def drawn(node: Node, predicate: Tree | None, trees: Sequence[Tree]) -> tuple[Node, Tree | None, list[Tree]]:
    """The rows of ``node`` with all that the trees wish to draw, and predicate and trees over that."""
    node, predicate = timed(node, predicate)
    trees = list(trees)
    while wishes := innermost(trees + ([] if predicate is None else [predicate])):
        parts = [] if predicate is None else conjuncts(predicate)
        node, known = _draw(node, conjunction([part for part in parts if not has_wish(part)]), wishes)
        predicate = conjunction([_granted(part, known) for part in parts if has_wish(part)])
        trees = [_granted(tree, known) for tree in trees]
    return node, predicate, trees


def timed(node: Node, predicate: Tree | None) -> tuple[Node, Tree | None]:
    """The rows of ``node`` while the conditions on the clock hold, and what is left of the predicate."""
    times, parts = split(predicate)
    if times is None:
        return node, predicate
    plain = [part for part in parts if not has_wish(part) and not has_subquery(part)]
    rest = [part for part in parts if has_wish(part) or has_subquery(part)]
    items: list[Item] = [(name, column(name)) for name in node.columns]
    moments: list[str | None] = []
    for name, function, trees in (("since", "greatest", times.starts), ("until", "least", times.ends)):
        found = list(dict.fromkeys(trees))
        moments.append(unique(name, [each for each, _ in items]) if found else None)
        if found:
            # Both pass over NULLs, which stand for no bound.
            tree = found[0] if len(found) == 1 else exp.Anonymous(this=function, expressions=found)
            items.append((moments[-1] or "", tree))
    below = linear(node, conjunction([*plain, *dict.fromkeys(times.known)]), items)
    return Temporal(below, moments[0], moments[1], times.calendar), conjunction(rest)


def _draw(node: Node, predicate: Tree | None, wishes: Sequence[Tree]) -> tuple[Node, dict[Tree, str]]:
    """The rows of ``node`` that ``predicate`` keeps with the wishes' draws, and the columns in which they are."""
    columns: dict[Tree, str] = {column(name): name for name in node.columns}
    for argument in (each for tree in wishes for each in tree.expressions):
        if argument not in columns:
            columns[argument] = unique(label(argument), columns.values())
    names: dict[Tree, str] = {}
    draws: list[Drawn] = []
    calls: list[Applied] = []
    for tree in wishes:
        drawn = wished(tree)
        names[tree] = unique(label(tree), [*columns.values(), *names.values()])
        arguments = tuple(columns[each] for each in tree.expressions)
        if isinstance(drawn, Function):
            calls.append(Applied(names[tree], drawn, arguments))
        elif drawn is not None:
            draws.append(replace(drawn, name=names[tree], arguments=arguments))
    node = linear(node, predicate, [(name, tree) for tree, name in columns.items()])
    node = Draw(node, tuple(draws)) if draws else node
    return Apply(node, tuple(calls)) if calls else node, names


def _granted(tree: Tree, known: Mapping[Tree, str]) -> Tree:
    """``tree`` with each wish that is ``known`` replaced by its column."""
    return tree.transform(lambda node: column(known[node]) if wished(node) is not None and node in known else node)


def extend(node: Node, items: Sequence[Item]) -> Node:
    """``node`` with further columns."""
    return linear(node, None, [(name, column(name)) for name in node.columns] + list(items))


def over(tree: Tree, known: Mapping[Tree, str], left_over: Callable[[exp.Column], Exception]) -> Tree:
    """``tree`` with each part that is ``known`` replaced by its column; raises ``left_over`` of any other column."""
    if (name := known.get(tree)) is not None:
        return column(name)
    if isinstance(tree, exp.Column):
        raise left_over(tree)
    result = tree.copy()
    for key, value in tree.args.items():
        if isinstance(value, list):
            result.set(key, [over(each, known, left_over) if isinstance(each, exp.Expr) else each for each in value])
        elif isinstance(value, exp.Expr) and not isinstance(value, exp.DataType):
            result.set(key, over(value, known, left_over))
    return result
