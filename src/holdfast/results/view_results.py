"""The results of reading live state: rows that a look-up found, and the changes of an epoch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from holdfast.errors import HoldfastError
from holdfast.foundation.first_names import first_names


@dataclass(frozen=True)
class Found:
    """The rows that a look-up found, all as of one epoch. It has a length, and iterating over it gives dicts."""

    view: str
    epoch: int
    table: pa.Table
    scanned: bool = False
    """Whether the whole view was read, because the columns asked for are not its key."""

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows as dicts, in the order of the keys that were asked for."""
        found: list[dict[str, Any]] = self.table.to_pylist()
        return found

    @property
    def row(self) -> dict[str, Any] | None:
        """The only row; None if no row was found. Raise `HoldfastError` if there are several."""
        if len(self) > 1:
            raise HoldfastError(
                f"view '{self.view}', lookup: expected one row, found {len(self)}; .rows has all of them",
                view=self.view,
                rows=len(self),
            )
        return self.rows[0] if len(self) else None

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def __repr__(self) -> str:
        return f"Found('{self.view}' at epoch {self.epoch}: {_first_rows(self.table)})"


@dataclass(frozen=True)
class Changes:
    """The change of a view in an epoch."""

    view: str
    epoch: int
    table: pa.Table
    """The view's columns, and ``_diff``: how many copies of the row were added (negative: removed)."""

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows as dicts, each with its ``_diff``."""
        found: list[dict[str, Any]] = self.table.to_pylist()
        return found

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __repr__(self) -> str:
        return f"Changes('{self.view}' at epoch {self.epoch}: {_first_rows(self.table)})"


def _first_rows(table: pa.Table) -> str:
    """Return the first few rows, on one line, and how many more there are."""
    if not table.num_rows:
        return "no rows"
    return first_names([", ".join(f"{name} {value!r}" for name, value in row.items()) for row in table.to_pylist()])
