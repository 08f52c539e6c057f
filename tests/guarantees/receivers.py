"""Receivers of rows, each a real SQLite database: one that only drops ids it has, and one that is transactional."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa


class Broken(Exception):
    """The receiver fails in the middle of a change."""


class ById:
    """Rows under a unique key, ``_id``: one that comes again is dropped. ``function`` takes a change, row by row, each
    in a transaction of its own; with ``fails_after`` it fails, once, after so many rows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.fails_after: int | None = None
        self.calls: list[tuple[int, list[tuple[Any, ...]]]] = []
        """What it was called with: the epoch, and the rows in their order."""

        with self._database() as database:
            database.execute("CREATE TABLE IF NOT EXISTS received (id TEXT PRIMARY KEY, row TEXT, diff INTEGER)")

    def function(self, epoch: int, change: pa.Table) -> None:
        rows = list(zip(*(column.to_pylist() for column in change.columns), strict=True))
        self.calls.append((epoch, rows))
        with self._database() as database:
            for number, row in enumerate(rows):
                if self.fails_after is not None and number == self.fails_after:
                    self.fails_after = None
                    raise Broken
                *values, key, diff = row
                database.execute("INSERT OR IGNORE INTO received VALUES (?, ?, ?)", (key, repr(tuple(values)), diff))

    @property
    def total(self) -> Counter[str]:
        """The rows that the receiver holds, as texts."""
        with self._database() as database:
            rows = database.execute("SELECT row, sum(diff) FROM received GROUP BY row HAVING sum(diff) <> 0")
            return Counter(dict(rows.fetchall()))

    @property
    def received(self) -> int:
        with self._database() as database:
            return int(database.execute("SELECT count(*) FROM received").fetchone()[0])

    def _database(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, isolation_level=None)


class Transactional:
    """Rows, the last epoch and its lineage in one transaction: as ``hf.foreach`` advises."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._database() as database:
            database.execute("CREATE TABLE IF NOT EXISTS received (epoch INTEGER, row TEXT, diff INTEGER)")
            database.execute("CREATE TABLE IF NOT EXISTS progress (epoch INTEGER, lineage BLOB)")

    def function(self, epoch: int, change: pa.Table) -> None:
        rows = zip(*(column.to_pylist() for column in change.columns), strict=True)
        with self._database() as database:
            database.execute("BEGIN IMMEDIATE")
            database.executemany(
                "INSERT INTO received VALUES (?, ?, ?)", [(epoch, repr(row[:-1]), row[-1]) for row in rows]
            )
            lineage = change.schema.metadata[b"holdfast.lineage"]
            database.execute("INSERT INTO progress VALUES (?, ?)", (epoch, lineage))

    def seen(self) -> int:
        return self._last("epoch", -1)

    def lineage(self) -> bytes:
        return self._last("lineage", b"")

    def _last(self, column: str, nothing: Any) -> Any:
        with self._database() as database:
            found = database.execute(f"SELECT {column} FROM progress ORDER BY epoch DESC LIMIT 1").fetchone()
        return nothing if found is None else found[0]

    @property
    def total(self) -> Counter[str]:
        with self._database() as database:
            rows = database.execute("SELECT row, sum(diff) FROM received GROUP BY row HAVING sum(diff) <> 0")
            return Counter(dict(rows.fetchall()))

    @property
    def epochs(self) -> list[int]:
        with self._database() as database:
            return [row[0] for row in database.execute("SELECT epoch FROM progress ORDER BY rowid")]

    def _database(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, isolation_level=None)


def held(rows: Any, form: Callable[[Any], Any] = tuple) -> Counter[str]:
    """Rows of a view in the form in which receivers hold them."""
    return Counter(repr(form(row)) for row in rows)
