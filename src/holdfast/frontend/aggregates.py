"""Aggregate calls in one form: an `Anonymous` call of a `plan.nodes.Call` function, over arguments that are resolved.

A FILTER is written into the arguments, since aggregates pass over NULLs. ``max_by(x, y)`` is the ``x`` of the greatest
pair (y, x), so that a tie is settled by the whole value. ``median`` and ``percentile_cont`` are ``percentile`` with a
constant behind its argument.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from sqlglot import exp

from holdfast.errors import SqlError
from holdfast.frontend import functions
from holdfast.frontend.place import Text
from holdfast.plan.expression import Tree

_PAIRS = ("covar_pop", "covar_samp")
_ARGUMENTS = dict.fromkeys(("max_by", "min_by", "percentile", "percentile_cont", *_PAIRS), 2)


def aggregate(
    call: exp.Anonymous, arguments: Sequence[Tree], distinct: bool, condition: Tree | None, text: Text
) -> Tree:
    """The call as written, over resolved ``arguments``, for the rows on which ``condition`` holds."""
    written, function = call.name.lower(), functions.AGGREGATES[call.name.lower()]
    if function == "count" and not distinct:
        return _count(call, arguments, condition, text)
    expected = _ARGUMENTS.get(written, 1)
    if len(arguments) != expected and not (function == "count" and arguments):
        number = {1: "one argument", 2: "two arguments"}[expected]
        raise text.error(SqlError, f"{written} takes {number}, found {len(arguments)}", call)
    if written in ("max_by", "min_by"):
        return _by(function, arguments[0], arguments[1], condition)
    if distinct and function in _PAIRS:
        raise text.unsupported(f"DISTINCT in {written}", call, "select the distinct pairs in a subquery")
    first = where(condition, arguments[0])
    if function == "percentile":
        return _percentile(call, first, arguments[1:], distinct, text)
    if function == "collect_list" and distinct:
        function = "collect_set"
    return _call(function, [first, *arguments[1:]], distinct and function not in functions.BLIND_TO_COPIES)


def where(condition: Tree | None, value: Tree) -> Tree:
    """``value`` where the condition holds, NULL elsewhere."""
    if condition is None:
        return value
    return exp.Case(ifs=[exp.If(this=condition, true=value)])


def _call(function: str, arguments: Sequence[Tree], distinct: bool, *constants: Tree) -> Tree:
    given = [exp.Distinct(expressions=list(dict.fromkeys(arguments)))] if distinct else list(arguments)
    return exp.Anonymous(this=function, expressions=[*given, *constants])


def _count(call: exp.Anonymous, arguments: Sequence[Tree], condition: Tree | None, text: Text) -> Tree:
    if not arguments:
        raise text.error(SqlError, "count takes an argument; write count(*)", call)
    # These are never NULL.
    counted = [each for each in arguments if not isinstance(each, (exp.Star, exp.Literal, exp.Boolean))]
    if not counted:
        return _call("count", [exp.Star() if condition is None else where(condition, exp.Literal.number(1))], False)
    if len(counted) == 1:
        return _call("count", [where(condition, counted[0])], False)
    some: Tree = exp.Is(this=counted[0], expression=exp.Null())
    for each in counted[1:]:
        some = exp.Or(this=some, expression=exp.Is(this=each, expression=exp.Null()))
    counted_once = exp.Anonymous(this="if", expressions=[some, exp.Null(), exp.Literal.number(1)])
    return _call("count", [where(condition, counted_once)], False)


def _by(function: str, value: Tree, order: Tree, condition: Tree | None) -> Tree:
    known: Tree = exp.Not(this=exp.Is(this=order, expression=exp.Null()))
    known = known if condition is None else exp.And(this=condition, expression=known)
    names = [exp.Literal.string("order"), exp.Literal.string("value")]
    pair = exp.Anonymous(this="named_struct", expressions=[names[0], order.copy(), names[1], value])
    best = _call(function, [where(known, pair)], False)
    return exp.Dot(this=best, expression=exp.Identifier(this="value", quoted=True))


def _percentile(call: exp.Anonymous, value: Tree, given: Sequence[Tree], distinct: bool, text: Text) -> Tree:
    if not given:
        return _call("percentile", [value], distinct, exp.Literal.number("0.5"))
    wanted = given[0]
    if isinstance(wanted, exp.Anonymous) and wanted.name.lower() == "array" and wanted.expressions:
        calls = [_call("percentile", [value], distinct, _percentage(call, each, text)) for each in wanted.expressions]
        none = exp.Is(this=calls[0], expression=exp.Null())
        listed = exp.Anonymous(this="array", expressions=[each.copy() for each in calls])
        return where(exp.Not(this=none), listed)
    return _call("percentile", [value], distinct, _percentage(call, wanted, text))


def _percentage(call: exp.Anonymous, tree: Tree, text: Text) -> Tree:
    literal = tree.this if isinstance(tree, exp.Cast) else tree
    if not (isinstance(literal, exp.Literal) and not literal.is_string):
        raise text.unsupported(f"{call.name.lower()} at a percentage that is not a number", call, "write the number")
    if not 0 <= Decimal(literal.name) <= 1:
        message = f"{call.name.lower()} takes a percentage between 0 and 1, found {literal.name}"
        raise text.error(SqlError, message, call)
    return exp.Literal.number(literal.name)


def within_group(tree: exp.WithinGroup, text: Text) -> exp.Anonymous:
    """``percentile_cont(0.5) WITHIN GROUP (ORDER BY x)`` as ``percentile(x, 0.5)``, and ``mode()`` likewise."""
    call, ordered = tree.this, tree.expression.expressions
    name = call.name.lower() if isinstance(call, exp.Anonymous) else ""
    descending = any(each.args.get("desc") for each in ordered)
    if len(ordered) == 1 and name == "percentile_cont" and len(call.expressions) == 1:
        percentage = _percentage(call, call.expressions[0], text)
        if descending:
            percentage = exp.Literal.number(str(1 - Decimal(percentage.name)))
        return exp.Anonymous(this="percentile", expressions=[ordered[0].this, percentage]).update_positions(call)
    if len(ordered) == 1 and name == "mode" and not call.expressions and not descending:
        return exp.Anonymous(this="mode", expressions=[ordered[0].this]).update_positions(call)
    raise text.unsupported("WITHIN GROUP", tree, "", "WITHIN", after=True)
