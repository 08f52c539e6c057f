"""Shares of a loop's hashes: what several tasks have of it, where one alone would be slow.

All hashes inside a loop lie in the first slot (`round_traces.squeezed`), in the order of the hashes before. So they are
cut into shares as partitions are cut of all hashes: in whole buckets, which never straddle two. Rows that an operator
must see together have one hash, and are in one share; so a share is run by the very code that runs the whole.
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
"""There are no more shares than that."""


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
        """Whether hash 0 is in it, which all rows of an operator without a key have."""
        return self.index == 0

    @property
    def is_all(self) -> bool:
        return self.count == 1

    @property
    def range(self) -> tuple[int, int]:
        """Its hashes, [low, high). The last reaches to the end of all hashes."""
        starts = [*map(int, _starts(self.count)), 1 << 64]
        return starts[self.index], starts[self.index + 1]

    def cut(self, table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        """Rows with a ``_hash``, cut by the share that is to have them."""
        return cut(table, _starts(self.count))

    def cut_by(self, table: pa.Table, key: Sequence[int]) -> Iterator[tuple[int, pa.Table]]:
        """A change, cut by the hash of these columns."""
        hashes = hash_columns([table.column(index) for index in key], rows=table.num_rows) >> np.uint64(SLOT_BITS)
        for index, part in self.cut(table.add_column(0, "_hash", pa.array(hashes))):
            yield index, part.drop_columns(["_hash"])

    # -- this share of what one task has of the whole ------------------------------------------------------------------

    def rows(self, table: pa.Table) -> pa.Table:
        """Its rows of a table that is sorted by ``_hash``."""
        start, stop = self._places(physical.fixed(physical.plain(table.column("_hash"))))
        return table.slice(start, stop - start)

    def rows_by(self, table: pa.Table, key: Sequence[int]) -> pa.Table:
        """Its rows of a change, by the hash of these columns."""
        return dict(self.cut_by(table, key)).get(self.index, table.slice(0, 0))

    def blocks(self, blocks: Sequence[Block]) -> list[Block]:
        """Its rows of blocks that are sorted by hash."""
        return [block.slice(*self._places(block.hash)) for block in blocks]

    def hashes(self, hashes: Words) -> Words:
        """Its hashes of any."""
        low, high = self.range
        return hashes[(hashes >= np.uint64(low)) & (hashes <= np.uint64(high - 1))]

    def _places(self, hashes: Words) -> tuple[int, int]:
        low, high = self.range
        stop = len(hashes) if high >> 64 else int(np.searchsorted(hashes, np.uint64(high)))
        return int(np.searchsorted(hashes, np.uint64(low))), stop


ALL = Share()
"""The whole loop, in one task."""
