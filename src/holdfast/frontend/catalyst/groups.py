"""Catalyst's `Aggregate`: an `Aggregate` of ours, with a `Linear` below and one above.

Below, a `Linear` computes the keys and the arguments, each once, and nothing else. Above, the outputs are computed from
keys and results. Spark has made every key a column (`PullOutGroupingExpressions`), so that the outputs refer to keys by
id, and has expanded GROUPING SETS, ROLLUP and CUBE into rows (`Expand`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.frontend.build import linear
from holdfast.frontend.catalyst.aggregates import result
from holdfast.frontend.catalyst.expressions import Expressions
from holdfast.frontend.catalyst.relation import Relation, project
from holdfast.frontend.catalyst.tree import Expression, Operator
from holdfast.frontend.labels import label, unique
from holdfast.plan.expression import Tree, column
from holdfast.plan.nodes import Aggregate, Call, Node

if TYPE_CHECKING:
    from holdfast.frontend.catalyst.convert import Converter


def aggregate(converter: Converter, operator: Operator) -> Relation:
    """The groups of the rows below, with what is asked of them."""
    below = converter.relation(operator.child)
    outputs = operator.expressions("aggregateExpressions")
    groups = Groups(converter, below, operator.expressions("groupingExpressions"), outputs)
    trees = [groups.output(each) for each in outputs]
    above = Relation(groups.plan(), ())
    return project(above, None, [(each.id, each.name, tree) for each, tree in zip(outputs, trees, strict=True)])


class Groups:
    """The groups of the rows of ``below`` by ``keys``. A key or an aggregate that is an output takes its name."""

    def __init__(
        self, converter: Converter, below: Relation, keys: Sequence[Expression], outputs: Sequence[Expression]
    ) -> None:
        self._below = below
        self._rows = converter.expressions(below.names)
        """Expressions over the rows that are grouped."""

        self._taken = [each.name for each in outputs]
        self._inputs: dict[Tree, str] = {}
        self._calls: dict[tuple[str, tuple[str, ...], bool, tuple[str, ...]], Call] = {}
        self._wanted: str | None = None
        wanted = {each.id: name for name, each in reversed([*_keys(outputs)])}
        self._keys: dict[str, None] = {}
        names: dict[int, str] = {}
        for key in keys:
            is_column = key.kind == "AttributeReference"
            name = self._input(self._rows.tree(key), wanted.get(key.id) if is_column else None)
            self._keys[name] = None
            if is_column:
                names[key.id] = name
        self._results = _Results(converter, names, self)

    def output(self, expression: Expression) -> Tree:
        """An output, over the columns of the groups."""
        is_call = expression.children and expression.children[0].kind == "AggregateExpression"
        self._wanted = expression.name if is_call else None
        return self._results.tree(expression)

    def argument(self, expression: Expression) -> Tree:
        """An argument of an aggregate, over the rows that are grouped."""
        return self._rows.tree(expression)

    def call(
        self, function: str, arguments: Sequence[Tree], distinct: bool = False, parameters: tuple[str, ...] = ()
    ) -> Tree:
        """The result of an aggregate of `plan.nodes.Call`. Equal calls are one."""
        columns = tuple(self._input(argument) for argument in arguments)
        asked = (function, columns, distinct, parameters)
        if asked not in self._calls:
            text = f"{function}({', '.join(columns)})"
            name = self._wanted or unique(text if len(text) <= 60 else text[:59] + "…", self._taken)
            name = unique(name, [*self._keys, *(call.name for call in self._calls.values())])
            self._taken.append(name)
            self._calls[asked] = Call(name, *asked)
        self._wanted = None
        return column(self._calls[asked].name)

    def _input(self, tree: Tree, wanted: str | None = None) -> str:
        """The column below the `Aggregate` that holds ``tree``."""
        if tree not in self._inputs:
            name = wanted or (tree.name if tree.key == "column" else unique(label(tree), self._taken))
            self._inputs[tree] = unique(name, self._inputs.values())
        return self._inputs[tree]

    def plan(self) -> Node:
        if not self._keys and not self._calls:
            self.call("count", [])
        rows = linear(self._below.node, None, [(name, tree) for tree, name in self._inputs.items()])
        return Aggregate(rows, tuple(self._keys), tuple(self._calls.values()))


class _Results(Expressions):
    """Expressions over the columns of groups."""

    def __init__(self, converter: Converter, names: dict[int, str], groups: Groups) -> None:
        super().__init__(converter.statement, names, converter.subquery)
        self._groups = groups

    def _hole(self, expression: Expression) -> Tree:
        if expression.kind == "AggregateExpression":
            return result(self._groups, expression, self.statement)
        return super()._hole(expression)


def _keys(outputs: Sequence[Expression]) -> list[tuple[str, Expression]]:
    """The outputs that are columns as they are, with their names."""
    found = []
    for each in outputs:
        inner = each.children[0] if each.kind == "Alias" else each
        if inner.kind == "AttributeReference":
            found.append((each.name, inner))
    return found
