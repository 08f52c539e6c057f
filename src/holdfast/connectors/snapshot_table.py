"""The current rows of a view as one Parquet file, replaced atomically.

The file holds the view's rows; its footer names the view, the epoch, and the lineage that came with the epoch. So the
sink can say which epoch it has, and each epoch takes effect once, through any crash. A new file is written under
another name, synced, and renamed: a reader sees the old rows or the new ones, never a mixture. An epoch that does not
change the view does not write the file, unless it carries lineage.

Cost: an epoch writes the whole view. The sink is for small views that people look at; the cost of `hf.changelog`
follows the change.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.connectors.sink import Sink
from holdfast.errors import Fenced, SinkError
from holdfast.foundation import arguments
from holdfast.foundation.atomic_files import replace_file
from holdfast.foundation.os_errors import fix
from holdfast.plan.nodes import Field
from holdfast.plan.types import arrow_type
from holdfast.trace import exact, physical
from holdfast.trace.hashing import hash_columns
from holdfast.trace.rows import Block, Layout, consolidate, constant_epoch

_VIEW, _EPOCH, _FIELDS, _LINEAGE = (f"holdfast.{name}".encode() for name in ("view", "epoch", "fields", "lineage"))


def snapshot_table(path: str | os.PathLike[str]) -> SnapshotTable:
    """Keep the current rows of a view in the Parquet file ``path``, for tools that read tables. Each epoch that changes
    the view writes all its rows and replaces the file atomically. Exactly once: the file says which epoch it has."""
    arguments.path("snapshot_table", "path", path)
    return SnapshotTable(path)


class SnapshotTable(Sink):
    """See `snapshot_table`."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(os.path.abspath(os.path.expanduser(os.fspath(path))))
        self._view = ""
        self._fields: tuple[Field, ...] = ()
        self._epoch = -1
        self._carried = b""
        self._rows: pa.Table | None = None

    def target(self) -> str | None:
        return os.path.realpath(self.path)

    def open(self, view: str, fields: tuple[Field, ...]) -> int | None:
        self._view, self._fields = view, fields
        self._rows = None
        self._epoch, self._carried = -1, b""
        if not self.path.exists():
            with suppress(OSError):
                self.path.parent.mkdir(parents=True, exist_ok=True)
            return -1
        if self.path.is_dir():
            raise self._error(
                f"{self.path} is a directory, and the rows are kept in one Parquet file; give the path of a file, such "
                f"as {self.path / view}.parquet"
            )
        said = self._read().schema.metadata or {}
        if _VIEW not in said:
            raise self._error(f"{self.path} is there, and is no snapshot of a view; give another path")
        if said[_VIEW].decode() != view:
            raise self._error(f"{self.path} holds the rows of view '{said[_VIEW].decode()}'; give each view its own")
        if json.loads(said[_FIELDS]) != self._described():
            raise self._error(
                f"{self.path} holds rows with other columns; remove it, or let go of it (flow.unsink) and give another"
            )
        self._epoch, self._carried = int(said[_EPOCH]), bytes.fromhex(said[_LINEAGE].decode())
        return self._epoch

    def taken(self) -> int | None:
        # Read it from the file: a commit that raised may have replaced the file.
        try:
            said = (pq.read_schema(self.path).metadata or {}) if self.path.exists() else {}
        except (OSError, pa.ArrowException) as error:
            raise self._error(f"{self.path} does not read ({str(error).partition(chr(10))[0]})") from error
        if (found := int(said.get(_EPOCH, b"-1"))) > self._epoch:
            self._rows, self._epoch = None, found
            self._carried = bytes.fromhex(said.get(_LINEAGE, b"").decode())
        return self._epoch

    def lineage(self) -> bytes:
        return self._carried

    def commit(self, epoch: int, change: pa.Table, lineage: bytes) -> None:
        if epoch <= self._epoch:
            raise Fenced(f"{self.path} has epoch {self._epoch} already, from another driver", path=str(self.path))
        before = self._table()
        rows = _applied(before, change, [arrow_type(field.type) for field in self._fields])
        named = rows.replace_schema_metadata(
            {
                _VIEW: self._view.encode(),
                _EPOCH: str(epoch).encode(),
                _FIELDS: json.dumps(self._described()).encode(),
                _LINEAGE: lineage.hex().encode(),
            }
        )
        made = pa.BufferOutputStream()
        pq.write_table(named, made, compression="zstd")
        try:
            found = self._there()
            if found > self._epoch:
                raise Fenced(f"{self.path} has epoch {found} already, from another driver", path=str(self.path))
            replace_file(self.path, made.getvalue().to_pybytes(), sync=True)
        except OSError as error:
            raise self._error(f"{self.path} cannot be written: {fix(error)}", errno=error.errno) from error
        self._rows, self._epoch, self._carried = rows, epoch, lineage

    def close(self) -> None:
        self._rows = None

    def _there(self) -> int:
        if not self.path.exists():
            return -1
        said = pq.read_schema(self.path).metadata or {}
        return int(said.get(_EPOCH, b"-1"))

    def _table(self) -> pa.Table:
        if self._rows is None:
            schema = pa.schema([(field.name, arrow_type(field.type)) for field in self._fields])
            self._rows = schema.empty_table() if self._epoch < 0 else self._read().cast(schema)
        return self._rows

    def _read(self) -> pa.Table:
        try:
            return pq.read_table(self.path, memory_map=False)
        except (OSError, pa.ArrowException) as error:
            reason = str(error).split("\n", 1)[0]
            raise self._error(f"{self.path} does not read ({reason}); remove it, and it is written again") from error

    def _described(self) -> list[list[str]]:
        return [[field.name, field.type] for field in self._fields]

    def _error(self, text: str, **fields: object) -> SinkError:
        return SinkError(f"view '{self._view}': {text}", view=self._view, path=str(self.path), **fields)


def _applied(rows: pa.Table, change: pa.Table, types: list[pa.DataType]) -> pa.Table:
    """The rows after a change, in an order that depends on the rows alone."""
    diff = np.concatenate([np.ones(rows.num_rows, np.int64), change.column("_diff").to_numpy()])
    columns = tuple(
        physical.plain(pa.chunked_array([*old.chunks, *new.cast(kind).chunks], kind))
        for old, new, kind in zip(rows.columns, change.columns, types, strict=False)
    )
    layout = Layout(len(columns), len(columns))
    hashes = hash_columns(columns, rows=len(diff))
    whole = consolidate(Block(hashes, None, columns, constant_epoch(0, len(diff)), {"+diff": diff}), layout)
    taken = whole.take(exact.repeated(whole.diff))
    return pa.table([each.cast(kind) for each, kind in zip(taken.columns, types, strict=True)], names=rows.column_names)
