"""The first rows of a key, from a trace kept in order.

In every layer the rows of a hash are sorted by an order prefix (``sub``), so the first ``count`` rows lie at the fronts
of the hash's runs, unless later deletions cancelled them. ``first`` reads a window at the front of every run. The rows
in the windows below the least prefix outside any window are complete: consolidated, they are the true front of the
state. If they are ``count`` rows, they are the answer; otherwise the windows grow fourfold, only for the hashes that
lack rows. So the cost follows the count, the cancelled rows in front of it (tombstones) and the rows that tie, not the
size of the group.

Prefixes may tie; all rows that tie are returned, for the caller to order. Where two keys share a hash, the front of the
hash is not the front of each key. Layers record whether that happens inside them (``collided``); comparing the first
rows of the runs tells whether it happens between layers. Such hashes are read as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from holdfast.trace import exact, physical
from holdfast.trace.equality import equal_rows
from holdfast.trace.physical import Bools, Ints, Words
from holdfast.trace.rows import Block, Layout, consolidate
from holdfast.trace.search import Slice, hash_runs, lower_bound, upper_bound

_MOST = np.uint64((1 << 64) - 1)


def first(
    slices: Sequence[Slice], layout: Layout, as_of: int, hashes: Words, count: int, *, last: bool
) -> tuple[Ints, Block]:
    """The index of the hash per row, and the rows: see `Trace.first`."""
    if layout.sub != "order":
        raise ValueError(f"the first rows of a key need a trace in order, this one has {layout}")
    slices = [piece for piece in slices if piece.stop > piece.start] or list(slices[:1])
    if not slices:
        return np.zeros(0, np.int64), Block.empty(layout)
    left = np.zeros((len(slices), len(hashes)), np.int64)
    right = np.zeros_like(left)
    for i, piece in enumerate(slices):
        which, run_left, run_right = hash_runs(piece, hashes)
        left[i, which], right[i, which] = run_left, run_right
    shared = _shared(slices, layout, left, right)
    pending = np.flatnonzero((left < right).any(axis=0))
    window = min(max(8, count + count // 4), 1 << 40)  # in stored rows, each counted once
    found = []
    while len(pending):
        starts, stops, complete = _windows(slices, left[:, pending], right[:, pending], window, last, shared[pending])
        block = consolidate(_read(slices, starts, stops).at(as_of), layout)
        block = block.filter(block.diff > 0)
        index = np.searchsorted(hashes[pending], block.hash)
        total = exact.sums_at(index, np.minimum(block.diff, min(count, exact.MOST)), len(pending))
        done = complete | (total >= count)
        keep = done[index] & (shared[pending][index] | _within(index, block, count, last))
        found.append(block.filter(keep))
        pending = pending[~done]
        window *= 4
    block = Block.concat(found) if found else slices[0].layer.block(0, 0)
    index = np.searchsorted(hashes, block.hash)
    if len(found) > 1:
        order = np.argsort(index, kind="stable")
        index, block = index[order], block.take(order)
    return index, block


def _windows(
    slices: Sequence[Slice], left: Ints, right: Ints, window: int, last: bool, whole: Bools
) -> tuple[Ints, Ints, Bools]:
    """The rows [start, stop) to read of each run, and whether each hash is read to the end of all its runs.

    A window is cut back to the prefixes that are complete: those before every prefix outside a window."""
    if last:
        starts = np.where(whole, left, np.maximum(left, right - window))
        stops = right.copy()
        cut = starts > left
    else:
        starts = left.copy()
        stops = np.where(whole, right, np.minimum(right, left + window))
        cut = stops < right
    complete: Bools = np.logical_not(cut.any(axis=0))
    bound = np.full(left.shape[1], 0 if last else _MOST, np.uint64)
    for i, piece in enumerate(slices):
        at = np.flatnonzero(cut[i])
        sub = _sub(piece)
        if last:
            bound[at] = np.maximum(bound[at], sub[starts[i, at] - 1])
        else:
            bound[at] = np.minimum(bound[at], sub[stops[i, at]])
    partial = np.flatnonzero(~complete)
    for i, piece in enumerate(slices):
        if last:
            starts[i, partial] = upper_bound(_sub(piece), starts[i, partial], stops[i, partial], bound[partial])
        else:
            stops[i, partial] = lower_bound(_sub(piece), starts[i, partial], stops[i, partial], bound[partial])
    return starts, stops, complete


def _sub(piece: Slice) -> Words:
    assert piece.layer.sub is not None  # the layout was checked when the slice was opened
    return piece.layer.sub


def _read(slices: Sequence[Slice], starts: Ints, stops: Ints) -> Block:
    blocks = []
    for i, piece in enumerate(slices):
        rows = physical.ranges(starts[i], stops[i] - starts[i])
        live = piece.live(rows)
        blocks.append(piece.layer.take(rows if live is None else rows[live]))
    return Block.concat(blocks)


def _within(index: Ints, block: Block, count: int, last: bool) -> Bools:
    """Whether each row (sorted by hash and sub) is among the first (last) ``count`` rows of its hash, or ties with
    them."""
    if not block.rows or block.sub is None:
        return np.zeros(block.rows, np.bool_)
    diff = np.minimum(block.diff, min(count, exact.MOST))  # so that no sum overflows
    running = np.cumsum(diff)
    starts = np.flatnonzero(np.concatenate(([True], index[1:] != index[:-1])))
    ends = np.concatenate((starts[1:], [len(index)]))
    group = np.repeat(np.arange(len(starts)), ends - starts)
    if last:
        before = running[ends - 1][group] - running
        edges = np.maximum.reduceat(np.where(before < count, _MOST - block.sub, np.uint64(0)), starts)
        return _MOST - block.sub <= edges[group]
    before = running - diff - (running - diff)[starts][group]
    edges = np.maximum.reduceat(np.where(before < count, block.sub, np.uint64(0)), starts)
    return block.sub <= edges[group]


def _shared(slices: Sequence[Slice], layout: Layout, left: Ints, right: Ints) -> Bools:
    """Whether each hash may belong to several keys."""
    shared = np.zeros(left.shape[1], np.bool_)
    if layout.key == 0:
        return shared
    seen = np.full(left.shape[1], -1, np.int64)  # the first slice that has the hash
    for i, piece in enumerate(slices):
        here = left[i] < right[i]
        if piece.layer.collided:
            shared |= here
        for j in range(i):
            both = np.flatnonzero(here & (seen == j))
            heads = physical.take_all(piece.layer.columns[: layout.key], left[i, both])
            others = physical.take_all(slices[j].layer.columns[: layout.key], left[j, both])
            shared[both[~equal_rows(heads, others)]] = True
        seen[here & (seen < 0)] = i
    return shared
