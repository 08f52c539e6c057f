"""The rows that arrived at a port of an operator in the rounds of an epoch so far, searchable by hash.

They are kept as tables sorted by hash. A new table is merged with the tables before it while they have less than twice
its rows. So a thousand rounds leave a dozen tables, and a row is copied O(log rows) times.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from holdfast.operators.arrived_rows import zero_filled
from holdfast.trace import physical
from holdfast.trace.inner_loops import argsort, spans
from holdfast.trace.physical import Words

_FACTOR = 2


class Arrivals:
    """The tables of one port, as ``prepare`` made them."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._tables: list[tuple[Words, pa.Table]] = []

    def add(self, table: pa.Table) -> None:
        """Add the rows that arrived in a round."""
        if not table.num_rows:
            return
        while self._tables and self._tables[-1][1].num_rows < _FACTOR * table.num_rows:
            table = zero_filled([self._tables.pop()[1], table], self._schema)
        hashes = physical.fixed(physical.plain(table.column("_hash")))
        if (hashes[1:] < hashes[:-1]).any():
            order = argsort(hashes)
            table, hashes = table.take(pa.array(order)), hashes[order]
        self._tables.append((hashes, table.combine_chunks()))

    @property
    def tables(self) -> list[pa.Table]:
        """The tables, each sorted by hash."""
        return [table for _, table in self._tables]

    def absorb(self, tables: Iterable[pa.Table]) -> None:
        """Add the tables of another task for this port, without merging them. Each must be sorted by hash."""
        some = [table for table in tables if table.num_rows]
        self._tables += [(physical.fixed(physical.plain(table.column("_hash"))), table) for table in some]
        self._tables.sort(key=lambda each: -each[1].num_rows)

    @property
    def rows(self) -> int:
        return sum(table.num_rows for _, table in self._tables)

    def all(self) -> pa.Table:
        """All rows."""
        return self.together(self.tables)

    def of(self, hashes: Words) -> pa.Table:
        """The rows with these hashes (sorted, unique)."""
        found = []
        for mine, table in self._tables:
            rows = physical.ranges(*spans(mine, hashes))
            if len(rows):
                found.append(table.take(pa.array(rows)))
        return self.together(found)

    def together(self, tables: list[pa.Table]) -> pa.Table:
        """Concatenate tables of this port."""
        return zero_filled([table for table in tables if table.num_rows], self._schema)
