"""Arithmetic terms: integers that fail on overflow, IEEE doubles, division that fails on zero.

The fast path is Arrow's checked kernel over the whole batch. Only if that reports an overflow, a second, slower pass
finds the rows on which it happened. The rows matter, since Spark ignores a failure in an operand that it need not
evaluate on a row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.operators.expressions.terms import Failure, Frame, Mask, Term, Value, by_zero, in_order, overflow

Integers = npt.NDArray[np.signedinteger[Any]]
Operator = Literal["+", "-", "*"]

_CHECKED: dict[str, Callable[[Any, Any], Any]] = {
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
}
_PLAIN: dict[str, Callable[[Any, Any], Any]] = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}
_INSTEAD = {"+": "try_add", "-": "try_subtract", "*": "try_multiply"}


@dataclass(frozen=True)
class Arithmetic(Term):
    """``+ - *`` between two values of one numeric type, which is also the result's type."""

    operator: Operator
    left: Term
    right: Term
    text: str

    @property
    def operands(self) -> tuple[Term, ...]:
        return (self.left, self.right)

    @property
    def raises(self) -> bool:
        return pa.types.is_integer(self.type) or super().raises

    def value(self, frame: Frame) -> Value:
        left, right = self.left.value(frame), self.right.value(frame)
        failed, why = in_order(left, right)
        if pa.types.is_floating(self.type):
            return Value(one_nan(_PLAIN[self.operator](left.data, right.data)), failed, why)
        try:
            return Value(_CHECKED[self.operator](left.data, right.data), failed, why)
        except pa.ArrowInvalid:
            data, over = find_overflow(self.operator, left.data, right.data)
            return failing(data, over, overflow(self.type, self.text, _INSTEAD[self.operator]), failed, why)


@dataclass(frozen=True)
class Negate(Term):
    """Unary minus."""

    operand: Term
    text: str

    @property
    def operands(self) -> tuple[Term, ...]:
        return (self.operand,)

    @property
    def raises(self) -> bool:
        return pa.types.is_integer(self.type) or super().raises

    def value(self, frame: Frame) -> Value:
        inner = self.operand.value(frame)
        if pa.types.is_floating(self.type):
            return inner._replace(data=one_nan(pc.negate(inner.data)))
        try:
            return inner._replace(data=pc.negate_checked(inner.data))
        except pa.ArrowInvalid:
            data, over = find_overflow("-", pa.scalar(0, self.type), inner.data)
            return failing(data, over, overflow(self.type, self.text), inner.failed, inner.why)


@dataclass(frozen=True)
class Divide(Term):
    """``/`` between doubles; a divisor of 0.0 or -0.0 fails."""

    left: Term
    right: Term
    never_zero: bool
    """Whether the divisor is a literal other than zero."""

    text: str

    @property
    def operands(self) -> tuple[Term, ...]:
        return (self.left, self.right)

    @property
    def raises(self) -> bool:
        return not self.never_zero or super().raises

    def value(self, frame: Frame) -> Value:
        left, right = self.left.value(frame), self.right.value(frame)
        failed, why = in_order(right, left)  # Spark evaluates the divisor first
        data = one_nan(pc.divide(left.data, right.data))
        if self.never_zero:
            return Value(data, failed, why)
        zero = pc.fill_null(pc.and_(pc.equal(right.data, pa.scalar(0.0)), pc.is_valid(left.data)), False)
        if not pc.any(zero).as_py():
            return Value(data, failed, why)
        return failing(data, zero.to_numpy(zero_copy_only=False), by_zero(self.text), failed, why)


@dataclass(frozen=True)
class Remainder(Term):
    """``%`` of an integer by a literal other than 0 and -1. The result has the sign of the dividend, as in Java."""

    operand: Term
    divisor: int

    @property
    def operands(self) -> tuple[Term, ...]:
        return (self.operand,)

    def value(self, frame: Frame) -> Value:
        inner = self.operand.value(frame)
        numbers = numbers_of(inner.data)
        rest = np.fmod(numbers, np.asarray(self.divisor, numbers.dtype))
        return inner._replace(data=pa.array(rest, self.type, mask=null_rows(inner.data)))


def one_nan(data: Any) -> Any:
    """Give all NaNs the same bit pattern. (Processors make others: the NaN of inf - inf has its sign bit set.)"""
    strange = pc.is_nan(data)
    if not pc.any(strange).as_py():
        return data
    return pc.if_else(strange, pa.scalar(np.nan, data.type), data)


def failing(data: Any, over: Mask, what: Failure, failed: Mask | None, why: Failure | None) -> Value:
    """The value with NULL on the rows that failed in this term (``over``), which are added to the rows that failed in
    its operands (``failed``)."""
    kept = pc.if_else(pa.array(over), pa.scalar(None, data.type), data)
    return Value(kept, over, what) if failed is None else Value(kept, failed | over, why)


def find_overflow(operator: Operator, left: Any, right: Any) -> tuple[pa.Array, Mask]:
    """The wrapped result, and whether it is wrong on each row (False where an operand is NULL)."""
    with np.errstate(over="ignore"):
        a, b = np.broadcast_arrays(numbers_of(left), numbers_of(right))
        match operator:
            case "+":
                wrapped = a + b
                over = ((a ^ wrapped) & (b ^ wrapped)) < 0
            case "-":
                wrapped = a - b
                over = ((a ^ b) & (a ^ wrapped)) < 0
            case "*":
                wrapped = a * b
                # Dividing back finds every wrap except MIN * -1, which wraps to MIN itself.
                divisor = np.where((a == 0) | (a == -1), np.ones_like(a), a)
                over = (a != 0) & (a != -1) & ((wrapped // divisor != b) | (wrapped % divisor != 0))
                over |= (a == -1) & (b == np.iinfo(b.dtype).min)
    nulls = np.broadcast_to(null_rows(left) | null_rows(right), wrapped.shape)
    return pa.array(wrapped, left.type, mask=nulls), over & ~nulls


def numbers_of(data: Any) -> Integers:
    """The integers of an array or a scalar (as an array of one), with 0 for NULL."""
    if isinstance(data, pa.Scalar):
        return np.asarray([data.as_py() or 0], dtype=data.type.to_pandas_dtype())
    numbers: Integers = (pc.fill_null(data, 0) if data.null_count else data).to_numpy()
    return numbers


def null_rows(data: Any) -> Mask:
    if isinstance(data, pa.Scalar):
        return np.asarray([not data.is_valid])
    return data.is_null().to_numpy(zero_copy_only=False) if data.null_count else np.zeros(len(data), np.bool_)
