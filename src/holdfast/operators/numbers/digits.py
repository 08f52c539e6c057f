"""Vectors of exact numbers, as columns of base-2^32 digits.

Representation. ``Digits`` maps q to an int64 column; row i is the number Σ_q digits[q][i] · 2^(32q). A missing column
is all zeros; q may be negative (fractions of doubles). Digits are signed and may be larger than the base, so the same
number has many forms, and two vectors are added by adding their columns.

Two forms are functions of the number alone:

- *balanced*: every digit is in [-2^31, 2^31). The sign of a number is the sign of its highest non-zero digit.
- *canonical*: balanced, except that digit 1 is folded into digit 0 where the whole part is below about 2^59. So the
  total of small numbers is one column. Stored numbers are canonical, so they do not depend on how the numbers were
  split into batches, or on the order of insertions and deletions.

Invariant. No function overflows if its input digits are within ±2^62, and every function returns digits within ±2^62.
Digits are balanced first where a sum might exceed that.

Cost. A handful of vector operations per column. The number of columns follows the spread of magnitudes in a vector:
one for integers, two to four for doubles of ordinary size.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from holdfast.trace.inner_loops import run_sums

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Words = npt.NDArray[np.uint64]
Digits = dict[int, Ints]

BASE = 32
HALF = 1 << 31
MASK = (1 << 32) - 1
SAFE = 1 << 62
FOLD = 1 << 27
"""A second digit within ±FOLD is folded into the first: the largest folded number stays below 2^60."""


def largest(column: Ints) -> int:
    """The greatest magnitude in a column; 0 if it is empty."""
    return max(int(column.max()), -int(column.min())) if len(column) else 0


def rows(digits: Digits) -> int:
    """The number of rows; 0 if there are no columns, which stands for a vector of zeros of any length."""
    return next((len(column) for column in digits.values()), 0)


def add(left: Digits, right: Digits) -> Digits:
    """The sums of two vectors."""
    return {
        q: left[q] + right[q] if q in left and q in right else left[q] if q in left else right[q]
        for q in sorted({*left, *right})
    }


def subtract(left: Digits, right: Digits) -> Digits:
    """The differences of two vectors."""
    return add(left, {q: -column for q, column in right.items()})


def take(digits: Digits, places: npt.NDArray[np.int64] | Bools) -> Digits:
    """The numbers at ``places`` (positions or a mask)."""
    return {q: column[places] for q, column in digits.items()}


def without_zeros(digits: Digits) -> Digits:
    """The same numbers without columns that are all zeros."""
    return {q: column for q, column in digits.items() if column.any()}


def from_int64(values: Ints) -> Digits:
    """The digits of any int64 values, including -2^63."""
    if largest(values) < SAFE:
        return {0: values}
    return {0: values & MASK, 1: values >> BASE}


def balance(digits: Digits) -> Digits:
    """The balanced form: unique for each number."""
    if all(largest(column) < HALF for column in digits.values()):
        return without_zeros(digits)
    result: Digits = {}
    carry: Ints | None = None
    q, top = min(digits), max(digits)
    while q <= top or (carry is not None and carry.any()):
        column = digits.get(q)
        if carry is not None:
            column = carry if column is None else column + carry
        if column is not None:
            carry = (column + HALF) >> BASE
            result[q] = column - (carry << BASE)
        q += 1
    return without_zeros(result)


def canonical(digits: Digits) -> Digits:
    """The canonical form: unique for each number, one column for whole numbers of ordinary size."""
    if all(q == 0 for q in digits) and all(largest(column) < FOLD * 2**BASE - HALF for column in digits.values()):
        return without_zeros(digits)
    result = balance(digits)
    second = result.get(1)
    if second is None:
        return result
    folds = (second >= -FOLD) & (second < FOLD)
    for q, column in result.items():
        if q > 1:
            folds &= column == 0
    folded = np.where(folds, second, 0)
    result[0] = (folded << BASE) + result.get(0, 0)
    result[1] = second - folded
    return without_zeros(dict(sorted(result.items())))


def is_single(digits: Digits) -> bool:
    """Whether the numbers are whole and in one column, or all zero."""
    return not digits or (len(digits) == 1 and 0 in digits)


def scaled(digits: Digits, factor: int) -> Digits:
    """The numbers times a positive int64."""
    if factor == 1 or not digits:
        return digits
    if max(map(largest, digits.values())) * factor < SAFE:
        return {q: column * factor for q, column in digits.items()}
    return multiply(digits, from_int64(np.full(rows(digits), factor, dtype=np.int64)))


def multiply(left: Digits, right: Digits, reach: int | None = None) -> Digits:
    """The products of two vectors. ``reach``: the caller knows that no row has non-zero digits further apart than
    this."""
    left, right = balance(left), balance(right)
    result: Digits = {}
    for p, one in left.items():
        for q, other in right.items():
            if reach is not None and abs(p - q) > reach:
                continue
            product = one * other
            high = (product + HALF) >> BASE
            low = product - (high << BASE)
            for index, column in ((p + q, low), (p + q + 1, high)):
                result[index] = result[index] + column if index in result else column
    return without_zeros(dict(sorted(result.items())))


def sum_groups(digits: Digits, starts: npt.NDArray[np.intp], weights: Ints | None = None) -> Digits:
    """The sum of each group. Rows of a group are adjacent, groups begin at ``starts``; a row counts ``weights``
    times."""
    if not len(starts):
        return {}
    count = rows(digits)
    weight = 1 if weights is None else largest(weights)
    if max(map(largest, digits.values()), default=0) * weight * count >= SAFE:
        digits = balance(digits)
        if HALF * weight * count >= SAFE and weights is not None:
            digits, weights = balance(multiply(digits, from_int64(weights))), None
    sums: Digits = {}
    for q, column in digits.items():
        sums[q] = run_sums(column if weights is None else column * weights, starts)
    return without_zeros(sums)


def signs(balanced: Digits) -> Ints:
    """-1, 0 or 1 for each number of a balanced, non-empty vector."""
    result = np.zeros(rows(balanced), dtype=np.int64)
    for q in sorted(balanced):
        column = balanced[q]
        result = np.where(column != 0, np.sign(column), result)
    return result


def magnitudes(balanced: Digits, low: int, high: int) -> list[Words]:
    """The absolute values as digits in [0, 2^32), for places low..high, which must cover all digits."""
    sign = signs(balanced)
    result: list[Words] = []
    carry: Ints | int = 0
    for q in range(low, high + 1):
        column = balanced[q] * sign + carry if q in balanced else np.zeros(len(sign), dtype=np.int64) + carry
        carry = column >> BASE
        result.append((column & MASK).astype(np.uint64))
    return result


def rounded(digits: Digits, count: int) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Each of ``count`` numbers as (m, e), where m · 2^e is the number rounded to 53 bits, half to even."""
    digits = without_zeros(digits)
    if not digits:
        return np.zeros(count), np.zeros(count, dtype=np.int64)
    low, high = min(digits), max(digits)
    if low == high:
        return digits[low].astype(np.float64), np.full(count, BASE * low)
    if high - low > 2:
        return _rounded_from_words(digits)
    # If the two upper digits together are an exact double, one addition of two exact doubles rounds correctly.
    none = np.zeros(count, dtype=np.int64)
    upper, middle, lower = digits.get(low + 2, none), digits.get(low + 1, none), digits[low]
    simple = (np.abs(upper) < 1 << 20) & (np.abs(middle) < 1 << 52) & (np.abs(lower) < 1 << 53)
    mantissa = ((upper << BASE) + middle).astype(np.float64) * 2.0**BASE + lower.astype(np.float64)
    exponent = np.full(count, BASE * low)
    if not simple.all():
        mantissa[~simple], exponent[~simple] = _rounded_from_words(take(digits, ~simple))
    return mantissa, exponent


