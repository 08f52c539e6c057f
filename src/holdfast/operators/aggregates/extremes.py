"""min, max and any_value: the ends of each group's values, which a trace keeps in order.

The trace has a row per (key, value) with its multiplicity, in the order of a 64-bit prefix of the value. An epoch
reads the first few values of each touched group, adds the epoch's change to them, and takes the least that is left.
What it read is the group's values up to a *bound*, all of them; so the answer is certain as soon as it lies within
the bound, or nothing lies beyond. Otherwise (the epoch deleted all that was read, or another key has the same hash)
it reads eight times as much for the groups that are left. The cost follows how many of the foremost values an epoch
deletes, never the size of a group. For max everything is mirrored.

NULLs are not in the trace; -0.0 is kept as 0.0, so that equal values are equal rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from holdfast.operators.aggregates.touched_groups import Groups, once
from holdfast.operators.numbers.digits import Bools, Ints, Words
from holdfast.operators.ordering import sort_rows
from holdfast.trace import exact, physical
from holdfast.trace.order import order_prefix
from holdfast.trace.rows import Block, Layout, consolidate, constant_epoch
from holdfast.trace.trace import Trace

GALLOP = 8


@dataclass(frozen=True)
class ExtremesChange:
    """An epoch's change of one column's values: the new layer, its rows' groups, and how many values there were."""

    groups: Groups
    layer: Block
    places: Ints
    before: Ints
    """How many values, NULLs not counted, each group had before the epoch."""


def change_of(
    groups: Groups, places: Ints, values: pa.Array, diff: Ints, before: Ints, layout: Layout, epoch: int
) -> ExtremesChange:
    """The change that rows make; ``places`` are the rows' groups. ``values`` are normalised."""
    valid = physical.valid(values)
    if valid is not None:
        kept = np.flatnonzero(valid)
        places, values, diff = places[kept], physical.take(values, kept), diff[kept]
    layer = consolidate(
        Block(
            groups.hash[places],
            order_prefix(values, descending=False, nulls_first=True),
            (*physical.take_all(groups.keys, places), values),
            constant_epoch(epoch, len(places)),
            {"+diff": diff},
        ),
        layout,
    )
    return ExtremesChange(groups, layer, groups.locate(layer), before)


@dataclass
class _Picked:
    """Values found so far, and their groups."""

    places: list[Ints] = field(default_factory=list)
    values: list[pa.Array] = field(default_factory=list)

    def column(self, size: int, kind: pa.DataType) -> pa.Array:
        """One value per group, NULL where none was found."""
        index = np.full(size, -1, dtype=np.int64)
        places = np.concatenate([*self.places, np.zeros(0, dtype=np.int64)])
        index[places] = np.arange(len(places))
        values = physical.concat([pa.array([], kind), *self.values])
        return values.take(pa.array(index, mask=index < 0))


def ends(change: ExtremesChange, trace: Trace, layout: Layout, *, last: bool) -> tuple[pa.Array, pa.Array]:
    """The least (``last``: the greatest) value of each group, before the epoch and after it."""
    groups, layer = change.groups, change.layer
    size, kind = len(groups), layer.columns[-1].type
    old, new = _Picked(), _Picked()
    pending = np.ones(size, dtype=np.bool_)
    count = 1
    while pending.any():
        asked = pending & (change.before > 0)
        fetched, bound, complete = _fetch(groups, trace, asked, change.before, count, last)
        mine = pending[change.places]
        both = consolidate(
            Block.concat([counted(layer.filter(mine), new_only=True), counted(fetched, new_only=False)]), layout
        )
        places = groups.locate(both)
        before = _foremost(places, both, both.add("+old") > 0, last)
        after = _foremost(places, both, both.add("+new") > 0, last)
        prefix = order_of(both)
        inside = prefix[after] >= bound[places[after]] if last else prefix[after] <= bound[places[after]]
        complete[places[after[inside]]] = True
        done = pending & complete
        for picked, rows in ((old, before), (new, after)):
            ready = rows[done[places[rows]]]
            picked.places.append(places[ready])
            picked.values.append(physical.take(both.columns[-1], ready))
        pending &= ~done
        count = min(GALLOP * count, exact.MOST + 1)  # more than any group has
    return old.column(size, kind), new.column(size, kind)


def order_of(block: Block) -> Words:
    """The order prefixes of rows of a trace in order."""
    assert block.sub is not None
    return block.sub


def counted(block: Block, *, new_only: bool) -> Block:
    """Rows with their multiplicities before (``+old``) and after (``+new``), as parts of sums."""
    adds = {"+new": block.diff} if new_only else {"+old": block.diff, "+new": block.diff}
    return Block(block.hash, block.sub, block.columns, constant_epoch(0, block.rows), adds)


def _fetch(
    groups: Groups, trace: Trace, asked: Bools, before: Ints, count: int, last: bool
) -> tuple[Block, Words, Bools]:
    """The foremost rows of the groups asked for, each group's bound, and whether these are all its rows."""
    hashes = once(groups.hash[asked])
    places, block = trace.first(hashes, count, last=last)
    bounds = np.full(len(hashes), np.iinfo(np.uint64).max if last else 0, dtype=np.uint64)
    (np.minimum if last else np.maximum).at(bounds, places, order_of(block))
    bound = np.zeros(len(groups), dtype=np.uint64)
    bound[asked] = bounds[np.searchsorted(hashes, groups.hash[asked])]
    owner = groups.locate(block)
    mine = (owner >= 0) & asked[owner]
    block, owner = block.filter(mine), owner[mine]
    complete = groups.sums(owner, block.diff) >= before
    return block, bound, complete


def _foremost(places: Ints, block: Block, kept: Bools, last: bool) -> Ints:
    """For each group that has rows in ``kept``, the row with the least (``last``: greatest) value."""
    rows = np.flatnonzero(kept)
    if not len(rows):
        return rows
    group, prefix = places[rows], order_of(block)[rows]
    if (group[1:] < group[:-1]).any():
        order = np.argsort(group, kind="stable")
        rows, group, prefix = rows[order], group[order], prefix[order]
    starts = np.flatnonzero(np.concatenate(([True], group[1:] != group[:-1])))
    runs = np.diff(starts, append=len(rows))
    tied = prefix == np.repeat(prefix[starts + runs - 1 if last else starts], runs)
    foremost: Ints = rows[tied]
    if len(foremost) == len(starts):
        return foremost
    group = group[tied]
    order = sort_rows(group, [physical.take(block.columns[-1], foremost)], ())
    foremost, group = foremost[order], group[order]
    edge = group[1:] != group[:-1]
    return foremost[np.concatenate((edge, [True]) if last else ([True], edge))]
