"""The equi-join of two collections.

Traces ``left`` and ``right`` hold the rows of each side, key first. With L and R the sides before the epoch, and dL and
dR their changes, the output changes by

    dL ⋈ (R + dR)  +  L ⋈ dR

Of L only the rows whose key dR has are read, of R those whose key dL has. Each side is brought into one block of rows
with two sums, what was (``+old``) and what changed (``+delta``). Then every pair of rows with something changed on one
side or both is made once, with its whole diff

    dl · (r + dr) + l · dr

so the output holds no row twice, and need not be sorted or hashed: only pairs whose diff is zero are dropped.

Rows meet by the hash of their key. Where one hash stands for several keys (it is seen by comparing neighbours, so it
costs one pass) each pair's keys are compared. Keys are compared normalised, and come out as they were. NULL keys join
nothing, and go no further than ``prepare``.

Cost: O((|dL| + |dR|) · log state), the rows that match, and the pairs that come out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.operators.arrangement import Arrangement, change_table
from holdfast.operators.step import Context, Step
from holdfast.trace import physical
from holdfast.trace.equality import equal_rows
from holdfast.trace.hashing import normalise_keys
from holdfast.trace.rows import Block, Layout, group_rows
from holdfast.trace.trace import Trace

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class JoinSpec:
    """Rows of ``left_types`` and ``right_types`` that agree in the columns at ``left_keys`` and ``right_keys``."""

    left_keys: tuple[int, ...]
    right_keys: tuple[int, ...]
    left_types: tuple[pa.DataType, ...]
    right_types: tuple[pa.DataType, ...]

    @property
    def arrangements(self) -> tuple[Arrangement, Arrangement]:
        left = Arrangement.by(self.left_keys, len(self.left_types))
        return left, Arrangement.by(self.right_keys, len(self.right_types))


@dataclass(frozen=True)
class _Side:
    """The rows of one side that matter in this epoch, each once, sorted by hash: row *i* is at place ``at[i]`` of
    ``columns``. Columns are gathered once only, when the pairs are known."""

    hash: npt.NDArray[np.uint64]
    old: Indices
    delta: Indices
    at: Indices
    columns: tuple[pa.Array, ...]
    keys: tuple[pa.Array, ...]

    @property
    def changed(self) -> Indices:
        return np.flatnonzero(self.delta)

    def take_keys(self, rows: Indices) -> tuple[pa.Array, ...]:
        return physical.take_all(self.keys, self.at[rows])


def layouts(spec: JoinSpec) -> dict[str, Layout]:
    left, right = spec.arrangements
    return {"left": left.layout, "right": right.layout}


def prepare(spec: JoinSpec, port: int, change: pa.Table) -> pa.Table:
    arrangement = spec.arrangements[port]
    keys = [change.column(place) for place in arrangement.places[: arrangement.key]]
    if any(key.null_count for key in keys):
        known = pc.is_valid(keys[0])
        for key in keys[1:]:
            known = pc.and_(known, pc.is_valid(key))
        change = change.filter(known)
    return arrangement.prepare(change)


def step(spec: JoinSpec, arrived: list[pa.Table], traces: dict[str, Trace], context: Context) -> Step:
    left_arrangement, right_arrangement = spec.arrangements
    left_delta = left_arrangement.block(arrived[0], context.epoch)
    right_delta = right_arrangement.block(arrived[1], context.epoch)
    left = _side(left_delta, right_delta, traces["left"])
    right = _side(right_delta, left_delta, traces["right"])

    collide = _collide(left, right)
    changed = _pairs(left, right, left.changed, np.arange(len(right.at)), collide)
    unchanged = _pairs(left, right, np.flatnonzero(left.delta == 0), right.changed, collide)
    one, other = (np.concatenate(parts) for parts in zip(changed, unchanged, strict=True))
    diff = left.delta[one] * (right.old + right.delta)[other] + left.old[one] * right.delta[other]
    if not diff.all():
        kept = np.flatnonzero(diff)
        one, other, diff = one[kept], other[kept], diff[kept]
    columns = [
        *physical.take_all(left_arrangement.original(left.columns), left.at[one]),
        *physical.take_all(right_arrangement.original(right.columns), right.at[other]),
    ]
    output = change_table(columns, (*spec.left_types, *spec.right_types), diff)
    return Step({"left": left_delta, "right": right_delta}, output)


def _side(delta: Block, other_delta: Block, trace: Trace) -> _Side:
    """The rows that changed on this side, and those that were there and match a change of the other side."""
    _, before = trace.matching(_distinct(other_delta.hash))
    # One epoch for all, so that it is not kept row by row.
    before = replace(before.at(trace.as_of), adds={"+old": before.diff})
    rows = Block.concat([before, replace(delta.at(trace.as_of), adds={"+delta": delta.diff})])
    order, starts = group_rows(rows.hash, rows.columns, sub=rows.sub)
    old, delta_sum = (_sums(rows.add(name), order, starts) for name in ("+old", "+delta"))
    alive = np.flatnonzero((old != 0) | (delta_sum != 0))
    at = order[starts[alive]]
    keys = tuple(normalise_keys(column) for column in rows.columns[: trace.layout.key])
    return _Side(rows.hash[at], old[alive], delta_sum[alive], at, rows.columns, keys)


def _sums(values: Indices, order: Indices, starts: Indices) -> Indices:
    return np.add.reduceat(values[order], starts) if len(starts) else values


def _distinct(hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Of sorted hashes each once."""
    fresh = np.ones(len(hashes), np.bool_)
    fresh[1:] = hashes[1:] != hashes[:-1]
    return hashes if fresh.all() else hashes[fresh]


def _collide(left: _Side, right: _Side) -> bool:
    """True if some hash stands for several keys."""
    for side in (left, right):
        same = np.flatnonzero(side.hash[1:] == side.hash[:-1])
        if not _agree(side, same, side, same + 1).all():
            return True
    if not len(left.at) or not len(right.at):
        return False
    place = np.minimum(np.searchsorted(right.hash, left.hash), len(right.at) - 1)
    met = np.flatnonzero(right.hash[place] == left.hash)
    return not _agree(left, met, right, place[met]).all()


def _agree(one: _Side, rows: Indices, other: _Side, other_rows: Indices) -> npt.NDArray[np.bool_]:
    """Whether the keys of these rows are equal, pair by pair."""
    return equal_rows(one.take_keys(rows), other.take_keys(other_rows), rows=len(rows))


def _pairs(left: _Side, right: _Side, some: Indices, others: Indices, collide: bool) -> tuple[Indices, Indices]:
    """The pairs of rows, of those left and right rows (ascending), whose keys are equal."""
    left_hash, right_hash = left.hash[some], right.hash[others]
    starts = np.searchsorted(right_hash, left_hash, side="left")
    lengths = np.searchsorted(right_hash, left_hash, side="right") - starts
    one = np.repeat(some, lengths)
    other = others[physical.ranges(starts, lengths)]
    if collide:
        equal = _agree(left, one, right, other)
        one, other = one[equal], other[equal]
    return one, other
