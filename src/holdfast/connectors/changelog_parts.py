"""Parts of a changelog's epoch that tasks write, and the one file that they become.

A task writes its rows to ``_parts/<attempt>/<random>.parquet`` below the changelog. The commit joins the parts to one
file, without reading a row (`joined_parquet.py`): the other parts are appended to the first. So consumers see one file
per epoch, whole or not at all, whoever wrote its rows; and the rows of an epoch need not fit into the driver.

A task may run on a host that does not have the changelog's directory. So each opening of the sink writes an empty file
with a random name, the *probe*; a task that does not find it writes nothing.

`_parts` is a name that readers of Parquet directories pass over.
"""

from __future__ import annotations

import os
import shutil
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.connectors.joined_parquet import join
from holdfast.connectors.part_writer import PartWriter
from holdfast.foundation.atomic_files import temporary_path

PARTS = "_parts"
_PROBE = ".probe-"


def in_form(change: pa.Table, schema: pa.Schema, epochs: pa.Array | pa.ChunkedArray) -> pa.Table:
    """A change in the form of a data file: the view's columns, ``_epoch`` and ``_diff``."""
    columns = [change.column(index).cast(field.type) for index, field in enumerate(schema)]
    return pa.table([*columns, epochs, change.column("_diff")], names=[*schema.names, "_epoch", "_diff"])


def epochs_of(change: pa.Table, epoch: int) -> pa.Array:
    """The column ``_epoch`` of the change of one epoch."""
    return pa.array(np.full(change.num_rows, epoch, dtype=np.int64))


def write_file(table: pa.Table, path: Path) -> None:
    """Write a data file, or a part of one."""
    pq.write_table(table, path, compression="zstd", write_page_checksum=True)


@dataclass(frozen=True)
class ChangelogPartWriter(PartWriter):
    """Writes parts of the changelog in ``directory``."""

    directory: str
    probe: str
    schema: pa.Schema

    def write(self, epoch: int, attempt: str, change: pa.Table) -> tuple[str, int] | None:
        """Return the path of the part below the changelog, and its number of rows."""
        parts = Path(self.directory) / PARTS
        if not (parts / self.probe).exists():
            return None
        table = in_form(change, self.schema, epochs_of(change, epoch))
        (parts / attempt).mkdir(exist_ok=True)
        path = parts / attempt / f"{uuid.uuid4().hex}.parquet"
        write_file(table, path)
        return str(path.relative_to(self.directory)), change.num_rows


class ChangelogParts:
    """The parts below the changelog in the directory ``path``. Methods let OSError through."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._probe = _PROBE + uuid.uuid4().hex

    def writer(self, schema: pa.Schema) -> ChangelogPartWriter:
        """The writer to send to tasks. It writes nothing before `open`."""
        return ChangelogPartWriter(str(self._path), self._probe, schema)

    def open(self, older: float) -> None:
        """Write the probe, and remove what was left for more than ``older`` seconds: nobody commits it any more."""
        parts = self._path / PARTS
        parts.mkdir(exist_ok=True)
        for name in os.listdir(parts):
            with suppress(FileNotFoundError):
                if name != self._probe and time.time() - (parts / name).stat().st_mtime > older:
                    self._remove(parts / name)
        (parts / self._probe).touch()

    def join(self, parts: Sequence[str], rest: pa.Table, pairs: Mapping[bytes, bytes], name: str) -> Path:
        """Make one file of the parts and the rows of ``rest``, with these key-value pairs in its footer, and return its
        path, which is hidden. ``name``: the name that the file will have."""
        files = [self._path / part for part in parts]
        if rest.num_rows:
            files.append(files[0].with_name(f"{uuid.uuid4().hex}.parquet"))
            write_file(rest, files[-1])
        with temporary_path(self._path, name) as hidden:
            # A copy: if this commit fails, it may be made again with the same parts.
            shutil.copyfile(files[0], hidden)
            join([hidden, *files[1:]], pairs)
        return hidden

    def drop(self, attempt: str) -> None:
        """Remove all parts of an attempt."""
        self._remove(self._path / PARTS / attempt)

    def close(self) -> None:
        """Remove the probe."""
        (self._path / PARTS / self._probe).unlink(missing_ok=True)

    def _remove(self, path: Path) -> None:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)  # a task may write another part meanwhile: it is removed later
        else:
            path.unlink(missing_ok=True)
