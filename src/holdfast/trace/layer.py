"""A layer: an immutable, memory-mapped Arrow file of canonical rows.

One IPC file, one record batch: ``_hash``, ``_sub`` (if the layout has it), ``c0…``, ``_epoch`` (unless all rows have
one epoch, which is then in the metadata), and the additive columns in order of their names. Additive columns that are
all zero are left out, except ``+diff``. Schema metadata: ``holdfast.layer`` = format version, ``holdfast.layout``,
``holdfast.epoch``, ``holdfast.collided``, and the entries that the caller adds.

The bytes are a function of the rows, the layout and the metadata, and the name ends with their checksum. So writing is
idempotent: a temporary file, then a rename. A second writer replaces the file by an equal file, and so repairs it if a
crash of the host left it torn. Nothing is synced (level "memory").
Opening a layer maps the file, compares its checksum with its name (a pass over the mapped bytes that allocates no
memory) and reads its footer. So bytes that the disk corrupted are never computed with. A process keeps the last
``_CACHED`` layers open, which is safe because the bytes behind a name never change.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import OrderedDict
from collections.abc import Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from holdfast.errors import LogDamaged, LogFormat, LogUnreadable
from holdfast.foundation.atomic_files import temporary_path
from holdfast.foundation.os_errors import fix
from holdfast.foundation.retries import retrying
from holdfast.trace import physical
from holdfast.trace.canonical import canonical
from holdfast.trace.equality import equal_rows
from holdfast.trace.name import LayerName
from holdfast.trace.physical import Ints, Words
from holdfast.trace.rows import Block, Layout, consolidate, constant_epoch, is_constant

FORMAT = "1"

_CACHED = 4096
"""Layers that a process keeps open, a few kilobytes each. An epoch opens the layers of its traces in the same order as
the last one, so with one more than this it would open, and check, every one of them again."""
_NO_EPOCH = 0
"""The epoch in the metadata of a layer without rows, whatever its epochs: its bytes are then those of all others."""


def write_layer(
    directory: Path,
    block: Block,
    layout: Layout,
    *,
    low: int,
    high: int,
    first: int,
    last: int,
    digest: str,
    since: int = -1,
    metadata: dict[str, str] | None = None,
) -> LayerName:
    """Write the rows as one layer of hashes [low, high) and epochs first … last, and return its name. The rows need not
    be consolidated."""
    directory.mkdir(parents=True, exist_ok=True)
    # The name has the checksum, so it is known only when all bytes are written.
    with temporary_path(directory) as temporary:
        with open(temporary, "xb") as file:
            sink = _Checksummed(file)
            block = consolidate(block, layout) if block.rows else block
            # A layer whose rows all cancelled must have the same bytes as a layer that never had rows: no column types.
            if block.rows == 0:
                sink.write(empty_layer(layout, tuple(sorted((metadata or {}).items())))[0])
            else:
                encode(pa.PythonFile(sink, "w"), block, layout, metadata=metadata or {})
        name = LayerName(low, high, first, last, digest, since, sink.checksum.hexdigest())
        os.replace(temporary, directory / name.text())
    return name


@lru_cache(maxsize=256)
def empty_layer(layout: Layout, metadata: tuple[tuple[str, str], ...] = ()) -> tuple[bytes, str]:
    """The bytes of a layer without rows, and their checksum. They are a function of the layout and the metadata, and
    not of the epoch, so all such layers of a layout are equal."""
    sink = pa.BufferOutputStream()
    encode(sink, Block.empty(layout), layout, metadata=dict(metadata))
    written: bytes = sink.getvalue().to_pybytes()
    return written, xxhash.xxh3_64_hexdigest(written)


class _Checksummed:
    """A file that computes the checksum of the bytes written to it, so that a layer is never held in memory twice."""

    closed = False

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.checksum = xxhash.xxh3_64()

    def write(self, data: bytes) -> int:
        self.checksum.update(data)
        return self.file.write(data)

    def tell(self) -> int:
        return self.file.tell()

    def flush(self) -> None:
        self.file.flush()

    def close(self) -> None:
        """Do nothing: `write_layer` opened the file and closes it."""


def encode(sink: pa.NativeFile, block: Block, layout: Layout, *, metadata: dict[str, str]) -> None:
    """Write a canonical block as a file."""
    batch = as_batch(block, layout, metadata=metadata)
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)


def as_batch(block: Block, layout: Layout, *, metadata: dict[str, str]) -> pa.RecordBatch:
    """Return a canonical block as the columns and the schema metadata of a layer."""
    arrays = [pa.array(block.hash)]
    names = ["_hash"]
    if block.sub is not None:
        arrays.append(pa.array(block.sub))
        names.append("_sub")
    for i, column in enumerate(block.columns):
        arrays.append(canonical(column))
        names.append(f"c{i}")
    described = {"holdfast.layer": FORMAT, "holdfast.layout": f"{layout.width},{layout.key},{layout.sub}"}
    if block.rows == 0 or is_constant(block.epoch):
        described["holdfast.epoch"] = str(int(block.epoch[0]) if block.rows else _NO_EPOCH)
    else:
        arrays.append(pa.array(block.epoch))
        names.append("_epoch")
    if has_collisions(block, layout):
        described["holdfast.collided"] = "yes"
    for name in sorted(block.adds.keys() | {"+diff"}):
        values = block.add(name)
        if name == "+diff" or values.any():
            arrays.append(pa.array(values))
            names.append(name)
    described.update(sorted(metadata.items()))
    schema = pa.schema([pa.field(n, a.type) for n, a in zip(names, arrays, strict=True)], metadata=described)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def has_collisions(block: Block, layout: Layout) -> bool:
    """Whether two keys share a hash. False unless rows are ordered within a hash (``sub`` is "order"): a reader that
    wants the first rows of a key may stop early only if all rows of the hash belong to this key."""
    if layout.sub != "order" or layout.key == 0 or block.rows < 2:
        return False
    at = np.flatnonzero(block.hash[1:] == block.hash[:-1])
    keys = block.columns[: layout.key]
    return not equal_rows(physical.take_all(keys, at), physical.take_all(keys, at + 1)).all()


@dataclass(frozen=True)
class Description:
    """The schema metadata of a layer. ``epoch`` is None when its rows have several epochs; ``metadata`` has the entries
    that the writer added."""

    layout: Layout
    epoch: int | None
    collided: bool
    metadata: dict[str, str]


def describe(schema: pa.Schema, where: str) -> Description:
    """Read the schema metadata of a layer. Raises LogFormat if the format version is unknown, KeyError or ValueError if
    the metadata is not that of a layer."""
    said = {key.decode(): value.decode() for key, value in (schema.metadata or {}).items()}
    version = said.pop("holdfast.layer", "")
    if version != FORMAT:
        raise LogFormat(
            f"layer {where} has format {version or 'unknown'}; this Holdfast reads format {FORMAT}", path=where
        )
    width, key, sub = said.pop("holdfast.layout").split(",")
    epoch = said.pop("holdfast.epoch", None)
    collided = said.pop("holdfast.collided", "") == "yes"
    return Description(Layout(int(width), int(key), sub), None if epoch is None else int(epoch), collided, said)


class Layer:
    """An open layer. All arrays are views of the mapped file: never write to them."""

    def __init__(self, path: Path, name: LayerName, batch: pa.RecordBatch) -> None:
        described = describe(batch.schema, str(path))
        self.path = path
        self.name = name
        self.rows: int = batch.num_rows
        self.layout = described.layout
        self.collided = described.collided
        self.constant = described.epoch
        self.metadata = described.metadata
        self._batch = batch
        self._places = {field: i for i, field in enumerate(batch.schema.names)}

    def _view(self, column: str) -> npt.NDArray[Any]:
        return physical.fixed(self._batch.column(self._places[column]))

    @cached_property
    def hash(self) -> Words:
        return self._view("_hash")

    @cached_property
    def sub(self) -> Words | None:
        return self._view("_sub") if "_sub" in self._places else None

    @cached_property
    def epoch(self) -> Ints:
        if self.constant is not None:
            return constant_epoch(self.constant, self.rows)
        return self._view("_epoch")

    @cached_property
    def columns(self) -> tuple[pa.Array, ...]:
        return tuple(self._batch.column(self._places[f"c{i}"]) for i in range(self.layout.width))

    @cached_property
    def whole(self) -> Block:
        adds = {name: self._view(name) for name in self._places if name.startswith("+")}
        return Block(self.hash, self.sub, self.columns, self.epoch, adds)

    def block(self, start: int = 0, stop: int | None = None) -> Block:
        """Rows [start, stop), without copying."""
        return self.whole.slice(start, self.rows if stop is None else stop)

    def take(self, rows: npt.NDArray[np.integer]) -> Block:
        return self.whole.take(rows)

    def find(self, bound: int) -> int:
        """The first row whose hash is at least ``bound``."""
        return self.rows if bound >= 1 << 64 else int(np.searchsorted(self.hash, np.uint64(bound)))


_open: OrderedDict[tuple[str, str], Layer] = OrderedDict()
_open_in: dict[str, set[str]] = {}
"""Directory → names of its open layers: the keys of ``_open``, grouped for ``retain``."""
_lock = threading.Lock()


def open_layer(path: Path) -> Layer:
    """Map the layer in a file, or return it if it is open. Raises FileNotFoundError if there is no file, LogDamaged if
    the bytes do not match the name, LogUnreadable if the file cannot be read now."""
    key = os.path.split(path)
    with _lock:
        layer = _open.get(key)
        if layer is not None:
            _open.move_to_end(key)
            return layer
    layer = _map(Path(path))
    with _lock:
        _open[key] = layer
        _open_in.setdefault(key[0], set()).add(key[1])
        while len(_open) > _CACHED:
            _forget(next(iter(_open)))
    return layer


def _forget(key: tuple[str, str]) -> None:
    _open.pop(key, None)
    _open_in[key[0]].discard(key[1])
    if not _open_in[key[0]]:
        del _open_in[key[0]]


def retain(directory: Path, listing: Container[str]) -> None:
    """Close the open layers of this directory that are not in the listing: a mapping keeps a removed file's space."""
    where = os.fspath(directory)
    with _lock:
        for file in [file for file in _open_in.get(where, ()) if file not in listing]:
            _forget((where, file))


