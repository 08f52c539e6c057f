"""Aggregates of all values of a group: lists, sets, modes, percentiles, bits.

They use the same trace in order as min and max: a row per (key, value) with its multiplicity. They read all values of
the groups that an epoch touches; other groups are never read. Values are in Spark's order, so a list is sorted, and of
modes that tie the least value wins. So a result is a function of the bag of values alone, where Spark's result depends
on the order in which rows arrive. NULLs are not in the trace, since these aggregates ignore them.

Cost: O(n log n) in the number of different values of the touched groups, all vectorised.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from holdfast.operators.aggregates.calls import CallSpec
from holdfast.operators.aggregates.extremes import ExtremesChange, counted
from holdfast.operators.numbers.digits import Floats, Ints
from holdfast.operators.ordering import sort_rows
from holdfast.trace import exact, physical
from holdfast.trace.rows import Block, Layout, consolidate
from holdfast.trace.trace import Trace


@dataclass(frozen=True)
class Values:
    """The values of ``size`` groups, sorted by group and value, with their multiplicities before (``old``) and after
    (``new``) the epoch."""

    size: int
    places: Ints
    column: pa.Array
    old: Ints
    new: Ints


def gather(change: ExtremesChange, trace: Trace, layout: Layout) -> Values:
    """All values of the groups of a change, before and after it."""
    groups = change.groups
    candidates, block = trace.matching(groups.hashes)
    block = block.filter(groups.locate(block, candidates) >= 0)
    parts = [counted(change.layer, new_only=True), counted(block, new_only=False)]
    both = consolidate(Block.concat(parts), layout)
    places = groups.locate(both)
    order = sort_rows(places, [both.columns[-1]], ())
    old, new = both.add("+old")[order], both.add("+new")[order]
    return Values(len(groups), places[order], physical.take(both.columns[-1], order), old, new)


def evaluate(call: CallSpec, values: Values, counts: Ints) -> pa.Array:
    """The result of a call for every group. ``counts`` are the multiplicities of the values."""
    counts = np.clip(counts, 0, 1 if call.distinct or call.function == "collect_set" else None)
    kept = np.flatnonzero(counts)
    places, counts, column = values.places[kept], counts[kept], physical.take(values.column, kept)
    if call.function in ("collect_list", "collect_set"):
        elements = physical.take(column, exact.repeated(counts))
        offsets = pa.array(np.concatenate(([0], np.cumsum(exact.sums_at(places, counts, values.size)))), pa.int32())
        return pa.ListArray.from_arrays(offsets, elements.cast(call.result_type.value_type), type=call.result_type)
    starts = np.flatnonzero(np.diff(places, prepend=-1))
    if not len(starts):
        return pa.nulls(values.size, call.result_type)
    if call.function == "mode":
        found = physical.take(column, _modes(counts, starts, greatest="greatest" in call.parameters))
    elif call.function == "percentile_disc":
        found = physical.take(column, _places(counts, starts, float(call.parameters[0]), "desc" in call.parameters))
    elif call.function == "percentile":
        descending = "desc" in call.parameters
        found = pa.array(_percentiles(column, counts, starts, float(call.parameters[0]), descending))
    else:
        found = pa.array(_bits(call.function, column, counts, starts))
    index = np.full(values.size, -1, dtype=np.int64)
    index[places[starts]] = np.arange(len(starts))
    return found.take(pa.array(index, mask=index < 0)).cast(call.result_type)


def _modes(counts: Ints, starts: Ints, greatest: bool) -> Ints:
    """The row of the most frequent value of each group. Of values that tie, the first or (``greatest``) the last."""
    lengths = np.diff(starts, append=len(counts))
    most = np.flatnonzero(counts == np.repeat(np.maximum.reduceat(counts, starts), lengths))
    places = np.searchsorted(most, starts + lengths) - 1 if greatest else np.searchsorted(most, starts)
    return most[places]


def _places(counts: Ints, starts: Ints, percentage: float, descending: bool) -> Ints:
    """For each group, the row of the first value in order such that a share ``percentage`` of the group's values does
    not come after it."""
    running = exact.running(counts)
    before, total = running[starts] - counts[starts], exact.sums(counts, starts)
    rank = np.clip(np.ceil(total * percentage).astype(np.int64), 1, total) - 1
    found: Ints = np.searchsorted(running, before + (total - 1 - rank if descending else rank), side="right")
    return found


def _percentiles(column: pa.Array, counts: Ints, starts: Ints, percentage: float, descending: bool) -> Floats:
    """Percentiles, interpolated as in Spark: between the two values around place (n - 1) · p in the order of the
    call."""
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.string())  # Arrow's cast from decimal to double does not give the nearest double
    doubles = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    running = exact.running(counts)
    before, last = running[starts] - counts[starts], exact.sums(counts, starts) - 1
    position = last * percentage
    low, high = np.floor(position), np.ceil(position)
    ranks = [np.where(descending, last - each, each).astype(np.int64) for each in (low, high)]
    one, other = (doubles[np.searchsorted(running, before + rank, side="right")] for rank in ranks)
    with np.errstate(invalid="ignore", over="ignore"):
        between = one + (other - one) * (position - low)
    found: Floats = np.where((low == high) | (one == other), one, between)
    return found


def _bits(function: str, column: pa.Array, counts: Ints, starts: Ints) -> Ints:
    integers = physical.fixed(column).astype(np.int64)
    if function == "bit_xor":
        # An even number of copies cancels out.
        integers = np.where(counts % 2 == 1, integers, 0)
    combine = {"bit_and": np.bitwise_and, "bit_or": np.bitwise_or, "bit_xor": np.bitwise_xor}[function]
    found: Ints = combine.reduceat(integers, starts)
    return found
