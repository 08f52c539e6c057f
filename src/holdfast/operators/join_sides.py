"""The common parts of all joins: the two sides, and how rows of one side find rows of the other.

Each side is read into one block of rows with two multiplicities: before the epoch (``+old``) and its change
(``+delta``). The block has only the rows that matter: rows that changed, and earlier rows with the hash of a key that
changed on the other side.

A row whose key has a NULL in a column that is not null-safe matches nothing. It is called *loose*. If the join drops
such rows, ``prepare`` drops them; if it gives them alone (padded with NULLs, or as the result of an anti join), they go
into the output when they arrive, and no trace keeps them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.operators.aggregates.touched_groups import Groups
from holdfast.operators.arrangement import Arrangement
from holdfast.operators.step import KeyedOperator
from holdfast.trace import exact, physical
from holdfast.trace.hashing import normalise_keys
from holdfast.trace.inner_loops import spans
from holdfast.trace.physical import AnyArray, Bools, Words
from holdfast.trace.rows import Block, Layout, consolidate, constant_epoch, group_rows
from holdfast.trace.trace import Trace

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class JoinSpec(KeyedOperator):
    """The base of all joins: rows of ``left_types`` and ``right_types`` whose columns at ``left_keys`` and
    ``right_keys`` are equal."""

    left_keys: tuple[int, ...]
    right_keys: tuple[int, ...]
    left_types: tuple[pa.DataType, ...]
    right_types: tuple[pa.DataType, ...]
    how: Literal["inner", "left", "full", "semi", "anti"] = "inner"
    null_safe: tuple[bool, ...] = ()
    """A flag per key: whether NULL matches NULL there. Empty: for no key."""

    @property
    def arrangements(self) -> tuple[Arrangement, Arrangement]:
        left = Arrangement.by(self.left_keys, len(self.left_types))
        return left, Arrangement.by(self.right_keys, len(self.right_types))

    def keeps_loose(self, port: int) -> bool:
        """Whether rows of this side that match nothing are in the output."""
        return self.how == "full" or (port == 0 and self.how in ("left", "anti"))

    def matchable(self, keys: Sequence[AnyArray]) -> Bools | None:
        """Whether each row's key can match another key; None if all can."""
        strict = [key for index, key in enumerate(keys) if not (self.null_safe and self.null_safe[index])]
        found: Bools | None = None
        for key in (key for key in strict if key.null_count):
            valid = physical.valid(physical.plain(key))
            found = valid if found is None or valid is None else found & valid
        return found

    def prepare(self, port: int, change: pa.Table) -> pa.Table:
        """Add the hash of the key as the first column, and drop loose rows unless the join gives them."""
        arrangement = self.arrangements[port]
        if not self.keeps_loose(port):
            matchable = self.matchable([change.column(index) for index in arrangement.places[: arrangement.key]])
            change = change if matchable is None else change.filter(pa.array(matchable))
        return arrangement.prepare(change)


@dataclass(frozen=True)
class Side:
    """The rows of one side that matter in this epoch, each once, sorted by hash. The values of row *i* are at place
    ``at[i]`` of ``columns``. Columns are gathered only once, when the rows of the output are known."""

    hash: Words
    old: Indices
    """The multiplicity of each row before the epoch."""

    delta: Indices
    """The change of each row's multiplicity in the epoch."""

    at: Indices
    columns: tuple[pa.Array, ...]
    keys: tuple[pa.Array, ...]
    """The key columns, normalised; their places are those of `columns`."""

    @property
    def new(self) -> Indices:
        """The multiplicity of each row after the epoch."""
        return exact.add(self.old, self.delta)

    @property
    def changed(self) -> Indices:
        return np.flatnonzero(self.delta)

    def take_keys(self, rows: Indices) -> tuple[pa.Array, ...]:
        return physical.take_all(self.keys, self.at[rows])

    def places(self, groups: Groups) -> Indices:
        """The index of each row's group; -1 for a row whose key is not among the groups."""
        rows = Block(self.hash, None, physical.take_all(self.keys, self.at), constant_epoch(0, len(self.at)), {})
        return groups.locate(rows)


