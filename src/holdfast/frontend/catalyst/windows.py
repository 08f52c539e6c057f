"""Catalyst's `Window`: a `Window` of ours, over a `Linear` that computes the operands.

Spark has made an operator of each partition and order, innermost first, and has computed below it whatever is not a
column or a constant. `FUNCTIONS` and `AGGREGATES` say for each of Catalyst's functions which one of
`plan.nodes.WindowCall` it is; another is refused by name.

A frame by value (RANGE) reaches from the row's own value of the order to that value plus an offset: a column computes
the sum, as Spark's own bound does, days as days of the calendar. The offset is a constant, whatever its spelling.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING

from sqlglot import exp

from holdfast.frontend.build import extend
from holdfast.frontend.catalyst.clock import check_timeless
from holdfast.frontend.catalyst.literals import DAY, TYPES, interval, interval_of, literal, plus
from holdfast.frontend.catalyst.relation import Relation
from holdfast.frontend.catalyst.tree import Expression, Operator, direction
from holdfast.frontend.labels import label, unique
from holdfast.plan.expression import Tree, column, conjunction, render
from holdfast.plan.nodes import Frame, Order, Reach, Window, WindowCall

if TYPE_CHECKING:
    from holdfast.frontend.catalyst.convert import Converter

RANKINGS = {
    "RowNumber": "row_number",
    "Rank": "rank",
    "DenseRank": "dense_rank",
    "PercentRank": "percent_rank",
    "CumeDist": "cume_dist",
    "NTile": "ntile",
}
NEIGHBOURS = {"Lag": "lag", "Lead": "lead"}
VALUES = {"First": "first_value", "AnyValue": "first_value", "Last": "last_value", "NthValue": "nth_value"}
AGGREGATES = {
    "Count": "count",
    "CountIf": "count",
    "Sum": "sum",
    "Average": "avg",
    "Min": "min",
    "Max": "max",
    "BoolAnd": "min",
    "BoolOr": "max",
    "StddevSamp": "stddev_samp",
    "StddevPop": "stddev_pop",
    "VarianceSamp": "var_samp",
    "VariancePop": "var_pop",
}
_CAN_FAIL = ("Sum", "Average")
_REACHED = frozenset(("byte", "short", "integer", "long", "double", "date", "timestamp", "timestamp_ntz"))
"""Types whose values are told apart by 64 bits, and are added to exactly."""


def window(converter: Converter, operator: Operator) -> Relation:
    """The rows below, with the values of window functions."""
    return _Window(converter, operator).relation()


@dataclass(frozen=True)
class _Bound:
    """An end of a frame: so many rows from the row, or None at the partition's end; by value, an offset too."""

    rows: int | None
    offset: Expression | None = None


