"""A layer of faults under all code in this process that uses files.

`faults` replaces the functions of `os`, `io.open` (and so `open`, `pathlib`, `shutil`, `tempfile`, fsspec's local
files), `fcntl.flock`, and those of pyarrow that take a path (`memory_map`, `OSFile`, `ParquetFile`, `ParquetWriter`,
CSV and JSON readers, ``pyarrow.fs``'s local files) for as long as its ``with`` block lasts. A call that concerns a file
below one of the directories is counted and, if the plan says so, fails; all others pass. What pyarrow would read or
write in C++ goes through Python files here, so that single reads and writes can fail; mapped memory cannot (a real
disk that fails under a mapping ends the process).

It does not affect other processes (Spark's tasks, the JVM) nor C libraries that open files themselves (SQLite). `shim`
does.

The file is long because it has a replacement for each function that uses files.
"""

from __future__ import annotations

import builtins
import fcntl
import io
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

from holdfast.testing.faulty.plan import SHORT, Fault, Plan

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


@dataclass(frozen=True)
class Call:
    """A call on a file in one of the directories."""

    kind: str
    path: str
    fault: Fault | None = None
    """The fault that the call met; None if it succeeded."""


@dataclass
class Faults:
    """The state of a layer: the calls, and those that failed."""

    plan: Plan
    under: tuple[str, ...]
    calls: list[Call] = field(default_factory=list)
    """All calls, if ``records``; else only those that met a fault."""

    counts: Counter[str] = field(default_factory=Counter)
    """Kind → number of calls so far."""

    records: bool = False
    active: bool = True
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _files: dict[int, str] = field(default_factory=dict, repr=False)
    """Descriptor of an open file → its path."""

    @property
    def injected(self) -> list[Call]:
        """The calls that met a fault."""
        return [call for call in self.calls if call.fault is not None]

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Within the block nothing fails, and nothing is counted: for the test's own use of files."""
        before, self.active = self.active, False
        try:
            yield
        finally:
            self.active = before

    # -- what the replaced functions ask ------------------------------------------------------------------------------

    def concerned(self, path: Any, directory: int | None = None) -> str | None:
        """Return a path, or an open file's path, as text, if it is below one of the directories; else None."""
        if not self.active:
            return None
        number = path.fileno() if hasattr(path, "fileno") else path
        if isinstance(number, int):
            return self._files.get(number)
        try:
            text = os.fsdecode(path)
        except TypeError:
            return None
        if directory is not None and not text.startswith("/"):
            text = os.path.join(self._files.get(directory, ""), text)
        text = os.path.normpath(text if text.startswith("/") else os.path.join(os.getcwd(), text))
        return text if any(text == one or text.startswith(f"{one}/") for one in self.under) else None

    def fate(self, kind: str, path: str) -> Fault | None:
        """Count a call. Return the fault that it meets, or None."""
        with self._lock:
            self.counts[kind] += 1
            number = self.counts[kind]
            met = None
            for fault in self.plan.faults:
                if fault.kind == kind and fault.number <= number < fault.number + fault.times:
                    met = fault
                    break
            if met is not None or self.records:
                self.calls.append(Call(kind, path, met))
        return met

    def call(self, kind: str, path: str, act: Callable[[], Any]) -> Any:
        """Count a call and carry it out, or raise the error of the fault that it meets."""
        met = self.fate(kind, path)
        if met is None or met.error == SHORT:
            return act()
        if met.after:
            act()
        raise OSError(met.code, os.strerror(met.code), path)

    def opened(self, number: int, path: str) -> None:
        self._files[number] = path

    def closed(self, number: int) -> None:
        self._files.pop(number, None)