def forget_all() -> None:
    """Close every open layer, as in a new process."""
    with _lock:
        _open.clear()
        _open_in.clear()


def _map(path: Path) -> Layer:
    name = LayerName.parse(path.name)
    if name is None:
        raise LogDamaged(f"{path} is not the name of a layer", path=str(path))
    with _damage(path):
        mapped = retrying(lambda: _mapped(path))
        check_bytes(mapped, name, str(path))
        reader = pa.ipc.open_file(mapped)
        if reader.num_record_batches != 1:
            raise ValueError(f"expected one record batch, found {reader.num_record_batches}")
        batch = reader.get_batch(0)
        batch.validate()
        check_types(batch.schema)
        return Layer(path, name, batch)


def _mapped(path: Path) -> pa.Buffer:
    """Map all bytes of a file. Raises OSError (EIO) if only a part of them could be mapped."""
    size = os.stat(path).st_size
    try:
        mapped = pa.memory_map(os.fspath(path)).read_buffer()
    except OSError as error:
        if error.errno is None:
            # Arrow reports a system error as text, without its number. Without a number it would count as damage.
            raise OSError(errno.EIO, str(error), os.fspath(path)) from error
        raise
    if mapped.size < size:
        raise OSError(errno.EIO, f"{mapped.size} of {size} bytes could be mapped", os.fspath(path))
    return mapped


