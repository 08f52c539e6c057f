"""Subqueries that refer to nothing outside of them, as joins.

In an expression such a subquery is a call that carries the `Sub` it stands for in its argument ``sub``. So it can be
moved, copied and compared like any other tree. When a `Linear` is built (`frontend.build`), its subqueries are joined
to the rows below it:

- ``EXISTS`` that a row must satisfy is a semi join without a key, ``NOT EXISTS`` an anti join.
- As a value, under OR, it is a left join with one row, which is there or is not.
- A scalar subquery, of one row at most, is a left join with that row. An aggregate of all rows has one row always.

What refers to the enclosing query has become a join before (`spark.decorrelated`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from sqlglot import exp

from holdfast.frontend.labels import unique
from holdfast.plan.expression import Tree, column, conjunction, conjuncts, quoted, render
from holdfast.plan.nodes import Aggregate, Join, Linear, Named, Node

Item = tuple[str, Tree]


@dataclass(frozen=True)
class Sub:
    """A subquery: its rows. The value of a scalar one is the first column of its only row."""

    kind: Literal["exists", "scalar"]
    node: Node


def call(number: int, sub: Sub) -> Tree:
    """The tree that stands for a subquery. ``number`` tells it from the others of the statement."""
    return exp.Anonymous(this=f"subquery_{number}", expressions=[], sub=sub)


def sub_of(tree: Tree) -> Sub | None:
    found = tree.args.get("sub") if isinstance(tree, exp.Anonymous) else None
    return found if isinstance(found, Sub) else None


def has_subquery(tree: Tree) -> bool:
    return any(sub_of(node) is not None for node in tree.walk())


def attach(node: Node, predicate: Tree | None, items: Sequence[Item]) -> tuple[Node, Tree | None, list[Item]]:
    """``node`` joined with the subqueries of ``predicate`` and ``items``, and these without subqueries."""
    parts = [] if predicate is None else conjuncts(predicate)
    # What asks no subquery comes first: fewer rows are joined.
    if plain := conjunction([part for part in parts if not has_subquery(part)]):
        node = Linear(node, render(plain), _same(node))
    filters = [part for part in parts if _decides(part)]
    rest = [part for part in parts if has_subquery(part) and not _decides(part)]
    trees = [tree for _, tree in items]
    known: dict[Tree, Tree] = {}
    for tree in (each for whole in [*rest, *trees] for each in whole.walk(bfs=False)):
        if tree not in known and (sub := sub_of(tree)) is not None:
            node, known[tree] = _value(node, sub)
    for part in filters:
        sub = sub_of(_bare(part))
        assert sub is not None
        node = Join(node, sub.node, (), (), "anti" if isinstance(part, exp.Not) else "semi")
    granted = [(name, _granted(tree, known)) for name, tree in items]
    return node, conjunction([_granted(part, known) for part in rest]), granted


def _bare(part: Tree) -> Tree:
    return part.this if isinstance(part, exp.Not) else part


def _decides(part: Tree) -> bool:
    """Is the condition nothing but [NOT] EXISTS?"""
    sub = sub_of(_bare(part))
    return sub is not None and sub.kind == "exists"


def _granted(tree: Tree, known: Mapping[Tree, Tree]) -> Tree:
    """``tree`` with the values of its subqueries in their places."""
    return tree.transform(lambda node: known[node].copy() if sub_of(node) is not None else node)


def _value(node: Node, sub: Sub) -> tuple[Node, Tree]:
    """``node`` joined with a subquery, and what the subquery's value is on its rows."""
    if sub.kind == "exists":
        name = unique("exists", node.columns)
        once = Aggregate(Linear(sub.node, None, (Named(name, "TRUE"),)), (name,), ())
        return Join(node, once, (), (), "left"), exp.Not(this=exp.Is(this=column(name), expression=exp.null()))
    name = unique(sub.node.columns[0], node.columns)
    row = Linear(sub.node, None, (Named(name, quoted(sub.node.columns[0])),))
    return Join(node, row, (), (), "inner" if _is_one_row(sub.node) else "left"), column(name)


def _is_one_row(node: Node) -> bool:
    """Has the plan one row, always?"""
    while isinstance(node, Linear) and node.predicate is None:
        node = node.input
    return isinstance(node, Aggregate) and not node.keys


def _same(node: Node) -> tuple[Named, ...]:
    return tuple(Named(name, quoted(name)) for name in node.columns)