def _rounded_from_words(digits: Digits) -> tuple[Floats, npt.NDArray[np.int64]]:
    """The result of ``rounded`` for any numbers, computed from the 64 bits from the highest one bit on, and from
    whether any lower bit is set."""
    count = rows(digits)
    balanced = balance(digits)
    if not balanced:
        return np.zeros(count), np.zeros(count, dtype=np.int64)
    low, high = min(balanced), max(balanced)
    columns = magnitudes(balanced, low, high)
    # The three highest digits have at least 65 significant bits; the digits below only break ties.
    words = np.stack([np.zeros(count, dtype=np.uint64)] * 3 + columns)
    filled = words != 0
    every = np.arange(count)
    top = len(words) - 1 - np.argmax(filled[::-1], axis=0)
    top = np.where(filled.any(axis=0), top, 3)
    first, second, third = words[top, every], words[top - 1, every], words[top - 2, every]
    sticky = np.logical_or.accumulate(filled, axis=0)[top - 3, every]
    shift = (BASE - np.frexp(first.astype(np.float64))[1]).astype(np.uint64)
    window = ((first << np.uint64(32) | second) << shift) | (third >> (np.uint64(32) - shift))
    sticky |= (third << shift) & np.uint64(MASK) != 0
    kept, rest = window >> np.uint64(11), window & np.uint64(0x7FF)
    up = (rest > 0x400) | ((rest == 0x400) & (sticky | (kept & np.uint64(1) != 0)))
    mantissa = (kept + up).astype(np.float64) * signs(balanced)
    exponent = BASE * (top - 3 + low - 1) - shift.astype(np.int64) + 11
    return mantissa, exponent


