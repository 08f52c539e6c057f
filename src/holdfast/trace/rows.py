"""Rows of a trace in memory, and how they become canonical.

A row is (hash, sub, columns, epoch, additive integers). ``hash`` is the hash of the key: the first ``Layout.key``
columns. ``sub`` orders the rows of one hash. It is absent, a hash of the columns after the key, or an order prefix.
Additive columns are named ``+…``; an absent additive column is zero in every row.

Canonical (``consolidate``): sorted by (hash, sub, row, epoch), no (row, epoch) twice, no row whose additive columns are
all zero. Here *row* is an order that only breaks ties: by a hash of all columns, and where different rows have equal
hashes, by ``content_ranks``. So the canonical form of a bag of rows is one sequence, whatever the order and the pieces
in which the rows came. Sums are integer additions (`exact`), so merging is associative, bit for bit.

Cost: one sort of 64-bit keys, O(n log n). Rows are compared only where hash and sub are equal, and hashed or ranked
only where the comparison finds a collision. Input that is sorted already is not sorted again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.trace import exact, physical
from holdfast.trace.equality import content_ranks, equal_rows
from holdfast.trace.hashing import hash_columns
from holdfast.trace.inner_loops import argsort, gather
from holdfast.trace.physical import AnyArray, Bools, Ints, Words

__all__ = ["Block", "Layout", "consolidate", "equal_rows", "group_rows", "sub_hash"]

Order = npt.NDArray[np.intp]
"""A permutation of rows."""

_FEW_RUNS = 32
"""Input of at most this many sorted runs is merged by NumPy's stable sort instead of sorted from the start."""
_SHORT = 32
"""Runs (rows of one hash) of at most so many rows, on average, are sorted faster by NumPy's stable sort."""


@dataclass(frozen=True)
class Layout:
    """The shape of a trace's rows: ``width`` data columns, of which the first ``key`` are hashed into ``_hash``."""

    width: int
    key: int
    sub: Literal["none", "hash", "order"] = "none"


@dataclass(frozen=True, eq=False)
class Block:
    """Rows in memory, as columns. Columns of a block without rows may have type null: a trace without layers does not
    know its types."""

    hash: Words
    sub: Words | None
    columns: tuple[pa.Array, ...]
    epoch: Ints
    adds: dict[str, Ints]

    def __post_init__(self) -> None:
        if any(isinstance(column, pa.ChunkedArray) for column in self.columns):
            object.__setattr__(self, "columns", tuple(physical.plain(column) for column in self.columns))

    @property
    def rows(self) -> int:
        return len(self.hash)

    def __len__(self) -> int:
        return len(self.hash)

    @property
    def diff(self) -> Ints:
        return self.add("+diff")

    def add(self, name: str) -> Ints:
        """An additive column; zeros if the block does not have it."""
        found = self.adds.get(name)
        return np.zeros(len(self.hash), np.int64) if found is None else found

    def at(self, epoch: int) -> Block:
        """The same rows, all at one epoch."""
        return replace(self, epoch=constant_epoch(epoch, len(self.hash)))

    def take(self, indices: npt.NDArray[np.integer]) -> Block:
        return Block(
            gather(self.hash, indices),
            None if self.sub is None else gather(self.sub, indices),
            physical.take_all(self.columns, indices),
            constant_epoch(int(self.epoch[0]), len(indices)) if is_constant(self.epoch) else self.epoch[indices],
            {name: gather(values, indices) for name, values in self.adds.items()},
        )

    def filter(self, mask: Bools) -> Block:
        return self if mask.all() else self.take(np.flatnonzero(mask))

    def slice(self, start: int, stop: int) -> Block:
        """Rows [start, stop), without copying."""
        return Block(
            self.hash[start:stop],
            None if self.sub is None else self.sub[start:stop],
            tuple(column.slice(start, max(0, min(stop, len(self.hash)) - start)) for column in self.columns),
            self.epoch[start:stop],
            {name: values[start:stop] for name, values in self.adds.items()},
        )

    @staticmethod
    def empty(layout: Layout, types: Sequence[pa.DataType] | None = None) -> Block:
        """No rows. Without ``types`` the columns have type null."""
        kinds = [pa.null()] * layout.width if types is None else types
        sub = None if layout.sub == "none" else np.zeros(0, np.uint64)
        columns = tuple(pa.array([], kind) for kind in kinds)
        return Block(np.zeros(0, np.uint64), sub, columns, np.zeros(0, np.int64), {"+diff": np.zeros(0, np.int64)})

    @staticmethod
    def concat(blocks: Sequence[Block]) -> Block:
        """All rows of all blocks (at least one), in their order. Absent additive columns are filled with zeros."""
        full = [block for block in blocks if block.rows]
        if len(full) == 1:
            return full[0]
        if not full:
            typed = [b for b in blocks if not any(pa.types.is_null(c.type) for c in b.columns)]
            return (typed or blocks)[0]
        first, rows = full[0], sum(block.rows for block in full)
        names = sorted({name for block in full for name in block.adds})
        one_epoch = all(is_constant(block.epoch) and block.epoch[0] == first.epoch[0] for block in full)
        return Block(
            np.concatenate([block.hash for block in full]),
            None if first.sub is None else np.concatenate([block.sub for block in full if block.sub is not None]),
            tuple(physical.concat([block.columns[i] for block in full]) for i in range(len(first.columns))),
            constant_epoch(int(first.epoch[0]), rows) if one_epoch else np.concatenate([b.epoch for b in full]),
            {name: np.concatenate([block.add(name) for block in full]) for name in names},
        )


