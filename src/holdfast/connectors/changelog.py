"""A directory of Parquet files as a sink: one file per epoch, written whole or not at all.

``epoch-000000000042.parquet`` holds the view's columns, ``_epoch`` and ``_diff``; adding up ``_diff`` over all files
gives the view. The lineage rides in the same file's metadata, so that one link commits both (invariant 6, causal): a
file is written under a hidden name, which readers pass over, and linked to its own, which fails if another driver has
taken that epoch. An epoch that brings neither rows nor lineage leaves no file: to be told of it again after a restart
does no harm.

Files are not synced to disk. A power cut may therefore leave the last ones empty or torn; ``open`` removes them, and
Holdfast commits those epochs again from its log, with the same content.
"""

from __future__ import annotations

import base64
import json
import os
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.connectors.sink import Sink
from holdfast.errors import Fenced, SinkError
from holdfast.plan.nodes import Field
from holdfast.plan.types import arrow_type

_NAME = re.compile(r"epoch-(\d{12})\.parquet")
_LINEAGE, _VIEW, _FIELDS = b"holdfast.lineage", b"holdfast.view", b"holdfast.fields"


def changelog(path: str | os.PathLike[str]) -> Changelog:
    """Write a view's changes to the directory ``path``, as Parquet, exactly once."""
    return Changelog(path)


class Changelog(Sink):
    """See `changelog`."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(os.path.abspath(os.path.expanduser(os.fspath(path))))
        self._view = ""
        self._schema = pa.schema([])
        self._metadata: dict[bytes, bytes] = {}

    def open(self, view: str, fields: tuple[Field, ...]) -> int | None:
        self._view = view
        for field in fields:
            if field.name.lower() in ("_epoch", "_diff"):
                raise self._error(f"the changelog has a column {field.name!r} of its own; rename the view's")
        self._schema = pa.schema([pa.field(field.name, arrow_type(field.type)) for field in fields])
        self._metadata = {
            _VIEW: view.encode(),
            _FIELDS: json.dumps([[field.name, field.type] for field in fields]).encode(),
        }
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            for leftover in self.path.glob(".epoch-*.tmp"):
                leftover.unlink(missing_ok=True)
        except OSError as error:
            raise self._error(f"cannot use {self.path}: {error.strerror}") from error
        if not os.access(self.path, os.W_OK):
            raise self._error(f"cannot write to {self.path}: permission denied")
        return self._last_epoch()

    def _last_epoch(self) -> int:
        for epoch in sorted(committed(self.path), reverse=True):
            path = self.path / _name(epoch)
            try:
                metadata = pq.read_schema(path).metadata or {}
            except (pa.ArrowException, OSError):
                path.unlink(missing_ok=True)
                continue
            self._check_owner(path, metadata)
            return epoch
        return -1

    def _check_owner(self, path: Path, metadata: dict[bytes, bytes]) -> None:
        if _VIEW not in metadata:
            raise self._error(f"{path} was not written by Holdfast; give the changelog a directory of its own")
        if metadata[_VIEW] != self._metadata[_VIEW]:
            raise self._error(
                f"{self.path} holds the changelog of view '{metadata[_VIEW].decode()}'; give each view its own"
            )
        if metadata.get(_FIELDS) != self._metadata[_FIELDS]:
            found, expected = (
                ", ".join(f"{name} {kind}" for name, kind in json.loads(text))
                for text in (metadata.get(_FIELDS, b"[]"), self._metadata[_FIELDS])
            )
            raise self._error(
                f"{self.path} holds its changelog with other columns: there ({found}), now ({expected}); "
                "use another directory for the new form of the view"
            )

    def commit(self, epoch: int, change: pa.Table, lineage: bytes) -> None:
        if change.num_rows == 0 and not lineage:
            return
        count = change.num_rows
        columns = [change.column(place).cast(field.type) for place, field in enumerate(self._schema)]
        table = pa.table(
            [*columns, pa.array(np.full(count, epoch, dtype=np.int64)), change.column("_diff")],
            names=[*self._schema.names, "_epoch", "_diff"],
        )
        # Parquet's metadata are texts: readers in other languages would garble raw bytes.
        table = table.replace_schema_metadata({**self._metadata, _LINEAGE: base64.b64encode(lineage)})
        final = self.path / _name(epoch)
        hidden = self.path / f".{final.name}.{os.getpid()}.tmp"
        try:
            pq.write_table(table, hidden, compression="zstd")
            # A link fails where a rename would replace: of two drivers at once only one gets an epoch.
            os.link(hidden, final)
        except FileExistsError:
            self._check_same(epoch, lineage)
        except OSError as error:
            raise self._error(f"epoch {epoch}: cannot write {final}: {error.strerror or error}", epoch=epoch) from error
        finally:
            hidden.unlink(missing_ok=True)

    def lineage(self) -> bytes:
        last = self._last_epoch()
        return b"" if last < 0 else lineage_of(self.path, last)

    def _check_same(self, epoch: int, lineage: bytes) -> None:
        """There is a file of this epoch: another attempt at the same commit, or another driver's epoch."""
        there = lineage_of(self.path, epoch)
        # How much of the lineage an attempt carries depends on how much was durable then; its last record does not.
        if there != lineage and _last_record(there) != _last_record(lineage):
            raise Fenced(
                f"view '{self._view}': {self.path} has epoch {epoch} of another driver, which has taken over; "
                "this one must stop, and nothing that it did since counts",
                view=self._view,
                epoch=epoch,
            )

    def _error(self, what: str, **fields: object) -> SinkError:
        return SinkError(f"view '{self._view}': {what}", view=self._view, path=str(self.path), **fields)


def committed(path: Path) -> list[int]:
    """The epochs that have a file in the changelog at ``path``, in order."""
    return sorted(int(found[1]) for name in os.listdir(path) if (found := _NAME.fullmatch(name)))


def lineage_of(path: Path, epoch: int) -> bytes:
    """The lineage that was committed with ``epoch``."""
    metadata = pq.read_schema(path / _name(epoch)).metadata or {}
    return base64.b64decode(metadata.get(_LINEAGE, b""))


def _last_record(lineage: bytes) -> bytes:
    return lineage.rstrip(b"\n").rpartition(b"\n")[2]


def _name(epoch: int) -> str:
    return f"epoch-{epoch:012d}.parquet"
