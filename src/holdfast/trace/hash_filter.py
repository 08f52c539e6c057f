"""Bloom filters over the hashes of a trace: they say which keys are surely not in it, without a look at its layers.

A `HashFilter` is *m* bits. A hash sets *k* of them; a hash of which one is not set was never added. Of hashes that were
never added a share answers "maybe": with *n* hashes it is (1 - e^(-kn/m))^k, and *m* and *k* are chosen so that it is
the wanted rate when the filter is full. Cost: k words per hash, in a loop of k vectorised steps.

A `PeriodFilters` holds those of one trace and hash range, one filter per *period*: rows say in their last column until
when they stay, and when that moment is over the whole filter is dropped. It is derived from the trace and kept in the
memory of the process alone. Invariant: it covers the trace as of one epoch of one history, which it knows by its
digest; what was written since is added before it is asked, and a filter of another history is made anew. It may hold
more than the trace (rows of an epoch that failed, rows that cancelled): that costs a look-up, and never an answer.
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
"""A filter has room for at least so many hashes."""

_KEPT = 64
"""So many traces' filters a process keeps."""

_CHUNK = 1 << 20

_FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)


class HashFilter:
    """A set of 64-bit hashes that is never wrong about one it does not have."""

    def __init__(self, capacity: int, rate: float) -> None:
        """``rate``: the share of unknown hashes that are taken for known when ``capacity`` hashes are in it."""
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
        """The share of unknown hashes that it takes for known, by its arithmetic."""
        return (1 - math.exp(-self.probes * self.count / self.bits)) ** self.probes

    def add(self, hashes: Words) -> None:
        """Add hashes. One that is added twice counts twice."""
        self.count += len(hashes)
        for start in range(0, len(hashes), _CHUNK):
            for word, bit in self._places(hashes[start : start + _CHUNK]):
                _set(self._words, word, bit)

    def contains(self, hashes: Words) -> Bools:
        """Whether each hash may have been added; False: it was not."""
        found = np.ones(len(hashes), np.bool_)
        for start in range(0, len(hashes), _CHUNK):
            part = found[start : start + _CHUNK]
            for word, bit in self._places(hashes[start : start + _CHUNK]):
                part &= (self._words[word] & bit) != 0
        return found

    def _places(self, hashes: Words) -> list[tuple[npt.NDArray[np.intp], Words]]:
        """For each probe, the word and the bit of each hash. Mixed first: those of a partition share their high
        bits."""
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
    """Set bits. Of several in one word an assignment keeps the last, so those that are not set yet are tried again."""
    while len(word):
        words[word] |= bit
        lost = (words[word] & bit) == 0
        word, bit = word[lost], bit[lost]


@dataclass
class PeriodFilters:
    """The filters of one trace in one hash range: the last column of a row says in which it is."""

    rate: float
    periods: dict[int, HashFilter] = field(default_factory=dict)
    covers: int = -1
    digest: str = ""

    @property
    def count(self) -> int:
        return sum(each.count for each in self.periods.values())

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.periods.values())

    def contains(self, hashes: Words) -> Bools:
        """Whether each hash may be in the trace; False: it is not."""
        found = np.zeros(len(hashes), np.bool_)
        for each in self.periods.values():
            left = np.flatnonzero(~found)
            found[left] = each.contains(hashes[left])
        return found

    def drop(self, upto: int) -> None:
        """Forget the periods that are over."""
        for period in [each for each in self.periods if each <= upto]:
            del self.periods[period]

    def add(self, rows: Block) -> bool:
        """Add rows of the trace. False: a filter is too small for them now, and must be made anew."""
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
    """Filters that cover a trace as of its epoch: those that this process has, with what was written since, or new
    ones."""
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
    """Lose all filters of this process, as a process does that dies."""
    with _lock:
        _filters.clear()


def _is_past(known: PeriodFilters, trace: Trace) -> bool:
    """Whether the filters are of this history, and not of a later epoch of it."""
    return known.covers <= trace.as_of and trace.chain.digest(known.covers) == known.digest


def _caught_up(known: PeriodFilters, trace: Trace) -> bool:
    for piece in trace.slices:
        if piece.layer.name.last > known.covers:
            # Compaction moves a row to a later epoch, never to an earlier one: none that is new is missed.
            block = piece.block()
            if not known.add(block.filter(block.epoch > known.covers)):
                return False
    return True


def _made(trace: Trace, rate: float) -> PeriodFilters:
    made = PeriodFilters(rate)
    blocks = [piece.block() for piece in trace.slices]
    made.add(Block.concat(blocks)) if blocks else None
    return made