def constant_epoch(epoch: int, rows: int) -> Ints:
    """An epoch column with one value in all rows. It is read-only and stores the value once."""
    return np.broadcast_to(np.int64(epoch), rows)


def is_constant(epoch: Ints) -> bool:
    """Whether an epoch column has rows, all with one value. O(1) for columns made by ``constant_epoch``."""
    return len(epoch) > 0 and (epoch.strides == (0,) or bool((epoch == epoch[0]).all()))


def sub_hash(columns: Sequence[AnyArray], layout: Layout, rows: int | None = None) -> Words:
    """The ``sub`` of rows in a layout with sub="hash": the hash of the columns after the key, floats by their bits.
    ``rows`` is the number of rows, needed if there are no columns."""
    rows = len(columns[0]) if columns else rows
    return hash_columns(columns[layout.key :], normalise=False, rows=rows)


def consolidate(block: Block, layout: Layout) -> Block:
    """Return the canonical form of the block, which may be the block itself. Raises ValueError if the layout wants an
    order prefix and the block has no ``sub``."""
    if layout.sub == "none":
        block = block if block.sub is None else replace(block, sub=None)
    elif block.sub is None:
        if layout.sub == "order":
            raise ValueError("rows of a trace in order need their order prefix in sub")
        block = replace(block, sub=sub_hash(block.columns, layout, block.rows))
    if block.rows == 0:
        return block
    order, fresh = _arrange(block.hash, block.sub, block.columns)
    epoch = block.epoch
    if not is_constant(epoch):
        order, fresh = _arrange_epochs(order, fresh, epoch)
    starts = np.flatnonzero(fresh)
    merged = len(starts) < block.rows
    adds = {}
    for name, values in block.adds.items():
        values = values if order is None else gather(values, order)
        adds[name] = exact.sums(values, starts) if merged else values
    alive = np.zeros(len(starts), np.bool_)
    for values in adds.values():
        alive |= values != 0
    if alive.all():
        if order is None and not merged:
            return block
    else:
        starts = starts[alive]
        adds = {name: values[alive] for name, values in adds.items()}
    picked = starts if order is None else order[starts]
    return replace(replace(block, adds={}).take(picked), adds=adds)


def group_rows(hash: Words, columns: Sequence[AnyArray], *, sub: Words | None = None) -> tuple[Order, Order]:
    """(order, starts): a permutation that puts equal rows of ``columns`` next to each other, sorted by hash (and sub),
    and the place in it where each group of equal rows starts.

    Groups and their order do not depend on the order of the input; inside a group the order is arbitrary but
    deterministic."""
    order, fresh = _arrange(hash, sub, [physical.plain(column) for column in columns])
    return (np.arange(len(hash)) if order is None else order), np.flatnonzero(fresh)


