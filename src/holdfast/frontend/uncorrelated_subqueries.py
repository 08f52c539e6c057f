"""Uncorrelated subqueries, as joins.

In an expression such a subquery is a `Subquery`, which can be moved and compared like any other tree. When a `Linear`
is built (`frontend.build_nodes`), its subqueries are joined to the rows below it:

- ``EXISTS`` that a row must satisfy is a semi join without a key, ``NOT EXISTS`` an anti join.
- As a value, under OR, it is a left join with at most one row, and its value is whether that row is there.
- A scalar subquery, which has one row at most, is a left join with that row. An aggregate of all rows always has one
  row.

A subquery that refers to the enclosing query has already become a join (`spark.decorrelation`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from holdfast.frontend.column_names import unique
from holdfast.operators.aggregate import Aggregate
from holdfast.operators.join import Join
from holdfast.plan.expression import (
    BOOLEAN,
    TRUE,
    Tree,
    conjunction,
    conjuncts,
    is_known,
    is_operation,
)
from holdfast.plan.nodes import Linear, Named, Node, same

Item = tuple[str, Tree]


@dataclass(frozen=True)
class Subquery(Tree):
    """A subquery with its rows. The value of a scalar one is the first column of its only row."""

    kind: Literal["exists", "scalar"]
    number: int
    """The number of the subquery in the statement, which distinguishes it from others."""

    node: Node = field(compare=False, repr=False)

    @property
    def type(self) -> str:  # type: ignore[override]  # that of its value
        return BOOLEAN if self.kind == "exists" else self.node.fields[0].type

    @property
    def label(self) -> str:
        return f"subquery_{self.number}"


def has_subquery(tree: Tree) -> bool:
    return any(isinstance(each, Subquery) for each in tree.walk())


def attach(node: Node, predicate: Tree | None, items: Sequence[Item]) -> tuple[Node, Tree | None, list[Item]]:
    """Join ``node`` with the subqueries of ``predicate`` and ``items``. Return it, with both rewritten without
    subqueries."""
    parts = conjuncts(predicate)
    # Conditions without subqueries come first, so that fewer rows are joined.
    if plain := conjunction([part for part in parts if not has_subquery(part)]):
        node = Linear(node, plain, same(node))
    filters = [part for part in parts if _decides(part)]
    rest = [part for part in parts if has_subquery(part) and not _decides(part)]
    known: dict[Tree, Tree] = {}
    for each in (each for whole in [*rest, *(tree for _, tree in items)] for each in whole.walk()):
        if isinstance(each, Subquery) and each not in known:
            node, known[each] = _value(node, each)
    for part in filters:
        asked = _bare(part)
        assert isinstance(asked, Subquery)
        node = Join(node, asked.node, (), (), "semi" if asked is part else "anti")
    filled = [(name, _filled(tree, known)) for name, tree in items]
    return node, conjunction([_filled(part, known) for part in rest]), filled


def _bare(part: Tree) -> Tree:
    return part.parts[0] if is_operation(part, "not") else part


def _decides(part: Tree) -> bool:
    """Whether the condition is nothing but [NOT] EXISTS."""
    asked = _bare(part)
    return isinstance(asked, Subquery) and asked.kind == "exists"


def _filled(tree: Tree, known: Mapping[Tree, Tree]) -> Tree:
    """Return ``tree`` with its subqueries replaced by their values."""
    return tree.transform(lambda each: known[each] if isinstance(each, Subquery) else None)


def _value(node: Node, asked: Subquery) -> tuple[Node, Tree]:
    """Return ``node`` joined with a subquery, and the subquery's value on its rows."""
    if asked.kind == "exists":
        name = unique("exists", node.columns)
        once = Aggregate(Linear(asked.node, None, (Named(name, TRUE),)), (name,), ())
        return Join(node, once, (), (), "left"), is_known(once.column(name))
    first = asked.node.columns[0]
    name = unique(first, node.columns)
    row = Linear(asked.node, None, (Named(name, asked.node.column(first)),))
    return Join(node, row, (), (), "inner" if _is_one_row(asked.node) else "left"), row.column(name)


def _is_one_row(node: Node) -> bool:
    """Whether the plan always has exactly one row."""
    while isinstance(node, Linear) and node.predicate is None:
        node = node.input
    return isinstance(node, Aggregate) and not node.keys
