"""From the text of an expression to a term, or to None when Spark must run it.

The set is small on purpose. Whatever is not certain to give Spark's very bits is `Foreign`, and then the whole stretch
is Spark's. Reasons for which an expression that looks harmless is foreign:

- Failure under a condition (AND, OR, CASE, COALESCE, IN, ...): Spark's optimiser may move or drop what can fail.
- Sums and products of integers of three or more operands with a literal among them: Spark collects the literals, which
  changes where it overflows.
- A failing comparison of a thing with itself: Spark knows the answer without looking.
- The literal -0.0: Spark takes it for the literal 0.0 where it looks for equal branches.
- A bigint compared with a double: Spark compares as doubles, or as bigints, as its optimiser likes.
- A backslash: how the two parsers unescape differs.
- A predicate without parentheses as an operand of a comparison: the two parsers bind it differently.

sqlglot is imported here and nowhere else in `operators`; `expressions` imports this file when it compiles, never when
it applies.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal, localcontext
from functools import reduce
from typing import Literal

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from holdfast.operators import decimals
from holdfast.operators import terms as t
from holdfast.operators.arithmetic import Arithmetic, Divide, Negate, Operator, Remainder
from holdfast.operators.coercion import BOOL, Foreign, common, comparable, is_comparable, numeric, some, widened
from holdfast.operators.literals import (
    DOUBLE,
    FLOAT,
    cast_literal,
    compared_to,
    fits,
    is_integer,
    is_negative_zero,
    read_number,
    shifted,
)
from holdfast.operators.meaning import operands_of, same_meaning
from holdfast.operators.shifted import Shifted, micros_of
from holdfast.operators.terms import Column, Comparison, Constant, Term

Columns = Mapping[str, Column]

_TYPES: dict[object, pa.DataType] = {
    exp.DataType.Type.BOOLEAN: BOOL,
    exp.DataType.Type.TINYINT: pa.int8(),
    exp.DataType.Type.SMALLINT: pa.int16(),
    exp.DataType.Type.INT: pa.int32(),
    exp.DataType.Type.BIGINT: pa.int64(),
    exp.DataType.Type.FLOAT: FLOAT,
    exp.DataType.Type.DOUBLE: DOUBLE,
    exp.DataType.Type.TEXT: pa.string(),
    exp.DataType.Type.BINARY: pa.binary(),
    exp.DataType.Type.DATE: pa.date32(),
    exp.DataType.Type.TIMESTAMPTZ: pa.timestamp("us", tz="UTC"),
    exp.DataType.Type.TIMESTAMPNTZ: pa.timestamp("us"),
}
_COMPARISONS: dict[type[exp.Expr], Comparison] = {
    exp.EQ: "=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_ARITHMETIC: dict[type[exp.Expr], Operator] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*"}
_PREDICATES = (exp.Predicate, exp.Connector, exp.Not)
_LONGEST = 1 << 20
_LIKE = re.compile(r"(%*)([^%_]*)(%*)", re.DOTALL)


def read(sql: str, columns: Columns) -> Term | None:
    """The term that ``sql`` stands for over ``columns``; None if Spark must run it."""
    if "\\" in sql:
        return None
    try:
        return _term(sqlglot.parse_one(sql, dialect="spark"), columns)
    except (SqlglotError, Foreign, RecursionError):
        return None


def _term(node: exp.Expr, columns: Columns) -> Term:
    read_node = _READERS.get(type(node))
    if read_node is None:
        raise Foreign(type(node).__name__)
    allowed = _ARGUMENTS.get(type(node), {"this", "expression"})
    # An argument that this file does not know of (ESCAPE, SYMMETRIC, FORMAT, ...) changes the meaning.
    if any(given and name not in allowed for name, given in node.args.items()):
        raise Foreign(f"{type(node).__name__} with more than {allowed}")
    return read_node(node, columns)


def _certain(node: exp.Expr, columns: Columns) -> Term:
    """A term that cannot fail."""
    term = _term(node, columns)
    if term.raises:
        raise Foreign("can fail under a condition")
    return term


def _condition(node: exp.Expr, columns: Columns) -> Term:
    term = _certain(node, columns)
    if term.type != BOOL:
        raise Foreign("a condition that is not boolean")
    return term


def _operand(node: exp.Expr, columns: Columns) -> Term:
    """An operand of a comparison or of arithmetic: a predicate stands in parentheses there."""
    if isinstance(node, _PREDICATES):
        raise Foreign("a predicate as an operand")
    return _term(node, columns)


def _inner(node: exp.Expr, columns: Columns) -> Term:
    return _term(node.this, columns)


def _column(node: exp.Expr, columns: Columns) -> Term:
    if not isinstance(node.this, exp.Identifier) or node.name not in columns:
        raise Foreign("not a column of the input")
    return columns[node.name]


def _literal(node: exp.Expr, columns: Columns) -> Term:
    if node.args.get("is_string"):
        return Constant(pa.string(), str(node.this))
    return some(read_number(str(node.this)))


def _boolean(node: exp.Expr, columns: Columns) -> Term:
    return Constant(BOOL, bool(node.this))


def _null(node: exp.Expr, columns: Columns) -> Term:
    return Constant(pa.null(), None)


def _cast(node: exp.Expr, columns: Columns) -> Term:
    term, kind = _operand(node.this, columns), _type(node.args["to"])
    if isinstance(term, Constant):
        return some(cast_literal(term, kind))
    if term.type == kind:
        return term
    return widened(term, kind)


def _type(node: exp.DataType) -> pa.DataType:
    if node.this == exp.DataType.Type.DECIMAL and len(node.expressions) == 2:
        precision, scale = (int(parameter.name) for parameter in node.expressions)
        if 0 <= scale <= precision <= 38 and precision:
            return pa.decimal128(precision, scale)
    if node.this not in _TYPES or node.expressions:
        raise Foreign(f"cast to {node.sql()}")
    return _TYPES[node.this]


def _compare(node: exp.Expr, columns: Columns) -> Term:
    left, right = comparable(_operand(node.this, columns), _operand(node.expression, columns))
    if left.raises or right.raises:
        constants = [term for term in (left, right) if isinstance(term, Constant)]
        if same_meaning(left, right) or any(term.content is None for term in constants):
            raise Foreign("Spark knows the answer without looking")
    if same_meaning(left, right) and left != right:
        raise Foreign("Spark takes the two for one")
    if isinstance(node, exp.NEQ):
        return t.Not(BOOL, t.Compare(BOOL, "=", left, right))
    return t.Compare(BOOL, _COMPARISONS[type(node)], left, right)


def _same(node: exp.Expr, columns: Columns) -> Term:
    left, right = comparable(_certain(node.this, columns), _certain(node.expression, columns))
    if isinstance(node.this, _PREDICATES) or isinstance(node.expression, _PREDICATES):
        raise Foreign("a predicate as an operand")
    if same_meaning(left, right) and left != right:
        raise Foreign("Spark takes the two for one")
    same = t.Same(BOOL, left, right)
    return t.Not(BOOL, same) if isinstance(node, exp.NullSafeNEQ) else same


def _logic(node: exp.Expr, columns: Columns) -> Term:
    operator: Literal["and", "or"] = "and" if isinstance(node, exp.And) else "or"
    terms = [_condition(part, columns) for part in node.flatten(unnest=False)]
    return reduce(lambda left, right: t.Logic(BOOL, operator, left, right), terms)


def _not(node: exp.Expr, columns: Columns) -> Term:
    inner = _term(node.this, columns)
    if inner.type != BOOL:
        raise Foreign("NOT of something not boolean")
    return t.Not(BOOL, inner)


def _is(node: exp.Expr, columns: Columns) -> Term:
    term = _certain(node.this, columns)
    match node.expression:
        case exp.Null():
            return t.IsNull(BOOL, term)
        case exp.Boolean() if term.type == BOOL:
            return t.Same(BOOL, term, Constant(BOOL, bool(node.expression.this)))
    raise Foreign("IS something else")


def _is_nan(node: exp.Expr, columns: Columns) -> Term:
    term = _certain(node.this, columns)
    if term.type not in (FLOAT, DOUBLE):
        raise Foreign("isnan of something not a float")
    return t.IsNan(BOOL, term)


def _in(node: exp.Expr, columns: Columns) -> Term:
    term = _certain(node.this, columns)
    literals = [_term(choice, columns) for choice in node.expressions]
    if isinstance(node.this, _PREDICATES) or isinstance(term, Constant) or not literals:
        raise Foreign("IN of a literal, or of nothing")
    choices: list[object] = []
    for literal in literals:
        if not isinstance(literal, Constant):
            raise Foreign("IN a list of expressions")
        choices.append(some(compared_to(literal, term.type)).content)
    # Ten is where Spark goes over to a hash set, whose idea of equal floats is another.
    if not is_comparable(term.type) or (len(choices) > 10 and term.type in (FLOAT, DOUBLE)):
        raise Foreign("IN of that type")
    known = tuple(choice for choice in choices if choice is not None)
    return t.Member(BOOL, term, known, len(known) < len(choices))


def _between(node: exp.Expr, columns: Columns) -> Term:
    term, low, high = (_certain(node.args[name], columns) for name in ("this", "low", "high"))
    if any(isinstance(node.args[name], _PREDICATES) for name in ("this", "low", "high")):
        raise Foreign("a predicate as an operand")
    above = t.Compare(BOOL, ">=", *comparable(term, low))
    return t.Logic(BOOL, "and", above, t.Compare(BOOL, "<=", *comparable(term, high)))


def _like(node: exp.Expr, columns: Columns) -> Term:
    term, pattern = _certain(node.this, columns), node.expression
    literal = isinstance(pattern, exp.Literal) and pattern.args.get("is_string")
    if term.type not in (pa.string(), pa.large_string()) or isinstance(term, Constant) or not literal:
        raise Foreign("LIKE of that")
    parts = _LIKE.fullmatch(str(pattern.this))
    if parts is None:
        matches = t.Matches(BOOL, term, str(pattern.this))
        return t.Not(BOOL, matches) if node.args.get("negate") else matches
    where: Literal["start", "end", "inside", "whole", "any"]
    if not parts[2]:
        where = "any" if parts[1] else "whole"
    elif parts[1]:
        where = "inside" if parts[3] else "end"
    else:
        where = "start" if parts[3] else "whole"
    like = t.Like(BOOL, term, where, parts[2])
    return t.Not(BOOL, like) if node.args.get("negate") else like


def _arithmetic(node: exp.Expr, columns: Columns) -> Term:
    if isinstance(node.expression, exp.Interval) and not isinstance(node, exp.Mul):
        return _shifted(node, node.expression, columns)
    left, right = _operand(node.this, columns), _operand(node.expression, columns)
    operator = _ARITHMETIC[type(node)]
    if decimal := _decimals(left, right):
        return _decimal_arithmetic(operator, *decimal, node)
    kind = numeric([left, right])
    left, right = widened(left, kind), widened(right, kind)
    if isinstance(left, Constant) and isinstance(right, Constant):
        return _folded(operator, left, right)
    _varies(left, right)
    term = Arithmetic(kind, operator, left, right, _text(node))
    chain = operands_of(term)
    if is_integer(kind) and len(chain) > 2 and any(isinstance(operand, Constant) for operand in chain):
        raise Foreign("Spark collects the literals")
    return term


def _decimals(left: Term, right: Term) -> tuple[Term, Term] | None:
    """Both operands as decimals, if one is a decimal, and the other one or an integer."""
    if not (pa.types.is_decimal128(left.type) or pa.types.is_decimal128(right.type)):
        return None
    one, other = decimals.operand(left), decimals.operand(right)
    return None if one is None or other is None else (one, other)


def _decimal_arithmetic(operator: Operator, left: Term, right: Term, node: exp.Expr) -> Term:
    precision, scale = decimals.exact_type(operator, left.type, right.type)
    if precision > decimals.WIDEST:
        raise Foreign("more digits than can be computed")
    kind = decimals.adjusted(precision, scale)
    if isinstance(left, Constant) and isinstance(right, Constant):
        a, b = left.content, right.content
        if not isinstance(a, Decimal) or not isinstance(b, Decimal) or precision > decimals.MOST:
            raise Foreign("literal arithmetic that may round")
        with localcontext(prec=decimals.MOST):
            return Constant(kind, a + b if operator == "+" else a - b if operator == "-" else a * b)
    if any(isinstance(term, Constant) and term.content is None for term in (left, right)):
        raise Foreign("arithmetic with NULL")
    _varies(left, right)
    return decimals.DecimalArithmetic(kind, operator, left, right, _text(node))


def _shifted(node: exp.Expr, interval: exp.Interval, columns: Columns) -> Term:
    operand, unit = _operand(node.this, columns), interval.args.get("unit")
    if not isinstance(interval.this, exp.Literal) or not isinstance(unit, exp.Var):
        raise Foreign("an interval that is not constant")
    if isinstance(operand, Constant) and operand.type == pa.date32() and re.fullmatch(r"-?\d{1,6}", interval.name):
        count = int(interval.name)
        return some(shifted(operand, count if isinstance(node, exp.Add) else -count, unit.name.upper()))
    if not pa.types.is_timestamp(operand.type):
        raise Foreign("an interval that is not added to a timestamp")
    _varies(operand)
    micros = micros_of(interval.name, unit.name)
    if micros is None:
        raise Foreign("an interval of days, or a part of a microsecond")
    return Shifted(operand.type, operand, micros if isinstance(node, exp.Add) else -micros, _text(node))


def _varies(*operands: Term) -> None:
    """Arithmetic needs a column somewhere below: what is the same for all rows (COALESCE(1, 2) + 1) Spark computes
    before there are any, and its failures are not ours to time."""
    below = list(operands)
    for term in below:
        below.extend(term.operands)
    if not any(isinstance(term, Column) for term in below):
        raise Foreign("arithmetic without a column")


def _folded(operator: Operator, left: Constant, right: Constant) -> Term:
    a, b = left.content, right.content
    if not isinstance(a, int) or not isinstance(b, int) or not is_integer(left.type):
        raise Foreign("literal arithmetic on other than integers")
    number = a + b if operator == "+" else a - b if operator == "-" else a * b
    if not fits(number, left.type):
        raise Foreign("literal overflow")
    return Constant(left.type, number)


def _negate(node: exp.Expr, columns: Columns) -> Term:
    inner = node.this
    if isinstance(inner, exp.Literal) and not inner.args.get("is_string"):
        # The minus belongs to the number: -2147483648 is an int, although 2147483648 is not.
        return some(read_number(f"-{inner.this}"))
    term = _operand(inner, columns)
    if isinstance(term, Constant):
        if isinstance(term.content, float):
            if is_negative_zero(-term.content):
                raise Foreign("the literal -0.0")
            return Constant(term.type, -term.content)
        return _folded("-", Constant(term.type, 0), term)
    _varies(term)
    return Negate(numeric([term]), term, _text(node))


def _divide(node: exp.Expr, columns: Columns) -> Term:
    left, right = _operand(node.this, columns), _operand(node.expression, columns)
    _varies(left, right)
    if decimal := _decimals(left, right):
        return _decimal_quotient(*decimal, node)
    kinds = {left.type, right.type}
    if not (DOUBLE in kinds or all(is_integer(kind) for kind in kinds)):
        raise Foreign(f"division of {kinds}")
    numeric([Constant(DOUBLE, 0.0), left, right])
    left, right = widened(left, DOUBLE), widened(right, DOUBLE)
    if isinstance(right, Constant) and right.content == 0:
        raise Foreign("division by the literal zero")
    return Divide(DOUBLE, left, right, isinstance(right, Constant), _text(node))


def _decimal_quotient(left: Term, right: Term, node: exp.Expr) -> Term:
    for term in (left, right):
        if isinstance(term, Constant) and (term.content is None or (term is right and term.content == 0)):
            raise Foreign("division of or by that literal")
    kind = decimals.adjusted(*decimals.quotient_type(left.type, right.type))
    return decimals.DecimalDivide(kind, left, right, isinstance(right, Constant), _text(node))


def _remainder(node: exp.Expr, columns: Columns) -> Term:
    left, right = _operand(node.this, columns), _operand(node.expression, columns)
    kind = numeric([left, right])
    _varies(left)
    if not is_integer(kind):
        raise Foreign("remainder of that")
    right = widened(right, kind)
    if not isinstance(right, Constant) or not isinstance(right.content, int) or right.content in (0, -1):
        raise Foreign("remainder by something not a literal")
    return Remainder(kind, widened(left, kind), right.content)


def _case(node: exp.Expr, columns: Columns) -> Term:
    conditions = []
    for branch in node.args["ifs"]:
        if node.this is None:
            conditions.append(_condition(branch.this, columns))
        else:
            if isinstance(node.this, _PREDICATES) or isinstance(branch.this, _PREDICATES):
                raise Foreign("a predicate as an operand")
            sides = comparable(_certain(node.this, columns), _certain(branch.this, columns))
            if same_meaning(*sides) and sides[0] != sides[1]:
                raise Foreign("Spark takes the two for one")
            conditions.append(t.Compare(BOOL, "=", *sides))
    values = [_certain(branch.args["true"], columns) for branch in node.args["ifs"]]
    return _choose(conditions, values, node.args.get("default"), columns)


def _if(node: exp.Expr, columns: Columns) -> Term:
    if node.args.get("false") is None:
        raise Foreign("IF without else")
    values = [_certain(node.args["true"], columns)]
    return _choose([_condition(node.this, columns)], values, node.args["false"], columns)


def _choose(conditions: list[Term], values: list[Term], otherwise: exp.Expr | None, columns: Columns) -> Term:
    default = Constant(pa.null(), None) if otherwise is None else _certain(otherwise, columns)
    kind = common([*values, default])
    branches = tuple(widened(value, kind) for value in values)
    return t.Choose(kind, tuple(conditions), branches, widened(default, kind))


def _coalesce(node: exp.Expr, columns: Columns) -> Term:
    choices = [_certain(choice, columns) for choice in (node.this, *node.expressions)]
    kind = common(choices)
    return t.Coalesce(kind, tuple(widened(choice, kind) for choice in choices))


def _substring(node: exp.Expr, columns: Columns) -> Term:
    term = _certain(node.this, columns)
    places = [node.args.get(name) for name in ("start", "length")]
    if term.type != pa.string() or isinstance(term, Constant):
        raise Foreign("substring of that")
    numbers = [int(place.name) for place in places if isinstance(place, exp.Literal) and place.name.isdigit()]
    if len(numbers) < 2 or not 1 <= numbers[0] <= _LONGEST or numbers[1] > _LONGEST:
        raise Foreign("substring from or to somewhere else")
    return t.Substring(term.type, term, numbers[0] - 1, numbers[1])


def _extract(node: exp.Expr, columns: Columns) -> Term:
    term, part = _certain(node.expression, columns), node.this.name.lower()
    if term.type != pa.date32() or isinstance(term, Constant) or part not in ("year", "month", "day"):
        raise Foreign("a part of a time")
    return t.DatePart(pa.int32(), part, term)


def _text(node: exp.Expr) -> str:
    return node.sql(dialect="spark")


_READERS: dict[type[exp.Expr], Callable[[exp.Expr, Columns], Term]] = {
    exp.Alias: _inner, exp.Paren: _inner, exp.Column: _column, exp.Literal: _literal, exp.Boolean: _boolean,
    exp.Null: _null, exp.Cast: _cast, exp.TryCast: _cast, exp.EQ: _compare, exp.NEQ: _compare, exp.LT: _compare,
    exp.LTE: _compare, exp.GT: _compare, exp.GTE: _compare, exp.NullSafeEQ: _same, exp.NullSafeNEQ: _same,
    exp.And: _logic, exp.Or: _logic, exp.Not: _not, exp.Is: _is, exp.IsNan: _is_nan, exp.In: _in,
    exp.Between: _between, exp.Like: _like, exp.Add: _arithmetic, exp.Sub: _arithmetic, exp.Mul: _arithmetic,
    exp.Neg: _negate, exp.Div: _divide, exp.Mod: _remainder, exp.Case: _case, exp.If: _if, exp.Coalesce: _coalesce,
    exp.Substring: _substring, exp.Extract: _extract,
}  # fmt: skip
_ARGUMENTS: dict[type[exp.Expr], set[str]] = {
    exp.Alias: {"this", "alias"},
    exp.Column: {"this"},
    exp.Literal: {"this", "is_string"},
    exp.Cast: {"this", "to"},
    exp.TryCast: {"this", "to"},
    exp.In: {"this", "expressions"},
    exp.Between: {"this", "low", "high"},
    exp.Like: {"this", "expression", "negate"},
    exp.Div: {"this", "expression", "typed", "safe"},
    exp.Case: {"this", "ifs", "default"},
    exp.If: {"this", "true", "false"},
    exp.Coalesce: {"this", "expressions"},
    exp.Substring: {"this", "start", "length"},
}
