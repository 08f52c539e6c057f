"""Sums and products of multiplicities that are exact, or raise.

A diff is an int64, and numpy wraps around without a word: 65,536 equal rows on each of four sides of a cross join are
2^64 equal rows, which is 0, which is no row. Everything that sums or multiplies diffs does it here. A result is within
±(2^63 - 1), so that its negation fits too, or it is a `MultiplicityOverflow`.

How it is seen, and what it costs: first from the greatest magnitude that occurs, times how many are summed, which is
one pass over the numbers (about 1 ns each, where sorting them takes a hundred). Only numbers near the limit are looked
at closely. A sum is taken of the upper and the lower 32 bits apart: neither half can overflow for fewer than 2^31
numbers, and together they are the exact sum. A product is compared with the one of doubles: one that wrapped is at
least 2^63 away from it.
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
"""So many copies of rows can be laid out one by one."""


def largest(values: Ints) -> int:
    """The greatest magnitude, 0 if there are no values."""
    return max(int(values.max()), -int(values.min())) if len(values) else 0


def sums(values: Ints, starts: npt.NDArray[np.integer]) -> Ints:
    """The sum of each run of values; runs begin at ``starts``, the first of them at 0."""
    if not len(starts):
        return np.zeros(0, np.int64)
    found = run_sums(values, starts)
    if largest(values) * len(values) > MOST:
        high = np.add.reduceat(values >> _BITS, starts)
        low = np.add.reduceat(values & _MASK, starts)
        _fits(high, low, found)
    return found


def sums_at(places: npt.NDArray[np.integer], values: Ints, size: int) -> Ints:
    """The sum of the values at each of ``size`` places."""
    found = np.zeros(size, np.int64)
    np.add.at(found, places, values)
    if largest(values) * len(values) > MOST:
        high, low = np.zeros(size, np.int64), np.zeros(size, np.int64)
        np.add.at(high, places, values >> _BITS)
        np.add.at(low, places, values & _MASK)
        _fits(high, low, found)
    return found


def running(values: Ints) -> Ints:
    """The sum of the values up to each, itself among them."""
    found: Ints = np.cumsum(values)
    if largest(values) * len(values) > MOST:
        _fits(np.cumsum(values >> _BITS), np.cumsum(values & _MASK), found)
    return found


def total(values: Ints) -> int:
    """The sum of all values, however large."""
    if largest(values) * len(values) <= MOST:
        return int(values.sum())
    return (int((values >> _BITS).sum()) << _BITS) + int((values & _MASK).sum())


def add(left: Ints, right: Ints) -> Ints:
    """left + right, pair by pair."""
    found: Ints = left + right
    if largest(left) + largest(right) > MOST:
        # A sum that wrapped has another sign than both of its parts.
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
    """Each index as often as ``copies`` says. Numpy takes the wrapped sum of the copies for how much room they need."""
    if (count := total(copies)) > _ROWS:
        raise MultiplicityOverflow(
            f"{count} copies of rows would have to be laid out one by one; at most {_ROWS} can be", rows=count
        )
    return np.repeat(np.arange(len(copies), dtype=np.int64), copies)


def _fits(high: Ints, low: Ints, found: Ints) -> None:
    carried = high + (low >> _BITS)
    _raise_at((carried < -_TOP) | (carried >= _TOP) | (found == np.iinfo(np.int64).min))


def _raise_at(wrong: npt.NDArray[np.bool_]) -> None:
    if wrong.any():
        raise MultiplicityOverflow(
            f"{int(np.count_nonzero(wrong))} row(s) would be there more than 2^63 - 1 times, which is as far as copies "
            "of a row are counted"
        )
