"""Terms: the expressions of a linear stretch, and their evaluation over a batch.

Representation. A term is a frozen dataclass with the Arrow type of its value. `compile_term.read` makes a tree of terms
from an expression. ``value(frame)`` computes a term over a batch: ``frame[i]`` is the batch's column *i*.

Invariant. For every row a term gives the same bits as Spark 4 in ANSI mode, or fails where Spark fails:

- NULL in, NULL out, except for operators that test for NULL; AND and OR are three-valued.
- Floats compare in Spark's order: NaN equals NaN and is greater than all other values; -0.0 equals 0.0. All NaNs that
  arithmetic makes have the same bit pattern (`arithmetic.one_nan`).
- Failure is lazy, as in Spark. A row on which a term fails (an overflow, a division by zero) is recorded in
  ``Value.failed``, and its value is NULL. An operator whose first operand is NULL does not evaluate its second operand,
  so the second operand's failure on this row is ignored. The caller raises the failures left at the root of an
  expression.

Cost: one pass of an Arrow kernel per term; failures cost more, but only if they happen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Frame = Mapping[int, pa.Array]
Mask = npt.NDArray[np.bool_]
Comparison = Literal["=", "<", "<=", ">", ">="]


class Failure(NamedTuple):
    """Why a term fails on a row: Spark's error condition, Spark's message, and the text of the expression."""

    condition: str
    words: str
    text: str


def by_zero(text: str) -> Failure:
    words = "Division by zero. Use `try_divide` to tolerate divisor being 0 and return NULL instead."
    return Failure("DIVIDE_BY_ZERO", words, text)


def overflow(kind: pa.DataType, text: str, instead: str = "") -> Failure:
    """The failure of an integer overflow. ``instead``: the function that gives NULL instead of failing."""
    word = {pa.int8(): "byte", pa.int16(): "short", pa.int32(): "integer"}.get(kind, "long")
    advice = f" Use '{instead}' to tolerate overflow and return NULL instead." if instead else ""
    return Failure("ARITHMETIC_OVERFLOW", f"{word} overflow.{advice}", text)


def out_of_range(kind: pa.DataType, text: str) -> Failure:
    words = f"The value cannot be represented as Decimal({kind.precision}, {kind.scale})."
    return Failure("NUMERIC_VALUE_OUT_OF_RANGE", words, text)


class Value(NamedTuple):
    """A term's values over a batch (an array, or one scalar for all rows), and the rows on which it failed."""

    data: Any
    failed: Mask | None = None
    """Whether the term failed on each row; None if it failed on none."""

    why: Failure | None = None


@dataclass(frozen=True)
class Term:
    """An expression. ``raises``: whether it can fail on some row."""

    type: pa.DataType

    @property
    def operands(self) -> tuple[Term, ...]:
        return ()

    @property
    def raises(self) -> bool:
        return any(operand.raises for operand in self.operands)

    def value(self, frame: Frame) -> Value:
        raise NotImplementedError


@dataclass(frozen=True)
class ColumnTerm(Term):
    """A column of the input."""

    position: int

    def value(self, frame: Frame) -> Value:
        return Value(frame[self.position])


@dataclass(frozen=True)
class Constant(Term):
    """A literal. ``content`` is a Python value that Arrow accepts for ``type``; None is NULL."""

    content: object

    def value(self, frame: Frame) -> Value:
        return Value(pa.scalar(self.content, self.type))


@dataclass(frozen=True)
class Everywhere(Term):
    """A term that reads no column, so it has one value for all rows. Kernels over constants do not know how many rows
    there are, and some give an array of one row: that is made a scalar here."""

    operand: Term

    @property
    def operands(self) -> tuple[Term, ...]:
        return (self.operand,)

    def value(self, frame: Frame) -> Value:
        inner = self.operand.value(frame)
        return inner if isinstance(inner.data, pa.Scalar) else inner._replace(data=inner.data[0])


@dataclass(frozen=True)
class Widen(Term):
    """A cast of a number to a wider type: an integer to a wider integer, an integer or a float to a double, or a number
    to a decimal type that holds all its values."""

    operand: Term

    @property
    def operands(self) -> tuple[Term, ...]:
        return (self.operand,)

    def value(self, frame: Frame) -> Value:
        inner = self.operand.value(frame)
        # With safe=False a bigint above 2^53 is rounded to the nearest double, as in Java.
        return inner._replace(data=pc.cast(inner.data, self.type, safe=False))


