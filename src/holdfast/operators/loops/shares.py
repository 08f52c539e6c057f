"""Shares of a loop's hashes: each of several tasks has one share, where a single task would be slow.

All hashes inside a loop are in the first slot (`round_traces.squeezed`), in their original order. They are cut into
shares in the same way as all hashes are cut into partitions: a share consists of whole buckets. Rows that an operator
must see together have one hash, so they are in one share, and a share runs with the same code as the whole loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from holdfast.operators.arrived_rows import cut
from holdfast.operators.loops.round_traces import SLOT_BITS
from holdfast.operators.topk import BUCKETS
from holdfast.trace import physical
from holdfast.trace.hashing import hash_columns
from holdfast.trace.physical import Words
from holdfast.trace.rows import Block

MOST = BUCKETS
"""The greatest number of shares."""


def _starts(count: int) -> Words:
    """The first hash of each share."""
    width = (1 << 64) // BUCKETS >> SLOT_BITS
    return np.array([index * BUCKETS // count * width for index in range(count)], np.uint64)


@dataclass(frozen=True)
class Share:
    """Share ``index`` of ``count``."""

    index: int = 0
    count: int = 1

    @property
    def is_first(self) -> bool:
        """Whether the share has hash 0, the hash of all rows of an operator without a key."""
        return self.index == 0

    @property
    def is_all(self) -> bool:
        return self.count == 1

    @property
    def range(self) -> tuple[int, int]:
        """The hashes [low, high) of the share. The last share reaches to the end of all hashes."""
        starts = [*map(int, _starts(self.count)), 1 << 64]
        return starts[self.index], starts[self.index + 1]

    def cut(self, table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        """Cut rows by their ``_hash``: yield (index of the share, rows)."""
        return cut(table, _starts(self.count))

    def cut_by(self, table: pa.Table, key: Sequence[int]) -> Iterator[tuple[int, pa.Table]]:
        """Cut a change by the hash of the columns at ``key``: yield (index of the share, rows)."""
        hashes = hash_columns([table.column(index) for index in key], rows=table.num_rows) >> np.uint64(SLOT_BITS)
        for index, part in self.cut(table.add_column(0, "_hash", pa.array(hashes))):
            yield index, part.drop_columns(["_hash"])

    # -- the part of a whole state that belongs to this share ----------------------------------------------------------

    def rows(self, table: pa.Table) -> pa.Table:
        """The share's rows of a table that is sorted by ``_hash``."""
        start, stop = self._places(physical.fixed(physical.plain(table.column("_hash"))))
        return table.slice(start, stop - start)

    def rows_by(self, table: pa.Table, key: Sequence[int]) -> pa.Table:
        """The share's rows of a change, by the hash of the columns at ``key``."""
        return dict(self.cut_by(table, key)).get(self.index, table.slice(0, 0))

    def blocks(self, blocks: Sequence[Block]) -> list[Block]:
        """The share's rows of blocks that are sorted by hash."""
        return [block.slice(*self._places(block.hash)) for block in blocks]

    def hashes(self, hashes: Words) -> Words:
        """The hashes that are in the share."""
        low, high = self.range
        return hashes[(hashes >= np.uint64(low)) & (hashes <= np.uint64(high - 1))]

    def _places(self, hashes: Words) -> tuple[int, int]:
        low, high = self.range
        stop = len(hashes) if high >> 64 else int(np.searchsorted(hashes, np.uint64(high)))
        return int(np.searchsorted(hashes, np.uint64(low))), stop


ALL = Share()
"""The whole loop, in one task."""
