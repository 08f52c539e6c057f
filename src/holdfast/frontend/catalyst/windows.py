"""Catalyst's `Window` as a `Window` node over a `Linear` that computes the operands.

Spark has made one operator for each partition and order, innermost first, and computes below it every operand that is
not a column or a constant. `RANKINGS`, `NEIGHBOURS`, `VALUES` and `AGGREGATES` map Catalyst's functions to those of
`operators.window_functions.WindowCall`; any other function is refused by name.

A frame by value (RANGE) reaches from the row's own value of the order to that value plus an offset. A column holds that
sum, computed as Spark's own bound is, with days as days of the calendar. The offset is a constant, however it is
written.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING

from holdfast.frontend.build_nodes import extend
from holdfast.frontend.catalyst.clock import check_timeless
from holdfast.frontend.catalyst.literals import interval_of, literal
from holdfast.frontend.catalyst.relation import Relation
from holdfast.frontend.catalyst.tree import CatalystExpression, CatalystOperator, direction
from holdfast.frontend.column_names import label, unique
from holdfast.frontend.temporal_filters import days_later
from holdfast.operators.window import Window
from holdfast.operators.window_frames import Frame
from holdfast.operators.window_functions import Reach, WindowCall
from holdfast.plan.expression import (
    DAY,
    MONTHS,
    Literal,
    Operation,
    Tree,
    cast,
    choice,
    conjunction,
    interval_text,
    is_known,
    number,
    plus,
    readable,
)
from holdfast.plan.nodes import Order

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
_REACHED = frozenset(("tinyint", "smallint", "int", "bigint", "double", "date", "timestamp", "timestamp_ntz"))
"""Types whose values are distinct in 64 bits, and whose sums are exact."""


def window(converter: Converter, operator: CatalystOperator) -> Relation:
    """Convert `Window`: the rows below, with the values of window functions."""
    return _Window(converter, operator).relation()


@dataclass(frozen=True)
class _Bound:
    """An end of a frame. ``rows``: its distance from the current row; None: the partition's end. ``offset``: of a frame
    by value."""

    rows: int | None
    offset: CatalystExpression | None = None


class _Window:
    def __init__(self, converter: Converter, operator: CatalystOperator) -> None:
        self._statement = converter.statement
        self._operator = operator
        self._below = converter.relation(operator.child)
        self._rows = converter.expressions(self._below.names)
        node = self._below.node
        self._columns: dict[Tree, str] = {node.column(name): name for name in node.columns}
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
            if each.kind == "AttributeReference":  # Spark hands on a column that a subquery is joined by
                outputs.append((each.id, self._below.names[each.id]))
                continue
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
            return self._below.order  # Spark has made it from a LIMIT, whose ORDER BY is a Sort below
        return tuple(found.values())

    def _calls(self) -> tuple[CatalystExpression, ...]:
        return self._operator.expressions("windowExpressions")

    def _timeless(self, expression: CatalystExpression, clause: str) -> Tree:
        tree = self._rows.comparable(expression)
        check_timeless(tree, f"{clause} of a window", self._statement)
        return tree

    def _input(self, tree: Tree) -> str:
        """The name of the column that holds ``tree``."""
        if tree not in self._columns:
            self._columns[tree] = unique(label(tree), [*self._columns.values(), *self._wanted, *self._names])
        return self._columns[tree]

    # -- calls ----------------------------------------------------------------------------------------------------

    def _call(self, expression: CatalystExpression, order: tuple[Order, ...]) -> WindowCall:
        whole = expression.children[0]
        function, specification = whole.children
        only: Tree | None = None
        if function.kind == "AggregateExpression":
            function, *filters = function.children
            only = self._rows.tree(filters[0]) if filters else None
            if only is not None:
                check_timeless(only, "FILTER", self._statement)
        name = self._name(expression.name)
        kind = function.kind
        if kind in RANKINGS:
            buckets = self._number(function.children[0], function) if kind == "NTile" else 1
            type = "double" if kind in ("PercentRank", "CumeDist") else "int"
            return WindowCall(name, RANKINGS[kind], type, (), buckets)
        if kind in NEIGHBOURS:
            return self._neighbour(name, function)
        frame, reach = self._frame(specification.children[-1], order)
        nulls = bool(function.parameters.get("ignoreNulls"))
        if kind in VALUES:
            if only is not None:
                raise self._statement.unsupported(f"FILTER of {VALUES[kind]} before OVER", whole)
            which = self._number(function.children[1], function) if kind == "NthValue" else 1
            value = self._rows.tree(function.children[0])
            return WindowCall(name, VALUES[kind], value.type, (self._input(value),), which, frame, nulls, reach)
        if kind not in AGGREGATES or self._tries(function):
            raise self._statement.unsupported(f"{self._shown(function)} before OVER", whole)
        if AGGREGATES[kind] in ("min", "max") and self._rows.collation(function.children[0]) is not None:
            raise self._statement.unsupported(f"{self._shown(function)} of texts with a collation before OVER", whole)
        arguments = tuple(map(self._input, self._arguments(function, only)))
        type = self._statement.catalyst.type_of(function)
        return WindowCall(name, AGGREGATES[kind], type, arguments, 1, frame, False, reach)

    def _name(self, wanted: str) -> str:
        """Choose the name of a call's column."""
        name = unique(wanted, [*self._columns.values(), *self._names])
        self._names.append(name)
        return name

    def _neighbour(self, name: str, function: CatalystExpression) -> WindowCall:
        value, offset, default = function.children
        own = self._rows.tree(value)
        arguments = [self._input(own)]
        if default.kind != "Literal" or default.parameters.get("value") is not None:
            arguments.append(self._input(cast(self._rows.tree(default), own.type)))
        far = self._number(offset, function)
        nulls = bool(function.parameters["ignoreNulls"])
        return WindowCall(name, NEIGHBOURS[function.kind], own.type, tuple(arguments), far, None, nulls)

    def _arguments(self, function: CatalystExpression, only: Tree | None) -> list[Tree]:
        """The arguments, NULL in rows that FILTER leaves out: all these functions skip NULLs."""
        given = function.children
        if function.kind == "Count":
            given = tuple(each for each in given if each.kind != "Literal" or each.parameters.get("value") is None)
        trees = [self._rows.tree(each) for each in given]
        needed = [] if only is None else [only]
        if len(trees) > 1:  # count the rows in which all arguments have a value
            needed, trees = [*needed, *map(is_known, trees)], []
        if function.kind == "CountIf":
            needed, trees = [*needed, *trees], []
        whole = conjunction(needed)
        return trees if whole is None else [choice(whole, trees[0] if trees else number(1))]

    def _tries(self, function: CatalystExpression) -> bool:
        """Whether the function does not raise an error where a sum is too large."""
        return function.kind in _CAN_FAIL and self._statement.catalyst.mode(function) != "ANSI"

    def _shown(self, function: CatalystExpression) -> str:
        name = self._statement.catalyst.hidden(function, "prettyName")
        if function.kind == "PythonUDAF":
            return f"the user's aggregate {function.parameters.get('name')}"
        return f"the window function {name}" if function.kind == "CounterDiff" else f"the aggregate {name}"

    def _number(self, expression: CatalystExpression, function: CatalystExpression) -> int:
        found = self._rows.constant(expression)
        if found is None or found.parameters.get("value") is None:
            name = self._statement.catalyst.hidden(function, "prettyName")
            raise self._statement.unsupported(f"{name} with a number that is not written as one", function)
        return int(found.parameters["value"])

    # -- frames ---------------------------------------------------------------------------------------------------

    def _frame(
        self, frame: CatalystExpression, order: tuple[Order, ...]
    ) -> tuple[Frame, tuple[Reach | None, Reach | None]]:
        rows = "RowFrame" in str(frame.parameters["frameType"].get("object"))
        start, end = (self._bound(each, rows) for each in frame.children)
        reach = [self._reach(bound.offset, order, frame) for bound in (start, end)]
        whole = start.rows is None and end.rows is None
        return Frame(rows or whole, start.rows, end.rows), (reach[0], reach[1])

    def _bound(self, expression: CatalystExpression, rows: bool) -> _Bound:
        if expression.kind.startswith("Unbounded"):
            return _Bound(None)
        if expression.kind.startswith("CurrentRow"):
            return _Bound(0)
        constant = self._rows.constant(expression)
        if constant is None or constant.parameters.get("value") is None:
            raise self._statement.unsupported("a frame whose bound is not a number", expression, "write the number")
        return _Bound(int(constant.parameters["value"])) if rows else _Bound(0, constant)

    def _reach(
        self, offset: CatalystExpression | None, order: tuple[Order, ...], frame: CatalystExpression
    ) -> Reach | None:
        """The end of a frame by value: the row's own value plus the offset, or minus it if the order is descending."""
        if offset is None:
            return None
        (sort,) = self._operator.expressions("orderSpec")
        own = self._rows.tree(sort.children[0])
        sign = -1 if order[0].descending else 1
        span = interval_of(offset)
        if span is not None:
            amount, unit = span
            text = f"{interval_text(abs(amount), unit)} {_side(amount)}"
            days = own.type == "date" and unit != MONTHS
            tree = days_later(own, sign * amount // DAY) if days else plus(own, sign * amount, unit)
        else:
            size = literal(offset)
            assert isinstance(size, Literal) and isinstance(size.value, (int, float, Decimal))
            far = -size.value if size.value < 0 else size.value
            text = f"{readable(Literal(far, size.type))} {_side(size.value)}"
            onward = (size.value > 0) == (sign > 0)
            tree = Operation("+" if onward else "-", (own, Literal(far, own.type)), own.type)
            if own.type == "date":
                tree = days_later(own, sign * int(size.value))
        if own.type not in _REACHED:
            advice = "order by a whole number, a double, a date or a timestamp"
            construct = f"RANGE {text} over a column of type {own.type}"
            raise self._statement.unsupported(construct, frame, advice)
        return Reach(self._input(tree), text)


def _side(number: float | Decimal) -> str:
    return "PRECEDING" if number < 0 else "FOLLOWING"
