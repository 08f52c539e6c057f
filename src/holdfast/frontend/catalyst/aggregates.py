"""Catalyst's aggregate functions as calls of `operators.aggregate.Call`.

`AGGREGATES` says for each of Catalyst's classes how it is kept up to date; a class that is not in it is refused by
name.

- ``corr`` and ``regr_…`` are computed from exact variances and covariances of the rows that have both values.
- Approximate functions are exact here: ``approx_count_distinct`` counts, ``approx_percentile`` finds the exact value.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

from holdfast.frontend.catalyst.aggregate_calls import AggregateCall, CallCollector, Result
from holdfast.frontend.catalyst.lists import by, by_order, first_by, joined, listed
from holdfast.frontend.catalyst.statement import Statement
from holdfast.frontend.catalyst.tree import CatalystExpression
from holdfast.plan.expression import (
    Literal,
    Operation,
    Tree,
    cast,
    choice,
    condition,
    is_known,
    negated,
    null,
    number,
)


def result(calls: CallCollector, expression: CatalystExpression, statement: Statement) -> Tree:
    """Convert an ``AggregateExpression`` to a tree over the columns of the groups."""
    function, *rest = expression.children
    condition = calls.condition(rest[0] if rest else None)
    asked = AggregateCall(calls, function, bool(expression.parameters["isDistinct"]), condition, statement)
    made = AGGREGATES.get(function.kind)
    if made is None:
        raise asked.unsupported(f"the aggregate {asked.name}", _ADVICE.get(function.kind, ""))
    return made(asked)


def _plain(name: str) -> Result:
    """A function with all its arguments. FILTER makes the first argument NULL."""

    def made(asked: AggregateCall) -> Tree:
        others = [asked.all_rows(place) for place in range(1, len(asked.function.children))]
        return asked.call(name, [asked.argument(0), *others], asked.type)

    return made


def _extreme(name: str) -> Result:
    def made(asked: AggregateCall) -> Tree:
        if asked.compared(0) == asked.all_rows(0):
            return asked.call(name, [asked.argument(0)], asked.all_rows(0).type)
        return by_order(asked, name, asked.compared(0))

    return made


def _of_equals(made: Result) -> Result:
    """A function that compares values for equality; refused for texts with a collation."""

    def checked(asked: AggregateCall) -> Tree:
        looks = asked.distinct or asked.function.kind in ("Mode", "CollectSet")
        if looks and asked.compared(0) != asked.all_rows(0):
            raise asked.unsupported(f"{asked.name} of texts with a collation", "take it of lower(…)")
        return made(asked)

    return checked


def _pair(name: str) -> Result:
    def made(asked: AggregateCall) -> Tree:
        _check_copies(asked)
        return asked.call(name, [asked.argument(0), asked.all_rows(1)], "double")

    return made


def _check_copies(asked: AggregateCall) -> None:
    if asked.distinct:
        raise asked.unsupported(f"DISTINCT in {asked.name}", "select the distinct rows in a subquery")


def _summed(name: str) -> Result:
    def made(asked: AggregateCall) -> Tree:
        mode = asked.statement.catalyst.mode(asked.function)
        if mode == "LEGACY":
            raise asked.unsupported(f"{name} without ANSI mode", f"use try_{name}")
        return asked.call(name, [asked.argument(0)], asked.type, *(["try"] if mode == "TRY" else []))

    return made


def _count(asked: AggregateCall) -> Tree:
    """``count``: the rows without a NULL in any argument."""
    literals = [each for each in asked.function.children if each.kind == "Literal"]
    if any(each.parameters.get("value") is None for each in literals):
        return number(0, "bigint")
    given = [each for each in asked.function.children if each.kind != "Literal"]
    trees = list(dict.fromkeys(map(asked.calls.comparable if asked.distinct else asked.calls.argument, given)))
    if asked.distinct:
        trees = trees or [number(1)]
        return asked.call("count", [asked.where(trees[0]), *trees[1:]], "bigint")
    if not trees:
        return asked.call("count", [] if asked.condition is None else [asked.where(number(1))], "bigint")
    if len(trees) == 1:
        return asked.call("count", [asked.where(trees[0])], "bigint")
    return asked.call("count", [asked.where(number(1), *map(is_known, trees))], "bigint")


def _count_distinct(asked: AggregateCall) -> Tree:
    return asked.calls.call("count", [asked.where(asked.compared(0))], "bigint", distinct=True)


# -- percentiles and modes -------------------------------------------------------------------------------------------


def _mode(asked: AggregateCall) -> Tree:
    # Spark takes the greatest (frequency, value); ``reverseOpt`` says in which order values are compared.
    greatest = asked.function.parameters.get("reverseOpt") is False
    return asked.call("mode", [asked.argument(0)], asked.all_rows(0).type, *(["greatest"] if greatest else []))


def _percentile(asked: AggregateCall) -> Tree:
    """``percentile``: the value at a position in the order, or interpolated between two values."""
    children = asked.function.children
    _check_number(asked, children[0])
    if len(children) > 2 and asked.statement.catalyst.constant(children[2]) != 1:
        raise asked.unsupported("percentile with a frequency", "repeat the rows instead")
    reverse = asked.function.kind == "PercentileCont" and asked.function.parameters["reverse"]
    behind = ["desc"] if reverse else []
    return _at(asked, lambda each: asked.call("percentile", [asked.argument(0)], "double", each, *behind))


def _median(asked: AggregateCall) -> Tree:
    _check_number(asked, asked.function.children[0])
    return asked.call("percentile", [asked.argument(0)], "double", "0.5")


def _percentile_disc(asked: AggregateCall) -> Tree:
    """``percentile_disc``: one of the values, as a double."""
    _check_number(asked, asked.function.children[0])
    if asked.function.parameters.get("legacyCalculation"):
        raise asked.unsupported("percentile_disc as Spark 3 computed it")
    value = cast(asked.argument(0), "double")
    behind = ["desc"] if asked.function.parameters.get("reverse") else []
    return _at(asked, lambda each: asked.call("percentile_disc", [value], "double", each, *behind))


def _approximate_percentile(asked: AggregateCall) -> Tree:
    value = asked.argument(0)
    return _at(asked, lambda each: asked.call("percentile_disc", [value], value.type, each))


def _check_number(asked: AggregateCall, value: CatalystExpression) -> None:
    kind = asked.statement.catalyst.type_of(value)
    if kind.startswith("interval"):
        raise asked.unsupported(f"{asked.name} of values of type {kind}", "make a number of them")


def _at(asked: AggregateCall, made: Callable[[str], Tree]) -> Tree:
    """Return the result at the function's percentage, or an array of results for a list of percentages."""
    wanted = asked.statement.catalyst.constant(asked.function.children[1])
    if isinstance(wanted, list):
        found = [made(_percentage(each)) for each in wanted]
        listed = Operation("array", tuple(found), asked.type)
        return choice(is_known(found[0]), listed) if found else null(asked.type)
    if not isinstance(wanted, float):
        raise asked.unsupported(f"{asked.name} at a percentage that is not a number", "write the number")
    return made(_percentage(wanted))


