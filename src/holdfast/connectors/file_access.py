"""Access to the files of a source, wherever they are: local paths, and names below remote directories.

All code that looks at a file, or reads it, uses a `FileAccess`. It is picklable, since the parts that tasks read have
one. Local files are opened directly, other files through `connectors.remote_files`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, BinaryIO, NamedTuple, cast

import pyarrow as pa

from holdfast.connectors.remote_files import RemoteDirectory


class File(NamedTuple):
    """A file as it was when it was found."""

    path: str
    size: int
    changed: int
    """Its mtime, in nanoseconds; 0 if the filesystem keeps no mtimes."""


class FileAccess:
    """Looks at and opens the files of a source."""

    def __init__(self, remote: Sequence[RemoteDirectory] = ()) -> None:
        # If one directory is inside another, the inner one is used.
        self._remote = sorted(remote, key=lambda each: -len(each.path))

    def described(self, path: str) -> File:
        """The file at ``path`` as it is now. Raises `OSError`."""
        directory = self._directory(path)
        if directory is not None:
            return File(path, *directory.described(path))
        status = os.stat(path)
        return File(path, status.st_size, status.st_mtime_ns)

    def is_there(self, path: str) -> bool:
        """Whether there is anything at ``path``; also True if that cannot be found out."""
        directory = self._directory(path)
        if directory is None:
            return os.path.lexists(path)
        try:
            directory.described(path)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        return True

    def size(self, path: str) -> int:
        """The size of the file at ``path`` in bytes; 0 if it cannot be found out."""
        try:
            return self.described(path).size
        except OSError:
            return 0

    def opened(self, path: str) -> BinaryIO:
        """Open a file to read its bytes. Raises `OSError`."""
        directory = self._directory(path)
        return open(path, "rb") if directory is None else cast(BinaryIO, directory.opened(path))

    def unpacked(self, path: str) -> pa.NativeFile:
        """Open a file as a stream of its decompressed bytes; the ending of its name says how it is compressed."""
        directory = self._directory(path)
        if directory is None:
            return pa.input_stream(path, compression="detect")
        file, codec = cast(Any, directory.opened(path)), _codec(path)
        return pa.input_stream(file) if codec is None else pa.input_stream(file, compression=codec)

    def is_remote(self, path: str) -> bool:
        """Whether a file is on another filesystem."""
        return self._directory(path) is not None

    def _directory(self, path: str) -> RemoteDirectory | None:
        if "://" not in path:
            return None
        for each in self._remote:
            if path == each.path or path.startswith(f"{each.path}/"):
                return each
        return None


def _codec(path: str) -> str | None:
    try:
        return str(pa.Codec.detect(path).name)
    except (TypeError, ValueError, pa.ArrowException):  # the name has no ending of a codec
        return None


LOCAL = FileAccess()
"""The access to local files."""
