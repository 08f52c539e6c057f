"""Changes of a view as upserts and deletions by key, for databases and stores that know rows by their keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.connectors.foreach import Foreach
from holdfast.errors import DeclarationError, SinkError
from holdfast.foundation import arguments
from holdfast.plan.nodes import Field
from holdfast.trace.hashing import hash_columns, normalise_keys
from holdfast.trace.physical import plain
from holdfast.trace.rows import group_rows


def upserts(
    function: Callable[[int, pa.Table, pa.Table], object],
    key: str | Sequence[str],
    *,
    seen: Callable[[], int] | None = None,
    lineage: Callable[[], bytes] | None = None,
) -> Upserts:
    """Call ``function(epoch, rows, keys)`` for every epoch in which the view changed. The function must set ``rows``,
    each of which replaces the row of its key, and remove the rows of ``keys`` (a table of the key's columns). The view
    must have one row for each key (an epoch that adds two rows of a key is refused). ``seen`` and ``lineage``: as for
    `foreach`; without them an epoch may come twice, which does no harm to a store that sets rows by key.
    """
    arguments.callable_with("upserts", "function", function, "three arguments, (epoch, rows, keys)", 3)
    names = [key] if isinstance(key, str) else key
    if not isinstance(names, list | tuple) or not names or not all(isinstance(name, str) and name for name in names):
        arguments.refuse("upserts", "key", "the name of a column, or a list of names", key)
    return Upserts(function, tuple(names), seen, lineage)


class Upserts(Foreach):
    """See `upserts`."""

    def __init__(
        self,
        function: Callable[[int, pa.Table, pa.Table], object],
        key: tuple[str, ...],
        seen: Callable[[], int] | None,
        lineage: Callable[[], bytes] | None,
    ) -> None:
        self._key = key

        def split(epoch: int, change: pa.Table) -> None:
            function(epoch, *self.split(epoch, change))

        for name in ("__name__", "__qualname__", "__module__"):  # a function is recognised by these
            setattr(split, name, getattr(function, name, "upserts"))
        super().__init__(split, seen, lineage)

    def open(self, view: str, fields: tuple[Field, ...]) -> int | None:
        missing = [name for name in self._key if name not in [field.name for field in fields]]
        if missing:
            raise DeclarationError(f"sink of view '{view}': key {missing[0]!r} is not a column of it", view=view)
        return super().open(view, fields)

    def split(self, epoch: int, change: pa.Table) -> tuple[pa.Table, pa.Table]:
        """The rows to set and the keys to remove, for a change. Raises `SinkError` if it adds two rows of a key."""
        diff = change.column("_diff").to_numpy()
        rows = change.drop_columns(["_diff"])
        keys: list[Any] = [normalise_keys(plain(rows.column(name))) for name in self._key]
        order, starts = group_rows(hash_columns(keys, rows=len(diff)), keys)
        come = np.where(diff[order] > 0, diff[order], 0)
        per_key = np.add.reduceat(come, starts) if len(order) else np.zeros(0, np.int64)
        if len(wrong := np.flatnonzero(per_key > 1)):
            place = int(order[starts[wrong[0]]])
            found = tuple(rows.column(name)[place].as_py() for name in self._key)
            raise SinkError(
                f"view '{self._view}': epoch {epoch}: it has several rows of the key {found!r}, so they cannot be set "
                "by key; make the key unique in the view, or name more columns",
                view=self._view,
                epoch=epoch,
                key=found,
            )
        gone = order[starts[per_key == 0]]
        return rows.filter(pa.array(diff > 0)), rows.select(list(self._key)).take(pa.array(np.sort(gone)))
