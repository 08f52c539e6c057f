"""PIVOT: columns from the values of a column, as conditional aggregates.

``PIVOT (sum(x) FOR c IN (1, 2))`` is ``sum(x) FILTER (WHERE c <=> 1) AS `1`, …``, grouped by all columns that the PIVOT
does not mention. The list of values is always given: a view's columns do not change with its data.

Where a group has no row with a value, Spark has NULL even for a count, unless an aggregate of the PIVOT has a type
(texts, lists) that its faster plan cannot hold. What depends on a type that is not known here is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from holdfast.frontend import functions
from holdfast.frontend.names import Relation, Scope
from holdfast.frontend.naming import output_name
from holdfast.frontend.place import Text
from holdfast.frontend.resolve import is_aggregate, resolve
from holdfast.frontend.select import finish_select
from holdfast.plan.expression import Tree

_LISTS = ("collect_list", "collect_set")
_COUNTS = ("count", "count_if")
_OF_ANY_TYPE = ("min", "max", "any_value", "mode")


@dataclass(frozen=True)
class Chosen:
    """A value of the pivot column: the name of its columns, and the condition that a row has it."""

    name: str
    condition: Tree


def pivoted(relation: Relation, pivot: Tree, text: Text) -> Relation:
    """A relation of FROM with a PIVOT behind it."""
    scope = Scope((relation,), {})
    (field,) = pivot.args["fields"]
    chosen = [_chosen(field.this, each, text) for each in field.expressions]
    calls = list(pivot.expressions)
    mentioned = {node.name for tree in _resolved([*calls, field.this], scope, text) for node in _columns(tree)}
    keys: list[Tree] = [
        exp.Column(this=exp.to_identifier(shown, quoted=True))
        for shown, inner in scope.visible()
        if inner not in mentioned
    ]
    select = exp.Select(expressions=[*keys, *spread(calls, chosen, scope, text)])
    if keys:
        select.set("group", exp.Group(expressions=[key.copy() for key in keys]))
    node = finish_select(select, scope, relation.node, None, text)
    return Relation(pivot.alias or relation.alias, node, node.columns, node.columns)


def spread(calls: Sequence[Tree], chosen: Sequence[Chosen], scope: Scope, text: Text) -> list[Tree]:
    """The columns of a PIVOT, as expressions of a select list: for each value each aggregate."""
    bare = [_call(each, text) for each in calls]
    made = {functions.AGGREGATES[call.name.lower()] for call in bare}
    counts = made & set(_COUNTS)
    if counts and made & set(_OF_ANY_TYPE) and not made & set(_LISTS):
        advice = "whether Spark counts 0 or NULL depends on a type; pivot them apart, and join"
        raise text.unsupported(f"PIVOT with {min(counts)} beside {min(made & set(_OF_ANY_TYPE))}", calls[0], advice)
    columns: list[Tree] = []
    for value in chosen:
        for written, call in zip(calls, bare, strict=True):
            result = _filtered(written, value.condition)
            if functions.AGGREGATES[call.name.lower()] in _COUNTS and not made & set(_LISTS):
                rows = exp.Filter(
                    this=exp.Anonymous(this="count", expressions=[exp.Star()]),
                    expression=exp.Where(this=value.condition.copy()),
                )
                some = exp.GT(this=rows, expression=exp.Literal.number(0))
                result = exp.Case(ifs=[exp.If(this=some, true=result)])
            name = value.name if len(calls) == 1 else f"{value.name}_{_name(written, scope, text)}"
            columns.append(exp.Alias(this=result, alias=exp.to_identifier(name, quoted=True)))
    return columns


def condition(of: Tree, value: Tree) -> Tree:
    """Whether a row has the value; NULL is a value like any other."""
    if isinstance(of, exp.Tuple) and isinstance(value, exp.Tuple) and len(of.expressions) == len(value.expressions):
        result: Tree | None = None
        for one, other in zip(of.expressions, value.expressions, strict=True):
            part = condition(one, other)
            result = part if result is None else exp.And(this=result, expression=part)
        assert result is not None
        return result
    return exp.NullSafeEQ(this=of.copy(), expression=value.copy())


def literal(value: Any, text: Text) -> Chosen:
    """A value given in Python, with its name; the condition is the value itself, to be compared."""
    match value:
        case None:
            return Chosen("null", exp.Null())
        case bool():
            return Chosen(str(value).lower(), exp.Boolean(this=value))
        case int():
            number = exp.Literal.number(abs(value))
            return Chosen(str(value), exp.Neg(this=number) if value < 0 else number)
        case str():
            return Chosen(value, exp.Literal.string(value))
    raise text.unsupported(f"pivot by {value!r}", None, "give texts, whole numbers, booleans or None")


def _chosen(of: Tree, value: Tree, text: Text) -> Chosen:
    named = isinstance(value, (exp.PivotAlias, exp.Alias))
    inner = value.this if named else value
    if not all(isinstance(each, _CONSTANT) for each in inner.walk()):
        raise text.unsupported("PIVOT by a value that is not a constant", value)
    name = value.args["alias"].name if named else _value_name(inner)
    return Chosen(name, condition(of, inner))


_CONSTANT = (exp.Literal, exp.Boolean, exp.Null, exp.Neg, exp.Cast, exp.DataType, exp.Tuple, exp.Paren)


def _value_name(value: Tree) -> str:
    match value:
        case exp.Tuple():
            return "{" + ", ".join(map(_value_name, value.expressions)) + "}"
        case exp.Null():
            return "null"
        case exp.Boolean():
            return str(value.this).lower()
        case exp.Neg():
            return f"-{_value_name(value.this)}"
    return _value_name(value.this) if isinstance(value, (exp.Cast, exp.Paren)) else str(value.name)


def _call(written: Tree, text: Text) -> exp.Anonymous:
    """The aggregate call in an item of a PIVOT."""
    inner = written.this if isinstance(written, exp.Alias) else written
    call = inner.this if isinstance(inner, exp.Filter) else inner
    if not (isinstance(call, exp.Anonymous) and is_aggregate(call)):
        raise text.unsupported(
            "an expression in PIVOT", inner, "give the aggregate alone, and compute with its columns"
        )
    return call


def _filtered(written: Tree, condition: Tree) -> Tree:
    inner = written.this if isinstance(written, exp.Alias) else written
    if isinstance(inner, exp.Filter):
        both = exp.And(this=condition.copy(), expression=inner.expression.this.copy())
        return exp.Filter(this=inner.this.copy(), expression=exp.Where(this=both))
    return exp.Filter(this=inner.copy(), expression=exp.Where(this=condition.copy()))


def _name(written: Tree, scope: Scope, text: Text) -> str:
    if isinstance(written, exp.Alias):
        return str(written.alias)
    return output_name(written, resolve(written, scope, text), scope)


def _resolved(trees: Sequence[Tree], scope: Scope, text: Text) -> list[Tree]:
    bare = [tree.this if isinstance(tree, exp.Alias) else tree for tree in trees]
    return [resolve(tree, scope, text) for tree in bare]


def _columns(tree: Tree) -> list[exp.Column]:
    return list(tree.find_all(exp.Column))
