"""Catalyst's aggregate functions as calls of `plan.nodes.Call`.

`AGGREGATES` says for each of Catalyst's classes how it is kept; a class that is not there is refused by name.

- A FILTER is written into the arguments, since aggregates pass over NULLs.
- ``max_by(x, y)`` is the ``x`` of the greatest pair (y, x), so that a tie is settled by the whole value.
- ``corr`` and ``regr_…`` are made of exact variances and covariances of the rows that have both values.
- ``listagg`` joins a sorted list: by WITHIN GROUP's order, then by the value itself.
- The approximate ones are exact: ``approx_count_distinct`` counts, ``approx_percentile`` finds the value at its place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Protocol

from sqlglot import exp

from holdfast.errors import Unsupported
from holdfast.frontend.catalyst.statement import Statement
from holdfast.frontend.catalyst.tree import Expression, direction
from holdfast.plan.expression import Tree, read, replace_columns

_BLIND_TO_COPIES = ("min", "max", "any_value", "bool_and", "bool_or", "bit_and", "bit_or", "collect_set")
"""To these it makes no difference whether each value counts once."""


class Calls(Protocol):
    """Where calls are collected (`frontend.catalyst.groups`)."""

    def argument(self, expression: Expression) -> Tree:
        """An argument, over the rows that are grouped."""

    def comparable(self, expression: Expression) -> Tree:
        """What the values of an argument are compared by."""

    def condition(self, expression: Expression | None) -> Tree | None:
        """The condition on the rows that an aggregate with this FILTER is about."""

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

    @property
    def name(self) -> str:
        """What the function is called in SQL."""
        return self.statement.catalyst.function_name(self.function)

    def all_rows(self, place: int) -> Tree:
        """An argument, whatever FILTER says."""
        return self.calls.argument(self.function.children[place])

    def argument(self, place: int) -> Tree:
        """An argument where FILTER's condition holds, NULL elsewhere."""
        return self.where(self.all_rows(place))

    def compared(self, place: int) -> Tree:
        """What the values of an argument are compared by, whatever FILTER says."""
        return self.calls.comparable(self.function.children[place])

    def where(self, value: Tree, *conditions: Tree) -> Tree:
        """``value`` where the conditions and FILTER's hold, NULL elsewhere."""
        needed = [*([] if self.condition is None else [self.condition]), *conditions]
        if not needed:
            return value
        whole = needed[0].copy()
        for each in needed[1:]:
            whole = exp.And(this=whole, expression=each.copy())
        return exp.Case(ifs=[exp.If(this=whole, true=value)])

    def call(self, function: str, arguments: Sequence[Tree], *parameters: str) -> Tree:
        distinct = self.distinct and function not in _BLIND_TO_COPIES
        return self.calls.call(function, arguments, distinct, parameters)

    def unsupported(self, construct: str, advice: str = "") -> Unsupported:
        return self.statement.unsupported(construct, self.function, advice)


Result = Callable[[Asked], Tree]


def result(calls: Calls, expression: Expression, statement: Statement) -> Tree:
    """The result of an ``AggregateExpression``, over the columns of the groups."""
    function, *rest = expression.children
    condition = calls.condition(rest[0] if rest else None)
    asked = Asked(calls, function, bool(expression.parameters["isDistinct"]), condition, statement)
    made = AGGREGATES.get(function.kind)
    if made is None:
        raise asked.unsupported(f"the aggregate {asked.name}", _ADVICE.get(function.kind, ""))
    return made(asked)


def _plain(name: str) -> Result:
    """A function of all its arguments; FILTER makes the first of them NULL."""

    def made(asked: Asked) -> Tree:
        others = [asked.all_rows(place) for place in range(1, len(asked.function.children))]
        return asked.call(name, [asked.argument(0), *others])

    return made


def _extreme(name: str) -> Result:
    def made(asked: Asked) -> Tree:
        if asked.compared(0) == asked.all_rows(0):
            return asked.call(name, [asked.argument(0)])
        return _by_order(asked, name, asked.compared(0))

    return made


def _of_equals(made: Result) -> Result:
    """A function that looks for equal values."""

    def checked(asked: Asked) -> Tree:
        looks = asked.distinct or asked.function.kind in ("Mode", "CollectSet")
        if looks and asked.compared(0) != asked.all_rows(0):
            raise asked.unsupported(f"{asked.name} of texts with a collation", "take it of lower(…)")
        return made(asked)

    return checked


