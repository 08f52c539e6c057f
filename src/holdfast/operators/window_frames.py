"""The places of rows in their partitions, and sums and extremes over the frames around them.

Representation: rows of several partitions, one partition after the other, each in order; a row is identified by its
place. A frame is a range of places [low, high) inside one partition. So frames are ranges of one vector, and no loop
over partitions is needed:

- a sum is the difference of two running totals. It is exact because the totals are integers (`digits`);
- the least or greatest value is found in two overlapping ranges whose length is a power of two. The tables of these
  ranges are made by doubling. Each table answers the frames that need its length, then the next replaces it.

Cost: O(rows) per digit column of a sum; O(rows · log longest frame) for an extreme.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from holdfast.operators.numbers.digits import SAFE, Bools, Digits, Ints, Words, balance, largest
from holdfast.trace.search import lower_bound, upper_bound


@dataclass(frozen=True)
class Frame:
    """The rows around a row that a window function sees, from ``start`` to ``end``. None: up to the partition's end.

    If ``rows``, both are places relative to the row (-1 is the row before it). Otherwise they are 0, and mean the first
    and the last peer of the row. Peers are rows with equal order columns.
    """

    rows: bool
    start: int | None
    end: int | None


@dataclass(frozen=True)
class Places:
    """For each row, the places of its partition [start, end) and of its peers [peer, peer_end)."""

    start: Ints
    end: Ints
    peer: Ints
    peer_end: Ints

    @staticmethod
    def of(fresh_partition: Bools, fresh_peer: Bools) -> Places:
        """Build from two flags per row: whether it begins a partition, and whether it begins a run of peers."""
        return Places(*_runs(fresh_partition), *_runs(fresh_partition | fresh_peer))

    def __len__(self) -> int:
        return len(self.start)

    @property
    def here(self) -> Ints:
        return np.arange(len(self.start), dtype=np.int64)


def _runs(fresh: Bools) -> tuple[Ints, Ints]:
    """The run [start, end) of each row. ``fresh``: whether the row begins a run; the first row must."""
    starts = np.flatnonzero(fresh)
    sizes = np.diff(np.append(starts, len(fresh)))
    return np.repeat(starts, sizes), np.repeat(starts + sizes, sizes)


Ends = tuple[Ints | None, Ints | None]
"""The first place and the place after the last of each row's frame; None for an end that is not by value."""


def reached(prefix: Words, valid: Bools | None, places: Places, low: Words | None, high: Words | None) -> Ends:
    """The ends of frames by value. ``low`` and ``high`` are the outermost values of each frame, as order prefixes, and
    ``prefix`` those of the rows' own values. The frame of a row whose own value is NULL is its peers."""
    if valid is None:
        first, after = places.start, places.end
        valid = np.ones(len(prefix), np.bool_)
    else:
        # NULLs are at one end of the partition. They are excluded from the search: their prefix may equal a value's.
        before = np.concatenate(([0], np.cumsum(valid)))
        missing = (places.end - places.start) - (before[places.end] - before[places.start])
        at_front = ~valid[places.start]
        first = places.start + np.where(at_front, missing, 0)
        after = places.end - np.where(at_front, 0, missing)
    start = None if low is None else np.where(valid, lower_bound(prefix, first, after, low), places.peer)
    end = None if high is None else np.where(valid, upper_bound(prefix, first, after, high), places.peer_end)
    return start, end


def bounds(frame: Frame, places: Places, ends: Ends = (None, None)) -> tuple[Ints, Ints]:
    """The frame [low, high) of each row. ``ends`` that are not None replace those of ``frame``."""
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
    """The exact sum of the numbers in each range, as digits."""
    rows = max(map(len, digits.values()), default=0)  # there may be fewer ranges than numbers
    if max(map(largest, digits.values()), default=0) * rows >= SAFE:
        digits = balance(digits)
    return {q: totals(column, low, high) for q, column in digits.items()}


def extremes(keys: Ints, low: Ints, high: Ints, nothing: int, *, greatest: bool) -> Ints:
    """The least (``greatest``: the greatest) key in each range; ``nothing`` for an empty range."""
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
