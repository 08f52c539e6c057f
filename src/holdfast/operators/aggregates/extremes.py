"""min, max and any_value: the ends of each group's values, which a trace keeps in order.

The trace has a row per (key, value) with its multiplicity, in the order of a 64-bit prefix of the value. An epoch
reads the first few values of each touched group, adds the epoch's change to them, and takes the least value that is
left. The values read are all values of the group up to a *bound*. So the answer is certain if it is within the bound,
or if the group has no values after the bound. Otherwise (the epoch deleted all values read, or another key has the same
hash) it reads eight times as many values for these groups. The cost follows the number of first values that an epoch
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
    """An epoch's change of one column's values: the groups, the new layer, and the index of each of its rows' group."""

    groups: Groups
    layer: Block
    places: Ints
    before: Ints
    """The number of values, without NULLs, of each group before the epoch."""


def change_of(
    groups: Groups, places: Ints, values: pa.Array, diff: Ints, before: Ints, layout: Layout, epoch: int
) -> ExtremesChange:
    """Build the change from the rows of an epoch. ``places`` are the indices of the rows' groups; ``values`` are
    normalised; ``before`` is the number of values of each group before the epoch."""
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
    """The values found so far, and the indices of their groups."""

    places: list[Ints] = field(default_factory=list)
    values: list[pa.Array] = field(default_factory=list)

    def column(self, size: int, kind: pa.DataType) -> pa.Array:
        """One value per group; NULL for a group without a value."""
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
        count = min(GALLOP * count, exact.MOST + 1)  # no group has as many values as that bound
    return old.column(size, kind), new.column(size, kind)


def order_of(block: Block) -> Words:
    """The order prefixes of the rows, which must come from a trace in order."""
    assert block.sub is not None
    return block.sub


def counted(block: Block, *, new_only: bool) -> Block:
    """Rows with their part of the multiplicities before (``+old``) and after (``+new``) the epoch. ``new_only``: the
    rows are a change, which counts only after it."""
    adds = {"+new": block.diff} if new_only else {"+old": block.diff, "+new": block.diff}
    return Block(block.hash, block.sub, block.columns, constant_epoch(0, block.rows), adds)


def _fetch(
    groups: Groups, trace: Trace, asked: Bools, before: Ints, count: int, last: bool
) -> tuple[Block, Words, Bools]:
    """The first (``last``: last) rows of the groups asked for, the bound of each group, and whether all values of each
    group were read."""
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
    """For each group that has rows in ``kept``, its row with the least (``last``: greatest) value."""
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
