"""The equi-join of two collections.

Traces ``left`` and ``right`` hold the rows of each side, key first. With L and R the sides before the epoch, and dL and
dR their changes, the output changes by

    dL ⋈ (R + dR)  +  L ⋈ dR

Of L only the rows whose key dR has are read, of R those whose key dL has (`join_sides`). Then every pair of rows with
something changed on one side or both is made once, with its whole diff

    dl · (r + dr) + l · dr

so the output holds no row twice, and need not be sorted or hashed: only pairs whose diff is zero are dropped.

Rows meet by the hash of their key. Where one hash stands for several keys (it is seen by comparing neighbours, so it
costs one pass) each pair's keys are compared. Keys are compared normalised, and come out as they were. A key with a
NULL (that is not null-safe) joins nothing, and goes no further than ``prepare``.

Cost: O((|dL| + |dR|) · log state), the rows that match, and the pairs that come out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from holdfast.operators.arrangement import change_table
from holdfast.operators.join_sides import Indices, JoinSpec, Side, distinct, pair_diffs, pairs_by_hash, side
from holdfast.operators.outer_join import OuterJoin
from holdfast.operators.semi_join import SemiJoin
from holdfast.operators.step import Context, Step
from holdfast.trace import physical
from holdfast.trace.equality import equal_rows
from holdfast.trace.physical import Bools
from holdfast.trace.rows import Layout
from holdfast.trace.trace import Trace


@dataclass(frozen=True)
class InnerJoin(JoinSpec):
    """An inner join."""

    def layouts(self) -> dict[str, Layout]:
        left, right = self.arrangements
        return {"left": left.layout, "right": right.layout}

    def step(self, arrived: list[pa.Table], traces: dict[str, Trace], context: Context) -> Step:
        left_arrangement, right_arrangement = self.arrangements
        left_delta = left_arrangement.block(arrived[0], context.epoch)
        right_delta = right_arrangement.block(arrived[1], context.epoch)
        left = side(left_delta, distinct(right_delta.hash), traces["left"])
        right = side(right_delta, distinct(left_delta.hash), traces["right"])

        collide = _collide(left, right)
        changed = _pairs(left, right, left.changed, np.arange(len(right.at)), collide)
        unchanged = _pairs(left, right, np.flatnonzero(left.delta == 0), right.changed, collide)
        one, other = (np.concatenate(parts) for parts in zip(changed, unchanged, strict=True))
        diff = pair_diffs(left, right, one, other)
        if not diff.all():
            kept = np.flatnonzero(diff)
            one, other, diff = one[kept], other[kept], diff[kept]
        columns = [
            *physical.take_all(left_arrangement.original(left.columns), left.at[one]),
            *physical.take_all(right_arrangement.original(right.columns), right.at[other]),
        ]
        output = change_table(columns, (*self.left_types, *self.right_types), diff)
        return Step({"left": left_delta, "right": right_delta}, output)


KERNELS: dict[str, type[InnerJoin | OuterJoin | SemiJoin]] = {
    "inner": InnerJoin,
    "left": OuterJoin,
    "full": OuterJoin,
    "semi": SemiJoin,
    "anti": SemiJoin,
}
"""What is done with rows that match nothing → who does it."""


def _collide(left: Side, right: Side) -> bool:
    """True if some hash stands for several keys."""
    for rows in (left, right):
        same = np.flatnonzero(rows.hash[1:] == rows.hash[:-1])
        if not _agree(rows, same, rows, same + 1).all():
            return True
    if not len(left.at) or not len(right.at):
        return False
    place = np.minimum(np.searchsorted(right.hash, left.hash), len(right.at) - 1)
    met = np.flatnonzero(right.hash[place] == left.hash)
    return not _agree(left, met, right, place[met]).all()


def _agree(one: Side, rows: Indices, other: Side, other_rows: Indices) -> Bools:
    """Whether the keys of these rows are equal, pair by pair."""
    return equal_rows(one.take_keys(rows), other.take_keys(other_rows), rows=len(rows))


def _pairs(left: Side, right: Side, some: Indices, others: Indices, collide: bool) -> tuple[Indices, Indices]:
    """The pairs of rows, of those left and right rows (ascending), whose keys are equal."""
    one, other = pairs_by_hash(left, right, some, others)
    if collide:
        equal = _agree(left, one, right, other)
        one, other = one[equal], other[equal]
    return one, other
