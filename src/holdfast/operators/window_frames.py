"""Where rows stand in their partitions, and what the frames around them hold.

Representation: rows of several partitions, one partition after the other, each in order; a row is its place. A frame is
a range of places [low, high), inside one partition. So a question about frames is a question about ranges of one
vector, and partitions need no loop:

- sums are differences of running totals, exact because they are integers (`digits`), whatever stands in between;
- the least or greatest is found in two overlapping ranges whose length is a power of two. Their tables are made by
  doubling, and each answers the frames of its length before the next replaces it.

Cost: O(rows) per digit column of a sum; O(rows · log longest frame) for an extreme.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from holdfast.operators.numbers.digits import SAFE, Bools, Digits, Ints, Words, balance, largest
from holdfast.trace.search import lower_bound, upper_bound


@dataclass(frozen=True)
class Frame:
    """The rows around a row that a window function sees, from ``start`` to ``end``: None is the partition's own end.

    By ``rows`` they are places relative to the row (-1 is the one before it); otherwise they are 0, and mean the first
    and the last of the row's peers, those that the order does not tell apart.
    """

    rows: bool
    start: int | None
    end: int | None


@dataclass(frozen=True)
class Places:
    """For each row: its partition [start, end), and its peers [peer, peer_end), which the order does not tell apart."""

    start: Ints
    end: Ints
    peer: Ints
    peer_end: Ints

    @staticmethod
    def of(fresh_partition: Bools, fresh_peer: Bools) -> Places:
        """From which rows begin a partition, and which begin a run of peers."""
        return Places(*_runs(fresh_partition), *_runs(fresh_partition | fresh_peer))

    def __len__(self) -> int:
        return len(self.start)

    @property
    def here(self) -> Ints:
        return np.arange(len(self.start), dtype=np.int64)


def _runs(fresh: Bools) -> tuple[Ints, Ints]:
    """The run of each row, given which rows begin one (the first must)."""
    starts = np.flatnonzero(fresh)
    sizes = np.diff(np.append(starts, len(fresh)))
    return np.repeat(starts, sizes), np.repeat(starts + sizes, sizes)


Ends = tuple[Ints | None, Ints | None]
"""Where frames start and end, as far as values of the order say it."""


def reached(prefix: Words, valid: Bools | None, places: Places, low: Words | None, high: Words | None) -> Ends:
    """Where frames start and end that reach from one value of the order to another: ``low`` and ``high``, as prefixes,
    like those of the rows' own values. A row without a value reaches its peers."""
    if valid is None:
        first, after = places.start, places.end
        valid = np.ones(len(prefix), np.bool_)
    else:
        # NULLs stand at one end of the partition; prefixes of values must not be taken for theirs.
        before = np.concatenate(([0], np.cumsum(valid)))
        missing = (places.end - places.start) - (before[places.end] - before[places.start])
        at_front = ~valid[places.start]
        first = places.start + np.where(at_front, missing, 0)
        after = places.end - np.where(at_front, 0, missing)
    start = None if low is None else np.where(valid, lower_bound(prefix, first, after, low), places.peer)
    end = None if high is None else np.where(valid, upper_bound(prefix, first, after, high), places.peer_end)
    return start, end


def bounds(frame: Frame, places: Places, ends: Ends = (None, None)) -> tuple[Ints, Ints]:
    """The frame [low, high) of each row; ``ends`` go before what the frame says."""
    low, high = places.start, places.end
    if frame.start is not None:
        low = np.clip(places.here + frame.start, places.start, places.end) if frame.rows else places.peer
    if frame.end is not None:
        high = np.clip(places.here + frame.end + 1, places.start, places.end) if frame.rows else places.peer_end
    low, high = low if ends[0] is None else ends[0], high if ends[1] is None else ends[1]
    return low, np.maximum(low, high)


def totals(values: Ints | Bools, low: Ints, high: Ints) -> Ints:
    """The sum of the values in each range."""
    running = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=running[1:])
    found: Ints = running[high] - running[low]
    return found


def exact_totals(digits: Digits, low: Ints, high: Ints) -> Digits:
    """The exact sum of the numbers in each range."""
    if max(map(largest, digits.values()), default=0) * max(len(low), 1) >= SAFE:
        digits = balance(digits)
    return {q: totals(column, low, high) for q, column in digits.items()}


def extremes(keys: Ints, low: Ints, high: Ints, nothing: int, *, greatest: bool) -> Ints:
    """The least (``greatest``: the greatest) key in each range; ``nothing`` of an empty one."""
    combine = np.maximum if greatest else np.minimum
    found = np.full(len(low), nothing, np.int64)
    level = np.frexp((high - low).astype(np.float64))[1] - 1  # the power of two that fits
    level[high <= low] = -1
    table, width = keys, 1
    for power in range(int(level.max(initial=-1)) + 1):
        rows = np.flatnonzero(level == power)
        found[rows] = combine(table[low[rows]], table[high[rows] - width])
        table = combine(table[:-width], table[width:])
        width *= 2
    return found