def _percentage(number: float) -> str:
    return f"{Decimal(repr(number)):f}"


# -- pairs of numbers ----------------------------------------------------------------------------------------------


class _Pairs:
    """Statistics of the rows that have both arguments, ``y`` and ``x``."""

    def __init__(self, asked: AggregateCall) -> None:
        _check_copies(asked)
        self._asked = asked
        self._both = {"y": asked.all_rows(0), "x": asked.all_rows(1)}

    @property
    def count(self) -> Tree:
        rows = self._asked.where(number(1), *map(is_known, self._both.values()))
        return self._asked.call("count", [rows], "bigint")

    @property
    def covariance(self) -> Tree:
        return self._asked.call("covar_pop", [self._asked.argument(0), self._both["x"]], "double")

    def mean(self, of: str) -> Tree:
        return self._of("avg", of)

    def variance(self, of: str) -> Tree:
        return self._of("var_pop", of)

    def deviation(self, of: str) -> Tree:
        return self._of("stddev_pop", of)

    def _of(self, function: str, of: str) -> Tree:
        other = self._both["x" if of == "y" else "y"]
        return self._asked.call(function, [self._asked.where(self._both[of], is_known(other))], "double")


def _about(formula: Callable[[_Pairs], Tree]) -> Result:
    return lambda asked: formula(_Pairs(asked))


def _times(left: Tree, right: Tree) -> Tree:
    return Operation("*", (left, right), "double")


