"""Grouping: from expressions with aggregates to an `Aggregate` with a `Linear` below and one above.

Below, a `Linear` computes the keys and the arguments, each once, and nothing else. Above, what the user asked for is
computed from keys and results: in each expression, a part that equals a key becomes that key's column, an aggregate
becomes its result's column (equal aggregates are one), and a column that is then left over is neither.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from holdfast.errors import SqlError
from holdfast.frontend.build import Item, linear, over
from holdfast.frontend.labels import label, unique
from holdfast.frontend.place import Text
from holdfast.frontend.resolve import is_aggregate
from holdfast.plan.expression import Tree
from holdfast.plan.nodes import Aggregate, Call, Node


class Grouping:
    """The aggregation of ``node``'s rows (those that ``predicate`` keeps) by ``keys``.

    ``named`` are the output columns the user asked for: a key or aggregate that is one of them takes its name.
    """

    def __init__(self, keys: Sequence[Tree], named: Sequence[Item], used: Sequence[Tree], text: Text) -> None:
        self.text = text
        self._wanted = {tree: name for name, tree in reversed(named)}
        self._taken: list[str] = [name for name, _ in named]
        self.inputs: dict[Tree, str] = {}
        self.keys = [self._input(key, self._wanted.get(key)) for key in dict.fromkeys(keys)]
        self.results: dict[Tree, str] = {key: name for key, name in zip(dict.fromkeys(keys), self.keys, strict=True)}
        self.calls: list[Call] = []
        for tree in used:
            for node in tree.walk(bfs=False):
                if is_aggregate(node) and node not in self.results:
                    self._call(node)

    def _name(self, tree: Tree, wanted: str | None) -> str:
        if wanted is not None:
            return wanted
        name = unique(label(tree), self._taken)
        self._taken.append(name)
        return name

    def _input(self, tree: Tree, wanted: str | None = None) -> str:
        """The column below the `Aggregate` that holds ``tree``."""
        if tree not in self.inputs:
            name = tree.name if wanted is None and isinstance(tree, exp.Column) else self._name(tree, wanted)
            lower = {each.lower() for each in self.inputs.values()}
            self.inputs[tree] = name if name.lower() not in lower else unique(name, [*lower, *self._taken])
        return self.inputs[tree]

    def _call(self, tree: Tree) -> None:
        arguments = list(tree.expressions)
        distinct = bool(arguments) and isinstance(arguments[0], exp.Distinct)
        if distinct:
            arguments = list(arguments[0].expressions)
        elif arguments and isinstance(arguments[0], exp.Star):
            arguments = []
        columns = tuple(self._input(argument) for argument in arguments)
        name = self._name(tree, self._wanted.get(tree))
        if name.lower() in {each.lower() for each in self.keys}:
            name = unique(name, [*self.keys, *self._taken])
        self.results[tree] = name
        self.calls.append(Call(name, tree.name, columns, distinct))

    def plan(self, node: Node, predicate: Tree | None) -> Node:
        below = linear(node, predicate, [(name, tree) for tree, name in self.inputs.items()])
        return Aggregate(below, tuple(self.keys), tuple(self.calls))

    def above(self, tree: Tree, written: Tree | None) -> Tree:
        """``tree`` over the columns of the `Aggregate`; ``written`` is what the user wrote, for the error."""

        def left_over(node: exp.Column) -> SqlError:
            advice = f"add it to GROUP BY, or take any_value({node.name})"
            message = f"column {node.name!r} is neither grouped nor aggregated; {advice}"
            return self.text.error(SqlError, message, written, name=node.name)

        return over(tree, self.results, left_over)