@dataclass(frozen=True)
class Compare(Term):
    """``= < <= > >=`` between two values of one type, in Spark's order."""

    operator: Comparison
    left: Term
    right: Term

    @property
    def operands(self) -> tuple[Term, ...]:
        return (self.left, self.right)

    def value(self, frame: Frame) -> Value:
        left, right = self.left.value(frame), self.right.value(frame)
        failed, why = in_order(left, right)
        return Value(compare(self.operator, left.data, right.data), failed, why)


@dataclass(frozen=True)
class Same(Term):
    """``<=>``: equal, or both NULL; never NULL itself."""

    left: Term
    right: Term

    @property
    def operands(self) -> tuple[Term, ...]:
        return (self.left, self.right)

    def value(self, frame: Frame) -> Value:
        one, other = self.left.value(frame), self.right.value(frame)
        left, right = one.data, other.data
        equal = pc.fill_null(compare("=", left, right), False)
        return Value(
            pc.or_(equal, pc.and_(pc.is_null(left), pc.is_null(right))), *looked_at([(one, None), (other, None)])
        )


@dataclass(frozen=True)
class IsNull(Term):
    """IS NULL."""

    operand: Term

    @property
    def operands(self) -> tuple[Term, ...]:
        return (self.operand,)

    def value(self, frame: Frame) -> Value:
        inner = self.operand.value(frame)
        return inner._replace(data=pc.is_null(inner.data))


@dataclass(frozen=True)
class IsNan(Term):
    """``isnan``; false for NULL."""

    operand: Term

    @property
    def operands(self) -> tuple[Term, ...]:
        return (self.operand,)

    def value(self, frame: Frame) -> Value:
        inner = self.operand.value(frame)
        return inner._replace(data=pc.fill_null(pc.is_nan(inner.data), False))


@dataclass(frozen=True)
class MemberOf(Term):
    """``IN`` a list of literals of the operand's type. ``unknown``: NULL is in the list, so false becomes NULL."""

    operand: Term
    choices: tuple[object, ...]
    unknown: bool

    @property
    def operands(self) -> tuple[Term, ...]:
        return (self.operand,)

    def value(self, frame: Frame) -> Value:
        inner = self.operand.value(frame)
        data, kind = inner.data, self.operand.type
        if pa.types.is_floating(kind):
            # `is_in` compares bits, so it would not find that -0.0 equals 0.0.
            found = pa.scalar(False)
            for choice in self.choices:
                found = pc.or_(found, compare("=", data, pa.scalar(choice, kind)))
        else:
            found = pc.is_in(data, value_set=pa.array(self.choices, kind))
        no = pa.scalar(None, pa.bool_()) if self.unknown else pa.scalar(False)
        found = pc.if_else(pc.fill_null(found, False), pa.scalar(True), no)
        return inner._replace(data=pc.if_else(pc.is_valid(data), found, pa.scalar(None, pa.bool_())))


@dataclass(frozen=True)
class Like(Term):
    """``LIKE`` a pattern whose only wildcards are ``%`` at the start, at the end, or both."""

    operand: Term
    where: Literal["start", "end", "inside", "whole", "any"]
    text: str

    @property
    def operands(self) -> tuple[Term, ...]:
        return (self.operand,)

    def value(self, frame: Frame) -> Value:
        inner = self.operand.value(frame)
        return inner._replace(data=self._matched(inner.data))

    def _matched(self, data: Any) -> Any:
        match self.where:
            case "start":
                return pc.starts_with(data, self.text)
            case "end":
                return pc.ends_with(data, self.text)
            case "inside":
                return pc.match_substring(data, self.text)
            case "whole":
                return pc.equal(data, pa.scalar(self.text, self.operand.type))
            case "any":
                return pc.if_else(pc.is_valid(data), pa.scalar(True), pa.scalar(None, pa.bool_()))


@dataclass(frozen=True)
class Matches(Term):
    """``LIKE`` a pattern with wildcards anywhere, but without escapes."""

    operand: Term
    pattern: str

    @property
    def operands(self) -> tuple[Term, ...]:
        return (self.operand,)

    def value(self, frame: Frame) -> Value:
        inner = self.operand.value(frame)
        return inner._replace(data=pc.match_like(inner.data, self.pattern))


