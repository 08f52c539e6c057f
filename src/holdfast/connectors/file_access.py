"""The files of a source, wherever they are: local paths, and names below remote directories.

Everything that looks at a file, or reads it, does so through a `FileAccess`. It is picklable: a part that tasks read
has one. Local files are opened as they are; the others as `connectors.remote_files` has them.
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
    """Its mtime, in nanoseconds; 0 if the filesystem has none."""


class FileAccess:
    """How the files of a source are looked at and opened."""

    def __init__(self, remote: Sequence[RemoteDirectory] = ()) -> None:
        # Of two directories, one of which is in the other, the inner one is asked.
        self._remote = sorted(remote, key=lambda each: -len(each.path))

    def described(self, path: str) -> File:
        """The file at ``path`` as it is now. Raises `OSError`."""
        directory = self._directory(path)
        if directory is not None:
            return File(path, *directory.described(path))
        status = os.stat(path)
        return File(path, status.st_size, status.st_mtime_ns)

    def is_there(self, path: str) -> bool:
        """Whether there is anything at ``path``, or it cannot be found out."""
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
        """The size of the file at ``path``; 0 if there is none."""
        try:
            return self.described(path).size
        except OSError:
            return 0

    def opened(self, path: str) -> BinaryIO:
        """The bytes of a file."""
        directory = self._directory(path)
        return open(path, "rb") if directory is None else cast(BinaryIO, directory.opened(path))

    def unpacked(self, path: str) -> pa.NativeFile:
        """A file as a stream of what it holds, whatever it is compressed with."""
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
    except (TypeError, ValueError, pa.ArrowException):  # it has no ending that is one of a codec's
        return None


LOCAL = FileAccess()
"""Local files."""
