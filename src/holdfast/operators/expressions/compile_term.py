"""From an expression of the plan to a term, or to None if Spark must run it.

The native set is small on purpose. If it is not certain that an expression gives the same bits as in Spark, Spark runs
it, and with it the whole stretch. Some expressions look harmless but are not native, for these reasons:

- A term that can fail under a condition (AND, OR, CASE, COALESCE, IN, ...): Spark's optimiser may move or drop it.
- Sums and products of three or more integers with a literal among them: Spark collects the literals, which changes the
  rows on which it overflows.
- A comparison of an expression that can fail with itself: Spark knows the answer without evaluating it.
- A bigint compared with a double: Spark's optimiser chooses whether to compare as doubles or as bigints.
- Arithmetic of constants alone: Spark computes it once, before it reads any row.

All casts are explicit in Spark's plan, so the operands of a comparison or of arithmetic have one type.

Inside a loop, Spark cannot run an expression. There the set is larger (`written_functions`), and an expression is
computed as written: operands from left to right, and operands that a condition excludes not at all. So it gives the
same bits as in Spark. Where Spark's optimiser would make it fail earlier or not at all, it fails as written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal as Choice

import pyarrow as pa

from holdfast.errors import SchemaError
from holdfast.operators.expressions import decimals
from holdfast.operators.expressions import terms as t
from holdfast.operators.expressions.arithmetic import Arithmetic, Divide, Negate, Operator, Remainder
from holdfast.operators.expressions.conditions import Choose, Coalesce, Logic, Not
from holdfast.operators.expressions.same_terms import operands_of, same_meaning
from holdfast.operators.expressions.shifted_timestamp import Shifted
from holdfast.operators.expressions.terms import ColumnTerm, Comparison, Constant, Term, Widen
from holdfast.operators.expressions.written_functions import NotWritten, written_function
from holdfast.plan import expression
from holdfast.plan.expression import (
    DAY,
    SPAN,
    Literal,
    Operation,
    SparkExpression,
    Tree,
    readable,
)
from holdfast.plan.types import arrow_type


@dataclass(frozen=True)
class Scope:
    """The columns that an expression can read, as terms. ``as_written``: the expression is inside a loop."""

    columns: Mapping[str, Term]
    as_written: bool = False


BOOL, FLOAT, DOUBLE = pa.bool_(), pa.float32(), pa.float64()
_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_COMPARED = re.compile(
    r"boolean|tinyint|smallint|int|bigint|float|double|decimal.*|string|binary|date|timestamp(_ntz)?"
)
"""Types whose values Arrow compares like Spark."""

_LONGEST = 1 << 20
_LIKE = re.compile(r"(%*)([^%_]*)(%*)", re.DOTALL)


class _NotNative(Exception):
    """The expression is not in the native set: Spark must run it."""


def read(tree: Tree, columns: Mapping[str, Term], *, as_written: bool = False) -> Term | None:
    """Compile an expression over ``columns`` to a term; None if Spark must run it."""
    try:
        return _term(tree, Scope(columns, as_written))
    except (_NotNative, NotWritten, SchemaError, RecursionError):
        return None


def _term(tree: Tree, scope: Scope) -> Term:
    term = _compiled(tree, scope)
    # Outside loops there is no operation over constants alone whose value is an array.
    return t.Everywhere(term.type, term) if scope.as_written and _is_computed_constant(term) else term


def _is_computed_constant(term: Term) -> bool:
    return not isinstance(term, ColumnTerm | Constant | t.Everywhere) and not _reads_columns([term])


def _reads_columns(terms: Iterable[Term]) -> bool:
    below = list(terms)
    for term in below:
        below.extend(term.operands)
    return any(isinstance(term, ColumnTerm) for term in below)


def _compiled(tree: Tree, scope: Scope) -> Term:
    match tree:
        case expression.Column():
            return scope.columns[tree.name]
        case Literal():
            return Constant(arrow_type(tree.type), tree.value)
        case Operation() if tree.name in _READERS:
            try:
                return _READERS[tree.name](tree, scope)
            except _NotNative:
                if not scope.as_written:
                    raise
                return _written(tree, scope)
        case Operation() if scope.as_written:
            return _written(tree, scope)
        case SparkExpression() if scope.as_written and (written := tree.in_operations()) is not None:
            return _term(written, scope)
    raise _NotNative(type(tree).__name__)


def _written(tree: Operation, scope: Scope) -> Term:
    """Compile an operation that is native only inside loops."""
    return written_function(tree, [_term(each, scope) for each in tree.operands])


def _certain(tree: Tree, scope: Scope) -> Term:
    """Compile an operand that is evaluated under a condition: it must not be able to fail, except inside a loop."""
    term = _term(tree, scope)
    if term.raises and not scope.as_written:
        raise _NotNative("can fail under a condition")
    return term


def _all_certain(tree: Operation, scope: Scope) -> list[Term]:
    return [_certain(each, scope) for each in tree.operands]


def _both(tree: Operation, scope: Scope) -> tuple[Term, Term]:
    left, right = (_term(each, scope) for each in tree.operands)
    return left, right


def _is_integer(kind: pa.DataType) -> bool:
    return kind in _INTEGERS


# -- casts ------------------------------------------------------------------------------------------------------------


def _cast(tree: Operation, scope: Scope) -> Term:
    """A cast that cannot fail: from an integer to a wider one, from an integer or a float to double, or to a decimal
    that holds all values, with their digits after the point or rounded."""
    term, kind = _term(tree.operands[0], scope), arrow_type(tree.type)
    if term.type == kind:
        return term
    wider = _is_integer(term.type) and _is_integer(kind) and kind.bit_width > term.type.bit_width
    doubled = kind == DOUBLE and (_is_integer(term.type) or term.type == FLOAT)
    if isinstance(term, Constant):
        if term.content is None or (wider and isinstance(term.content, int)):
            return Constant(kind, term.content)
        raise _NotNative("a constant that Spark computes")
    if wider or doubled or decimals.holds(kind, term.type):
        return Widen(kind, term)
    if decimals.holds_rounded(kind, term.type):
        return decimals.DecimalRound(kind, term)
    raise _NotNative(f"{term.type} as {kind}")


# -- conditions -------------------------------------------------------------------------------------------------------


def _compared(tree: Operation, left: Term, right: Term, scope: Scope) -> None:
    """Raise _NotNative unless comparing the two terms certainly gives the same answer as in Spark."""
    if left.type != right.type or not _COMPARED.fullmatch(tree.operands[0].type):
        raise _NotNative(f"comparison of {left.type} with {right.type}")
    if scope.as_written:
        return
    for term in (left, right):
        if isinstance(term, Widen) and term.type == DOUBLE and term.operand.type == pa.int64():
            raise _NotNative("a bigint cast to double, which Spark may compare as a bigint")
    if same_meaning(left, right) and left != right:
        raise _NotNative("Spark takes the two for one")


def _compare(tree: Operation, scope: Scope) -> Term:
    left, right = _both(tree, scope)
    _compared(tree, left, right, scope)
    if (left.raises or right.raises) and not scope.as_written:
        null = any(isinstance(term, Constant) and term.content is None for term in (left, right))
        if null or same_meaning(left, right):
            raise _NotNative("Spark knows the answer without looking")
    return t.Compare(BOOL, _COMPARISONS[tree.name], left, right)


def _same(tree: Operation, scope: Scope) -> Term:
    left, right = _all_certain(tree, scope)
    _compared(tree, left, right, scope)
    return t.Same(BOOL, left, right)


def _logic(tree: Operation, scope: Scope) -> Term:
    left, right = _all_certain(tree, scope)
    return Logic(BOOL, "and" if tree.name == "and" else "or", left, right)


def _not(tree: Operation, scope: Scope) -> Term:
    return Not(BOOL, _term(tree.operands[0], scope))


def _is_null(tree: Operation, scope: Scope) -> Term:
    return t.IsNull(BOOL, _certain(tree.operands[0], scope))


def _is_nan(tree: Operation, scope: Scope) -> Term:
    return t.IsNan(BOOL, _certain(tree.operands[0], scope))


def _in(tree: Operation, scope: Scope) -> Term:
    term, *choices = _all_certain(tree, scope)
    if isinstance(term, Constant) or not choices:
        raise _NotNative("IN of a literal, or of nothing")
    found: list[object] = []
    for each in choices:
        if not isinstance(each, Constant) or each.type != term.type:
            raise _NotNative("IN a list of expressions")
        found.append(each.content)
    # Above ten choices Spark uses a hash set, which defines the equality of floats differently.
    if not _COMPARED.fullmatch(tree.operands[0].type) or (len(found) > 10 and term.type in (FLOAT, DOUBLE)):
        raise _NotNative("IN of that type")
    known = tuple(each for each in found if each is not None)
    return t.MemberOf(BOOL, term, known, len(known) < len(found))


def _like(tree: Operation, scope: Scope) -> Term:
    term, pattern = _all_certain(tree, scope)
    if tree.operands[0].type != "string" or isinstance(term, Constant) or not isinstance(pattern, Constant):
        raise _NotNative("LIKE of that")
    text = pattern.content
    if not isinstance(text, str) or "\\" in text:
        raise _NotNative("LIKE with an escape")
    parts = _LIKE.fullmatch(text)
    if parts is None:
        return t.Matches(BOOL, term, text)
    where: Choice["start", "end", "inside", "whole", "any"]
    if not parts[2]:
        where = "any" if parts[1] else "whole"
    elif parts[1]:
        where = "inside" if parts[3] else "end"
    else:
        where = "start" if parts[3] else "whole"
    return t.Like(BOOL, term, where, parts[2])


# -- arithmetic -------------------------------------------------------------------------------------------------------


def _arithmetic(tree: Operation, scope: Scope) -> Term:
    if tree.operands[1].type == SPAN:
        return _shifted(tree, scope)
    left, right = _both(tree, scope)
    _check_operands(left, right)
    kind, operator = arrow_type(tree.type), _ARITHMETIC[tree.name]
    if pa.types.is_decimal128(kind):
        precision, scale = decimals.exact_type(operator, left.type, right.type)
        if precision > decimals.WIDEST or kind != decimals.adjusted(precision, scale):
            raise _NotNative("more digits than can be computed")
        return decimals.DecimalArithmetic(kind, operator, left, right, readable(tree))
    if left.type != kind or right.type != kind or not (_is_integer(kind) or kind in (FLOAT, DOUBLE)):
        raise _NotNative(f"arithmetic on {left.type} and {right.type}")
    term = Arithmetic(kind, operator, left, right, readable(tree))
    chain = operands_of(term)
    collected = len(chain) > 2 and any(isinstance(operand, Constant) for operand in chain)
    if _is_integer(kind) and collected and not scope.as_written:
        raise _NotNative("Spark collects the literals")
    return term


def _check_operands(*operands: Term) -> None:
    """Raise _NotNative for arithmetic without a column below it, or with a NULL literal. Spark computes constant
    expressions such as COALESCE(1, 2) + 1 before it reads any row, so they may fail at another time."""
    if not _reads_columns(operands):
        raise _NotNative("arithmetic without a column")
    if any(isinstance(term, Constant) and term.content is None for term in operands):
        raise _NotNative("arithmetic with NULL")


def _shifted(tree: Operation, scope: Scope) -> Term:
    moment, span = _term(tree.operands[0], scope), tree.operands[1]
    if not isinstance(span, Literal) or not isinstance(span.value, int) or abs(span.value) >= DAY:
        raise _NotNative("an interval that is not constant, or of days of the calendar")
    if not pa.types.is_timestamp(moment.type):
        raise _NotNative("an interval that is not added to a timestamp")
    _check_operands(moment)
    return Shifted(moment.type, moment, span.value, readable(tree))


def _negative(tree: Operation, scope: Scope) -> Term:
    term = _term(tree.operands[0], scope)
    _check_operands(term)
    if not (_is_integer(term.type) or term.type in (FLOAT, DOUBLE)):
        raise _NotNative(f"the negative of {term.type}")
    return Negate(term.type, term, readable(tree))


def _divide(tree: Operation, scope: Scope) -> Term:
    left, right = _both(tree, scope)
    _check_operands(left, right)
    if isinstance(right, Constant) and right.content == 0:
        raise _NotNative("division by the literal zero")
    kind, never_zero = arrow_type(tree.type), isinstance(right, Constant)
    if pa.types.is_decimal128(kind) and kind == decimals.adjusted(*decimals.quotient_type(left.type, right.type)):
        return decimals.DecimalDivide(kind, left, right, never_zero, readable(tree))
    if {left.type, right.type, kind} != {DOUBLE}:
        raise _NotNative(f"division of {left.type} by {right.type}")
    return Divide(DOUBLE, left, right, never_zero, readable(tree))


def _remainder(tree: Operation, scope: Scope) -> Term:
    left, right = _both(tree, scope)
    _check_operands(left)
    if not _is_integer(left.type) or left.type != right.type:
        raise _NotNative("remainder of that")
    if not isinstance(right, Constant) or not isinstance(right.content, int) or right.content in (0, -1):
        raise _NotNative("remainder by something not a literal")
    return Remainder(left.type, left, right.content)


# -- choices and functions --------------------------------------------------------------------------------------------


def _case(tree: Operation, scope: Scope) -> Term:
    *parts, otherwise = _all_certain(tree, scope)
    conditions, values = tuple(parts[::2]), tuple(parts[1::2])
    kind = _one_type(tree, [*values, otherwise])
    return Choose(kind, conditions, values, otherwise)


def _coalesce(tree: Operation, scope: Scope) -> Term:
    choices = _all_certain(tree, scope)
    return Coalesce(_one_type(tree, choices), tuple(choices))


def _one_type(tree: Operation, terms: list[Term]) -> pa.DataType:
    kind = arrow_type(tree.type)
    if any(term.type != kind for term in terms):
        raise _NotNative("a choice between several types")
    return kind


def _substring(tree: Operation, scope: Scope) -> Term:
    term, *places = _all_certain(tree, scope)
    if term.type != pa.string() or isinstance(term, Constant):
        raise _NotNative("substring of that")
    numbers = [each.content for each in places if isinstance(each, Constant) and isinstance(each.content, int)]
    if len(numbers) < 2 or not 1 <= numbers[0] <= _LONGEST or not 0 <= numbers[1] <= _LONGEST:
        raise _NotNative("substring from or to somewhere else")
    return t.Substring(term.type, term, numbers[0] - 1, numbers[1])


def _date_part(tree: Operation, scope: Scope) -> Term:
    term = _certain(tree.operands[0], scope)
    if term.type != pa.date32() or isinstance(term, Constant):
        raise _NotNative("a part of a time")
    part: Choice["year", "month", "day"] = "year"
    if tree.name != "year":
        part = "month" if tree.name == "month" else "day"
    return t.DatePart(pa.int32(), part, term)


_COMPARISONS: dict[str, Comparison] = {"=": "=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_ARITHMETIC: dict[str, Operator] = {"+": "+", "-": "-", "*": "*"}
_READERS: dict[str, Callable[[Operation, Scope], Term]] = {
    "cast": _cast,
    **dict.fromkeys(_COMPARISONS, _compare),
    "<=>": _same,
    "and": _logic,
    "or": _logic,
    "not": _not,
    "is null": _is_null,
    "isnan": _is_nan,
    "in": _in,
    "like": _like,
    **dict.fromkeys(_ARITHMETIC, _arithmetic),
    "negative": _negative,
    "/": _divide,
    "%": _remainder,
    "case": _case,
    "coalesce": _coalesce,
    "substring": _substring,
    **dict.fromkeys(("year", "month", "day"), _date_part),
}
