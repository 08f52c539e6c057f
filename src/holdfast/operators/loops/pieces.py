"""What the rounds of an epoch leave behind for its end, in a few pieces, however many rounds there are.

A round of a long chain has a single row, and a table or block of one row takes two kilobytes, nearly all of it for the
objects around the row. So a new piece is put together with those before it while they are less than twice its size. *n*
rows lie in at most log2(n) + 1 pieces, and each row is copied O(log n) times. The order of rows stays.
"""

from __future__ import annotations

import pyarrow as pa

from holdfast.trace.rows import Block

_FACTOR = 2


class Tables:
    """Changes with the same columns."""

    def __init__(self) -> None:
        self.pieces: list[pa.Table] = []

    def add(self, table: pa.Table) -> None:
        if not table.num_rows:
            return
        while self.pieces and self.pieces[-1].num_rows < _FACTOR * table.num_rows:
            table = pa.concat_tables([self.pieces.pop(), table])
        self.pieces.append(table.combine_chunks())

    @property
    def rows(self) -> int:
        return sum(piece.num_rows for piece in self.pieces)


class Blocks:
    """Rows of one trace."""

    def __init__(self) -> None:
        self.pieces: list[Block] = []

    def add(self, block: Block) -> None:
        if not block.rows:
            return
        while self.pieces and self.pieces[-1].rows < _FACTOR * block.rows:
            block = Block.concat([self.pieces.pop(), block])
        self.pieces.append(block)