@contextmanager
def _damage(path: Path) -> Iterator[None]:
    """Turn a failure to read a layer into LogDamaged (its bytes do not parse) or LogUnreadable (not readable now)."""
    try:
        yield
    except (FileNotFoundError, LogDamaged, LogFormat):
        raise
    except (MemoryError, pa.ArrowCancelled) as error:
        raise unreadable(path, error) from error
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise unreadable(path, error) from error
        # Raised by Arrow's parser or by the checks here: the content is not that of a layer.
        raise LogDamaged(f"layer {path} does not read: {error}", path=str(path)) from error


def unreadable(path: Path | str, error: BaseException) -> LogUnreadable:
    """Return the error for a layer that cannot be read now."""
    why = fix(error) if isinstance(error, OSError) else str(error) or type(error).__name__
    return LogUnreadable(
        f"layer {path} cannot be read now: {why}; nothing is known of what it holds, and it is left as it is",
        path=str(path),
        errno=getattr(error, "errno", None),
    )


def check_bytes(data: pa.Buffer | bytes, name: LayerName, where: str) -> None:
    """Compare the checksum of a layer's bytes with its name. Raises LogDamaged if they differ."""
    found = xxhash.xxh3_64_hexdigest(data)
    if found != name.checksum:
        raise LogDamaged(
            f"layer {where} is damaged: its bytes have checksum {found}, its name says {name.checksum}",
            path=where,
            expected=name.checksum,
            found=found,
        )


def check_types(schema: pa.Schema) -> None:
    """Raise ValueError if a column of a layer has a wrong type."""
    for field in schema:
        wanted = {"_hash": pa.uint64(), "_sub": pa.uint64(), "_epoch": pa.int64()}.get(field.name)
        if field.name.startswith("+"):
            wanted = pa.int64()
        if wanted is not None and field.type != wanted:
            raise ValueError(f"column {field.name} has type {field.type}, expected {wanted}")


def verify_layer(path: Path) -> None:
    """Read the file again, even if this process has the layer open. Raises LogDamaged if its bytes do not match its
    name."""
    _map(Path(path))


def layer_metadata(path: Path) -> dict[str, str]:
    """Return the metadata that the writer of a layer added. Reads only the footer, so damage elsewhere is not
    noticed."""
    with _damage(path):
        return describe(pa.ipc.open_file(retrying(lambda: _mapped(path))).schema, str(path)).metadata


def list_layers(directory: Path) -> list[LayerName]:
    """The names of all layers in a trace's directory; empty if there is no such directory."""
    try:
        names = list_files(directory)
    except FileNotFoundError:
        return []
    return [name for name in map(LayerName.parse, names) if name is not None]


def list_files(directory: Path) -> list[str]:
    """The file names in a directory. Raises FileNotFoundError if the directory does not exist, LogUnreadable if it
    cannot be listed now."""
    try:
        return retrying(lambda: os.listdir(directory))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise LogUnreadable(
            f"trace {directory} cannot be listed now: {fix(error)}", path=str(directory), errno=error.errno
        ) from error