def _by(left: Tree, right: Tree) -> Tree:
    return Operation("/", (left, right), "double")


def _is_zero(tree: Tree) -> Tree:
    return condition("=", tree, Literal(0.0, "double"))


def _summed_up(pairs: _Pairs, mean: Tree) -> Tree:
    return _times(mean, cast(pairs.count, "double"))


def _correlation(pairs: _Pairs) -> Tree:
    deviations = pairs.deviation("y"), pairs.deviation("x")
    known = condition("and", *(negated(_is_zero(each)) for each in deviations))
    return choice(known, _by(_by(pairs.covariance, deviations[0]), deviations[1]))


def _slope(pairs: _Pairs) -> Tree:
    return _by(pairs.covariance, pairs.variance("x"))


def _where_x_varies(pairs: _Pairs, value: Tree) -> Tree:
    return choice(negated(_is_zero(pairs.variance("x"))), value)


def _intercept(pairs: _Pairs) -> Tree:
    return Operation("-", (pairs.mean("y"), _times(_slope(pairs), pairs.mean("x"))), "double")


def _determination(pairs: _Pairs) -> Tree:
    share = _times(_slope(pairs), _by(pairs.covariance, pairs.variance("y")))
    return choice(_is_zero(pairs.variance("y")), Literal(1.0, "double"), share)


AGGREGATES: dict[str, Result] = {
    "Count": _count,
    "CountIf": _plain("count_if"),
    "HyperLogLogPlusPlus": _count_distinct,
    "Sum": _summed("sum"),
    "Average": _summed("avg"),
    "Min": _extreme("min"),
    "Max": _extreme("max"),
    "First": _plain("any_value"),
    "Last": _plain("any_value"),
    "AnyValue": _plain("any_value"),
    "MaxBy": by("max"),
    "MinBy": by("min"),
    "MaxMinByK": first_by,
    "BoolAnd": _plain("bool_and"),
    "BoolOr": _plain("bool_or"),
    "BitAndAgg": _plain("bit_and"),
    "BitOrAgg": _plain("bit_or"),
    "BitXorAgg": _plain("bit_xor"),
    "StddevSamp": _plain("stddev_samp"),
    "StddevPop": _plain("stddev_pop"),
    "VarianceSamp": _plain("var_samp"),
    "VariancePop": _plain("var_pop"),
    "Skewness": _plain("skewness"),
    "Kurtosis": _plain("kurtosis"),
    "CovPopulation": _pair("covar_pop"),
    "CovSample": _pair("covar_samp"),
    "Corr": _about(_correlation),
    "RegrCount": _about(lambda pairs: pairs.count),
    "RegrAvgX": _about(lambda pairs: pairs.mean("x")),
    "RegrAvgY": _about(lambda pairs: pairs.mean("y")),
    "RegrSXX": _about(lambda pairs: _summed_up(pairs, pairs.variance("x"))),
    "RegrSYY": _about(lambda pairs: _summed_up(pairs, pairs.variance("y"))),
    "RegrSXY": _about(lambda pairs: _summed_up(pairs, pairs.covariance)),
    "RegrSlope": _about(lambda pairs: _where_x_varies(pairs, _slope(pairs))),
    "RegrIntercept": _about(lambda pairs: _where_x_varies(pairs, _intercept(pairs))),
    "RegrR2": _about(lambda pairs: _where_x_varies(pairs, _determination(pairs))),
    "CollectList": _of_equals(listed("collect_list")),
    "CollectSet": _of_equals(listed("collect_set")),
    "ListAgg": _of_equals(joined),
    "Mode": _of_equals(_mode),
    "Median": _median,
    "Percentile": _percentile,
    "PercentileCont": _percentile,
    "PercentileDisc": _percentile_disc,
    "ApproximatePercentile": _approximate_percentile,
}
"""Catalyst's class → the function that converts it."""

_SKETCH = "no sketch can be taken back when rows are deleted"
_ADVICE = {
    "ApproxTopK": "group by the value, and take ORDER BY count(*) DESC LIMIT k",
    "CountMinSketchAgg": _SKETCH,
    "HllSketchAgg": f"{_SKETCH}; count(DISTINCT …) is exact",
    "HllUnionAgg": _SKETCH,
    "HistogramNumeric": "group by width_bucket(…)",
    "PythonUDAF": "collect_list(…) gives a function of one row all values of the group",
}
