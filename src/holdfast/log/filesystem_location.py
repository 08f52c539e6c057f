"""Locations on any filesystem that pyarrow or fsspec can open: object stores, HDFS, SFTP, memory.

A location holds only its URI and, if there is one, the function that returns its credentials. A process opens the
filesystem when it first needs it, and does not pass it on (``_Opened`` is not pickled, and not used after a fork).
``pyarrow.fs`` is tried first: it needs no further packages.

Blobs are made whole in one of three ways. An object store shows an object when its upload is complete. On a filesystem
with a rename, a hidden file is written and renamed. On any other filesystem a blob is written under its name: then it
may be torn, and its checksum shows that.
"""

from __future__ import annotations

import errno
import os
import posixpath
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, unquote, urlsplit

import fsspec
import pyarrow as pa
from pyarrow import fs as arrow_fs

from holdfast.errors import StoreError
from holdfast.foundation.atomic_files import is_temporary, temporary_name
from holdfast.foundation.os_errors import said
from holdfast.foundation.retries import retrying
from holdfast.log.location import Entries, Entry, Location, Names, is_inside, refusal
from holdfast.reporting import redaction

_ALIKE = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfss": "abfs"}
"""Schemes that are other spellings of the same kind of place."""

_ARROW_KINDS = frozenset({"s3", "gs", "gcs", "hdfs", "viewfs", "abfs", "abfss", "mock"})
"""The schemes that pyarrow may open; all others are opened by fsspec and the packages installed for it."""

Infos: TypeAlias = list[arrow_fs.FileInfo]
Credentials: TypeAlias = Callable[[], Mapping[str, str]]


@dataclass(frozen=True)
class _Opened:
    """A filesystem that one process has opened."""

    process: int
    files: arrow_fs.FileSystem
    root: str
    is_store: bool
    """Whether it is an object store: then no directories need be made, and blobs appear whole."""
    rename: Callable[[str, str], None] | None
    refresh: Callable[[], None]
    """Forget cached listings."""


class FilesystemLocation(Location):
    """A URI that ``pyarrow.fs`` or, failing that, ``fsspec`` can open."""

    def __init__(self, uri: str, credentials: Credentials | None = None) -> None:
        """``credentials`` is called by each process that opens the filesystem; see ``hf.location``."""
        self._full = uri
        self._credentials = credentials
        self._uri = redaction.shown(uri)
        self._opened: _Opened | None = None
        scheme = urlsplit(uri).scheme.lower()
        if scheme not in {*_ARROW_KINDS, *fsspec.available_protocols(), *fsspec.registry}:
            raise StoreError(
                f"location {self._uri}: no such kind of place is known; check the part before ://", location=self._uri
            )
        if redaction.parse(uri).ambiguous:
            raise StoreError(
                f"location {self._uri}: the credentials in its address have characters that end a part of a URL; "
                "write them percent-encoded (/ is %2F, ? is %3F, # is %23, @ is %40), also an @ in the path behind "
                "them, or leave them to the environment, or to hf.location(address, credentials=…)",
                location=self._uri,
            )

    @property
    def uri(self) -> str:
        return self._uri

    def identity(self) -> str:
        parts = urlsplit(self._uri)
        path = posixpath.normpath(f"/{parts.path}")
        path = f"/{path.lstrip('/')}"
        scheme = parts.scheme.lower()
        if scheme in ("local", "file"):
            return os.path.realpath(path if not parts.netloc else f"/{parts.netloc}{path}")
        return f"{_ALIKE.get(scheme, scheme)}://{parts.netloc.lower()}{path}"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        redaction.shown(self._full)  # this process, too, must learn the credentials that messages must not show

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FilesystemLocation) and self._full == other._full

    def __hash__(self) -> int:
        return hash(self._full)

    def write(self, path: str, data: bytes) -> None:
        with self.using("write", path) as opened:
            target = f"{opened.root}/{path}"
            if not opened.is_store:
                opened.files.create_dir(_parent(target), recursive=True)
            if opened.is_store or opened.rename is None:
                _put(opened.files, target, data)
                return
            hidden = f"{_parent(target)}/{temporary_name()}"
            try:
                _put(opened.files, hidden, data)
                self._replace(opened, hidden, target, data)
            except BaseException:
                with suppress(Exception):  # the first error matters
                    opened.files.delete_file(hidden)
                raise

    def _replace(self, opened: _Opened, hidden: str, target: str, data: bytes) -> None:
        assert opened.rename is not None
        try:
            opened.rename(hidden, target)
        except Exception:
            # Not every filesystem renames onto an existing file. An equal file may stay; another one must go.
            if not _is_file(opened.files, target):
                raise
            if _get(opened.files, target) == data:
                opened.files.delete_file(hidden)
                return
            opened.files.delete_file(target)
            opened.rename(hidden, target)

    def read(self, path: str) -> bytes:
        with self.using("read", path, missing=True) as opened:
            try:
                return retrying(lambda: _get(opened.files, f"{opened.root}/{path}"))
            except FileNotFoundError:
                self.check_bucket(opened)
                raise

    def list(self, directory: str) -> Entries:
        files = [info for info in self._listing(directory) if info.type == arrow_fs.FileType.File]
        entries = [Entry(info.base_name, int(info.size or 0)) for info in files if not is_temporary(info.base_name)]
        return sorted(entries, key=lambda entry: entry.name)

    def directories(self, directory: str) -> Names:
        return sorted(i.base_name for i in self._listing(directory) if i.type == arrow_fs.FileType.Directory)

    def _listing(self, directory: str) -> Infos:
        with self.using("list", directory) as opened:
            opened.refresh()
            place = f"{opened.root}/{directory}".rstrip("/")
            wanted = arrow_fs.FileSelector(place, allow_not_found=True)
            found: Infos = retrying(lambda: opened.files.get_file_info(wanted))
            if not found:
                self.check_bucket(opened)
            return found

    def remove(self, path: str) -> None:
        with self.using("remove", path) as opened, suppress(FileNotFoundError):
            opened.files.delete_file(f"{opened.root}/{path}")

    def move(self, path: str, to: str) -> None:
        with self.using("move", path, missing=True) as opened, self.using("move", to, missing=True):
            source, target = f"{opened.root}/{path}", f"{opened.root}/{to}"
            if not _is_file(opened.files, source):
                self.check_bucket(opened)
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            if opened.is_store or opened.rename is None:
                if not opened.is_store:
                    opened.files.create_dir(_parent(target), recursive=True)
                opened.files.copy_file(source, target)
                opened.files.delete_file(source)
                return
            opened.files.create_dir(_parent(target), recursive=True)
            self._replace(opened, source, target, _get(opened.files, source))

    def check(self) -> None:
        with self.using("use", "") as opened:
            self.check_bucket(opened)
        self.probe()

    def check_bucket(self, opened: _Opened) -> None:
        """Raise OSError if the bucket does not exist: a missing bucket lists like an empty one."""
        if isinstance(opened.files, arrow_fs.S3FileSystem):
            bucket = opened.root.split("/")[0]
            if opened.files.get_file_info(bucket).type == arrow_fs.FileType.NotFound:
                raise OSError(f"NO_SUCH_BUCKET: {bucket}")

    @contextmanager
    def using(self, operation: str, path: str, *, missing: bool = False) -> Iterator[_Opened]:
        """Yield the filesystem for an operation. Failures of any class, since plugins raise their own, become
        `StoreError`; with ``missing``, FileNotFoundError stays one."""
        if not is_inside(path):
            raise refusal(self, operation, path, "the path leads out of the location")
        try:
            if self._opened is None or self._opened.process != os.getpid():  # a fork must not share connections
                self._opened = self._open()
            yield self._opened
        except StoreError:
            raise
        except Exception as error:
            if missing and isinstance(error, FileNotFoundError):
                # The filesystem's error may name the blob by its whole address, with credentials.
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from redaction.cause(error)
            reason = said(error).replace(self._full, self._uri)
            raise refusal(self, operation, path, reason) from redaction.cause(error)

    def _open(self) -> _Opened:
        if self._credentials is None:
            return _open(self._full)
        given = self._credentials()
        redaction.learn(*(value for value in given.values() if isinstance(value, str)))
        return _open_with(self._full, given)