class _File(io.FileIO):
    """A file whose single reads and writes may fail."""

    def __init__(
        self, layer: Faults, path: str, mode: str, closefd: bool, opener: Any, number: int | None = None
    ) -> None:
        """``number``: the descriptor, if the file is already open."""
        self._layer, self._path = layer, path
        if opener is None and number is None:
            layer.call("open" if mode == "r" else "create", path, lambda: None)
        super().__init__(path if number is None else number, mode, closefd, opener)
        layer.opened(self.fileno(), path)

    def _share(self, kind: str, size: int) -> int:
        """Return how many bytes of a read or write take place. Raises the fault's error."""
        if not self._layer.active:
            return size
        met = self._layer.fate(kind, self._path)
        if met is None:
            return size
        if met.error != SHORT:
            raise OSError(met.code, os.strerror(met.code), self._path)
        return max(1, size // 2) if size else 0

    def readinto(self, buffer: Any) -> int:
        with memoryview(buffer).cast("B") as view:
            return super().readinto(view[: self._share("read", len(view))]) or 0

    def read(self, size: int | None = -1) -> bytes:
        if size is None or size < 0:
            return self.readall()
        return super().read(self._share("read", size)) or b""

    def readall(self) -> bytes:
        pieces = []
        while piece := self.read(1 << 20):
            pieces.append(piece)
        return b"".join(pieces)

    def write(self, data: Any) -> int:
        with memoryview(data).cast("B") as view:
            return super().write(view[: self._share("write", len(view))]) or 0

    def truncate(self, size: int | None = None) -> int:
        if self._layer.active:
            self._layer.call("truncate", self._path, lambda: None)
        return super().truncate(size)

    def close(self) -> None:
        if not self.closed and self.closefd:
            self._layer.closed(self.fileno())
        super().close()


class _Entry:
    """An entry of a directory, whose ``stat`` may fail."""

    def __init__(self, layer: Faults, path: str, entry: os.DirEntry[Any]) -> None:
        self._layer, self._path, self._entry = layer, path, entry
        self.name, self.path = entry.name, entry.path

    def __fspath__(self) -> Any:
        return self.path

    def __repr__(self) -> str:
        return repr(self._entry)

    def __getattr__(self, name: str) -> Any:  # is_dir, is_file, is_symlink, inode: the listing has them
        return getattr(self._entry, name)

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        there = self._layer.concerned(os.path.join(self._path, os.fsdecode(self.name)))
        if there is None:
            return self._entry.stat(follow_symlinks=follow_symlinks)
        found: os.stat_result = self._layer.call(
            "stat", there, lambda: self._entry.stat(follow_symlinks=follow_symlinks)
        )
        return found


class _Listing:
    """The result of ``os.scandir``."""

    def __init__(self, layer: Faults, path: str, entries: Any) -> None:
        self._layer, self._path, self._entries = layer, path, entries

    def __iter__(self) -> _Listing:
        return self

    def __next__(self) -> _Entry:
        return _Entry(self._layer, self._path, next(self._entries))

    def __enter__(self) -> _Listing:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._entries.close()


PATHS = {
    "stat": ("stat", "lstat", "statvfs", "readlink"),
    "list": ("listdir",),
    "mkdir": ("mkdir",),
    "remove": ("unlink", "remove", "rmdir"),
    "truncate": ("truncate",),
    "create": ("utime", "chmod", "chown"),
}
"""Kind → functions of `os` whose first argument is a path (or an open file)."""

PAIRS = {"rename": ("rename", "replace"), "link": ("link", "symlink")}
"""Kind → functions of `os` whose first two arguments are paths."""

OPENED = {"sync": ("fsync", "fdatasync"), "truncate": ("ftruncate",), "stat": ("fstat",)}
"""Kind → functions of `os` whose first argument is an open file."""

MOVING = ("read", "write", "pread", "pwrite", "readv", "writev", "sendfile", "copy_file_range")
"""Functions of `os` that read or write an open file."""

ALONE = ("open", "close", "access", "scandir")
"""Functions of `os` with individual replacements."""

DERIVED = ("makedirs", "removedirs", "renames", "walk", "fwalk", "fdopen")
"""Functions of `os` that need no replacement, because they call replaced ones."""


class _Patches:
    """Replaces attributes, and restores them."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any]] = []

    def put(self, owner: Any, name: str, value: Any) -> None:
        self._before.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)

    def undo(self) -> None:
        for owner, name, value in reversed(self._before):
            setattr(owner, name, value)


@contextmanager
def faults(seed: int | Plan, under: Iterable[str | os.PathLike[str]], *, record: bool = False) -> Iterator[Faults]:
    """Make files below the directories ``under`` fail within the block, by the plan of a seed (or a `Plan`).

    The block gets the layer (`Faults`), which has the calls that were made and that failed, and can be paused.
    ``record``: keep all calls, not only those that failed. Only one layer at a time; it holds for all threads of the
    process::

        with holdfast.testing.faults(seed, under=[log, out]) as layer:
            try:
                flow.step()
            except holdfast.errors.HoldfastError:
                ...                  # a step that raises has not happened, or says that it has
        flow.run(until="idle")       # nothing fails any more: it must be exact
    """
    plan = seed if isinstance(seed, Plan) else Plan.draw(seed)
    layer = Faults(plan, tuple(os.path.abspath(os.fspath(one)) for one in under), records=record)
    patches = _Patches()
    try:
        _replace_os(layer, patches)
        _replace_open(layer, patches)
        _replace_arrow(layer, patches)
        yield layer
    finally:
        layer.active = False
        patches.undo()


def _replace_os(layer: Faults, patches: _Patches) -> None:
    def one_path(kind: str, real: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(real)
        def replaced(path: Any = ".", *args: Any, **named: Any) -> Any:
            there = layer.concerned(path, named.get("dir_fd"))
            if there is None:
                return real(path, *args, **named)
            return layer.call(kind, there, lambda: real(path, *args, **named))

        return replaced

    def two_paths(kind: str, real: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(real)
        def replaced(source: Any, target: Any, *args: Any, **named: Any) -> Any:
            there = layer.concerned(target, named.get("dst_dir_fd")) or layer.concerned(source, named.get("src_dir_fd"))
            if there is None:
                return real(source, target, *args, **named)
            return layer.call(kind, there, lambda: real(source, target, *args, **named))

        return replaced

    for kind, names in PATHS.items():
        for name in names:
            patches.put(os, name, one_path(kind, getattr(os, name)))
    for kind, names in PAIRS.items():
        for name in names:
            patches.put(os, name, two_paths(kind, getattr(os, name)))
    for kind, names in OPENED.items():
        for name in names:
            patches.put(os, name, one_path(kind, getattr(os, name)))
    for name in MOVING:
        if hasattr(os, name):
            patches.put(os, name, _moving(layer, name, getattr(os, name)))
    patches.put(fcntl, "flock", one_path("lock", fcntl.flock))
    _replace_alone(layer, patches)
    # Callers check by identity whether a function is in these sets, so the replacements are added.
    for known in ("supports_dir_fd", "supports_fd", "supports_follow_symlinks", "supports_effective_ids"):
        wide = {getattr(os, one.__name__, one) for one in getattr(os, known)} | set(getattr(os, known))
        patches.put(os, known, wide)


def _moving(layer: Faults, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    kind = "read" if "read" in name else "write"

    @wraps(real)
    def replaced(number: int, *args: Any, **named: Any) -> Any:
        there = layer.concerned(number) if isinstance(number, int) else None
        if there is None:
            return real(number, *args, **named)
        met = layer.fate(kind, there)
        if met is None:
            return real(number, *args, **named)
        if met.error != SHORT:
            raise OSError(met.code, os.strerror(met.code), there)
        if name in ("read", "pread"):
            return real(number, max(1, args[0] // 2), *args[1:])
        if name in ("write", "pwrite"):
            return real(number, bytes(args[0])[: max(1, len(args[0]) // 2)], *args[1:])
        return real(number, *args, **named)

    return replaced


def _replace_alone(layer: Faults, patches: _Patches) -> None:
    real_open, real_close, real_access, real_scandir = os.open, os.close, os.access, os.scandir

    @wraps(real_open)
    def opened(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        there = layer.concerned(path, dir_fd)
        if there is None:
            return real_open(path, flags, mode, dir_fd=dir_fd)
        kind = "create" if flags & _WRITING else "open"
        number: int = layer.call(kind, there, lambda: real_open(path, flags, mode, dir_fd=dir_fd))
        layer.opened(number, there)
        return number

    @wraps(real_close)
    def closed(number: int) -> None:
        layer.closed(number)
        real_close(number)

    @wraps(real_access)
    def accessed(path: Any, mode: int, **named: Any) -> bool:
        there = layer.concerned(path, named.get("dir_fd"))
        if there is None:
            return real_access(path, mode, **named)
        try:
            return bool(layer.call("stat", there, lambda: real_access(path, mode, **named)))
        except OSError:
            return False  # like the real one, which gives no reason

    @wraps(real_scandir)
    def scanned(path: Any = ".") -> Any:
        there = layer.concerned(path)
        if there is None:
            return real_scandir(path)
        return _Listing(layer, there, layer.call("list", there, lambda: real_scandir(path)))

    patches.put(os, "open", opened)
    patches.put(os, "close", closed)
    patches.put(os, "access", accessed)
    patches.put(os, "scandir", scanned)


def _replace_open(layer: Faults, patches: _Patches) -> None:
    real = io.open

    @wraps(real)
    def opened(
        file: Any,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        closefd: bool = True,
        opener: Any = None,
    ) -> Any:
        there = layer.concerned(file)
        if there is None:
            return real(file, mode, buffering, encoding, errors, newline, closefd, opener)
        plain = mode.replace("t", "").replace("b", "").replace("U", "")
        raw = _File(layer, there, plain, closefd, opener, file if isinstance(file, int) else None)
        try:
            if buffering == 0:
                return raw
            size = buffering if buffering > 1 else io.DEFAULT_BUFFER_SIZE
            kind = io.BufferedRandom if "+" in plain else io.BufferedReader if plain == "r" else io.BufferedWriter
            buffered = kind(raw, size)
            if "b" in mode:
                return buffered
            text = io.TextIOWrapper(buffered, encoding, errors, newline, line_buffering=buffering == 1)
            text.mode = mode  # type: ignore[misc]  # as `open` does
            return text
        except BaseException:
            raw.close()
            raise

    patches.put(builtins, "open", opened)
    patches.put(io, "open", opened)


def _replace_arrow(layer: Faults, patches: _Patches) -> None:
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.fs
    import pyarrow.json
    import pyarrow.parquet as pq

    real_map, real_file, real_writer = pa.memory_map, pq.ParquetFile.__init__, pq.ParquetWriter.__init__

    def mapped(path: Any, mode: str = "r") -> Any:
        there = layer.concerned(path)
        if there is None:
            return real_map(path, mode)
        layer.call("open" if mode == "r" else "create", there, lambda: None)
        met = layer.fate("map", there)
        if met is not None:
            raise OSError(f"Memory mapping file failed: {os.strerror(met.code)}")  # Arrow's error has no number
        return real_map(path, mode)

    def stream(path: Any, mode: str = "rb") -> Any:
        return pa.PythonFile(open(path, mode), mode.replace("b", ""))

    def instead(real: Callable[..., Any], mode: str) -> Callable[..., Any]:
        """Wrap a function that takes a path or a file: it is always given a file."""

        @wraps(real)
        def replaced(source: Any, *args: Any, **named: Any) -> Any:
            there = None if hasattr(source, "read") or hasattr(source, "write") else layer.concerned(source)
            return real(source if there is None else stream(there, mode), *args, **named)

        return replaced

    def read_file(self: Any, source: Any, *args: Any, **named: Any) -> None:
        there = None if hasattr(source, "read") else layer.concerned(source)
        real_file(self, source if there is None else stream(there), *args, **named)

    def write_file(self: Any, where: Any, *args: Any, **named: Any) -> None:
        there = None if hasattr(where, "write") else layer.concerned(where)
        file = None
        if there is not None:
            with suppress(FileNotFoundError):
                os.stat(there)  # as pyarrow does, to find out whether it is a path or an address
            file = stream(there, "wb")
        real_writer(self, where if file is None else file, *args, **named)
        if file is not None:
            self.file_handle = file  # it is closed with the writer

    patches.put(pa, "memory_map", mapped)
    for name, mode in (("OSFile", "rb"), ("input_stream", "rb"), ("output_stream", "wb")):
        real = getattr(pa, name)

        def stand_in(path: Any, *args: Any, _real: Any = real, _mode: str = mode, **named: Any) -> Any:
            there = None if hasattr(path, "read") else layer.concerned(path)
            if there is None:
                return _real(path, *args, **named)
            asked = args[0] if args and isinstance(args[0], str) else _mode
            return stream(there, asked if "b" in asked else f"{asked}b")

        patches.put(pa, name, stand_in)
    patches.put(pq.ParquetFile, "__init__", read_file)
    patches.put(pq.ParquetWriter, "__init__", write_file)
    for module, name in ((pyarrow.csv, "read_csv"), (pyarrow.csv, "open_csv"), (pyarrow.json, "read_json")):
        patches.put(module, name, instead(getattr(module, name), "rb"))
    patches.put(pyarrow.fs, "FileSystem", _opener(pyarrow.fs))
    patches.put(pyarrow.fs, "LocalFileSystem", lambda **_: _local(pyarrow.fs))


def _local(files: Any) -> Any:
    """Local files through fsspec: in Python, so that the layer sees their calls."""
    import fsspec

    return files.PyFileSystem(files.FSSpecHandler(fsspec.filesystem("file", skip_instance_cache=True)))


def _opener(files: Any) -> Any:
    real = files.FileSystem

    class Kind(type):
        def __instancecheck__(cls, found: object) -> bool:
            return isinstance(found, real)

        def __getattr__(cls, name: str) -> Any:
            return getattr(real, name)

    class FileSystem(metaclass=Kind):
        @staticmethod
        def from_uri(uri: str) -> Any:
            found, path = real.from_uri(uri)
            return (_local(files), path) if found.type_name == "local" else (found, path)

    return FileSystem


__all__ = ["Call", "Faults", "faults"]
