"""The rows that the rounds of an epoch collect for its end, in a few pieces, however many rounds there are.

A round of a long chain may have a single row, and a table or block of one row takes two kilobytes, nearly all of it for
the objects around the row. So a new piece is joined with the pieces before it while they have less than twice its rows.
*n* rows are in at most log2(n) + 1 pieces, and each row is copied O(log n) times. The order of rows is kept. Large
pieces are never joined: they are few, and their rows may be in a mapped file (`task/round_state.py`).
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from holdfast.trace.rows import Block

_FACTOR = 2
_LARGE = 1 << 18


def _joins(before: int, rows: int) -> bool:
    """Whether a new piece with ``rows`` rows is joined with the piece of ``before`` rows before it."""
    return before < min(_FACTOR * rows, _LARGE)


class Tables:
    """Changes with the same columns, collected in a few pieces."""

    def __init__(self) -> None:
        self.pieces: list[pa.Table] = []

    def add(self, table: pa.Table) -> None:
        if not table.num_rows:
            return
        while self.pieces and _joins(self.pieces[-1].num_rows, table.num_rows):
            table = pa.concat_tables([self.pieces.pop(), table])
        self.pieces.append(table.combine_chunks())

    def absorb(self, pieces: Iterable[pa.Table]) -> None:
        """Add the pieces of another task as they are."""
        self.pieces += [piece for piece in pieces if piece.num_rows]

    @property
    def rows(self) -> int:
        return sum(piece.num_rows for piece in self.pieces)


class Blocks:
    """Rows of one trace, collected in a few pieces."""

    def __init__(self) -> None:
        self.pieces: list[Block] = []

    def add(self, block: Block) -> None:
        if not block.rows:
            return
        while self.pieces and _joins(self.pieces[-1].rows, block.rows):
            block = Block.concat([self.pieces.pop(), block])
        self.pieces.append(block)

    def absorb(self, pieces: Iterable[Block]) -> None:
        """Add the pieces of another task as they are."""
        self.pieces += [piece for piece in pieces if piece.rows]