def _pair(name: str) -> Result:
    def made(asked: Asked) -> Tree:
        _check_copies(asked)
        return asked.call(name, [asked.argument(0), asked.all_rows(1)])

    return made


def _check_copies(asked: Asked) -> None:
    if asked.distinct:
        raise asked.unsupported(f"DISTINCT in {asked.name}", "select the distinct rows in a subquery")


def _summed(name: str) -> Result:
    def made(asked: Asked) -> Tree:
        mode = asked.statement.catalyst.mode(asked.function)
        if mode == "LEGACY":
            raise asked.unsupported(f"{name} without ANSI mode", f"use try_{name}")
        return asked.call(name, [asked.argument(0)], *(["try"] if mode == "TRY" else []))

    return made


def _count(asked: Asked) -> Tree:
    """Rows without a NULL in any argument."""
    literals = [each for each in asked.function.children if each.kind == "Literal"]
    if any(each.parameters.get("value") is None for each in literals):
        return read("0L")
    given = [each for each in asked.function.children if each.kind != "Literal"]
    trees = list(dict.fromkeys(map(asked.calls.comparable if asked.distinct else asked.calls.argument, given)))
    if asked.distinct:
        trees = trees or [exp.Literal.number(1)]
        return asked.call("count", [asked.where(trees[0]), *trees[1:]])
    if not trees:
        return asked.call("count", [] if asked.condition is None else [asked.where(exp.Literal.number(1))])
    if len(trees) == 1:
        return asked.call("count", [asked.where(trees[0])])
    return asked.call("count", [asked.where(exp.Literal.number(1), *map(_known, trees))])


# -- the value that belongs to another -----------------------------------------------------------------------------


def _by(function: str) -> Result:
    return lambda asked: _by_order(asked, function, asked.compared(1))


def _by_order(asked: Asked, function: str, order: Tree) -> Tree:
    best = asked.call(function, [_with_order(asked, order)])
    return exp.Dot(this=best, expression=exp.Identifier(this="value", quoted=True))


def _first_by(asked: Asked) -> Tree:
    """``max_by(x, y, n)`` and ``min_by(x, y, n)``: a list."""
    number = asked.statement.catalyst.constant(asked.function.children[2])
    if not isinstance(number, int):
        raise asked.unsupported(f"{asked.name} of so many values that is not a number", "write the number")
    found = asked.calls.call("collect_list", [_with_order(asked, asked.compared(1))])
    listed = "`found`" if asked.function.parameters["reverse"] else "reverse(`found`)"
    first = f"transform(slice({listed}, 1, {number}), e -> e.value)"
    return _over(f"CASE WHEN size(`found`) > 0 THEN {first} END", found=found)


def _with_order(asked: Asked, order: Tree) -> Tree:
    """A struct of what to order by and the value, where the first is not NULL."""
    fields = [exp.Literal.string("order"), order.copy(), exp.Literal.string("value"), asked.all_rows(0)]
    return asked.where(exp.Anonymous(this="named_struct", expressions=fields), _known(order))


# -- lists ---------------------------------------------------------------------------------------------------------


def _list(function: str) -> Result:
    def made(asked: Asked) -> Tree:
        kind = "collect_set" if asked.distinct else function
        if asked.function.parameters.get("ignoreNulls", True):
            return asked.call(kind, [asked.argument(0)])
        fields = [exp.Literal.string("value"), asked.all_rows(0)]
        found = asked.call(kind, [asked.where(exp.Anonymous(this="named_struct", expressions=fields))])
        return _over("transform(`found`, e -> e.value)", found=found)

    return made