def _arrange(hash: Words, sub: Words | None, columns: Sequence[pa.Array]) -> tuple[Order | None, Bools]:
    """A permutation that sorts rows by (hash, sub, row), None if they are sorted; and whether each place of it begins a
    row that differs from the row before."""
    order = _sorting(hash, sub)
    same = _neighbours_equal(hash, order)
    if sub is not None and same.any():
        same &= _neighbours_equal(sub, order)
    candidates = np.flatnonzero(same)  # place i: rows i and i + 1
    for codes in (_row_hashes, _row_ranks):
        if not len(candidates) or not columns:
            break
        differ = candidates[~_places_equal(columns, order, candidates)]
        if not len(differ):
            break
        # Different rows have equal (hash, sub): sort their runs by a hash of all columns, then by content ranks.
        run = _runs(same)
        mixed = np.zeros(len(hash), np.bool_)
        mixed[run[differ]] = True
        members = np.flatnonzero(mixed[run])
        code = codes(physical.take_all(columns, members if order is None else order[members]))
        finer = _sorting(run[members].view(np.uint64), code)
        if finer is not None:
            order = np.arange(len(hash)) if order is None else order
            order[members] = order[members[finer]]
            code = code[finer]
        inner = np.flatnonzero(np.diff(members) == 1)
        same[members[inner]] &= code[inner] == code[inner + 1]
        candidates = members[inner][same[members[inner]]]
    fresh = np.ones(len(hash), np.bool_)
    fresh[1:] = ~same
    return order, fresh


def _row_hashes(columns: Sequence[pa.Array]) -> Words:
    return hash_columns(columns, normalise=False)


def _row_ranks(columns: Sequence[pa.Array]) -> Words:
    return content_ranks(columns).view(np.uint64)


def _runs(same: Bools) -> Ints:
    """The number of each row's run, from 0. ``same[i]``: row i equals row i + 1."""
    run = np.zeros(len(same) + 1, np.int64)
    np.cumsum(~same, out=run[1:])
    return run


def _neighbours_equal(values: np.ndarray, order: Order | None) -> Bools:
    values = values if order is None else gather(values, order)
    equal: Bools = values[1:] == values[:-1]
    return equal


def _places_equal(columns: Sequence[pa.Array], order: Order | None, at: Order) -> Bools:
    """Whether the rows at places i and i + 1 are equal, for every i of ``at``."""
    rows = len(columns[0])
    if 2 * len(at) > rows:
        arranged = columns if order is None else physical.take_all(columns, order)
        left, right = [c.slice(0, rows - 1) for c in arranged], [c.slice(1) for c in arranged]
        return equal_rows(left, right)[at]
    left_rows, right_rows = (at, at + 1) if order is None else (order[at], order[at + 1])
    return equal_rows(physical.take_all(columns, left_rows), physical.take_all(columns, right_rows))


def _sorting(major: Words, minor: Words | None) -> Order | None:
    """A permutation that sorts by (major, minor); None if they are sorted already."""
    falls = major[1:] < major[:-1]
    count = int(np.count_nonzero(falls))
    order: Order | None = None
    if count:
        order = np.argsort(major, kind="stable") if count < _FEW_RUNS else argsort(major)
    if minor is None:
        return order
    same = _neighbours_equal(major, order)
    arranged = minor if order is None else minor[order]
    if not (same & (arranged[1:] < arranged[:-1])).any():
        return order
    finer = _sorting_in_runs(_runs(same), arranged)
    return finer if order is None else order[finer]


def _sorting_in_runs(run: Ints, values: Words) -> Order:
    """A permutation that sorts by (run, value). ``run`` is the number of each row's run, ascending.

    Run and value are packed into one word; of the value, only the highest bits that differ are used. Rows are nearly in
    order by that word, so a stable sort is fast. It keeps the order of equal rows: rows of layers that were
    concatenated stay in the order of their epochs."""
    least, runs = values.min(), int(run[-1])
    spread, room = int(values.max() - least).bit_length(), 64 - runs.bit_length()
    cut = max(0, spread - room)
    key = (values - least) >> np.uint64(cut)
    if runs:
        key |= run.view(np.uint64) << np.uint64(min(spread, room))
    long = len(run) > _SHORT * (runs + 1)
    order: Order = argsort(key) if long else np.argsort(key, kind="stable")
    if cut:
        key, values_there = key[order], values[order]
        if ((key[1:] == key[:-1]) & (values_there[1:] < values_there[:-1])).any():
            order = np.lexsort((values, run))
    return order


def _arrange_epochs(order: Order | None, fresh: Bools, epoch: Ints) -> tuple[Order | None, Bools]:
    """Also sort equal rows by epoch, and mark the first place of every (row, epoch)."""
    arranged = epoch if order is None else epoch[order]
    if ((arranged[1:] < arranged[:-1]) & ~fresh[1:]).any():
        least = int(epoch.min())
        row = np.cumsum(fresh).astype(np.uint64)
        finer = np.argsort((row << np.uint64(32)) | (arranged - least).view(np.uint64))
        order = finer if order is None else order[finer]
        arranged = arranged[finer]
    fresh = fresh.copy()
    fresh[1:] |= arranged[1:] != arranged[:-1]
    return order, fresh
