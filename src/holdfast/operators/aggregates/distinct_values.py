"""DISTINCT in an aggregate: the distinct values of a group, kept up to date from their multiplicities.

The trace has a row per (key, values) with its multiplicity, found by the hash of the key and the hash of the values,
so that a group is never read as a whole. A value whose multiplicity becomes positive gains 1, a value whose
multiplicity becomes 0 loses 1. The group's count and sums take these gains like insertions and deletions of rows; they
are stored with the other accumulators. A row with a NULL does not count.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from holdfast.operators.aggregates.accumulators import all_valid
from holdfast.operators.aggregates.touched_groups import Groups
from holdfast.operators.numbers.digits import Ints
from holdfast.trace import exact, physical
from holdfast.trace.rows import Block, Layout, consolidate, constant_epoch
from holdfast.trace.trace import Trace


@dataclass(frozen=True)
class Gains:
    """The values that groups gain or lose: the index of the group, the first column of the values, and +1 or -1."""

    places: Ints
    values: pa.Array
    gains: Ints


def distinct_change(
    groups: Groups, places: Ints, values: list[pa.Array], diff: Ints, trace: Trace, layout: Layout, epoch: int
) -> tuple[Block, Gains]:
    """The new layer, and the gains of the groups. ``places`` are the indices of the rows' groups; ``values`` are
    normalised."""
    valid = all_valid(values)
    if valid is not None:
        kept = np.flatnonzero(valid)
        places, values, diff = places[kept], list(physical.take_all(values, kept)), diff[kept]
    columns = (*physical.take_all(groups.keys, places), *values)
    rows = Block(groups.hash[places], None, columns, constant_epoch(epoch, len(places)), {"+diff": diff})
    layer = consolidate(rows, layout)
    if not layer.rows:
        none = np.zeros(0, dtype=np.int64)
        return layer, Gains(none, values[0].slice(0, 0), none)
    assert layer.sub is not None
    fresh = (layer.hash[1:] != layer.hash[:-1]) | (layer.sub[1:] != layer.sub[:-1])
    pairs = np.flatnonzero(np.concatenate(([True], fresh)))
    _, old = trace.matching_pairs(layer.hash[pairs], layer.sub[pairs])
    # The search also finds rows that only share both hashes; they have no change, and are dropped below.
    both = consolidate(Block.concat([layer, replace(old.at(epoch), adds={"+old": old.diff})]), layout)
    touched = both.filter(both.diff != 0)
    before = touched.add("+old")
    gains = (exact.add(before, touched.diff) > 0).astype(np.int64) - (before > 0)
    moved = np.flatnonzero(gains)
    values_moved = physical.take(touched.columns[layout.key], moved)
    return layer, Gains(groups.locate(touched)[moved], values_moved, gains[moved])
