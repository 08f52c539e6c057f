"""Decimal arithmetic with Spark's result types, rounding and overflows.

Types. Spark gives ``+ - * /`` of decimals the precision and scale that hold every result. If that is more than 38
digits, it reduces the digits after the decimal point, but not below six; then the result is rounded (half away from
zero) and may overflow.

How. If the exact type has at most 38 digits, Arrow's kernels compute it. Otherwise the exact result is computed in 256
bits, rounded, and compared with the bounds of 38 digits. A quotient is computed with Python integers of any size: like
Spark, it is cut to 39 places first and then rounded to the result's scale.

Cost: one Arrow pass per operation in 128 bits, about four in 256. Division: a few NumPy operations on Python objects
per batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.operators.expressions.arithmetic import Operator, failing
from holdfast.operators.expressions.terms import (
    Failure,
    Frame,
    Mask,
    Term,
    Value,
    by_zero,
    in_order,
    out_of_range,
    whole,
)

Numbers = npt.NDArray[np.object_]

MOST = 38
_KEPT = 6
WIDEST = 75
"""The most digits of an exact result that is computed: rounding it may add one, and 256 bits hold 76."""

_QUOTIENT_SCALE = 39
_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 20}
_KERNELS: dict[str, Callable[[Any, Any], Any]] = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}


def decimal_of(kind: pa.DataType) -> pa.DataType | None:
    """The decimal type to which Spark converts a number's type; None if it is not a decimal or an integer."""
    if pa.types.is_decimal128(kind):
        return kind
    return pa.decimal128(_DIGITS[kind], 0) if kind in _DIGITS else None


def holds(wide: pa.DataType, kind: pa.DataType) -> bool:
    """Whether the decimal type ``wide`` holds every value of type ``kind``."""
    narrow = decimal_of(kind)
    return (
        narrow is not None
        and pa.types.is_decimal128(wide)
        and wide.scale >= narrow.scale
        and wide.precision - wide.scale >= narrow.precision - narrow.scale
    )


def holds_rounded(kind: pa.DataType, wide: pa.DataType) -> bool:
    """Whether the decimal type ``kind`` holds every value of the decimal type ``wide``, rounded to fewer digits after
    the point. Rounding may add a digit before the point."""
    if not (pa.types.is_decimal128(kind) and pa.types.is_decimal128(wide)):
        return False
    return bool(kind.scale < wide.scale and kind.precision - kind.scale > wide.precision - wide.scale)


def exact_type(operator: Operator, left: pa.DataType, right: pa.DataType) -> tuple[int, int]:
    """The precision and scale that hold every result of ``+ - *``."""
    if operator == "*":
        return left.precision + right.precision + 1, left.scale + right.scale
    scale = max(left.scale, right.scale)
    return max(left.precision - left.scale, right.precision - right.scale) + scale + 1, scale


def quotient_type(left: pa.DataType, right: pa.DataType) -> tuple[int, int]:
    """The precision and scale of a quotient in Spark, before they are reduced to 38 digits."""
    scale = max(_KEPT, left.scale + right.precision + 1)
    return left.precision - left.scale + right.scale + scale, scale


def adjusted(precision: int, scale: int) -> pa.DataType:
    """The type that Spark uses for this precision and scale: with at most 38 digits."""
    if precision <= MOST:
        return pa.decimal128(precision, scale)
    return pa.decimal128(MOST, max(MOST - (precision - scale), min(scale, _KEPT)))


@dataclass(frozen=True)
class DecimalRound(Term):
    """A cast of a decimal to a type with fewer digits after the point that holds every result (`holds_rounded`)."""

    operand: Term

    @property
    def operands(self) -> tuple[Term, ...]:
        return (self.operand,)

    def value(self, frame: Frame) -> Value:
        inner = self.operand.value(frame)
        exact = pc.cast(inner.data, pa.decimal256(WIDEST + 1, self.operand.type.scale))
        rounded = pc.round(exact, ndigits=self.type.scale, round_mode="half_towards_infinity")
        return inner._replace(data=pc.cast(rounded, self.type))


@dataclass(frozen=True)
class DecimalArithmetic(Term):
    """``+ - *`` between two decimals."""

    operator: Operator
    left: Term
    right: Term
    text: str

    @property
    def operands(self) -> tuple[Term, ...]:
        return (self.left, self.right)

    @property
    def raises(self) -> bool:
        return exact_type(self.operator, self.left.type, self.right.type)[0] > MOST or super().raises

    def value(self, frame: Frame) -> Value:
        left, right = self.left.value(frame), self.right.value(frame)
        failed, why = in_order(left, right)
        precision, scale = exact_type(self.operator, self.left.type, self.right.type)
        kernel = _KERNELS[self.operator]
        if precision <= MOST:
            return Value(kernel(left.data, right.data), failed, why)
        exact = pc.cast(kernel(_wide(left.data), _wide(right.data)), pa.decimal256(WIDEST + 1, scale))
        return _fitted(exact, self.type, self.text, failed, why)