@dataclass(frozen=True)
class Substring(Term):
    """``substring`` of ``length`` characters, from the place ``start`` (counted from 0)."""

    operand: Term
    start: int
    length: int

    @property
    def operands(self) -> tuple[Term, ...]:
        return (self.operand,)

    def value(self, frame: Frame) -> Value:
        inner = self.operand.value(frame)
        return inner._replace(data=pc.utf8_slice_codeunits(inner.data, self.start, self.start + self.length))


@dataclass(frozen=True)
class DatePart(Term):
    """The year, the month or the day of a date."""

    part: Literal["year", "month", "day"]
    operand: Term

    @property
    def operands(self) -> tuple[Term, ...]:
        return (self.operand,)

    def value(self, frame: Frame) -> Value:
        inner = self.operand.value(frame)
        return inner._replace(data=pc.cast(getattr(pc, self.part)(inner.data), pa.int32()))


def compare(operator: Comparison, left: Any, right: Any) -> Any:
    """Compare two arrays or scalars of one type in Spark's order; NULL where one of them is NULL."""
    floating = pa.types.is_floating(left.type)
    match operator:
        case "=":
            plain = pc.equal(left, right)
            # Where one side is never NaN, IEEE equality is Spark's equality.
            if not floating or _is_number(left) or _is_number(right):
                return plain
            return pc.or_(plain, pc.and_(pc.is_nan(left), pc.is_nan(right)))
        case "<":
            plain = pc.less(left, right)
            if not floating or _is_number(right):
                return plain
            return pc.or_(plain, pc.and_(pc.is_nan(right), pc.invert(pc.is_nan(left))))
        case ">":
            return compare("<", right, left)
        case "<=":
            return pc.invert(compare("<", right, left))
        case ">=":
            return pc.invert(compare("<", left, right))


def _is_number(data: Any) -> bool:
    """Whether this is one value for all rows, and not NaN. (A literal never is; a computed constant can be.)"""
    return isinstance(data, pa.Scalar) and data.as_py() == data.as_py()


def whole(data: Any, rows: int) -> pa.Array:
    """The values as an array of ``rows`` rows; a scalar is repeated."""
    if not isinstance(data, pa.Scalar):
        return data
    # Arrow fails to repeat a list, or a struct or map that holds one, zero times.
    return pa.repeat(data, rows) if rows else pa.array([], data.type)


def truth(data: Any) -> Mask:
    """Whether booleans are true: an answer per row, or one answer for a scalar."""
    if isinstance(data, pa.Scalar):
        return np.asarray([bool(data.as_py())])
    found: Mask = pc.fill_null(data, False).to_numpy(zero_copy_only=False)
    return found


def looked_at(parts: Sequence[tuple[Value, Mask | None]]) -> tuple[Mask | None, Failure | None]:
    """The rows on which an expression fails, and why, given its operands and the rows on which each operand is
    evaluated (None: on all)."""
    failed: Mask | None = None
    why: Failure | None = None
    for value, rows in parts:
        if value.failed is None:
            continue
        mine = value.failed if rows is None else value.failed & rows
        failed, why = (mine, value.why) if failed is None else (failed | mine, why if failed.any() else value.why)
    return failed, why


def in_turn(values: Sequence[Value]) -> tuple[Mask | None, Failure | None]:
    """The rows on which a function fails because of its arguments. Spark evaluates an argument only where all arguments
    before it are not NULL."""
    if all(value.failed is None for value in values):
        return None, None
    parts: list[tuple[Value, Mask | None]] = []
    still: Mask = np.ones(1, np.bool_)
    for value in values:
        parts.append((value, still))
        still = still & truth(pc.is_valid(value.data))
    return looked_at(parts)


def in_order(first: Value, second: Value) -> tuple[Mask | None, Failure | None]:
    """The rows on which an operator fails because of its operands. Spark evaluates the second operand only where the
    first is not NULL."""
    if second.failed is None:
        return first.failed, first.why
    lazy = second.failed
    if isinstance(first.data, pa.Scalar):
        lazy = lazy & first.data.is_valid
    elif first.data.null_count:
        lazy = lazy & first.data.is_valid().to_numpy(zero_copy_only=False)
    return (lazy, second.why) if first.failed is None else (first.failed | lazy, first.why)
