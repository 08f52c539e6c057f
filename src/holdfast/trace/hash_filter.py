"""Bloom filters over the hashes of a trace: they tell which keys are certainly not in it, without reading its layers.

A `HashFilter` is *m* bits. Each hash sets *k* bits; a hash with a bit that is not set was never added. For some hashes
that were never added the answer is "maybe": with *n* hashes in the filter, their share is (1 - e^(-kn/m))^k. *m* and
*k* are chosen so that this share is the wanted rate when the filter is full. Cost: k words per hash, in a loop of k
vectorised steps.

A `PeriodFilters` holds the filters of one trace in one hash range, one filter per *period*. The last column of a row
says until when the row stays; the rows that leave together are one period, and their filter is dropped with them. The
filters are derived from the trace and kept only in the memory of the process. Invariant: they cover the trace as of one
epoch of one history, identified by the epoch's digest. Rows written since are added before a filter is used; filters of
another history are built again. Filters may hold more hashes than the trace (rows of a failed epoch, rows that
cancelled): that may cost a look-up, but never gives a wrong answer.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from holdfast.trace import physical
from holdfast.trace.physical import Bools, Words
from holdfast.trace.rows import Block
from holdfast.trace.trace import Trace

_LEAST = 4096
"""The least capacity of a filter, in hashes."""

_KEPT = 64
"""The number of `PeriodFilters` that a process keeps: the last ones used."""

_CHUNK = 1 << 20

_FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)


class HashFilter:
    """A Bloom filter: an approximate set of 64-bit hashes. If it says that a hash was not added, that is true."""

    def __init__(self, capacity: int, rate: float) -> None:
        """``rate``: the share of false positives (0 to 1) when ``capacity`` hashes are in the filter."""
        self.capacity = capacity
        self.bits = max(64, math.ceil(-capacity * math.log(rate) / math.log(2) ** 2))
        self.probes = max(1, round(self.bits / capacity * math.log(2)))
        self.count = 0
        self._words = np.zeros(-(-self.bits // 64), np.uint64)

    @property
    def bytes(self) -> int:
        return self._words.nbytes

    @property
    def expected_rate(self) -> float:
        """The expected share of false positives (0 to 1) with the hashes that are in the filter now."""
        return (1 - math.exp(-self.probes * self.count / self.bits)) ** self.probes

    def add(self, hashes: Words) -> None:
        """Add hashes. A hash that is added twice counts twice towards the capacity."""
        self.count += len(hashes)
        for start in range(0, len(hashes), _CHUNK):
            for word, bit in self._places(hashes[start : start + _CHUNK]):
                _set(self._words, word, bit)

    def contains(self, hashes: Words) -> Bools:
        """Whether each hash may have been added; False means that it was not."""
        found = np.ones(len(hashes), np.bool_)
        for start in range(0, len(hashes), _CHUNK):
            part = found[start : start + _CHUNK]
            for word, bit in self._places(hashes[start : start + _CHUNK]):
                part &= (self._words[word] & bit) != 0
        return found

    def _places(self, hashes: Words) -> list[tuple[npt.NDArray[np.intp], Words]]:
        """For each probe, the word and the bit of each hash. Hashes are mixed first: the hashes of a partition share
        their high bits."""
        place = _mixed(hashes, _FIRST)
        step = _mixed(hashes, _SECOND) | np.uint64(1)
        bits = np.uint64(self.bits)
        found = []
        for _ in range(self.probes):
            at = ((place >> np.uint64(32)) * bits) >> np.uint64(32)
            found.append(((at >> np.uint64(6)).astype(np.intp), np.uint64(1) << (at & np.uint64(63))))
            place = place + step
        return found


def _mixed(hashes: Words, salt: np.uint64) -> Words:
    mixed = hashes ^ salt
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    found: Words = mixed ^ (mixed >> np.uint64(31))
    return found


def _set(words: Words, word: npt.NDArray[np.intp], bit: Words) -> None:
    """Set bits. Of several bits in one word, NumPy's assignment keeps only the last; the lost bits are set again."""
    while len(word):
        words[word] |= bit
        lost = (words[word] & bit) == 0
        word, bit = word[lost], bit[lost]


@dataclass
class PeriodFilters:
    """The filters of one trace in one hash range. The last column of a row is its period."""

    rate: float
    """The wanted share of false positives of each filter (0 to 1)."""

    periods: dict[int, HashFilter] = field(default_factory=dict)
    covers: int = -1
    """The epoch up to which the trace's rows are in the filters."""

    digest: str = ""
    """The digest of the epoch `covers`."""

    @property
    def count(self) -> int:
        return sum(each.count for each in self.periods.values())

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.periods.values())

    def contains(self, hashes: Words) -> Bools:
        """Whether each hash may be in the trace; False means that it is not."""
        found = np.zeros(len(hashes), np.bool_)
        for each in self.periods.values():
            left = np.flatnonzero(~found)
            found[left] = each.contains(hashes[left])
        return found

    def drop(self, upto: int) -> None:
        """Forget the periods ≤ ``upto``: they are over."""
        for period in [each for each in self.periods if each <= upto]:
            del self.periods[period]

    def add(self, rows: Block) -> bool:
        """Add rows of the trace. False if a filter is too small for them: then the filters must be built again."""
        if not rows.rows:
            return True
        ends = physical.fixed(rows.columns[-1]).astype(np.int64, copy=False)
        for period in np.unique(ends).tolist():
            mine = rows.hash[ends == period]
            known = self.periods.get(period)
            if known is None:
                known = self.periods[period] = HashFilter(max(_LEAST, 2 * len(mine)), self.rate)
            elif known.count + len(mine) > known.capacity:
                return False
            known.add(mine)
        return True


_filters: OrderedDict[tuple[str, int, int], PeriodFilters] = OrderedDict()
_lock = threading.Lock()


def filters_of(trace: Trace, rate: float) -> PeriodFilters:
    """Return filters that cover a trace as of its epoch.

    The filters that this process has are used after adding the rows written since; if that fails, new ones are
    built."""
    key = (str(trace.directory), trace.low, trace.high)
    digest = trace.chain.digest(trace.as_of)
    with _lock:
        known = _filters.pop(key, None)
    if known is None or known.rate != rate or not _is_past(known, trace) or not _caught_up(known, trace):
        known = _made(trace, rate)
    if digest is not None:
        known.covers, known.digest = trace.as_of, digest
        with _lock:
            _filters[key] = known
            while len(_filters) > _KEPT:
                _filters.popitem(last=False)
    return known


def forget_filters() -> None:
    """Forget all filters of this process, as if it had died."""
    with _lock:
        _filters.clear()


def _is_past(known: PeriodFilters, trace: Trace) -> bool:
    """Whether the filters are of this trace's history, and of no later epoch."""
    return known.covers <= trace.as_of and trace.chain.digest(known.covers) == known.digest


def _caught_up(known: PeriodFilters, trace: Trace) -> bool:
    for piece in trace.slices:
        if piece.layer.name.last > known.covers:
            # Compaction moves a row to a later epoch, never to an earlier one, so no new row is missed.
            block = piece.block()
            if not known.add(block.filter(block.epoch > known.covers)):
                return False
    return True


def _made(trace: Trace, rate: float) -> PeriodFilters:
    made = PeriodFilters(rate)
    blocks = [piece.block() for piece in trace.slices]
    made.add(Block.concat(blocks)) if blocks else None
    return made