def to_float(digits: Digits, count: int) -> Floats:
    """The nearest double to each number; ±inf if it is out of range.

    Sums of doubles are multiples of the least subnormal, so tiny results are exact, and every result is rounded only
    once.
    """
    mantissa, exponent = rounded(digits, count)
    with np.errstate(over="ignore"):
        return np.ldexp(mantissa, exponent)


def to_int128(digits: Digits, count: int) -> tuple[Words, Ints, Bools]:
    """Whole numbers in 128-bit two's complement: the low and high 64 bits, and whether each number fits."""
    if is_single(digits):
        single = digits[0] if digits else np.zeros(count, dtype=np.int64)
        return single.view(np.uint64), single >> 63, np.ones(count, dtype=np.bool_)
    words: list[Ints] = []
    carry: Ints = np.zeros(count, dtype=np.int64)
    for q in range(max(4, 1 + max(digits, default=0))):
        column = digits[q] + carry if q in digits else carry
        words.append(column & MASK)
        carry = column >> BASE
    low = words[0].astype(np.uint64) | words[1].astype(np.uint64) << np.uint64(32)
    high = words[2] | words[3] << BASE
    extension = np.where(high < 0, MASK, 0)
    fits = carry == high >> 63
    for word in words[4:]:
        fits &= word == extension
    return low, high, fits


def divide_half_up(digits: Digits, divisors: Ints) -> Digits:
    """Whole numbers divided by positive divisors, rounded to the nearest whole number, halves away from zero."""
    digits = without_zeros(digits)
    if not digits:
        return {}
    if is_single(digits):
        size, sign = np.abs(digits[0]), np.sign(digits[0])
        whole, left = np.divmod(size, divisors)
        return {0: (whole + (left >= divisors - left)) * sign}
    balanced = balance(digits)
    sign = signs(balanced)
    words = magnitudes(balanced, 0, max(balanced))
    divisor = divisors.astype(np.uint64)
    remainder = np.zeros(len(sign), dtype=np.uint64)
    # remainder · 2^step + digit must stay below 2^64; a group of more than 2^32 rows is divided bit by bit.
    step = 32 if largest(divisors) <= MASK else 1
    quotient: Digits = {}
    for q in range(len(words) - 1, -1, -1):
        part = np.zeros(len(sign), dtype=np.uint64)
        for bit in range(BASE - step, -1, -step):
            remainder = remainder << np.uint64(step) | words[q] >> np.uint64(bit) & np.uint64((1 << step) - 1)
            part = part << np.uint64(step) | remainder // divisor
            remainder %= divisor
        quotient[q] = part.astype(np.int64)
    quotient[0] += remainder >= divisor - remainder
    return {q: column * sign for q, column in quotient.items()}