class _Window:
    def __init__(self, converter: Converter, operator: Operator) -> None:
        self._statement = converter.statement
        self._operator = operator
        self._below = converter.relation(operator.child)
        self._rows = converter.expressions(self._below.names)
        self._columns: dict[Tree, str] = {column(name): name for name in self._below.node.columns}
        self._wanted = [each.name for each in operator.expressions("windowExpressions")]
        self._names: list[str] = []

    def relation(self) -> Relation:
        partition = dict.fromkeys(
            self._input(self._timeless(each, "PARTITION BY")) for each in self._operator.expressions("partitionSpec")
        )
        order = self._order()
        outputs = list(self._below.outputs)
        calls: list[WindowCall] = []
        for each in self._calls():
            call = self._call(each, order)
            twin = next((known for known in calls if replace(known, name=call.name) == call), None)
            if twin is None:
                calls.append(call)
            outputs.append((each.id, (twin or call).name))
        known = set(self._below.node.columns)
        added = [(name, tree) for tree, name in self._columns.items() if name not in known]
        node = extend(self._below.node, added) if added else self._below.node
        return Relation(Window(node, tuple(partition), order, tuple(calls)), tuple(outputs))

    def _order(self) -> tuple[Order, ...]:
        found: dict[str, Order] = {}
        for sort in self._operator.expressions("orderSpec"):
            name = self._input(self._timeless(sort.children[0], "ORDER BY"))
            found.setdefault(name, Order(name, *direction(sort)))
        if not found and any(part.kind == "RowNumber" for each in self._calls() for part in each.walk()):
            return self._below.order  # Spark has made it of a LIMIT, whose ORDER BY is a Sort below
        return tuple(found.values())

    def _calls(self) -> tuple[Expression, ...]:
        return self._operator.expressions("windowExpressions")

    def _timeless(self, expression: Expression, clause: str) -> Tree:
        tree = self._rows.comparable(expression)
        check_timeless(tree, f"{clause} of a window", self._statement)
        return tree

    def _input(self, tree: Tree) -> str:
        """The column that holds ``tree``."""
        if tree not in self._columns:
            self._columns[tree] = unique(label(tree), [*self._columns.values(), *self._wanted, *self._names])
        return self._columns[tree]

    # -- calls ----------------------------------------------------------------------------------------------------

    def _call(self, expression: Expression, order: tuple[Order, ...]) -> WindowCall:
        whole = expression.children[0]
        function, specification = whole.children
        condition: Tree | None = None
        if function.kind == "AggregateExpression":
            function, *filters = function.children
            condition = self._rows.tree(filters[0]) if filters else None
            if condition is not None:
                check_timeless(condition, "FILTER", self._statement)
        name = self._name(expression.name)
        kind = function.kind
        if kind in RANKINGS:
            number = self._number(function.children[0], function) if kind == "NTile" else 1
            return WindowCall(name, RANKINGS[kind], (), number)
        if kind in NEIGHBOURS:
            return self._neighbour(name, function)
        frame, reach = self._frame(specification.children[-1], order)
        nulls = bool(function.parameters.get("ignoreNulls"))
        if kind in VALUES:
            if condition is not None:
                raise self._statement.unsupported(f"FILTER of {VALUES[kind]} before OVER", whole)
            number = self._number(function.children[1], function) if kind == "NthValue" else 1
            argument = self._input(self._rows.tree(function.children[0]))
            return WindowCall(name, VALUES[kind], (argument,), number, frame, nulls, reach)
        if kind not in AGGREGATES or self._tries(function):
            raise self._statement.unsupported(f"{self._shown(function)} before OVER", whole)
        if AGGREGATES[kind] in ("min", "max") and self._rows.collation(function.children[0]) is not None:
            raise self._statement.unsupported(f"{self._shown(function)} of texts with a collation before OVER", whole)
        arguments = tuple(map(self._input, self._arguments(function, condition)))
        return WindowCall(name, AGGREGATES[kind], arguments, 1, frame, False, reach)

    def _name(self, wanted: str) -> str:
        """The name of a call."""
        name = unique(wanted, [*self._columns.values(), *self._names])
        self._names.append(name)
        return name

    def _neighbour(self, name: str, function: Expression) -> WindowCall:
        value, offset, default = function.children
        arguments = [self._input(self._rows.tree(value))]
        if default.kind != "Literal" or default.parameters.get("value") is not None:
            arguments.append(self._input(self._rows.tree(default)))
        number = self._number(offset, function)
        nulls = bool(function.parameters["ignoreNulls"])
        return WindowCall(name, NEIGHBOURS[function.kind], tuple(arguments), number, None, nulls)

    def _arguments(self, function: Expression, condition: Tree | None) -> list[Tree]:
        """The arguments, NULL in rows that FILTER leaves out: all these functions pass over NULLs."""
        given = function.children
        if function.kind == "Count":
            given = tuple(each for each in given if each.kind != "Literal" or each.parameters.get("value") is None)
        trees = [self._rows.tree(each) for each in given]
        if len(trees) > 1:  # rows in which all have a value
            known = [exp.Not(this=exp.Is(this=tree, expression=exp.null())) for tree in trees]
            condition, trees = conjunction([*([] if condition is None else [condition]), *known]), []
        if function.kind == "CountIf":
            condition = trees[0] if condition is None else exp.And(this=condition, expression=trees[0])
            trees = []
        if condition is None:
            return trees
        value = trees[0] if trees else exp.Literal.number(1)
        return [exp.Anonymous(this="if", expressions=[condition, value, exp.null()])]

    def _tries(self, function: Expression) -> bool:
        """Does it give NULL, or go on, where a sum is too large?"""
        return function.kind in _CAN_FAIL and self._statement.catalyst.mode(function) != "ANSI"

    def _shown(self, function: Expression) -> str:
        name = self._statement.catalyst.hidden(function, "prettyName")
        if function.kind == "PythonUDAF":
            return f"the user's aggregate {function.parameters.get('name')}"
        return f"the window function {name}" if function.kind == "CounterDiff" else f"the aggregate {name}"

    def _number(self, expression: Expression, function: Expression) -> int:
        found = self._rows.constant(expression)
        if found is None or found.parameters.get("value") is None:
            name = self._statement.catalyst.hidden(function, "prettyName")
            raise self._statement.unsupported(f"{name} with a number that is not written as one", function)
        return int(found.parameters["value"])

    # -- frames ---------------------------------------------------------------------------------------------------

    def _frame(self, frame: Expression, order: tuple[Order, ...]) -> tuple[Frame, tuple[Reach | None, Reach | None]]:
        rows = "RowFrame" in str(frame.parameters["frameType"].get("object"))
        start, end = (self._bound(each, rows) for each in frame.children)
        reach = [self._reach(bound.offset, order, frame) for bound in (start, end)]
        whole = start.rows is None and end.rows is None
        return Frame(rows or whole, start.rows, end.rows), (reach[0], reach[1])

    def _bound(self, expression: Expression, rows: bool) -> _Bound:
        if expression.kind.startswith("Unbounded"):
            return _Bound(None)
        if expression.kind.startswith("CurrentRow"):
            return _Bound(0)
        constant = self._rows.constant(expression)
        if constant is None or constant.parameters.get("value") is None:
            raise self._statement.unsupported("a frame whose bound is not a number", expression, "write the number")
        return _Bound(int(constant.parameters["value"])) if rows else _Bound(0, constant)

    def _reach(self, offset: Expression | None, order: tuple[Order, ...], frame: Expression) -> Reach | None:
        """Where a frame ends that goes by value: the row's own value, and the offset, which a descending order turns
        around."""
        if offset is None:
            return None
        (sort,) = self._operator.expressions("orderSpec")
        own, kind = self._rows.tree(sort.children[0]), str(self._rows.type_of(sort.children[0]))
        sign = -1 if order[0].descending else 1
        span = interval_of(offset)
        if span is not None:
            number, months = span
            text = f"{_interval_text(abs(number), months, kind == 'date')} {_side(number)}"
            days = kind == "date" and not months
            tree = _days_later(own, sign * number // DAY) if days else plus(own, interval(sign * number, months))
        else:
            value, size = Decimal(offset.parameters["value"]), _unsigned(literal(offset))
            text = f"{render(size)} {_side(value)}"
            added = (exp.Add if sign * value > 0 else exp.Sub)(this=own, expression=size)
            tree = _days_later(own, sign * int(value)) if kind == "date" else added
        if kind not in _REACHED:
            advice = "order by a whole number, a double, a date or a timestamp"
            construct = f"RANGE {text} over a column of type {TYPES.get(kind, kind)}"
            raise self._statement.unsupported(construct, frame, advice)
        return Reach(self._input(tree), text)


def _side(number: int | Decimal) -> str:
    return "PRECEDING" if number < 0 else "FOLLOWING"


def _unsigned(value: Tree) -> Tree:
    """A literal without its sign."""
    found: Tree = value.transform(lambda node: node.this if isinstance(node, exp.Neg) else node)
    return found


def _days_later(tree: Tree, days: int) -> Tree:
    number: Tree = exp.Literal.number(abs(days))
    return exp.Anonymous(this="date_add", expressions=[tree, exp.Neg(this=number) if days < 0 else number])


def _interval_text(number: int, months: bool, days: bool) -> str:
    if months:
        return f"INTERVAL '{number}' MONTH"
    if days:
        return f"INTERVAL '{number // DAY}' DAY"
    whole, rest = divmod(number, DAY)
    seconds, micros = divmod(rest, 1_000_000)
    time = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{micros:06}"
    return f"INTERVAL '{whole} {time}' DAY TO SECOND"
