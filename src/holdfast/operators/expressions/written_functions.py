"""Functions that are native only inside loops, where Spark cannot run them.

Each gives the same bits as Spark in ANSI mode, or fails as written (`tests/operators/test_written_functions.py`
compares them with Spark). Not included are ``upper`` and ``lower`` (Spark uses ICU's tables), ``round`` (Spark rounds
with decimals), powers and logarithms (Java has its own approximations), conversion of doubles and times to strings, and
parsing of strings. Functions of numbers and arrays run as kernels; functions of several strings run row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from holdfast.operators.expressions.array_terms import Contained, Element, Field, Joined, Length, Struct
from holdfast.operators.expressions.conditions import Logic
from holdfast.operators.expressions.number_terms import (
    Absolute,
    Bits,
    Complement,
    Extreme,
    IntegerDivide,
    Modulo,
    Narrowed,
    Root,
    Shift,
    ShiftedDay,
    Whole,
)
from holdfast.operators.expressions.terms import Compare, Constant, Term
from holdfast.operators.expressions.text_terms import TEXTS, Concat, ConcatWith, Spelled, TextFunction
from holdfast.plan.expression import Operation, readable
from holdfast.plan.types import arrow_type

INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_ORDERED = (*INTEGERS, pa.float32(), pa.float64(), pa.string(), pa.date32(), pa.bool_())


class NotWritten(Exception):
    """The function, or its types, are not native inside loops."""


def written_function(tree: Operation, terms: Sequence[Term]) -> Term:
    """The term of a function with these operands. Raises NotWritten if it is not native inside loops."""
    reader = _READERS.get(tree.name)
    if reader is None or not all(_has_value(term) for term in terms):
        raise NotWritten(tree.name)
    found = reader(tree, terms)
    if found.type != arrow_type(tree.type):
        raise NotWritten(f"{tree.name} of another type")
    return found


def _has_value(term: Term) -> bool:
    return not pa.types.is_null(term.type)


def _need(holds: bool) -> None:
    if not holds:
        raise NotWritten("of these types")


def _one_type(terms: Sequence[Term], kinds: Sequence[pa.DataType]) -> pa.DataType:
    kind = terms[0].type
    _need(kind in kinds and all(term.type == kind for term in terms))
    return kind


# -- numbers ----------------------------------------------------------------------------------------------------------


def _abs(tree: Operation, terms: Sequence[Term]) -> Term:
    kind = _one_type(terms, (*INTEGERS, pa.float32(), pa.float64()))
    return Absolute(kind, terms[0], readable(tree))


def _extreme(tree: Operation, terms: Sequence[Term]) -> Term:
    kind = terms[0].type
    _need(kind in _ORDERED or pa.types.is_timestamp(kind) or pa.types.is_decimal128(kind))
    _need(all(term.type == kind for term in terms))
    return Extreme(kind, tree.name == "greatest", tuple(terms))


def _div(tree: Operation, terms: Sequence[Term]) -> Term:
    _one_type(terms, (pa.int32(), pa.int64()))
    left, right = terms
    return IntegerDivide(pa.int64(), left, right, readable(tree))


def _modulo(tree: Operation, terms: Sequence[Term]) -> Term:
    kind = _one_type(terms, INTEGERS if tree.name == "pmod" else (*INTEGERS, pa.float64()))
    left, right = terms
    return Modulo(kind, left, right, tree.name == "pmod", readable(tree))


def _bits(tree: Operation, terms: Sequence[Term]) -> Term:
    left, right = terms
    return Bits(_one_type(terms, INTEGERS), tree.name, left, right)


def _complement(tree: Operation, terms: Sequence[Term]) -> Term:
    return Complement(_one_type(terms, INTEGERS), terms[0])


def _shift(tree: Operation, terms: Sequence[Term]) -> Term:
    value, by = terms
    _need(value.type in (pa.int32(), pa.int64()) and by.type == pa.int32())
    return Shift(value.type, tree.name == "shiftleft", value, by)


def _whole(tree: Operation, terms: Sequence[Term]) -> Term:
    if terms[0].type == pa.int64():
        return terms[0]
    _one_type(terms, (pa.float64(),))
    return Whole(pa.int64(), terms[0], tree.name == "floor", readable(tree))


def _sqrt(tree: Operation, terms: Sequence[Term]) -> Term:
    return Root(_one_type(terms, (pa.float64(),)), terms[0])


def _days(tree: Operation, terms: Sequence[Term]) -> Term:
    start, by = terms
    if tree.name == "datediff":
        _need(start.type == by.type == pa.date32())
        return ShiftedDay(pa.int32(), start, by, backwards=True)
    _need(start.type == pa.date32() and by.type in (pa.int8(), pa.int16(), pa.int32()))
    return ShiftedDay(pa.date32(), start, by, tree.name == "date_sub")


def _cast(tree: Operation, terms: Sequence[Term]) -> Term:
    (term,), kind = terms, arrow_type(tree.type)
    _need(not isinstance(term, Constant))
    if kind == pa.string():
        _need(term.type in INTEGERS or term.type == pa.bool_())
        return Spelled(kind, term)
    _need(kind in INTEGERS and (term.type in INTEGERS or term.type == pa.float64()))
    _need(kind in (pa.int32(), pa.int64()) or term.type in INTEGERS)
    return Narrowed(kind, term, term.type in INTEGERS, readable(tree))


def _in(tree: Operation, terms: Sequence[Term]) -> Term:
    """IN a list of expressions, as a chain of OR over equalities, from left to right."""
    value, *others = terms
    _one_type(terms, (*_ORDERED, pa.timestamp("us"), pa.timestamp("us", tz="UTC")))
    found: Term = Compare(pa.bool_(), "=", value, others[0])
    for other in others[1:]:
        found = Logic(pa.bool_(), "or", found, Compare(pa.bool_(), "=", value, other))
    return found


# -- strings ----------------------------------------------------------------------------------------------------------


def _text(tree: Operation, terms: Sequence[Term]) -> Term:
    function = TEXTS[tree.name]
    _need([term.type for term in terms] == list(function.takes))
    return TextFunction(function.gives, tree.name, tuple(terms), readable(tree))


def _concat(tree: Operation, terms: Sequence[Term]) -> Term:
    kind = arrow_type(tree.type)
    _need(bool(terms) and all(term.type == kind for term in terms))
    if kind == pa.string():
        return Concat(kind, tuple(terms))
    _need(pa.types.is_list(kind))
    return Joined(kind, tuple(terms), (False,) * len(terms))


def _concat_with(tree: Operation, terms: Sequence[Term]) -> Term:
    _need(len(terms) > 1 and all(term.type == pa.string() for term in terms))
    return ConcatWith(pa.string(), terms[0], tuple(terms[1:]))


# -- arrays and structs -----------------------------------------------------------------------------------------------


def _array(tree: Operation, terms: Sequence[Term]) -> Term:
    kind = arrow_type(tree.type)
    _need(bool(terms) and pa.types.is_list(kind) and all(term.type == kind.value_type for term in terms))
    return Joined(kind, tuple(terms), (True,) * len(terms))


def _append(tree: Operation, terms: Sequence[Term]) -> Term:
    many, one = terms
    _need(pa.types.is_list(many.type) and one.type == many.type.value_type)
    if tree.name == "array_prepend":
        return Joined(many.type, (one, many), (True, False))
    return Joined(many.type, (many, one), (False, True))


def _contains(tree: Operation, terms: Sequence[Term]) -> Term:
    many, one = terms
    _need(pa.types.is_list(many.type) and one.type == many.type.value_type)
    _need(one.type in _ORDERED or pa.types.is_timestamp(one.type) or pa.types.is_decimal128(one.type))
    return Contained(pa.bool_(), many, one)


def _element(tree: Operation, terms: Sequence[Term]) -> Term:
    many, place = terms
    _need(pa.types.is_list(many.type) and place.type in (pa.int8(), pa.int16(), pa.int32()))
    return Element(many.type.value_type, many, place, tree.name == "element_at", readable(tree))


def _size(tree: Operation, terms: Sequence[Term]) -> Term:
    _need(pa.types.is_list(terms[0].type))
    return Length(pa.int32(), terms[0])


def _struct(tree: Operation, terms: Sequence[Term]) -> Term:
    return Struct(arrow_type(tree.type), tuple(terms[1::2]))


def _field(tree: Operation, terms: Sequence[Term]) -> Term:
    term, name = terms
    _need(pa.types.is_struct(term.type) and isinstance(name, Constant))
    assert isinstance(name, Constant)
    place = term.type.get_field_index(str(name.content))
    _need(place >= 0)
    return Field(term.type.field(place).type, term, place)


_READERS: dict[str, Callable[[Operation, Sequence[Term]], Term]] = {
    "abs": _abs,
    "greatest": _extreme,
    "least": _extreme,
    "div": _div,
    "%": _modulo,
    "pmod": _modulo,
    "bit_and": _bits,
    "bit_or": _bits,
    "bit_xor": _bits,
    "bit_not": _complement,
    "shiftleft": _shift,
    "shiftright": _shift,
    "floor": _whole,
    "ceil": _whole,
    "sqrt": _sqrt,
    "date_add": _days,
    "date_sub": _days,
    "datediff": _days,
    "cast": _cast,
    "in": _in,
    **dict.fromkeys(TEXTS, _text),
    "concat": _concat,
    "concat_ws": _concat_with,
    "array": _array,
    "array_append": _append,
    "array_prepend": _append,
    "array_contains": _contains,
    "element_at": _element,
    "get": _element,
    "size": _size,
    "named_struct": _struct,
    "field": _field,
}
