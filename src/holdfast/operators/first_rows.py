"""The first rows of each hash after a change, found without reading the other rows.

The trace is in order: the first rows of a hash are at the front of its run (``Trace.first``). Let *bound* be the
greatest prefix among the rows read. The rows read and the changes up to *bound* are all rows up to *bound*; if these
are at least ``count`` rows, they contain the first ``count``. If not (the change removed rows from the front), more
rows are read, fourfold each time, for these hashes only. Where several keys share a hash, its first rows are not the
first rows of each key, so all of its rows are read.

Multiplicities before the epoch are assumed to be ≥ 0: sources check that.

Cost: O(change · log change + front), where *front* is the number of rows read: also rows that tie with the border's
prefix, and removed rows before the border.
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
    """The rows that are among the first ``count`` of their hash, before or after the change, with their multiplicity
    before (``+old``) and after (``+new``).

    Only hashes in the change are considered. The result also has the rows that tie with the last of the first rows. If
    several keys share a hash, it has all rows of that hash.
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
        bound = np.full(len(pending), _MOST)  # the default: all rows of the hash have been read
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
        count = min(4 * count, exact.MOST + 1)  # no hash has as many rows as that bound
    return Block.concat(found)


def together(before: Block, delta: Block, trace: Trace) -> Block:
    """Rows as of the epoch before, and a change, as one block: each row's multiplicity before (``+old``) and after
    (``+new``)."""
    nothing = np.zeros(delta.rows, np.int64)
    was = _marked(before, trace, before.diff, before.diff)
    return consolidate(Block.concat([was, _marked(delta, trace, nothing, delta.diff)]), trace.layout)


def _marked(block: Block, trace: Trace, old: Ints, new: Ints) -> Block:
    return replace(block.at(trace.as_of), adds={"+old": old, "+new": new})


def _shared(before: Block, delta: Block, key: int) -> Words | None:
    """The hashes that several keys share; None if there are none."""
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
    """Whether each row (sorted by hash and prefix) can be among the first ``wanted`` of its bucket, before or after the
    change: whether its prefix is at most the prefix at which the count is reached. The caller need not order the other
    rows."""
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
