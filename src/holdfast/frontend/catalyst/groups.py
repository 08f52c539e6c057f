"""Catalyst's `Aggregate` as an `Aggregate` node, with a `Linear` below and one above.

The `Linear` below computes the keys and the arguments, each once, and nothing else. The `Linear` above computes the
outputs from keys and results. Spark has made every key a column (`PullOutGroupingExpressions`), so that the outputs
refer to keys by id, and has expanded GROUPING SETS, ROLLUP and CUBE into rows (`Expand`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast.frontend.build_nodes import columns, extend, linear
from holdfast.frontend.catalyst.aggregates import result
from holdfast.frontend.catalyst.clock import CLOCKS, check_timeless, clock
from holdfast.frontend.catalyst.expressions import Expressions
from holdfast.frontend.catalyst.relation import Relation, project
from holdfast.frontend.catalyst.sessions import by_session
from holdfast.frontend.catalyst.tree import CatalystExpression, CatalystOperator
from holdfast.frontend.column_names import label, unique
from holdfast.operators.aggregate import Aggregate, Call
from holdfast.operators.topk import TopK
from holdfast.operators.window import Window
from holdfast.operators.window_functions import WindowCall
from holdfast.plan.expression import Column, Tree, condition, number, plain
from holdfast.plan.nodes import Node, Order

if TYPE_CHECKING:
    from holdfast.frontend.catalyst.convert import Converter


def aggregate(converter: Converter, operator: CatalystOperator) -> Relation:
    """Convert `Aggregate`: the groups of the rows below, with the outputs of the query."""
    for each in operator.child.expressions("projectList"):
        if each.kind == "Alias" and each.name.startswith(_PULLED_OUT):
            _check_timeless_key(converter, each)
    below = converter.relation(operator.child)
    outputs = operator.expressions("aggregateExpressions")
    groups = GroupConversion(converter, below, [each.name for each in outputs])
    called = {inner.id: each.name for each in reversed(outputs) if (inner := unaliased(each)).kind == ATTRIBUTE}
    for key in operator.expressions("groupingExpressions"):
        if key.kind == ATTRIBUTE:
            groups.key(key, called.get(key.id))
        else:
            groups.constant_key(key)
    trees = [groups.output(each) for each in outputs]
    above = Relation(groups.plan(), ())
    return project(above, None, [(each.id, each.name, tree) for each, tree in zip(outputs, trees, strict=True)])


_PULLED_OUT = "_groupingexpression"
"""Prefix of the name that Spark gives a GROUP BY expression in the Project that it makes for it."""


def _check_timeless_key(converter: Converter, key: CatalystExpression) -> None:
    """Refuse a GROUP BY key that depends on the clock: the groups would change without any change of the inputs."""
    found = next((part for part in key.walk() if part.kind in CLOCKS), None)
    if found is not None:
        check_timeless(clock(found), "GROUP BY", converter.statement)


class GroupConversion:
    """Builds the groups of the rows of ``below``. ``taken``: the names of the outputs, which no other column may
    have."""

    def __init__(self, converter: Converter, below: Relation, taken: Sequence[str]) -> None:
        self._converter, self._below = converter, below
        self._rows = converter.expressions(below.names)
        """Converts expressions over the rows to be grouped."""

        self._taken = list(taken)
        self._inputs: dict[Tree, str] = {}
        self._keys: dict[str, None] = {}
        self._calls: dict[tuple[str, tuple[str, ...], str, bool, tuple[str, ...]], Call] = {}
        self._names: dict[int, str] = {}
        self._results = _Results(converter, self._names, self)
        self._session: CatalystExpression | None = None
        self._wanted: str | None = None
        self.only: Tree | None = None
        """A condition on the rows that aggregates read, in addition to FILTER's."""

    def key(self, attribute: CatalystExpression, name: str | None = None) -> None:
        """Group by a column of the rows. ``name``: its name in the outputs."""
        if self._rows.collation(attribute) is not None:
            # Equal texts have one key, and any one of them is shown for the group.
            self._keys[self._input(self._rows.comparable(attribute))] = None
            self._wanted = name
            own = self._rows.tree(attribute)
            self._names[attribute.id] = plain(self.call("any_value", [own], own.type)) or ""
            return
        column = self._input(self._rows.tree(attribute), name)
        self._keys[column] = None
        self._names[attribute.id] = column
        if _is_span(attribute) and self._converter.statement.catalyst.is_session(attribute):
            if self._session is not None:
                raise self._converter.statement.unsupported("a group of two session windows", attribute)
            self._session = attribute

    def constant_key(self, expression: CatalystExpression) -> None:
        """Group by a constant: unlike an aggregate without keys, this has no group if there are no rows."""
        tree = self._rows.tree(expression)
        check_timeless(tree, "GROUP BY", self._converter.statement)
        self._keys[self._input(tree)] = None

    def output(self, expression: CatalystExpression) -> Tree:
        """Convert an output to a tree over the columns of the groups."""
        is_call = expression.kind == "Alias" and expression.children[0].kind == "AggregateExpression"
        self._wanted = expression.name if is_call else None
        return self._results.tree(expression)

    def argument(self, expression: CatalystExpression) -> Tree:
        """Convert an argument of an aggregate to a tree over the rows that are grouped."""
        return self._rows.tree(expression)

    def comparable(self, expression: CatalystExpression) -> Tree:
        """The value by which an argument's values are compared (`Expressions.comparable`)."""
        return self._rows.comparable(expression)

    def condition(self, expression: CatalystExpression | None) -> Tree | None:
        """The condition on the rows that an aggregate with this FILTER reads; None: all rows."""
        own = None if expression is None else self.argument(expression)
        if own is not None:
            check_timeless(own, "FILTER", self._converter.statement)
        if own is None or self.only is None:
            return self.only if own is None else own
        return condition("and", self.only, own)

    def call(
        self,
        function: str,
        arguments: Sequence[Tree],
        type: str,
        distinct: bool = False,
        parameters: tuple[str, ...] = (),
    ) -> Tree:
        """Add a call of `operators.aggregate.Call`, unless there is an equal one, and return the column of its
        result."""
        columns = tuple(self._input(argument) for argument in arguments)
        asked = (function, columns, type, distinct, parameters)
        if asked not in self._calls:
            text = f"{function}({', '.join(columns)})"
            name = self._wanted or unique(text if len(text) <= 60 else text[:59] + "…", self._taken)
            name = unique(name, [*self._keys, *(call.name for call in self._calls.values())])
            self._taken.append(name)
            self._calls[asked] = Call(name, *asked)
        self._wanted = None
        return Column(self._calls[asked].name, type)

    def _input(self, tree: Tree, wanted: str | None = None) -> str:
        """The name of the column below the `Aggregate` that holds ``tree``."""
        if tree not in self._inputs:
            name = wanted or plain(tree) or unique(label(tree), self._taken)
            self._inputs[tree] = unique(name, self._inputs.values())
        return self._inputs[tree]

    def plan(self) -> Node:
        if not self._keys and not self._calls:
            self.call("count", [], "bigint")
        rows = linear(self._below.node, None, [(name, tree) for tree, name in self._inputs.items()])
        if self._session is None:
            return Aggregate(rows, tuple(self._keys), tuple(self._calls.values()))
        session = self._names[self._session.id]
        if any(session in call.arguments for call in self._calls.values()):
            advice = "it is the same in all of the group"
            raise self._converter.statement.unsupported("session_window inside an aggregate", self._session, advice)
        return by_session(rows, tuple(self._keys), session, tuple(self._calls.values()))


