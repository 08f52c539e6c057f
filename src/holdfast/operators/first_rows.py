"""The first rows of each hash after a change, found without the rest.

The trace is in order: the front of a hash is the front of its run (``Trace.first``). Let *bound* be the greatest prefix
among the rows read. Those rows and the changes up to *bound* are all there is up to *bound*; if that makes ``count``
rows, they are the front. If not (the change took rows from the front away) more are read, fourfold each time, for these
hashes only. Where several keys share a hash its front is not the front of each key, and all of its rows are read.

Multiplicities before the epoch are taken to be ≥ 0: sources are checked.

Cost: O(change · log change + front), where *front* counts ties of the border's prefix and rows taken away in front.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from holdfast.trace import exact, physical
from holdfast.trace.hashing import normalise_keys
from holdfast.trace.physical import Bools, Ints, Words
from holdfast.trace.rows import Block, consolidate, equal_rows
from holdfast.trace.trace import Trace

_MOST = np.uint64((1 << 64) - 1)


def front(delta: Block, trace: Trace, count: int) -> Block:
    """The rows of all hashes in the change that were, or are now, among the first ``count``, and all before the last of
    them, and those that tie with it: how often they were there (``+old``) and are now (``+new``).

    Of a hash that several keys share, all rows.
    """
    found = [together(delta.slice(0, 0), delta.slice(0, 0), trace)]
    pending = np.unique(delta.hash)
    wanted = count
    while len(pending):
        index, before = trace.first(pending, count)
        mine = delta.filter(np.isin(delta.hash, pending))
        if (mixed := _shared(before, mine, trace.layout.key)) is not None:
            found.append(together(trace.matching(mixed)[1], mine.filter(np.isin(mine.hash, mixed)), trace))
            pending = pending[~np.isin(pending, mixed)]
            continue
        read = exact.sums_at(index, np.minimum(before.diff, min(count, exact.MOST)), len(pending))
        bound = np.full(len(pending), _MOST)  # all of the bucket has been read
        cut = read >= count
        if cut.any():
            assert before.sub is not None
            highest = np.zeros(len(pending), np.uint64)
            np.maximum.at(highest, index, before.sub)
            bound[cut] = highest[cut]
        assert mine.sub is not None
        mine = mine.filter(mine.sub <= bound[np.searchsorted(pending, mine.hash)])
        both = together(before, mine, trace)
        bucket = np.searchsorted(pending, both.hash)
        now = np.clip(both.add("+new"), 0, wanted)
        enough = ~cut | (exact.sums_at(bucket, now, len(pending)) >= wanted)
        found.append(both.filter(enough[bucket] & _near(wanted, both, bucket)))
        pending = pending[~enough]
        count = min(4 * count, exact.MOST + 1)  # more than any bucket has
    return Block.concat(found)


def together(before: Block, delta: Block, trace: Trace) -> Block:
    """Rows as of the epoch before and its change, as one: how often each row was there and is now."""
    nothing = np.zeros(delta.rows, np.int64)
    was = _marked(before, trace, before.diff, before.diff)
    return consolidate(Block.concat([was, _marked(delta, trace, nothing, delta.diff)]), trace.layout)


def _marked(block: Block, trace: Trace, old: Ints, new: Ints) -> Block:
    return replace(block.at(trace.as_of), adds={"+old": old, "+new": new})


def _shared(before: Block, delta: Block, key: int) -> Words | None:
    """The hashes under which there are several keys; None if there are none."""
    both = Block.concat([before, delta])
    if not key or both.rows < 2:
        return None
    order = np.argsort(both.hash, kind="stable")
    hashes = both.hash[order]
    at = np.flatnonzero(hashes[1:] == hashes[:-1])
    keys = [normalise_keys(column) for column in both.columns[:key]]
    same = equal_rows(physical.take_all(keys, order[at]), physical.take_all(keys, order[at + 1]))
    return None if same.all() else np.unique(hashes[at[~same]])


def _near(wanted: int, block: Block, bucket: Ints) -> Bools:
    """Which rows (sorted by hash and prefix) can be among the first ``count`` of their bucket, before or now: those up
    to the prefix with which the count is reached. It spares ordering the rest exactly."""
    near = np.zeros(block.rows, np.bool_)
    if not block.rows or block.sub is None:
        return near
    starts = np.flatnonzero(np.concatenate(([True], bucket[1:] != bucket[:-1])))
    group = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, block.rows)))
    for name in ("+old", "+new"):
        copies = np.clip(block.add(name), 0, wanted)
        passed = np.cumsum(copies) - copies
        passed = passed - passed[starts][group]
        edge = np.maximum.reduceat(np.where((passed < wanted) & (copies > 0), block.sub, np.uint64(0)), starts)
        near |= block.sub <= edge[group]
    return near
