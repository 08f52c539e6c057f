"""Aggregates that are a list of values, or the value that goes with the greatest or least of another.

- ``max_by(x, y)`` is the ``x`` of the greatest pair (y, x), so that a tie is settled by the whole value.
- ``listagg`` joins a sorted list: by WITHIN GROUP's order, then by the value itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from holdfast.frontend.catalyst.asked import Asked, Result, is_known, over
from holdfast.frontend.catalyst.tree import direction
from holdfast.plan.expression import Tree, read


def by(function: str) -> Result:
    return lambda asked: by_order(asked, function, asked.compared(1))


def by_order(asked: Asked, function: str, order: Tree) -> Tree:
    best = asked.call(function, [_with_order(asked, order)])
    return exp.Dot(this=best, expression=exp.Identifier(this="value", quoted=True))


def first_by(asked: Asked) -> Tree:
    """``max_by(x, y, n)`` and ``min_by(x, y, n)``: a list."""
    number = asked.statement.catalyst.constant(asked.function.children[2])
    if not isinstance(number, int):
        raise asked.unsupported(f"{asked.name} of so many values that is not a number", "write the number")
    found = asked.calls.call("collect_list", [_with_order(asked, asked.compared(1))])
    elements = "`found`" if asked.function.parameters["reverse"] else "reverse(`found`)"
    first = f"transform(slice({elements}, 1, {number}), e -> e.value)"
    return over(f"CASE WHEN size(`found`) > 0 THEN {first} END", found=found)


def _with_order(asked: Asked, order: Tree) -> Tree:
    """A struct of what to order by and the value, where the first is not NULL."""
    fields = [exp.Literal.string("order"), order.copy(), exp.Literal.string("value"), asked.all_rows(0)]
    return asked.where(exp.Anonymous(this="named_struct", expressions=fields), is_known(order))


def listed(function: str) -> Result:
    def made(asked: Asked) -> Tree:
        kind = "collect_set" if asked.distinct else function
        if asked.function.parameters.get("ignoreNulls", True):
            return asked.call(kind, [asked.argument(0)])
        fields = [exp.Literal.string("value"), asked.all_rows(0)]
        found = asked.call(kind, [asked.where(exp.Anonymous(this="named_struct", expressions=fields))])
        return over("transform(`found`, e -> e.value)", found=found)

    return made


def joined(asked: Asked) -> Tree:
    """``listagg``: a text, NULL of no values."""
    value, delimiter, *orders = asked.function.children
    own = asked.all_rows(0)
    kind = "collect_set" if asked.distinct else "collect_list"
    if orders:
        fields: list[Tree] = []
        for place, each in enumerate(orders):
            fields += [exp.Literal.string(f"order{place}"), asked.calls.comparable(each.children[0])]
        pair = exp.Anonymous(this="named_struct", expressions=[*fields, exp.Literal.string("value"), own.copy()])
        found = asked.call(kind, [asked.where(pair, is_known(own))])
        elements = f"transform({_sorted(list(map(direction, orders)))}, e -> e.value)"
    else:
        found, elements = asked.call(kind, [asked.argument(0)]), "`found`"
    between = asked.calls.argument(delimiter)
    is_text = asked.statement.catalyst.type_of(value) != "binary"
    if delimiter.kind == "Literal" and delimiter.parameters.get("value") is None:
        between = exp.Literal.string("") if is_text else read("X''")
    whole = "array_join({0}, `between`)"
    if not is_text:
        whole = "reduce({0}, CAST(NULL AS BINARY), (a, e) -> coalesce(concat(a, `between`, e), e))"
    return over(f"CASE WHEN size(`found`) > 0 THEN {whole.format(elements)} END", found=found, between=between)


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
