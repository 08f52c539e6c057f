"""Functions of numbers and days inside loops, with Java's integers: they wrap or fail where Spark's functions do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.operators.expressions.arithmetic import failing, find_overflow, null_rows, numbers_of, one_nan
from holdfast.operators.expressions.terms import (
    Failure,
    Frame,
    Mask,
    Term,
    Value,
    by_zero,
    compare,
    in_order,
    in_turn,
    looked_at,
    overflow,
)


@dataclass(frozen=True)
class OneOperand(Term):
    """A function of one value; NULL if the value is NULL."""

    operand: Term

    @property
    def operands(self) -> tuple[Term, ...]:
        return (self.operand,)


@dataclass(frozen=True)
class Absolute(OneOperand):
    """``abs``; fails for the least integer of the type."""

    text: str

    @property
    def raises(self) -> bool:
        return pa.types.is_integer(self.type) or super().raises

    def value(self, frame: Frame) -> Value:
        inner = self.operand.value(frame)
        if pa.types.is_floating(self.type):
            return inner._replace(data=one_nan(pc.abs(inner.data)))
        try:
            return inner._replace(data=pc.abs_checked(inner.data))
        except pa.ArrowInvalid:
            data, over = find_overflow("-", pa.scalar(0, self.type), inner.data)
            data = pc.if_else(pc.less(inner.data, pa.scalar(0, self.type)), data, inner.data)
            return failing(data, over, overflow(self.type, self.text), inner.failed, inner.why)


@dataclass(frozen=True)
class Extreme(Term):
    """``greatest`` or ``least`` of the values that are not NULL; of equal values, the first."""

    greatest: bool
    choices: tuple[Term, ...]

    @property
    def operands(self) -> tuple[Term, ...]:
        return self.choices

    def value(self, frame: Frame) -> Value:
        values = [choice.value(frame) for choice in self.choices]
        best = values[0].data
        for value in values[1:]:
            better = compare("<", best, value.data) if self.greatest else compare("<", value.data, best)
            # If one of the two is NULL, the other is taken; if neither is better, the first.
            taken = pc.or_(pc.fill_null(better, False), pc.is_null(best))
            best = pc.if_else(pc.and_(taken, pc.is_valid(value.data)), value.data, best)
        return Value(best, *looked_at([(value, None) for value in values]))


@dataclass(frozen=True)
class IntegerDivide(Term):
    """``div``, rounding towards zero; fails for a divisor of zero, and for the least bigint divided by -1."""

    left: Term
    right: Term
    text: str

    @property
    def raises(self) -> bool:
        return True

    @property
    def operands(self) -> tuple[Term, ...]:
        return (self.left, self.right)

    def value(self, frame: Frame) -> Value:
        left, right = self.left.value(frame), self.right.value(frame)
        failed, why = in_order(right, left)  # Spark evaluates the divisor first
        a, b = np.broadcast_arrays(numbers_of(left.data).astype(np.int64), numbers_of(right.data).astype(np.int64))
        nulls = np.broadcast_to(null_rows(left.data) | null_rows(right.data), a.shape)
        least = (a == np.iinfo(np.int64).min) & (b == -1)
        safe = np.where((b == 0) | least, 1, b)
        with np.errstate(over="ignore"):
            quotient = a // safe + ((a % safe != 0) & ((a < 0) != (safe < 0)))
        data: Any = pa.array(quotient, self.type, mask=nulls)
        for rows, reason in (((b == 0) & ~nulls, by_zero(self.text)), (least & ~nulls, overflow(self.type, self.text))):
            if rows.any():
                value = failing(data, rows, reason, failed, why)
                data, failed, why = value.data, value.failed, value.why
        return Value(data, failed, why)


@dataclass(frozen=True)
class Modulo(Term):
    """``%``, which has the sign of the dividend, or ``pmod``, which is not negative if the divisor is positive. Fails
    for a divisor of 0."""

    left: Term
    right: Term
    positive: bool
    text: str

    @property
    def raises(self) -> bool:
        return True

    @property
    def operands(self) -> tuple[Term, ...]:
        return (self.left, self.right)

    def value(self, frame: Frame) -> Value:
        left, right = self.left.value(frame), self.right.value(frame)
        failed, why = in_order(right, left)
        a, b = np.broadcast_arrays(numbers_of(left.data), numbers_of(right.data))
        nulls = np.broadcast_to(null_rows(left.data) | null_rows(right.data), a.shape)
        # The least integer modulo -1 overflows in the processor, but is 0 in Java.
        odd = (b == 0) if pa.types.is_floating(self.type) else (b == 0) | (b == -1)
        safe = np.where(odd, np.ones_like(b), b)
        with np.errstate(all="ignore"):
            rest = np.fmod(a, safe)
            if self.positive:
                # Java adds integers that are smaller than an int as ints.
                wide = np.int32 if rest.dtype.kind == "i" and rest.dtype.itemsize < 4 else rest.dtype
                rest = np.where(rest < 0, np.fmod(rest.astype(wide) + safe, safe), rest).astype(rest.dtype)
        data = one_nan(pa.array(rest, self.type, mask=nulls))
        zero = (b == 0) & ~nulls
        if not zero.any():
            return Value(data, failed, why)
        words = "Remainder by zero. Use `try_mod` to tolerate divisor being 0 and return NULL instead."
        return failing(data, zero, Failure("REMAINDER_BY_ZERO", words, self.text), failed, why)


@dataclass(frozen=True)
class Bits(Term):
    """``&``, ``|``, ``^`` of the bits of two integers."""

    name: str
    left: Term
    right: Term

    @property
    def operands(self) -> tuple[Term, ...]:
        return (self.left, self.right)

    def value(self, frame: Frame) -> Value:
        kernel = {"bit_and": pc.bit_wise_and, "bit_or": pc.bit_wise_or, "bit_xor": pc.bit_wise_xor}[self.name]
        left, right = self.left.value(frame), self.right.value(frame)
        return Value(kernel(left.data, right.data), *in_order(left, right))


@dataclass(frozen=True)
class Complement(OneOperand):
    """``~`` of the bits of an integer."""

    def value(self, frame: Frame) -> Value:
        inner = self.operand.value(frame)
        return inner._replace(data=pc.bit_wise_not(inner.data))


@dataclass(frozen=True)
class Shift(Term):
    """``<<`` or ``>>``. As in Java, only the last bits (5 or 6) of the number of places count."""

    left_wards: bool
    operand: Term
    places: Term

    @property
    def operands(self) -> tuple[Term, ...]:
        return (self.operand, self.places)

    def value(self, frame: Frame) -> Value:
        inner, places = self.operand.value(frame), self.places.value(frame)
        a, b = np.broadcast_arrays(numbers_of(inner.data), numbers_of(places.data))
        by = (b & (self.type.bit_width - 1)).astype(a.dtype)
        nulls = np.broadcast_to(null_rows(inner.data) | null_rows(places.data), a.shape)
        found = np.left_shift(a, by) if self.left_wards else np.right_shift(a, by)
        return Value(pa.array(found, self.type, mask=nulls), *in_order(inner, places))


@dataclass(frozen=True)
class Whole(OneOperand):
    """``floor`` or ``ceil`` of a double as a bigint; fails if the result does not fit."""

    down: bool
    text: str

    @property
    def raises(self) -> bool:
        return True

    def value(self, frame: Frame) -> Value:
        inner = self.operand.value(frame)
        reals, nulls = reals_of(inner.data), null_rows(inner.data)
        rounded = np.floor(reals) if self.down else np.ceil(reals)
        over = ~((rounded >= -(2.0**63)) & (rounded <= 2.0**63)) & ~nulls
        data = pa.array(saturated(np.where(over, 0.0, rounded)), self.type, mask=nulls)
        if not over.any():
            return inner._replace(data=data)
        return failing(data, over, overflow(self.type, self.text), inner.failed, inner.why)


@dataclass(frozen=True)
class Root(OneOperand):
    """``sqrt`` of a double."""

    def value(self, frame: Frame) -> Value:
        inner = self.operand.value(frame)
        return inner._replace(data=one_nan(pc.sqrt(inner.data)))


@dataclass(frozen=True)
class Narrowed(OneOperand):
    """A cast of an integer, or of a double without its fraction, to an integer type; fails if the value does not
    fit."""

    whole: bool
    """Whether the operand is an integer."""

    text: str

    @property
    def raises(self) -> bool:
        return True

    def value(self, frame: Frame) -> Value:
        inner = self.operand.value(frame)
        nulls = null_rows(inner.data)
        bounds = np.iinfo(self.type.to_pandas_dtype())
        if self.whole:
            numbers = numbers_of(inner.data)
            over = ((numbers < bounds.min) | (numbers > bounds.max)) & ~nulls
            found = np.where(over, 0, numbers)
        else:
            reals = reals_of(inner.data)
            fits = (np.floor(reals) <= float(bounds.max)) & (np.ceil(reals) >= float(bounds.min))
            over = ~fits & ~nulls
            found = saturated(np.where(over, 0.0, np.trunc(reals)))
        data = pa.array(found.astype(self.type.to_pandas_dtype()), self.type, mask=nulls)
        if not over.any():
            return inner._replace(data=data)
        words = (
            "The value cannot be cast due to an overflow. Use `try_cast` to tolerate overflow and return NULL instead."
        )
        return failing(data, over, Failure("CAST_OVERFLOW", words, self.text), inner.failed, inner.why)


@dataclass(frozen=True)
class ShiftedDay(Term):
    """A date plus or minus a number of days; or the number of days between two dates. Overflows wrap, as in Java."""

    start: Term
    by: Term
    backwards: bool

    @property
    def operands(self) -> tuple[Term, ...]:
        return (self.start, self.by)

    def value(self, frame: Frame) -> Value:
        start, by = self.start.value(frame), self.by.value(frame)
        a, b = (numbers_of(pc.cast(each.data, pa.int32())) for each in (start, by))
        with np.errstate(over="ignore"):
            found = a - b if self.backwards else a + b
        nulls = np.broadcast_to(null_rows(start.data) | null_rows(by.data), found.shape)
        return Value(pc.cast(pa.array(found, pa.int32(), mask=nulls), self.type), *in_turn([start, by]))


def reals_of(data: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The doubles of an array or a scalar (as an array of one), with 0 for NULL."""
    if isinstance(data, pa.Scalar):
        return np.asarray([data.as_py() or 0.0])
    found: np.ndarray[Any, np.dtype[np.float64]] = pc.fill_null(data, 0.0).to_numpy()
    return found


def saturated(reals: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Doubles without fractions as bigints, as in Java: out of range, the nearest bigint; 0 for NaN."""
    most = 2.0**63
    inside: Mask = (reals >= -most) & (reals < most)
    found = np.where(inside, reals, 0.0).astype(np.int64)
    found[reals >= most] = np.iinfo(np.int64).max
    found[reals < -most] = np.iinfo(np.int64).min
    return found
