"""Traces of operators inside a loop: each row has a round as its last column, and is read up to a round.

Inside a loop a time is (epoch, round). The epoch is the trace's epoch, as everywhere; the round is the last column. So
merging, compacting and copying layers may collapse epochs, but keeps rounds apart, as later epochs need it.

A kernel that knows no rounds gets a trace without that column, with only the rows of rounds up to a given one:
`Slice.live` excludes the other rows, and so every search does.

All rows of a loop are in one partition, the partition with hash 0, whatever the number of partitions. So the hashes of
its traces are squeezed into the first of the 256 slots from which partitions are made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.trace import physical, search
from holdfast.trace.memory_layer import MemoryLayer
from holdfast.trace.physical import Bools, Words
from holdfast.trace.rows import Block, Layout
from holdfast.trace.search import Slice
from holdfast.trace.trace import Trace

ROUND = pa.int32()
"""The type of the column of rounds."""

Rounds = npt.NDArray[np.int32]

SLOT_BITS = 8
"""The number of bits by which hashes are shifted right to squeeze them into the first slot."""


def squeezed(prepared: pa.Table) -> pa.Table:
    """The table that an operator's ``prepare`` made, with its hashes squeezed into the first slot."""
    hashes = physical.fixed(physical.plain(prepared.column("_hash")))
    return prepared.set_column(0, "_hash", pa.array(hashes >> np.uint64(SLOT_BITS)))


def with_rounds(layout: Layout) -> Layout:
    """The layout with a round as one more column at the end."""
    return replace(layout, width=layout.width + 1)


def at_round(block: Block, round: int) -> Block:
    """The rows of a block, all with one round as the last column. Their hash, sub and order do not change."""
    rounds = pa.array(np.full(block.rows, round, np.int32))
    return replace(block, columns=(*block.columns, rounds))


@dataclass(frozen=True)
class RoundSlice(Slice):
    """The rows of ``whole`` up to round ``until``, without the column of rounds. In a loop inside a loop, ``whole`` is
    a `RoundSlice` too, for the rounds of the outer loop."""

    whole: Slice
    rounds: Rounds
    until: int

    def live(self, rows: npt.NDArray[np.integer]) -> Bools | None:
        early: Bools = self.rounds[rows] <= self.until
        live = self.whole.live(rows)
        return early if live is None else live & early

    def block(self) -> Block:
        rows = np.arange(self.start, self.stop)
        live = self.live(rows)
        return self.layer.take(rows if live is None else rows[live])


class StoredRounds:
    """A trace as of the epoch before, whose rows have rounds."""

    def __init__(self, trace: Trace, layout: Layout) -> None:
        """``layout`` is the layout of the rows without their rounds."""
        self._trace, self._layout = trace, layout
        self._slices: list[RoundSlice] = []
        for piece in trace.slices:
            if piece.stop == piece.start:
                continue
            whole = piece.layer.whole
            bare = MemoryLayer(replace(whole, columns=whole.columns[:-1]), layout, collided=piece.layer.collided)
            rounds = physical.fixed(whole.columns[-1])
            self._slices.append(
                RoundSlice(bare, piece.start, piece.stop, piece.after, piece.upto, piece.cut, piece, rounds, 0)
            )

    @property
    def is_empty(self) -> bool:
        return not self._slices

    def until(self, round: int, further: Sequence[Slice] = ()) -> Trace:
        """A trace of the rows up to round ``round``, without their rounds, and of the ``further`` slices."""
        trace = Trace(
            self._trace.directory,
            self._layout,
            self._trace.low,
            self._trace.high,
            self._trace.as_of,
            self._trace.chain,
        )
        trace.slices = [*(replace(piece, until=round) for piece in self._slices), *further]
        return trace

    def rounds(self, after: int) -> list[int]:
        """The rounds after ``after`` that have rows. Reads the round of every row."""
        found: set[int] = set()
        for piece in self._slices:
            there = piece.rounds[piece.start : piece.stop]
            live = piece.whole.live(np.arange(piece.start, piece.stop))
            found.update(np.flatnonzero(np.bincount(there if live is None else there[live])).tolist())
        return [round for round in found if round > after]

    def rounds_of(self, hashes: Words, after: int) -> tuple[Rounds, Words]:
        """The rounds after ``after`` that have rows with these hashes (sorted, unique): pairs (round, hash), as two
        arrays. Pairs may repeat."""
        rounds, found = [np.zeros(0, np.int32)], [np.zeros(0, np.uint64)]
        for piece in self._slices:
            _, index, rows = search.hits(piece, hashes)
            there = piece.rounds[rows]
            late = there > after
            if (live := piece.whole.live(rows)) is not None:
                late &= live
            rounds.append(there[late])
            found.append(hashes[index[late]])
        return np.concatenate(rounds), np.concatenate(found)
