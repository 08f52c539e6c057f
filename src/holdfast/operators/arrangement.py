"""Rows arranged by a key: turning a change into rows of a trace, and back into the columns of the change.

In a trace the key's columns come first. ``places[i]`` is the column of the change that is at place *i* of the trace:
first the key's columns, in the key's order (a column that the key names twice is there twice), then the other columns,
in their own order. Columns are kept as they arrived. Only the hash is computed from the normalised key (-0.0 as 0.0,
every NaN as the same NaN), so that keys which are equal in Spark have equal hashes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.trace import exact, physical
from holdfast.trace.hashing import hash_columns
from holdfast.trace.rows import Block, Layout, consolidate, constant_epoch, group_rows


@dataclass(frozen=True)
class Arrangement:
    """The order in which a trace keeps the columns of a row."""

    places: tuple[int, ...]
    key: int

    @staticmethod
    def by(key: Sequence[int], width: int) -> Arrangement:
        """The arrangement of rows of ``width`` columns by the columns at the positions ``key``."""
        return Arrangement((*key, *(index for index in range(width) if index not in key)), len(key))

    @property
    def layout(self) -> Layout:
        return Layout(len(self.places), self.key, "hash")

    def prepare(self, change: pa.Table) -> pa.Table:
        """Return the change with the hash of its key as the first column, ``_hash``."""
        keys = [change.column(index) for index in self.places[: self.key]]
        hashes = pa.array(hash_columns(keys, rows=change.num_rows), pa.uint64())
        return change.add_column(0, "_hash", hashes)

    def block(self, arrived: pa.Table, epoch: int) -> Block:
        """The rows of a change that ``prepare`` made, in one or several tasks, as a consolidated block of one epoch."""
        columns = tuple(physical.plain(arrived.column(f"c{index}")) for index in self.places)
        return consolidate(as_block(arrived, columns, None, epoch), self.layout)

    def original(self, columns: Sequence[pa.Array]) -> list[pa.Array]:
        """The columns of the trace, in the order of the change."""
        width = len(set(self.places))
        return [columns[self.places.index(index)] for index in range(width)]


def as_block(arrived: pa.Table, columns: tuple[pa.Array, ...], sub: npt.NDArray[np.uint64] | None, epoch: int) -> Block:
    """The rows of a prepared table (``_hash``, …, ``_diff``), all at one epoch."""
    hashes = physical.fixed(physical.plain(arrived.column("_hash")))
    diff = physical.fixed(physical.plain(arrived.column("_diff")))
    return Block(hashes, sub, columns, constant_epoch(epoch, len(hashes)), {"+diff": diff})


def change_table(columns: Sequence[pa.Array], types: Sequence[pa.DataType], diff: npt.NDArray[np.int64]) -> pa.Table:
    """A change with these columns. Columns of a trace without rows have type null; they are cast to ``types``."""
    typed = [column if column.type == kind else column.cast(kind) for column, kind in zip(columns, types, strict=True)]
    names = [f"c{index}" for index in range(len(typed))]
    schema = pa.schema(
        [*(pa.field(name, kind) for name, kind in zip(names, types, strict=True)), ("_diff", pa.int64())]
    )
    return pa.Table.from_arrays([*typed, pa.array(diff, pa.int64())], schema=schema)


def consolidated(change: pa.Table) -> pa.Table:
    """The change (``c0…``, ``_diff``) with every row at most once: diffs are summed, rows with diff 0 dropped."""
    columns = [physical.plain(change.column(index)) for index in range(change.num_columns - 1)]
    diff = physical.fixed(physical.plain(change.column("_diff")))
    order, starts = group_rows(hash_columns(columns, normalise=False, rows=len(diff)), columns)
    total = exact.sums(diff[order], starts)
    kept = np.flatnonzero(total)
    rows = physical.take_all(columns, order[starts[kept]])
    return change_table(rows, [column.type for column in columns], total[kept])


def without_cancelled(change: pa.Table) -> pa.Table:
    """The change, consolidated if it has a negative diff: rows that cancel must not reach steps that compute, which may
    fail on them."""
    negative = (physical.fixed(physical.plain(change.column("_diff"))) < 0).any()
    return consolidated(change) if negative else change


def negated(change: pa.Table) -> pa.Table:
    """The change with all diffs negated."""
    place = change.schema.get_field_index("_diff")
    diff = physical.fixed(physical.plain(change.column(place)))
    return change.set_column(place, change.schema.field(place), pa.array(-diff))
