"""INTERSECT and EXCEPT, with and without ALL, by multiplicities.

The trace ``counts`` has, per row, how many copies the left side holds (``+diff``) and how many the right (``+right``).
With *a* and *b* these numbers, the result holds the row

    INTERSECT ALL  min(a, b)        INTERSECT  once if a > 0 and b > 0
    EXCEPT ALL     max(a - b, 0)    EXCEPT     once if a > 0 and b = 0

times. An epoch finds the counts of the rows it touches, adds its change, and emits the difference of the two results.
Rows are equal as Spark's set operations take them: NULL equals NULL, NaN equals NaN, -0.0 is 0.0 (and comes out as it).
Cost: O(change × log state).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from holdfast.errors import NegativeMultiplicity
from holdfast.operators.aggregates.touched_groups import once
from holdfast.operators.arrangement import as_block, change_table
from holdfast.operators.numbers.digits import Ints
from holdfast.operators.step import Context, KeyedOperator, Step
from holdfast.trace import exact, physical
from holdfast.trace.hashing import hash_columns, normalise_keys
from holdfast.trace.rows import Block, Layout, consolidate, group_rows
from holdfast.trace.trace import Trace


@dataclass(frozen=True)
class SetSpec(KeyedOperator):
    """``kind`` is ``intersect`` or ``except``; ``all`` keeps copies; both sides have ``types``."""

    kind: str
    all: bool
    types: tuple[pa.DataType, ...]

    @property
    def layout(self) -> Layout:
        return Layout(width=len(self.types), key=len(self.types), sub="none")

    def layouts(self) -> dict[str, Layout]:
        return {"counts": self.layout}

    def prepare(self, port: int, change: pa.Table) -> pa.Table:
        """Each row once, with the sum of its diffs and its hash."""
        typed = [physical.plain(change.column(place)).cast(kind) for place, kind in enumerate(self.types)]
        rows = [normalise_keys(column) for column in typed]
        hashes = hash_columns(rows, rows=change.num_rows)
        order, starts = group_rows(hashes, rows)
        diff = change.column("_diff").to_numpy()
        total = exact.sums(diff[order], starts)
        alive = np.flatnonzero(total)
        first = order[starts[alive]]
        made = change_table(physical.take_all(rows, first), self.types, total[alive])
        return made.add_column(0, "_hash", pa.array(hashes[first]))

    def step(self, arrived: list[pa.Table], traces: dict[str, Trace], context: Context) -> Step:
        left, right = (_side(self, part, context.epoch) for part in arrived)
        change = consolidate(Block.concat([left, replace(right, adds={"+right": right.diff})]), self.layout)
        _, old = traces["counts"].matching(once(change.hash))
        # Rows that only share a hash come along; they have no change, and drop out below.
        before = replace(old.at(context.epoch), adds={"+a": old.diff, "+b": old.add("+right")})
        moved = replace(change, adds={"+da": change.diff, "+db": change.add("+right")})
        both = consolidate(Block.concat([moved, before]), self.layout)
        both = both.filter((both.add("+da") != 0) | (both.add("+db") != 0))
        a, b = both.add("+a"), both.add("+b")
        new_a, new_b = exact.add(a, both.add("+da")), exact.add(b, both.add("+db"))
        _check(both, new_a, new_b, context.epoch)
        diff = _copies(self, new_a, new_b) - _copies(self, a, b)
        shown = np.flatnonzero(diff)
        return Step({"counts": change}, change_table(physical.take_all(both.columns, shown), self.types, diff[shown]))


def _side(spec: SetSpec, arrived: pa.Table, epoch: int) -> Block:
    columns = tuple(physical.plain(arrived.column(f"c{place}")) for place in range(len(spec.types)))
    return as_block(arrived, columns, None, epoch)


def _copies(spec: SetSpec, a: Ints, b: Ints) -> Ints:
    """How often the result holds a row that the sides hold so often."""
    if spec.kind == "intersect":
        copies = np.minimum(a, b)
    else:
        copies = np.maximum(a - b, 0) if spec.all else np.where(b == 0, a, 0)
    return copies if spec.all else np.minimum(copies, 1)


def _check(rows: Block, a: Ints, b: Ints, epoch: int) -> None:
    least = np.minimum(a, b)
    if not (least < 0).any():
        return
    place = int(np.argmin(least))
    row = tuple(column[place].as_py() for column in rows.columns)
    raise NegativeMultiplicity(
        f"a side of a set operation holds {row!r} {least[place]} times after epoch {epoch}; "
        "it was deleted more often than inserted",
        epoch=epoch,
        rows=[row],
    )
