"""Exact sums and products of multiplicities. An overflow raises.

A diff is an int64, and NumPy wraps around silently: 65,536 equal rows on each of four sides of a cross join make 2^64
equal rows, which wraps to 0, which means no row. All sums and products of diffs are computed here. A result is within
±(2^63 - 1), so that its negation fits too; otherwise `MultiplicityOverflow` is raised.

How an overflow is found, and what that costs: first an upper bound is computed, the greatest magnitude times the count
of numbers. That is one pass over the numbers (about 1 ns each; sorting them takes a hundred). The next checks run only
if this bound is over the limit. The upper and the lower 32 bits are summed separately: neither sum can overflow for
fewer than 2^31 numbers, and together they are the exact sum. A product is compared with the product of the doubles: a
product that wrapped is at least 2^63 away from it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from holdfast.errors import MultiplicityOverflow
from holdfast.trace.inner_loops import run_sums

Ints = npt.NDArray[np.int64]

MOST = (1 << 63) - 1
_BITS = 32
_MASK = (1 << _BITS) - 1
_TOP = 1 << (63 - _BITS)
_APART = 2.0**62
_ROWS = (1 << 31) - 1
"""The most copies of rows that can be laid out one by one."""


def largest(values: Ints) -> int:
    """The greatest magnitude; 0 if there are no values."""
    return max(int(values.max()), -int(values.min())) if len(values) else 0


def sums(values: Ints, starts: npt.NDArray[np.integer]) -> Ints:
    """The sum of each run of values. Runs begin at ``starts``; the first run begins at 0."""
    if not len(starts):
        return np.zeros(0, np.int64)
    found = run_sums(values, starts)
    if largest(values) * len(values) > MOST:
        high = np.add.reduceat(values >> _BITS, starts)
        low = np.add.reduceat(values & _MASK, starts)
        _fits(high, low, found)
    return found


def sums_at(places: npt.NDArray[np.integer], values: Ints, size: int) -> Ints:
    """For each of ``size`` places, the sum of its values; value i belongs to place ``places[i]``."""
    found = np.zeros(size, np.int64)
    np.add.at(found, places, values)
    if largest(values) * len(values) > MOST:
        high, low = np.zeros(size, np.int64), np.zeros(size, np.int64)
        np.add.at(high, places, values >> _BITS)
        np.add.at(low, places, values & _MASK)
        _fits(high, low, found)
    return found


def running(values: Ints) -> Ints:
    """Running sums: for each value, the sum of the values up to and including it."""
    found: Ints = np.cumsum(values)
    if largest(values) * len(values) > MOST:
        _fits(np.cumsum(values >> _BITS), np.cumsum(values & _MASK), found)
    return found


def total(values: Ints) -> int:
    """The sum of all values as a Python integer, which cannot overflow."""
    if largest(values) * len(values) <= MOST:
        return int(values.sum())
    return (int((values >> _BITS).sum()) << _BITS) + int((values & _MASK).sum())


def add(left: Ints, right: Ints) -> Ints:
    """left + right, pair by pair."""
    found: Ints = left + right
    if largest(left) + largest(right) > MOST:
        # The sign of a sum that wrapped differs from the signs of both its parts.
        wrapped = ((left ^ found) & (right ^ found)) < 0
        _raise_at(wrapped | (found == np.iinfo(np.int64).min))
    return found


def multiply(left: Ints, right: Ints) -> Ints:
    """left · right, pair by pair."""
    found: Ints = left * right
    if largest(left) * largest(right) > MOST:
        doubles = left.astype(np.float64) * right.astype(np.float64)
        _raise_at((np.abs(doubles - found) > _APART) | (found == np.iinfo(np.int64).min))
    return found


def repeated(copies: Ints) -> Ints:
    """Each index i, ``copies[i]`` times. Raises MultiplicityOverflow above 2^31 - 1 indices in total, since NumPy would
    allocate the wrapped sum of the copies."""
    if (count := total(copies)) > _ROWS:
        raise MultiplicityOverflow(
            f"{count} copies of rows would have to be laid out one by one; at most {_ROWS} can be", rows=count
        )
    return np.repeat(np.arange(len(copies), dtype=np.int64), copies)


def _fits(high: Ints, low: Ints, found: Ints) -> None:
    """Raise MultiplicityOverflow unless every exact sum ``high · 2^32 + low`` is within the limit."""
    carried = high + (low >> _BITS)
    _raise_at((carried < -_TOP) | (carried >= _TOP) | (found == np.iinfo(np.int64).min))


def _raise_at(wrong: npt.NDArray[np.bool_]) -> None:
    if wrong.any():
        raise MultiplicityOverflow(
            f"{int(np.count_nonzero(wrong))} row(s) would be there more than 2^63 - 1 times, which is as far as copies "
            "of a row are counted"
        )
