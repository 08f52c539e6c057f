"""Left and full outer joins: the pairs that match, and the rows that match nothing, padded with NULLs.

Traces ``left`` and ``right`` hold the rows of each side, key first, as for the inner join. ``right.count`` (and, for a
full join, ``left.count``) has the number of rows of each key, so that a side's rows need not be read to know whether
the key has any. A key is *present* on a side while that number is positive, otherwise *absent*.

The pairs change as in the inner join (`join`). A left row is padded while its key is absent on the right. If its
multiplicity was *l* and changes by *dl*, the multiplicity of its padded row changes by

    (l + dl) · absent after  -  l · absent before

and likewise for the right rows of a full join. The padding of a row can change only if the row changed or its key
changed on the other side; the pairs need the same rows, so no more rows are read.

Pairs are found by hash and decided by key: rows of one key have one place among the keys that the epoch touches. A pair
can equal a padded row only if all columns of one of its halves are NULL. Only if such a row occurs, the output is
consolidated.

Cost: as for the inner join, O((|dL| + |dR|) · log state), plus the rows that match, plus the output.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from holdfast.operators.arrangement import change_table, consolidated
from holdfast.operators.join_sides import (
    Indices,
    JoinSpec,
    Side,
    count_layout,
    counted,
    distinct,
    keys_of,
    matchable_rows,
    pair_diffs,
    pairs_by_hash,
    presence,
    side,
    take_padded,
    touched,
)
from holdfast.operators.step import Context, StepResult
from holdfast.trace import physical
from holdfast.trace.physical import Bools
from holdfast.trace.rows import Layout
from holdfast.trace.trace import Trace


@dataclass(frozen=True)
class OuterJoin(JoinSpec):
    """The keyed operator of a left or full join."""

    def layouts(self) -> dict[str, Layout]:
        left, right = self.arrangements
        found = {"left": left.layout, "right": right.layout, "right.count": count_layout(self)}
        return {**found, "left.count": count_layout(self)} if self.how == "full" else found

    def step(self, arrived: list[pa.Table], traces: dict[str, Trace], context: Context) -> StepResult:
        arrangements = self.arrangements
        arrived_left, arrived_right = (
            each.block(arrived[port], context.epoch) for port, each in enumerate(arrangements)
        )
        layers = {"left": matchable_rows(self, arrived_left), "right": matchable_rows(self, arrived_right)}
        keys = {name: keys_of(self, layers[name]) for name in ("left", "right")}
        counts = {name: counted(self, keys[name]) for name in keys}
        groups = touched([keys["left"], keys["right"]])
        left = side(arrived_left, distinct(layers["right"].hash), traces["left"])
        right = side(arrived_right, distinct(layers["left"].hash), traces["right"])
        left_place, right_place = left.places(groups), right.places(groups)

        one, other, diff = _pairs(left, right, left_place, right_place)
        parts = [
            (one, other, diff),
            _padded(left, left_place, presence(groups, counts["right"], traces["right.count"])),
        ]
        layers["right.count"] = counts["right"]
        if self.how == "full":
            there = presence(groups, counts["left"], traces["left.count"])
            rows, nothing, gained = _padded(right, right_place, there)
            parts.append((nothing, rows, gained))
            layers["left.count"] = counts["left"]
        one, other, diff = (np.concatenate(each) for each in zip(*parts, strict=True))
        columns = [
            *take_padded(arrangements[0].original(left.columns), _at(left, one)),
            *take_padded(arrangements[1].original(right.columns), _at(right, other)),
        ]
        output = change_table(columns, (*self.left_types, *self.right_types), diff)
        if _all_null(left).any() or _all_null(right).any():
            output = consolidated(output)
        return StepResult(layers, output)


def _pairs(left: Side, right: Side, left_place: Indices, right_place: Indices) -> tuple[Indices, Indices, Indices]:
    """(left rows, right rows, diffs) of the pairs whose multiplicity changes."""
    known = left_place >= 0
    changed = pairs_by_hash(left, right, np.flatnonzero(known & (left.delta != 0)), np.flatnonzero(right_place >= 0))
    unchanged = pairs_by_hash(
        left, right, np.flatnonzero(known & (left.delta == 0)), np.flatnonzero((right_place >= 0) & (right.delta != 0))
    )
    one, other = (np.concatenate(parts) for parts in zip(changed, unchanged, strict=True))
    diff = pair_diffs(left, right, one, other)
    kept = np.flatnonzero((diff != 0) & (left_place[one] == right_place[other]))
    return one[kept], other[kept], diff[kept]


def _padded(rows: Side, place: Indices, there: tuple[Bools, Bools]) -> tuple[Indices, Indices, Indices]:
    """(rows, -1 for each as the other side's row, diffs) of the rows whose padded form changes."""
    before, after = ~there[0][place], ~there[1][place]
    diff = rows.new * after - rows.old * before
    kept = np.flatnonzero(diff)
    return kept, np.full(len(kept), -1, np.int64), diff[kept]


def _at(rows: Side, picked: Indices) -> Indices:
    return np.where(picked < 0, -1, rows.at[picked]) if len(rows.at) else picked


def _all_null(rows: Side) -> Bools:
    """Whether each row is NULL in every column."""
    found = np.ones(len(rows.at), np.bool_)
    for column in rows.columns:
        valid = physical.valid(column)
        if valid is None:
            return np.zeros(len(rows.at), np.bool_)
        found &= ~valid[rows.at]
    return found
