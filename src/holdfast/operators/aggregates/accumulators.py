"""The additive state of groups: counts and digits, as named int64 columns.

``Totals`` maps the names defined in `calls` to one int64 per group; a missing name is zero for every group. Partial
sums of batches are plain sums in any form; the stored totals are canonical. If T(e) are the canonical totals after
epoch e, the trace gets T(e) - T(e-1). So the rows of a key in any cover of the epochs up to e add up to T(e), which is
a function of the rows of the group alone, bit for bit, whatever the batches, partitions and merges were. (Additions
wrap around modulo 2^64, which does no harm, because every T(e) fits.)
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.operators.aggregates.calls import Accumulator, Grouping, accumulators
from holdfast.operators.numbers import sums
from holdfast.operators.numbers.digits import Bools, Digits, Ints, add, canonical, multiply, sum_groups
from holdfast.trace import exact, physical

Totals = dict[str, Ints]
Starts = npt.NDArray[np.intp]


def digits_of(totals: Totals, prefix: str) -> Digits:
    """The digits in the columns with this prefix."""
    return {int(name[len(prefix) :]): column for name, column in totals.items() if name.startswith(prefix)}


def named(digits: Digits, prefix: str) -> Totals:
    """Digits as columns with this prefix."""
    return {f"{prefix}{q}": column for q, column in digits.items()}


def partial_sums(spec: Grouping, columns: Mapping[int, pa.Array], diff: Ints, starts: Starts) -> Totals:
    """The totals that rows add to their groups. Rows of a group are adjacent; groups begin at ``starts``.

    Digit column 0 is there even if it is zero, so that most batches have the same columns.
    """
    # Usually every row has diff 1; then no weights are needed.
    weights = None if (diff == 1).all() else diff
    totals: Totals = {"+diff": _lengths(starts, len(diff)) if weights is None else _reduce(diff, starts)}
    for accumulator in (each for each in accumulators(spec) if not each.distinct):
        if accumulator.sums:
            encoded = sums.encode(columns[accumulator.arguments[0]])
            valid = encoded.valid
            totals |= _sums(accumulator, encoded, _powers(accumulator, encoded), diff, weights, starts)
        else:
            valid = all_valid([columns[index] for index in accumulator.arguments])
            if accumulator.pair:
                encoded, products = _products([columns[index] for index in accumulator.arguments], valid)
                totals |= _sums(accumulator, encoded, products, diff, weights, starts)
        if valid is not None:
            totals[accumulator.nulls] = _reduce(np.where(valid, 0, diff), starts)
    return totals


def distinct_sums(accumulator: Accumulator, values: pa.Array, gains: Ints, places: Ints, size: int) -> Totals:
    """The totals that distinct values add to the ``size`` groups. ``gains``: +1 for a value that becomes present in its
    group (``places``), -1 for a value that becomes absent."""
    order = np.argsort(places, kind="stable")
    places, gains = places[order], gains[order]
    starts = np.flatnonzero(np.concatenate(([True], places[1:] != places[:-1]))) if len(places) else order
    found = {f"+{accumulator.state}": _reduce(gains, starts)}
    if accumulator.sums:
        encoded = sums.encode(physical.take(values, order))
        found |= _sums(accumulator, encoded, _powers(accumulator, encoded), gains, gains, starts)
    totals = {name: np.zeros(size, dtype=np.int64) for name in found}
    for name, column in found.items():
        totals[name][places[starts]] = column
    return totals


def _powers(accumulator: Accumulator, encoded: sums.Encoded) -> list[Digits]:
    """The numbers and their powers, as far as the accumulator sums them."""
    powers = [encoded.digits]
    if accumulator.squares:
        powers.append(sums.squares(encoded))
    if accumulator.higher:
        powers += [multiply(powers[1], powers[0]), multiply(powers[1], powers[1])]
    return powers


def _products(columns: list[pa.Array], valid: Bools | None) -> tuple[sums.Encoded, list[Digits]]:
    """A pair of columns and their products. Rows in which one of the two is NULL are zero in all three."""
    one, other = (sums.encode(column) for column in columns)
    left, right = one.digits, other.digits
    special = [mask for each in (one, other) for mask in each.specials.values()]
    if valid is not None:
        left, right = ({q: np.where(valid, column, 0) for q, column in side.items()} for side in (left, right))
        special = [mask & valid for mask in special]
    specials = {"nan": np.logical_or.reduce(special)} if special else {}
    return sums.Encoded(left, valid, specials), [left, right, multiply(left, right)]


def _sums(
    accumulator: Accumulator,
    encoded: sums.Encoded,
    terms: list[Digits],
    diff: Ints,
    weights: Ints | None,
    starts: Starts,
) -> Totals:
    """The sums of the terms, and the counts of special doubles, of groups that begin at ``starts``. Without ``weights``
    every row counts once."""
    totals: Totals = {}
    for prefix, term in zip(accumulator.digits, terms, strict=True):
        digits = sum_groups(term, starts, weights)
        totals |= {f"{prefix}0": np.zeros(len(starts), dtype=np.int64)} | named(digits, prefix)
    for name, mask in encoded.specials.items():
        if mask.any():
            totals[f"+{accumulator.state}.{name}"] = _reduce(np.where(mask, diff, 0), starts)
    return totals


def all_valid(columns: list[pa.Array]) -> Bools | None:
    """Whether each row has no NULL in any of the columns; None if no row has a NULL."""
    masks = [mask for mask in map(physical.valid, columns) if mask is not None]
    return np.logical_and.reduce(masks) if masks else None


def combine(spec: Grouping, partial: Totals, starts: Starts) -> Totals:
    """Add up partial sums. Rows of a group are adjacent; groups begin at ``starts``."""
    prefixes = tuple(prefix for accumulator in accumulators(spec) for prefix in accumulator.digits)
    totals = {name: _reduce(column, starts) for name, column in partial.items() if not name.startswith(prefixes or "?")}
    for prefix in prefixes:
        totals |= named(sum_groups(digits_of(partial, prefix), starts), prefix)
    return totals


def advance(spec: Grouping, old: Totals, delta: Totals) -> tuple[Totals, Totals]:
    """Add ``delta`` to the canonical totals ``old``: the new canonical totals, and the change that the trace must
    get."""
    prefixes = tuple(prefix for accumulator in accumulators(spec) for prefix in accumulator.digits)
    counts = [name for name in {**old, **delta} if not name.startswith(prefixes or "?")]
    new = {name: _added(old.get(name), delta.get(name)) for name in counts}
    for prefix in prefixes:
        total = canonical(add(digits_of(old, prefix), digits_of(delta, prefix)))
        new |= named(total, prefix)
    change: Totals = {}
    for name in {**old, **new}:
        step = new[name] - old[name] if name in new and name in old else new[name] if name in new else -old[name]
        if name == "+diff" or step.any():
            change[name] = step
    return new, change


def _added(old: Ints | None, delta: Ints | None) -> Ints:
    if old is None or delta is None:
        found = delta if old is None else old
        assert found is not None
        return found
    return exact.add(old, delta)


def specials_of(totals: Totals, accumulator: Accumulator) -> Totals:
    """Special double → how often it is in each group; only special doubles that occur."""
    names = {name: f"+{accumulator.state}.{name}" for name in sums.SPECIALS}
    return {name: totals[column] for name, column in names.items() if column in totals}


def count_of(totals: Totals, nulls: str) -> Ints:
    """The number of rows without NULL in each group. ``nulls``: the name of the column that counts rows with NULL."""
    rows = totals["+diff"]
    return rows - totals[nulls] if nulls in totals else rows


def counted(totals: Totals, accumulator: Accumulator) -> Ints:
    """The number of rows (or distinct values) of each group that are in an accumulator."""
    if accumulator.distinct:
        rows = totals["+diff"]
        return totals.get(f"+{accumulator.state}", np.zeros(len(rows), dtype=np.int64))
    return count_of(totals, accumulator.nulls)


def _lengths(starts: Starts, end: int) -> Ints:
    lengths = np.empty(len(starts), dtype=np.int64)
    lengths[:-1] = starts[1:]
    lengths[-1:] = end
    lengths -= starts
    return lengths


def _reduce(column: Ints, starts: Starts) -> Ints:
    return exact.sums(column, starts)