def matchable_rows(spec: JoinSpec, block: Block) -> Block:
    """The rows of a block that are not loose."""
    mask = spec.matchable(block.columns[: len(spec.left_keys)])
    return block if mask is None else block.filter(mask)


def side(delta: Block, wanted: Words, trace: Trace) -> Side:
    """The rows of ``delta``, and the rows of the trace with one of the ``wanted`` hashes (sorted, unique)."""
    _, before = trace.matching(wanted)
    # All rows get one epoch, so that the epoch column is constant and takes no memory.
    before = replace(before.at(trace.as_of), adds={"+old": before.diff})
    rows = Block.concat([before, replace(delta.at(trace.as_of), adds={"+delta": delta.diff})])
    order, starts = group_rows(rows.hash, rows.columns, sub=rows.sub)
    old, delta_sum = (_sums(rows.add(name), order, starts) for name in ("+old", "+delta"))
    alive = np.flatnonzero((old != 0) | (delta_sum != 0))
    at = order[starts[alive]]
    keys = tuple(normalise_keys(column) for column in rows.columns[: trace.layout.key])
    return Side(rows.hash[at], old[alive], delta_sum[alive], at, rows.columns, keys)


def _sums(values: Indices, order: Indices, starts: Indices) -> Indices:
    return exact.sums(values[order], starts)


def distinct(hashes: Words) -> Words:
    """Sorted hashes without repetitions."""
    fresh = np.ones(len(hashes), np.bool_)
    fresh[1:] = hashes[1:] != hashes[:-1]
    return hashes if fresh.all() else hashes[fresh]


def pairs_by_hash(left: Side, right: Side, some: Indices, others: Indices) -> tuple[Indices, Indices]:
    """The pairs of a left row in ``some`` and a right row in ``others`` (both ascending) whose hashes are equal."""
    left_hash, right_hash = left.hash[some], right.hash[others]
    starts, lengths = spans(right_hash, left_hash)
    return np.repeat(some, lengths), others[physical.ranges(starts, lengths)]


# -- the number of rows of a key --------------------------------------------------------------------------------------


def count_layout(spec: JoinSpec) -> Layout:
    """The layout of a trace that has normalised keys with the number of their rows."""
    return Layout(len(spec.left_keys), len(spec.left_keys), "none")


def keys_of(spec: JoinSpec, delta: Block) -> Block:
    """The normalised key of each row."""
    keys = tuple(normalise_keys(column) for column in delta.columns[: len(spec.left_keys)])
    return Block(delta.hash, None, keys, delta.epoch, {"+diff": delta.diff})


def counted(spec: JoinSpec, keys: Block) -> Block:
    """The change of each key's number of rows: ``keys`` consolidated."""
    return consolidate(keys, count_layout(spec))


def touched(blocks: Sequence[Block]) -> Groups:
    """The keys that occur in any of these blocks. A key whose number of rows does not change is included, since its
    rows may have changed."""
    rows = Block.concat(blocks)
    order, starts = group_rows(rows.hash, rows.columns)
    first = order[starts]
    return Groups(rows.hash[first], physical.take_all(rows.columns, first))


def presence(groups: Groups, change: Block, trace: Trace) -> tuple[Bools, Bools]:
    """Whether each key has rows before the epoch, and after it. Both arrays end with False, so that index -1 (a key
    that is not among the groups) gives False."""
    candidates, block = trace.matching(groups.hashes)
    before = groups.sums(groups.locate(block, candidates), block.diff)
    after = exact.add(before, groups.sums(groups.locate(change), change.diff))
    return np.append(before > 0, False), np.append(after > 0, False)


def pair_diffs(left: Side, right: Side, one: Indices, other: Indices) -> Indices:
    """The change of each pair's multiplicity: dl · (r + dr) + l · dr."""
    gained = exact.multiply(left.delta[one], right.new[other])
    return exact.add(gained, exact.multiply(left.old[one], right.delta[other]))


def take_padded(columns: Sequence[pa.Array], rows: Indices) -> list[pa.Array]:
    """Take rows of the columns; row -1 gives NULLs."""
    wanted = pa.array(rows, mask=rows < 0)
    return [pc.take(column, wanted, boundscheck=False) for column in columns]
