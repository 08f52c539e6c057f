"""Arrow columns to exact digits and back: what sums, averages and variances are made of.

Why. ``(a+b)+c ≠ a+(b+c)`` in doubles, so a plain sum would depend on batches, partitions and merges, and a retraction
would not cancel what was emitted. Here every value becomes an exact number (`digits`): integers, durations and the
unscaled integers of decimals as they are, a double as the whole multiple of 2^-1074 that it is. NaN and the
infinities are counted beside the digits. A result is a function of the exact total alone: doubles are rounded once,
from the exact sum; decimals and integers are exact or an error.

Cost. Integers and decimals of up to 18 digits are used in place. Doubles cost five vector operations per digit
column, and one pass when they are all whole numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from holdfast.errors import EvaluationError, Unsupported
from holdfast.operators.numbers.digits import (
    BASE,
    MASK,
    SAFE,
    Bools,
    Digits,
    Floats,
    Ints,
    Words,
    divide_half_up,
    from_int64,
    is_single,
    multiply,
    rounded,
    scaled,
    subtract,
    take,
    to_float,
    to_int128,
    without_zeros,
)
from holdfast.trace import physical

SPECIALS = ("nan", "pinf", "ninf")
"""What a double can be that has no digits."""

INT64_DIGITS = 19
"""Every int64 has at most so many decimal digits."""

CHUNK = 1 << 14
"""Doubles are cut into digits so many at a time, so that they stay in the cache meanwhile."""

TOP = 31
"""The highest digit of a double: 2^1024 is digit 2^32 at place 31."""


@dataclass(frozen=True)
class Encoded:
    """A column as exact numbers. A NULL and a special value are zero in the digits."""

    digits: Digits
    valid: Bools | None
    """Which rows are not NULL; None when none is."""

    specials: dict[str, Bools] = field(default_factory=dict)


def encode(array: pa.Array) -> Encoded:
    """The exact numbers of a column: integers, booleans (true is 1), decimals (unscaled),
    durations (in their unit), floats, or all NULL."""
    array = physical.plain(array)
    valid, kind = physical.valid(array), array.type
    if pa.types.is_null(kind):
        return Encoded({}, valid)
    if pa.types.is_decimal(kind):
        return Encoded(_decimal_digits(array, valid), valid)
    if pa.types.is_floating(kind):
        doubles = physical.fixed(array).astype(np.float64)
        if valid is not None:
            doubles[~valid] = 0.0
        finite = np.isfinite(doubles)
        if finite.all():
            return Encoded(float_digits(doubles), valid)
        specials = {"nan": np.isnan(doubles), "pinf": doubles == np.inf, "ninf": doubles == -np.inf}
        return Encoded(float_digits(np.where(finite, doubles, 0.0)), valid, specials)
    if pa.types.is_integer(kind) or pa.types.is_duration(kind) or pa.types.is_boolean(kind):
        integers = physical.fixed(array).astype(np.int64, copy=False)
        return Encoded(from_int64(integers if valid is None else np.where(valid, integers, 0)), valid)
    raise Unsupported(f"a column of type {kind} cannot be summed; expected numbers or intervals", type=str(kind))


def float_digits(values: Floats) -> Digits:
    """Finite doubles, exactly. Digits are cut from the top: each cut and each rest is exact in double arithmetic."""
    parts = [values[start : start + CHUNK] for start in range(0, len(values), CHUNK)]
    if all((np.trunc(part) == part).all() and (np.abs(part) < SAFE).all() for part in parts):
        return without_zeros({0: values.astype(np.int64)})
    digits: Digits = {}
    for index, part in enumerate(parts):
        rest = part.copy()
        cut = np.empty_like(rest)
        unit = 0
        q = min(TOP, int(np.frexp(np.abs(rest).max())[1]) // BASE)
        while rest.any():
            if q - unit < -TOP:
                # 2^(32·32) is not a double, but what is left is small enough to be scaled up, exactly.
                np.ldexp(rest, BASE * TOP, out=rest)
                unit -= TOP
            np.multiply(rest, 2.0 ** (-BASE * (q - unit)), out=cut)
            np.trunc(cut, out=cut)
            if cut.any():
                if q not in digits:
                    digits[q] = np.zeros(len(values), dtype=np.int64)
                digits[q][index * CHUNK : index * CHUNK + len(part)] = cut
                cut *= 2.0 ** (BASE * (q - unit))
                rest -= cut
            q -= 1
    return digits


def _decimal_digits(array: pa.Array, valid: Bools | None) -> Digits:
    words = physical.fixed(array).view(np.int64)
    low, high = words[:, 0], words[:, 1]
    if valid is not None:
        low, high = np.where(valid, low, 0), np.where(valid, high, 0)
    if (high == low >> 63).all():
        return from_int64(np.ascontiguousarray(low))
    return without_zeros({0: low & MASK, 1: low >> BASE & MASK, 2: high & MASK, 3: high >> BASE})


def squares(encoded: Encoded) -> Digits:
    """The exact squares. A double, like a 128-bit integer, lies in four neighbouring balanced digits at most."""
    return multiply(encoded.digits, encoded.digits, reach=3)


Explain = Callable[[int], str]
"""Names the group at a place, for an error."""


def to_integers(digits: Digits, present: Bools, kind: pa.DataType, explain: Explain | None) -> pa.Array:
    """Totals as int64 or a duration; NULL where not present. One that does not fit is an error, or NULL if nothing is
    to be explained."""
    low, high, fits = to_int128(digits, len(present))
    values = low.view(np.int64)
    fits &= high == values >> 63
    present = _fitting(fits, present, digits, kind, explain)
    array = pa.array(values, mask=None if present.all() else ~present)
    return array.view(kind) if pa.types.is_duration(kind) else array.cast(kind)


def to_decimals(digits: Digits, present: Bools, kind: pa.DataType, explain: Explain | None) -> pa.Array:
    """Totals as decimals; NULL where not present. One with more digits than the type has is an error, or NULL if
    nothing is to be explained."""
    low, high, fits = to_int128(digits, len(present))
    if kind.precision < INT64_DIGITS or not is_single(digits):
        fits &= _below(low, high, 10**kind.precision)
        present = _fitting(fits, present, digits, kind, explain)
    words = np.empty((len(present), 2), dtype=np.uint64)
    words[:, 0], words[:, 1] = low, high.view(np.uint64)
    validity = None if present.all() else pa.array(present).buffers()[1]
    return pa.Array.from_buffers(kind, len(present), [validity, pa.py_buffer(words)])


def _below(low: Words, high: Ints, bound: int) -> Bools:
    """Which 128-bit numbers have a magnitude below ``bound``."""
    # ~x is -x - 1, which never overflows: a negative x is within the bound if ~x < bound - 1.
    negative = high < 0
    limits = (bound - 1, bound)
    limit_low, limit_high = (
        np.where(negative, *(np.uint64(limit & (1 << 64) - 1) for limit in limits)),
        np.where(negative, *(limit >> 64 for limit in limits)),
    )
    mirror_low, mirror_high = np.where(negative, ~low, low), np.where(negative, ~high, high)
    below: Bools = (mirror_high < limit_high) | ((mirror_high == limit_high) & (mirror_low < limit_low))
    return below


def to_average(digits: Digits, counts: Ints, scale: int, kind: pa.DataType, explain: Explain | None) -> pa.Array:
    """Totals (unscaled, at ``scale``) over counts as decimals or durations, halves away from zero; NULL where 0."""
    present = counts > 0
    places = kind.scale - scale if pa.types.is_decimal(kind) else 0
    if places < 0:
        raise Unsupported(f"an average at scale {kind.scale} of numbers at scale {scale}", type=str(kind))
    quotient = divide_half_up(scaled(digits, 10**places), np.maximum(counts, 1))
    return (to_decimals if pa.types.is_decimal(kind) else to_integers)(quotient, present, kind, explain)


def to_doubles(digits: Digits, specials: dict[str, Ints], count: int) -> Floats:
    """Totals as the nearest doubles; specials are how often each special value is in a total."""
    return _with_specials(to_float(digits, count), specials)


def variances(
    sums: Digits, squared: Digits, specials: dict[str, Ints], counts: Ints, *, sample: bool, scale: int
) -> Floats:
    """Variances from Σx and Σx² of numbers at ``scale``, meaningless where the count is too small.

    n·Σx² - (Σx)² is exact, so nothing cancels: a mean of 10^15 does not hurt. The quotient is within 2 ulp.
    """
    size = len(counts)
    mantissa, exponent = rounded(subtract(multiply(squared, from_int64(counts)), multiply(sums, sums)), size)
    many = counts.astype(np.float64)
    divisor = many * np.maximum(many - 1.0 if sample else many, 1.0) * float(10 ** (2 * scale))
    with np.errstate(over="ignore", under="ignore"):
        result = np.ldexp(mantissa / np.maximum(divisor, 1.0), exponent)
    return np.where(special(specials, size), np.nan, result)


def special(specials: dict[str, Ints], size: int) -> Bools:
    """Which totals have a NaN or an infinity in them."""
    found: Bools = np.zeros(size, dtype=np.bool_)
    for column in specials.values():
        found = found | (column != 0)
    return found


def _with_specials(values: Floats, specials: dict[str, Ints]) -> Floats:
    if not specials:
        return values
    zeros = np.zeros(len(values), dtype=np.int64)
    nan, positive, negative = (specials.get(name, zeros) != 0 for name in SPECIALS)
    values = np.where(positive, np.inf, np.where(negative, -np.inf, values))
    return np.where(nan | (positive & negative), np.nan, values)


def _fitting(fits: Bools, present: Bools, digits: Digits, kind: pa.DataType, explain: Explain | None) -> Bools:
    """Those present that fit; raises if one does not and that is to be explained."""
    good = fits | ~present
    if good.all():
        return present
    if explain is None:
        return present & fits
    place = int(np.argmin(good))
    total = sum(int(column[0]) << BASE * q for q, column in take(digits, np.array([place])).items())
    unscaled = " (unscaled)" if pa.types.is_decimal(kind) else ""
    raise EvaluationError(
        f"{explain(place)}: overflow: {total}{unscaled} does not fit {kind}. Use `try_sum` or `try_avg` to tolerate it "
        "and return NULL instead",
        total=total,
        type=str(kind),
        condition="ARITHMETIC_OVERFLOW",
    )