class _Results(Expressions):
    """Converts expressions over the columns of groups."""

    def __init__(self, converter: Converter, names: dict[int, str], groups: GroupConversion) -> None:
        super().__init__(converter.statement, names, converter.subquery)
        self._groups = groups

    def _hole(self, expression: CatalystExpression) -> Tree:
        if expression.kind == "AggregateExpression":
            return result(self._groups, expression, self.statement)
        return super()._hole(expression)


def distinct(converter: Converter, operator: CatalystOperator) -> Relation:
    """Convert `Distinct`: each row once."""
    return _each_once(converter, operator, converter.relation(operator.child).exactly())


def _each_once(converter: Converter, operator: CatalystOperator, below: Relation) -> Relation:
    keys = compared_by(converter, operator, below)
    if not keys:
        return replace(below, node=Aggregate(below.node, below.columns, ()))
    node, names = _with_keys(below.node, keys)
    calls = tuple(Call(name, "any_value", (name,), node.types[name]) for name in keys)
    groups = Aggregate(node, tuple(names.get(name, name) for name in below.columns), calls)
    return replace(below, node=linear(groups, None, columns(groups, below.columns)))


def compared_by(converter: Converter, operator: CatalystOperator, below: Relation) -> dict[str, Tree]:
    """Return the columns of ``below``, the rows of ``operator``, that are compared by another value: column → that
    value."""
    catalyst = converter.statement.catalyst
    if not catalyst.has_collations:
        return {}
    expressions = converter.expressions(below.names)
    collated = [each for each in catalyst.output(operator) if expressions.collation(each) is not None]
    return {below.names[each.id]: expressions.comparable(each) for each in collated}


