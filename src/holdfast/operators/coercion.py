"""Types of operands: to which type Spark brings two values before it compares, adds or chooses between them.

Only where that is certain, and where the operation in the type chosen here gives the bits that it gives in Spark's:
integers go to the wider integer, anything numeric next to a double to double, a literal to the type of what it is
compared with if it is exact there, decimals and integers to the decimal that holds both. All else is `Foreign`.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from holdfast.operators import decimals
from holdfast.operators.literals import DOUBLE, FLOAT, INTEGERS, cast_literal, compared_to, is_integer
from holdfast.operators.terms import Constant, Term, Widen

BOOL = pa.bool_()


class Foreign(Exception):
    """Not in the set that is computed natively: Spark runs it."""


def comparable(left: Term, right: Term) -> tuple[Term, Term]:
    """Both in one type in which comparing gives what Spark's comparison gives."""
    if isinstance(right, Constant) and not isinstance(left, Constant):
        literal = compared_to(right, left.type)
        if literal is not None:
            right = literal
    elif isinstance(left, Constant) and not isinstance(right, Constant):
        literal = compared_to(left, right.type)
        if literal is not None:
            left = literal
    if left.type != right.type:
        if pa.int64() in (left.type, right.type) and DOUBLE in (left.type, right.type):
            raise Foreign("bigint against double")
        left, right = _in_one_type(left, right)
    if not is_comparable(left.type):
        raise Foreign(f"comparison of {left.type}")
    for term in (left, right):
        if isinstance(term, Widen) and term.type == DOUBLE and term.operand.type == pa.int64():
            raise Foreign("a bigint cast to double, which Spark may compare as a bigint")
    return left, right


def _in_one_type(left: Term, right: Term) -> tuple[Term, Term]:
    narrow = decimals.compared_in([left.type, right.type])
    fits = narrow is None or decimals.wider([left.type, right.type]) is not None
    if fits or isinstance(left, Constant) or isinstance(right, Constant):
        kind = common([left, right])
        return widened(left, kind), widened(right, kind)
    one, other = (
        widened(term, narrow) if decimals.holds(narrow, term.type) else decimals.Rounded(narrow, term, "a comparison")
        for term in (left, right)
    )
    return one, other


def is_comparable(kind: pa.DataType) -> bool:
    simple = kind in (BOOL, pa.date32(), FLOAT, DOUBLE, pa.string(), pa.large_string(), pa.binary())
    return simple or is_integer(kind) or pa.types.is_decimal128(kind) or pa.types.is_timestamp(kind)


def common(terms: Sequence[Term]) -> pa.DataType:
    """The type that Spark brings all to: one they share, the widest of integers, or double if one is double."""
    kinds = [term.type for term in terms if term.type != pa.null()]
    if kinds and all(kind == kinds[0] for kind in kinds):
        return kinds[0]
    if kinds and all(is_integer(kind) for kind in kinds):
        return max(kinds, key=INTEGERS.index)
    if DOUBLE in kinds:
        return DOUBLE
    if (decimal := decimals.wider(kinds)) is not None:
        return decimal
    raise Foreign(f"no common type of {kinds}")


def widened(term: Term, kind: pa.DataType) -> Term:
    """The term in a type that holds it: integers in wider ones, integers and floats in double, any literal exactly."""
    if term.type == kind:
        return term
    if isinstance(term, Constant):
        wide = term.content is None or is_integer(term.type)
        wide = wide or (pa.types.is_decimal(term.type) and (kind == DOUBLE or decimals.holds(kind, term.type)))
        return some(cast_literal(term, kind) if wide else None)
    wider = is_integer(term.type) and is_integer(kind) and kind.bit_width > term.type.bit_width
    wider = wider or decimals.holds(kind, term.type)
    if wider or (kind == DOUBLE and (is_integer(term.type) or term.type == FLOAT)):
        return Widen(kind, term)
    raise Foreign(f"{term.type} as {kind}")


def numeric(terms: Sequence[Term]) -> pa.DataType:
    kind = common(terms)
    null = any(isinstance(term, Constant) and term.content is None for term in terms)
    if null or not (is_integer(kind) or kind in (FLOAT, DOUBLE)):
        raise Foreign(f"arithmetic on {kind}")
    # Float with anything else is double arithmetic in Spark, but which casts come first is its business.
    if kind == DOUBLE and any(term.type == FLOAT for term in terms):
        raise Foreign("float with double")
    return kind


def some(constant: Constant | None) -> Constant:
    if constant is None:
        raise Foreign("a literal that is not certain")
    return constant
