"""Arrow columns to exact digits and back: the basis of sums, averages and variances.

Why. ``(a+b)+c ≠ a+(b+c)`` in doubles, so a plain sum would depend on batches, partitions and merges, and a retraction
would not cancel the value that was emitted. Here every value becomes an exact number (`digits`): integers, durations
and the unscaled integers of decimals as they are, a double as a whole multiple of 2^-1074. NaN and the infinities are
counted separately. A result is a function of the exact total alone: a double is rounded once, from the exact sum; a
decimal or integer is exact, or an error.

Cost. Integers and decimals of up to 18 digits are used without copying. Doubles cost five vector operations per digit
column, or one pass if all are whole numbers.
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
"""The special doubles, which have no digits: NaN, +∞ and -∞."""

INT64_DIGITS = 19
"""The most decimal digits of an int64."""

CHUNK = 1 << 14
"""The number of doubles that are cut into digits at a time, so that they stay in the cache."""

TOP = 31
"""The highest digit of a double: 2^1024 is digit 2^32 at place 31."""


@dataclass(frozen=True)
class Encoded:
    """A column as exact numbers. NULLs and special doubles are zero in the digits."""

    digits: Digits
    valid: Bools | None
    """Whether each row is not NULL; None if no row is NULL."""

    specials: dict[str, Bools] = field(default_factory=dict)
    """Name of a special double → whether each row has it."""


def encode(array: pa.Array) -> Encoded:
    """The exact numbers of a column of integers, booleans (true is 1), decimals (unscaled), durations (in their unit),
    floats, or only NULLs. Raises Unsupported for other types."""
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
    """The exact digits of finite doubles. Digits are cut off from the highest one down; each cut and each rest is exact
    in double arithmetic."""
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
                # 2^(32·32) is not a double, but the rest is small enough to be scaled up exactly.
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
    """The exact squares. A double or a 128-bit integer has at most four adjacent non-zero balanced digits."""
    return multiply(encoded.digits, encoded.digits, reach=3)


Explain = Callable[[int], str]
"""Returns the text of the group at an index, for errors."""


def to_integers(digits: Digits, present: Bools, kind: pa.DataType, explain: Explain | None) -> pa.Array:
    """Totals as int64 or a duration; NULL where not ``present``. A total that does not fit raises EvaluationError, or
    is NULL if ``explain`` is None."""
    low, high, fits = to_int128(digits, len(present))
    values = low.view(np.int64)
    fits &= high == values >> 63
    present = _fitting(fits, present, digits, kind, explain)
    array = pa.array(values, mask=None if present.all() else ~present)
    return array.view(kind) if pa.types.is_duration(kind) else array.cast(kind)


def to_decimals(digits: Digits, present: Bools, kind: pa.DataType, explain: Explain | None) -> pa.Array:
    """Totals as decimals; NULL where not ``present``. A total with more digits than the type raises EvaluationError, or
    is NULL if ``explain`` is None."""
    low, high, fits = to_int128(digits, len(present))
    if kind.precision < INT64_DIGITS or not is_single(digits):
        fits &= _below(low, high, 10**kind.precision)
        present = _fitting(fits, present, digits, kind, explain)
    words = np.empty((len(present), 2), dtype=np.uint64)
    words[:, 0], words[:, 1] = low, high.view(np.uint64)
    validity = None if present.all() else pa.array(present).buffers()[1]
    return pa.Array.from_buffers(kind, len(present), [validity, pa.py_buffer(words)])


def _below(low: Words, high: Ints, bound: int) -> Bools:
    """Whether the magnitude of each 128-bit number is below ``bound``."""
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
    """Totals (unscaled, at ``scale``) divided by counts, as decimals or durations, rounded half away from zero; NULL
    where the count is 0."""
    present = counts > 0
    places = kind.scale - scale if pa.types.is_decimal(kind) else 0
    if places < 0:
        raise Unsupported(f"an average at scale {kind.scale} of numbers at scale {scale}", type=str(kind))
    quotient = divide_half_up(scaled(digits, 10**places), np.maximum(counts, 1))
    return (to_decimals if pa.types.is_decimal(kind) else to_integers)(quotient, present, kind, explain)


def to_doubles(digits: Digits, specials: dict[str, Ints], count: int) -> Floats:
    """Totals as the nearest doubles. ``specials``: how often each special double is in each total."""
    return _with_specials(to_float(digits, count), specials)


def variances(
    sums: Digits, squared: Digits, specials: dict[str, Ints], counts: Ints, *, sample: bool, scale: int
) -> Floats:
    """Variances, given Σx and Σx² of numbers at ``scale``. Meaningless where the count is too small.

    n·Σx² - (Σx)² is exact, so no digits are lost by cancellation, even with a mean of 10^15. The error is at most 2
    ulp.
    """
    size = len(counts)
    mantissa, exponent = rounded(subtract(multiply(squared, from_int64(counts)), multiply(sums, sums)), size)
    many = counts.astype(np.float64)
    divisor = many * np.maximum(many - 1.0 if sample else many, 1.0) * float(10 ** (2 * scale))
    with np.errstate(over="ignore", under="ignore"):
        result = np.ldexp(mantissa / np.maximum(divisor, 1.0), exponent)
    return np.where(special(specials, size), np.nan, result)


def special(specials: dict[str, Ints], size: int) -> Bools:
    """Whether each total includes a NaN or an infinity."""
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
    """``present`` without the totals that do not fit. Raises EvaluationError for the first of these unless ``explain``
    is None."""
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