def _open(uri: str) -> _Opened:
    try:
        files, root = arrow_fs.FileSystem.from_uri(uri)
    except pa.ArrowNotImplementedError:  # a build of pyarrow without this one
        return _open_with_fsspec(uri)
    except pa.ArrowInvalid as error:
        if "Unrecognized filesystem type" not in str(error):
            raise
        return _open_with_fsspec(uri)
    is_store = isinstance(files, _stores())
    return _Opened(os.getpid(), files, root.rstrip("/"), is_store, None if is_store else files.move, lambda: None)


def _open_with(uri: str, credentials: Mapping[str, str]) -> _Opened:
    """Open a filesystem with credentials that are not in its URI: for S3 under pyarrow's names, else under fsspec's."""
    parts = urlsplit(uri)
    if parts.scheme != "s3":
        return _open_with_fsspec(uri, **credentials)
    switches = {"true": True, "false": False}
    options = {name: switches.get(value, value) for name, value in parse_qsl(parts.query)}
    files = arrow_fs.S3FileSystem(**options, **credentials)
    return _Opened(os.getpid(), files, f"{parts.netloc}{unquote(parts.path)}".rstrip("/"), True, None, lambda: None)


def _open_with_fsspec(uri: str, **options: str) -> _Opened:
    files, root = fsspec.core.url_to_fs(uri, **options)
    # The base class "renames" by copying, which may leave a torn blob, too.
    renames = type(files).mv is not fsspec.AbstractFileSystem.mv
    wrapped = arrow_fs.PyFileSystem(arrow_fs.FSSpecHandler(files))
    rename = files.mv if renames else None
    return _Opened(os.getpid(), wrapped, root.rstrip("/"), False, rename, files.invalidate_cache)


def _stores() -> tuple[type, ...]:
    """The classes of object stores that this build of pyarrow has."""
    names = ("S3FileSystem", "GcsFileSystem", "AzureFileSystem")
    return tuple(getattr(arrow_fs, name) for name in names if hasattr(arrow_fs, name))


def _put(files: arrow_fs.FileSystem, path: str, data: bytes) -> None:
    with files.open_output_stream(path, compression=None) as stream:
        stream.write(data)


def _get(files: arrow_fs.FileSystem, path: str) -> bytes:
    with files.open_input_file(path) as file:
        held: bytes = file.read()
    return held


def _is_file(files: arrow_fs.FileSystem, path: str) -> bool:
    return bool(files.get_file_info(path).type == arrow_fs.FileType.File)


def _parent(path: str) -> str:
    return path.rpartition("/")[0]