def _joined(asked: Asked) -> Tree:
    """``listagg``: a text, NULL of no values."""
    value, delimiter, *orders = asked.function.children
    own = asked.all_rows(0)
    kind = "collect_set" if asked.distinct else "collect_list"
    if orders:
        fields: list[Tree] = []
        for place, each in enumerate(orders):
            fields += [exp.Literal.string(f"order{place}"), asked.calls.comparable(each.children[0])]
        pair = exp.Anonymous(this="named_struct", expressions=[*fields, exp.Literal.string("value"), own.copy()])
        found = asked.call(kind, [asked.where(pair, _known(own))])
        listed = f"transform({_sorted(list(map(direction, orders)))}, e -> e.value)"
    else:
        found, listed = asked.call(kind, [asked.argument(0)]), "`found`"
    between = asked.calls.argument(delimiter)
    is_text = asked.statement.catalyst.type_of(value) != "binary"
    if delimiter.kind == "Literal" and delimiter.parameters.get("value") is None:
        between = exp.Literal.string("") if is_text else read("X''")
    whole = "array_join({0}, `between`)"
    if not is_text:
        whole = "reduce({0}, CAST(NULL AS BINARY), (a, e) -> coalesce(concat(a, `between`, e), e))"
    return _over(f"CASE WHEN size(`found`) > 0 THEN {whole.format(listed)} END", found=found, between=between)


def _sorted(directions: Sequence[tuple[bool, bool]]) -> str:
    """The column ``found``, a list in order, by the fields ``order0``, … in these directions."""
    if all(each == (False, True) for each in directions):
        return "`found`"
    if all(each == (True, False) for each in directions):
        return "reverse(`found`)"
    compared = ""
    for place, (descending, nulls_first) in enumerate(directions):
        left, right = f"l.order{place}", f"r.order{place}"
        before, behind = (1, -1) if descending else (-1, 1)
        null = -1 if nulls_first else 1
        compared += (
            f"WHEN {left} IS NULL AND {right} IS NOT NULL THEN {null} "
            f"WHEN {left} IS NOT NULL AND {right} IS NULL THEN {-null} "
            f"WHEN {left} < {right} THEN {before} WHEN {left} > {right} THEN {behind} "
        )
    ties = "WHEN l.value < r.value THEN -1 WHEN l.value > r.value THEN 1"
    return f"array_sort(`found`, (l, r) -> CASE {compared}{ties} ELSE 0 END)"


def _mode(asked: Asked) -> Tree:
    # Spark takes the greatest of (frequency, value), by an order of values that may be reversed.
    greatest = asked.function.parameters.get("reverseOpt") is False
    return asked.call("mode", [asked.argument(0)], *(["greatest"] if greatest else []))


# -- percentiles ---------------------------------------------------------------------------------------------------


def _percentile(asked: Asked) -> Tree:
    """The value at a place of the order, or between two."""
    children = asked.function.children
    _check_number(asked, children[0])
    if len(children) > 2 and asked.statement.catalyst.constant(children[2]) != 1:
        raise asked.unsupported("percentile with a frequency", "repeat the rows instead")
    return _at(asked, lambda each: asked.call("percentile", [asked.argument(0)], each))


def _median(asked: Asked) -> Tree:
    _check_number(asked, asked.function.children[0])
    return asked.call("percentile", [asked.argument(0)], "0.5")


def _percentile_disc(asked: Asked) -> Tree:
    """One of the values, as a double."""
    _check_number(asked, asked.function.children[0])
    if asked.function.parameters.get("legacyCalculation"):
        raise asked.unsupported("percentile_disc as Spark 3 computed it")
    value = exp.Cast(this=asked.argument(0), to=exp.DataType.build("double", dialect="spark"))
    behind = ["desc"] if asked.function.parameters.get("reverse") else []
    return _at(asked, lambda each: asked.call("percentile_disc", [value], each, *behind))


def _approximate_percentile(asked: Asked) -> Tree:
    return _at(asked, lambda each: asked.call("percentile_disc", [asked.argument(0)], each))


def _check_number(asked: Asked, value: Expression) -> None:
    kind = asked.statement.catalyst.type_of(value)
    if kind.startswith("interval"):
        raise asked.unsupported(f"{asked.name} of values of type {kind}", "make a number of them")


def _at(asked: Asked, made: Callable[[str], Tree]) -> Tree:
    """The results at the percentage, or the list of percentages, that the function is given."""
    wanted = asked.statement.catalyst.constant(asked.function.children[1])
    if isinstance(wanted, list):
        found = [made(_percentage(asked, each)) for each in wanted]
        listed = exp.Anonymous(this="array", expressions=found)
        return exp.Case(ifs=[exp.If(this=_known(found[0]), true=listed)]) if found else exp.null()
    if not isinstance(wanted, float):
        raise asked.unsupported(f"{asked.name} at a percentage that is not a number", "write the number")
    return made(_percentage(asked, wanted))