@dataclass(frozen=True)
class DecimalDivide(Term):
    """``/`` between two decimals; a divisor of zero fails."""

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
        fits = quotient_type(self.left.type, self.right.type)[0] <= MOST
        return not (self.never_zero and fits) or super().raises

    def value(self, frame: Frame) -> Value:
        left, right = self.left.value(frame), self.right.value(frame)
        failed, why = in_order(right, left)  # Spark evaluates the divisor first
        rows = max(len(each.data) for each in (left, right) if isinstance(each.data, pa.Array))
        above, below = whole(left.data, rows), whole(right.data, rows)
        nulls = _mask(pc.or_(above.is_null(), below.is_null()))
        dividend, divisor = whole_numbers(above), whole_numbers(below)
        zero = (divisor == 0) & ~nulls
        quotient = _divided(dividend, np.where(nulls | zero, 1, divisor), self.left.type.scale, self.right.type.scale)
        quotient = _rounded(quotient, 10 ** (_QUOTIENT_SCALE - self.type.scale))
        over = (np.abs(quotient) >= 10**self.type.precision) & ~nulls & ~zero
        found = Value(as_decimals(np.where(nulls | over, 0, quotient), self.type, nulls), failed, why)
        # Only the rows that fail become NULL: a term above may ignore the failures and use the other rows.
        for wrong, what in ((zero, by_zero(self.text)), (over, out_of_range(self.type, self.text))):
            if wrong.any():
                found = failing(found.data, wrong.astype(np.bool_), what, found.failed, found.why)
        return found


def _divided(dividend: Numbers, divisor: Numbers, above: int, below: int) -> Numbers:
    """The quotient times 10^39 as a whole number, truncated, as in Spark."""
    shift = below - above + _QUOTIENT_SCALE
    top, bottom = (dividend * 10**shift, divisor) if shift >= 0 else (dividend, divisor * 10**-shift)
    sign = np.where((top < 0) != (bottom < 0), -1, 1)
    size: Numbers = np.abs(top) // np.abs(bottom)
    result: Numbers = sign.astype(np.object_) * size
    return result


def _rounded(numbers: Numbers, unit: int) -> Numbers:
    sign = np.where(numbers < 0, -1, 1).astype(np.object_)
    size: Numbers = (2 * np.abs(numbers) + unit) // (2 * unit)
    result: Numbers = sign * size
    return result


def whole_numbers(column: pa.Array) -> Numbers:
    """The unscaled values of decimals as Python integers. The number of a NULL has no meaning."""
    words = np.frombuffer(column.buffers()[1], np.uint64)[2 * column.offset : 2 * (column.offset + len(column))]
    low, high = words[0::2].astype(np.object_), words[1::2].view(np.int64).astype(np.object_)
    result: Numbers = high * (1 << 64) + low
    return result


def as_decimals(numbers: Numbers, kind: pa.DataType, nulls: Mask) -> pa.Array:
    """Decimals of type ``kind`` with these unscaled values, which must fit."""
    words = np.empty((len(numbers), 2), np.uint64)
    words[:, 0] = (numbers & ((1 << 64) - 1)).astype(np.uint64)
    words[:, 1] = ((numbers >> 64) & ((1 << 64) - 1)).astype(np.uint64)
    plain = pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(words)])
    return pc.if_else(pa.array(nulls), pa.scalar(None, kind), plain) if nulls.any() else plain


def _fitted(exact: Any, kind: pa.DataType, text: str, failed: Mask | None, why: Failure | None) -> Value:
    """Round decimals of 256 bits to ``kind``. Rows that do not fit fail."""
    if exact.type.scale > kind.scale:
        exact = pc.round(exact, ndigits=kind.scale, round_mode="half_towards_infinity")
    bound = pa.scalar(Decimal(10) ** (kind.precision - kind.scale), exact.type)
    over = pc.fill_null(pc.greater_equal(pc.abs(exact), bound), False)
    if not pc.any(over).as_py():
        return Value(pc.cast(exact, kind), failed, why)
    kept = pc.cast(pc.if_else(over, pa.scalar(None, exact.type), exact), kind)
    return failing(kept, _mask(over), out_of_range(kind, text), failed, why)


def _wide(data: Any) -> Any:
    return pc.cast(data, pa.decimal256(data.type.precision, data.type.scale))


def _mask(data: Any) -> Mask:
    mask: Mask = data.to_numpy(zero_copy_only=False)
    return mask
