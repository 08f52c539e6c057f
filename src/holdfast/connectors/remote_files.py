"""A directory of files on another filesystem: S3, HDFS, GCS, SFTP, or any other that pyarrow or fsspec can open.

A file is named by the address of the directory, without credentials and options, and its path below it:
``s3://bucket/in/a.json``. Offers and messages hold that name. Each process that needs the filesystem opens it itself,
like the locations of a log (`log.filesystem_location`).

Directories of object stores have no time of change, so every poll lists them whole. A filesystem that cannot be reached
says nothing about its files: each failure except "not found" is an `OSError` with an ``errno``, which callers treat as
"cannot be read now" and never as a bad file.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from holdfast.errors import DeclarationError, StoreError
from holdfast.foundation.retries import retrying
from holdfast.log.location import Location, open_location

if TYPE_CHECKING:
    from holdfast.log.filesystem_location import FilesystemLocation

_QUERY = re.compile(r"\?(?=[A-Za-z_]\w*=[^/]*$)")
_WITH_DIRECTORIES = ("sftp", "ssh", "ftp", "hdfs", "viewfs", "webhdfs", "smb", "local", "memory")
"""Filesystems in which an empty directory exists. An object store does not know whether an empty directory exists."""


def is_remote(path: object) -> bool:
    """Whether a declared path is an address of another filesystem."""
    return isinstance(path, str) and re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", path) is not None and not is_file_uri(path)


def is_file_uri(path: object) -> bool:
    """Whether a declared path is a local one, written as a URI."""
    return isinstance(path, str) and path.lower().startswith("file:/")


def split_query(address: str) -> tuple[str, str]:
    """Split an address into the address itself and its options, from the question mark on. A question mark that does
    not begin options is part of a pattern."""
    found = _QUERY.search(address)
    return (address, "") if found is None else (address[: found.start()], address[found.start() :])


class RemoteDirectory:
    """A directory, or a single file, on another filesystem."""

    def __init__(self, location: Location) -> None:
        self._location: FilesystemLocation = _filesystem(location)
        self.path = split_query(location.uri)[0].rstrip("/")
        """The address without options: the beginning of the names of all files of this directory."""

    def check(self) -> None:
        """Raise `DeclarationError` if the place does not exist or cannot be read."""
        from pyarrow import fs as arrow_fs

        try:
            with self._using("read it", "") as opened:
                self._location.check_bucket(opened)
                missing = opened.files.get_file_info(opened.root).type == arrow_fs.FileType.NotFound
        except OSError as error:
            raise DeclarationError(
                f"files {self.path!r}: {error.strerror}", path=self.path, errno=error.errno
            ) from error
        if missing and self.path.split("://")[0].lower() in _WITH_DIRECTORIES:
            raise DeclarationError(
                f"files {self.path!r}: it does not exist; create the directory first, it may be empty", path=self.path
            )

    def listed(self, recursive: bool) -> Iterator[tuple[str, int, int]]:
        """Yield name, size and time of change (0 if it is not known) of each file in this directory."""
        from pyarrow import fs as arrow_fs

        with self._using("list", "") as opened:
            opened.refresh()
            wanted = arrow_fs.FileSelector(opened.root, allow_not_found=True, recursive=recursive)
            single = retrying(lambda: opened.files.get_file_info(opened.root))
            if single.type == arrow_fs.FileType.File:
                found = [single]
            else:
                found = retrying(lambda: opened.files.get_file_info(wanted))
                if not found:
                    self._location.check_bucket(opened)
            files = [each for each in found if each.type == arrow_fs.FileType.File]
            described = [(self._named(each.path, opened.root), *_outside(each)) for each in files]
        yield from described

    def described(self, path: str) -> tuple[int, int]:
        """Size and time of change of a file. Raises `FileNotFoundError` if there is none, and other `OSError`s if that
        cannot be found out."""
        from pyarrow import fs as arrow_fs

        with self._using("look at", path) as opened:
            opened.refresh()
            found = retrying(lambda: opened.files.get_file_info(self._inside(path, opened.root)))
            if found.type != arrow_fs.FileType.File:
                raise FileNotFoundError(errno.ENOENT, "there is no such file", path)
            return _outside(found)

    def opened(self, path: str) -> RemoteFile:
        """Open a file for reading."""
        with self._using("open", path) as opened:
            return RemoteFile(opened.files.open_input_file(self._inside(path, opened.root)), path)

    def _named(self, path: str, root: str) -> str:
        return self.path + path[len(root) :] if path != root else self.path

    def _inside(self, path: str, root: str) -> str:
        return root + path[len(self.path) :]

    @contextmanager
    def _using(self, operation: str, path: str) -> Iterator[Any]:
        try:
            with self._location.using(operation, "", missing=True) as opened:
                yield opened
        except StoreError as error:
            raise OSError(errno.EIO, str(error).removeprefix(f"location {self._location.uri}: "), path) from error


def _filesystem(location: Location) -> FilesystemLocation:
    from holdfast.log.filesystem_location import FilesystemLocation

    if not isinstance(location, FilesystemLocation):
        raise DeclarationError(f"files {location.uri!r}: only a path, an address or hf.location(…) can be read")
    return location


def remote_directory(place: str | Location) -> RemoteDirectory:
    """The directory at an address or a location. Raises `DeclarationError` if it cannot be one."""
    return RemoteDirectory(located(place))


def located(place: str | Location) -> Location:
    """The location at an address. Raises `DeclarationError` if the address cannot be one."""
    try:
        return open_location(place)
    except StoreError as error:
        raise DeclarationError(f"files: {error}", **error.fields) from error


def _outside(info: Any) -> tuple[int, int]:
    return int(info.size or 0), int(info.mtime_ns or 0)


class RemoteFile:
    """A file on another filesystem, with the interface of Python's files. A failure is an `OSError` with an
    ``errno``."""

    closed = False

    def __init__(self, file: Any, path: str) -> None:
        self._file = file
        self._path = path
        self._position = 0

    def read(self, length: int = -1) -> bytes:
        size = self._size()
        wanted = size - self._position if length < 0 else min(length, size - self._position)
        if wanted <= 0:
            return b""
        found = self._try(lambda: self._file.read_at(wanted, self._position))
        self._position += len(found)
        return bytes(found)

    def seek(self, offset: int, whence: int = 0) -> int:
        base = (0, self._position, self._size() if whence == 2 else 0)[whence]
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def flush(self) -> None:
        """Do nothing: the file is only read."""

    def close(self) -> None:
        self.closed = True
        self._file.close()

    def __enter__(self) -> RemoteFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _size(self) -> int:
        return int(self._try(self._file.size))

    def _try(self, work: Any) -> Any:
        try:
            return retrying(work)
        except FileNotFoundError:
            raise
        except Exception as error:  # plugins raise errors of their own
            raise OSError(errno.EIO, str(error).split("\n", 1)[0], self._path) from error