def _percentage(asked: Asked, number: float) -> str:
    exact = Decimal(repr(number))
    reverse = asked.function.kind == "PercentileCont" and asked.function.parameters["reverse"]
    return f"{1 - exact if reverse else exact:f}"


# -- pairs of numbers ----------------------------------------------------------------------------------------------


def _pairs(formula: str) -> Result:
    """A formula over the rows that have both values: ``cov``, and of ``y`` and ``x``, the function's arguments, the
    variances ``vy`` and ``vx``, deviations ``sy`` and ``sx`` and means ``my`` and ``mx``; ``n``, their number."""
    functions = {"v": "var_pop", "s": "stddev_pop", "m": "avg"}

    def made(asked: Asked) -> Tree:
        _check_copies(asked)
        both = [asked.all_rows(place) for place in (0, 1)]
        known: dict[str, Tree] = {}
        for node in read(formula).find_all(exp.Column):
            name = node.name
            if name == "n":
                known[name] = asked.call("count", [asked.where(exp.Literal.number(1), *map(_known, both))])
            elif name == "cov":
                known[name] = asked.call("covar_pop", [asked.argument(0), both[1]])
            else:
                own, other = both if name[1] == "y" else reversed(both)
                known[name] = asked.call(functions[name[0]], [asked.where(own, _known(other))])
        return _over(formula, **known)

    return made


def _over(text: str, **columns: Tree) -> Tree:
    """An expression with trees for its columns."""
    return replace_columns(read(text), columns)


def _known(tree: Tree) -> Tree:
    return exp.Not(this=exp.Is(this=tree.copy(), expression=exp.null()))


AGGREGATES: dict[str, Result] = {
    "Count": _count,
    "CountIf": _plain("count_if"),
    "HyperLogLogPlusPlus": lambda asked: asked.calls.call("count", [asked.where(asked.compared(0))], distinct=True),
    "Sum": _summed("sum"),
    "Average": _summed("avg"),
    "Min": _extreme("min"),
    "Max": _extreme("max"),
    "First": _plain("any_value"),
    "Last": _plain("any_value"),
    "AnyValue": _plain("any_value"),
    "MaxBy": _by("max"),
    "MinBy": _by("min"),
    "MaxMinByK": _first_by,
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
    "Corr": _pairs("CASE WHEN `sy` <> 0D AND `sx` <> 0D THEN `cov` / `sy` / `sx` END"),
    "RegrCount": _pairs("`n`"),
    "RegrAvgX": _pairs("`mx`"),
    "RegrAvgY": _pairs("`my`"),
    "RegrSXX": _pairs("`vx` * CAST(`n` AS DOUBLE)"),
    "RegrSYY": _pairs("`vy` * CAST(`n` AS DOUBLE)"),
    "RegrSXY": _pairs("`cov` * CAST(`n` AS DOUBLE)"),
    "RegrSlope": _pairs("CASE WHEN `vx` <> 0D THEN `cov` / `vx` END"),
    "RegrIntercept": _pairs("CASE WHEN `vx` <> 0D THEN `my` - `cov` / `vx` * `mx` END"),
    "RegrR2": _pairs(
        "CASE WHEN `vx` <> 0D THEN CASE WHEN `vy` = 0D THEN 1D ELSE `cov` / `vx` * (`cov` / `vy`) END END"
    ),
    "CollectList": _of_equals(_list("collect_list")),
    "CollectSet": _of_equals(_list("collect_set")),
    "ListAgg": _of_equals(_joined),
    "Mode": _of_equals(_mode),
    "Median": _median,
    "Percentile": _percentile,
    "PercentileCont": _percentile,
    "PercentileDisc": _percentile_disc,
    "ApproximatePercentile": _approximate_percentile,
}
"""Catalyst's class → how it is kept."""

_SKETCH = "no sketch can be taken back when rows are deleted"
_ADVICE = {
    "ApproxTopK": "group by the value, and take ORDER BY count(*) DESC LIMIT k",
    "CountMinSketchAgg": _SKETCH,
    "HllSketchAgg": f"{_SKETCH}; count(DISTINCT …) is exact",
    "HllUnionAgg": _SKETCH,
    "HistogramNumeric": "group by width_bucket(…)",
    "PythonUDAF": "collect_list(…) gives a function of one row all values of the group",
}