def _with_keys(node: Node, keys: Mapping[str, Tree]) -> tuple[Node, dict[str, str]]:
    """Return ``node`` with a further column for each of ``keys``, and the names of these columns."""
    names: dict[str, str] = {}
    for name, tree in keys.items():
        names[name] = unique(label(tree), [*node.columns, *names.values()])
    return extend(node, [(names[name], tree) for name, tree in keys.items()]), names


def deduplicate(converter: Converter, operator: CatalystOperator) -> Relation:
    """Convert `Deduplicate`: of all rows that agree in the keys, the first in the order of the whole row, so that the
    choice is the same in every replay. (Spark takes any of them.)"""
    below = converter.relation(operator.child).exactly()
    node = below.node
    keys = tuple(dict.fromkeys(below.names[each.id] for each in operator.expressions("keys")))
    if not keys:
        return replace(below, node=TopK(node, (), 1))
    if set(keys) == set(node.columns):
        return _each_once(converter, operator, below)
    by = {name: tree for name, tree in compared_by(converter, operator, below).items() if name in keys}
    if by:
        node, names = _with_keys(node, by)
        keys = tuple(names.get(key, key) for key in keys)
    # All rows of a group have equal keys, and a window breaks ties by the whole row.
    order = tuple(Order(key, descending=False, nulls_first=True) for key in keys)
    place = unique("row_number", node.columns)
    numbered = Window(node, keys, order, (WindowCall(place, "row_number", "int"),))
    first = condition("<=", numbered.column(place), number(1))
    return replace(below, node=linear(numbered, first, columns(numbered, below.columns)))


def within_watermark(converter: Converter, operator: CatalystOperator) -> Relation:
    advice = "there are no watermarks here: use dropDuplicates, which remembers all rows"
    raise converter.statement.unsupported("dropDuplicatesWithinWatermark", operator, advice)


ATTRIBUTE = "AttributeReference"


def unaliased(expression: CatalystExpression) -> CatalystExpression:
    return expression.children[0] if expression.kind == "Alias" else expression


def _is_span(attribute: CatalystExpression) -> bool:
    """Whether the type is a struct with a start and an end, as time windows have."""
    kind = attribute.parameters["dataType"]
    return isinstance(kind, dict) and [each["name"] for each in kind.get("fields", ())] == ["start", "end"]
