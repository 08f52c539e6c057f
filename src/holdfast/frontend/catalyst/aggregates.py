"""Catalyst's aggregate functions as calls of `plan.nodes.Call`.

`AGGREGATES` says for each of Catalyst's classes how it is kept; a class that is not there is refused by name.

A FILTER is written into the arguments, since aggregates pass over NULLs. ``max_by(x, y)`` is the ``x`` of the greatest
pair (y, x), so that a tie is settled by the whole value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from sqlglot import exp

from holdfast.frontend.catalyst.statement import Statement
from holdfast.frontend.catalyst.tree import Expression
from holdfast.plan.expression import Tree

_BLIND_TO_COPIES = ("min", "max", "any_value", "bool_and", "bool_or", "bit_and", "bit_or", "collect_set")
"""To these it makes no difference whether each value counts once."""


class Calls(Protocol):
    """Where calls are collected (`frontend.catalyst.groups`)."""

    def argument(self, expression: Expression) -> Tree:
        """An argument, over the rows that are grouped."""

    def call(
        self, function: str, arguments: Sequence[Tree], distinct: bool = False, parameters: tuple[str, ...] = ()
    ) -> Tree:
        """The result of a call, over the columns of the groups."""


@dataclass(frozen=True)
class Asked:
    """An aggregate in a query: the function, FILTER's condition, and what to tell the user."""

    calls: Calls
    function: Expression
    distinct: bool
    condition: Tree | None
    statement: Statement
    whole: Expression

    def argument(self, place: int) -> Tree:
        """An argument where FILTER's condition holds, NULL elsewhere."""
        return self.where(self.calls.argument(self.function.children[place]))

    def where(self, value: Tree) -> Tree:
        return value if self.condition is None else exp.Case(ifs=[exp.If(this=self.condition.copy(), true=value)])

    def call(self, function: str, arguments: Sequence[Tree], parameters: tuple[str, ...] = ()) -> Tree:
        distinct = self.distinct and function not in _BLIND_TO_COPIES
        return self.calls.call(function, arguments, distinct, parameters)


Result = Callable[[Asked], Tree]


def result(calls: Calls, expression: Expression, statement: Statement) -> Tree:
    """The result of an ``AggregateExpression``, over the columns of the groups."""
    function, *rest = expression.children
    made = AGGREGATES.get(function.kind)
    if made is None:
        name = _INSTEAD.get(function.kind)
        raise statement.unsupported(f"the aggregate {_shown(function)}", expression, name or "")
    condition = calls.argument(rest[0]) if rest else None
    return made(Asked(calls, function, bool(expression.parameters["isDistinct"]), condition, statement, expression))


def _shown(function: Expression) -> str:
    return str(function.parameters.get("name") or function.kind)


def _plain(name: str) -> Result:
    """A function of all its arguments; FILTER makes the first of them NULL."""

    def made(asked: Asked) -> Tree:
        others = [asked.calls.argument(each) for each in asked.function.children[1:]]
        return asked.call(name, [asked.argument(0), *others])

    return made


def _count(asked: Asked) -> Tree:
    """Rows without a NULL in any argument."""
    literals = [each for each in asked.function.children if each.kind == "Literal"]
    if any(each.parameters.get("value") is None for each in literals):
        return exp.Cast(this=exp.Literal.number(0), to=exp.DataType.build("bigint", dialect="spark"))
    given = [each for each in asked.function.children if each.kind != "Literal"]
    trees = list(dict.fromkeys(map(asked.calls.argument, given)))
    if asked.distinct:
        trees = trees or [exp.Literal.number(1)]
        return asked.call("count", [asked.where(trees[0]), *trees[1:]])
    if not trees:
        return asked.call("count", [] if asked.condition is None else [asked.where(exp.Literal.number(1))])
    if len(trees) == 1:
        return asked.call("count", [asked.where(trees[0])])
    some: Tree = exp.Is(this=trees[0], expression=exp.null())
    for each in trees[1:]:
        some = exp.Or(this=some, expression=exp.Is(this=each, expression=exp.null()))
    once = exp.Anonymous(this="if", expressions=[some, exp.null(), exp.Literal.number(1)])
    return asked.call("count", [asked.where(once)])


AGGREGATES: dict[str, Result] = {
    "Count": _count,
    "Sum": _plain("sum"),
    "Average": _plain("avg"),
    "Min": _plain("min"),
    "Max": _plain("max"),
    "First": _plain("any_value"),
    "Last": _plain("any_value"),
    "AnyValue": _plain("any_value"),
    "StddevSamp": _plain("stddev_samp"),
    "StddevPop": _plain("stddev_pop"),
    "VarianceSamp": _plain("var_samp"),
    "VariancePop": _plain("var_pop"),
    "CountIf": _plain("count_if"),
    "BoolAnd": _plain("bool_and"),
    "BoolOr": _plain("bool_or"),
    "Skewness": _plain("skewness"),
    "Kurtosis": _plain("kurtosis"),
    "BitAndAgg": _plain("bit_and"),
    "BitOrAgg": _plain("bit_or"),
    "BitXorAgg": _plain("bit_xor"),
    "CollectSet": _plain("collect_set"),
}

_INSTEAD: dict[str, str] = {}
