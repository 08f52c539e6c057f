"""Files that appear whole under their names, and the syncs that make them last.

A file is written under a temporary name in the directory where it will be, and then gets its own name in one step:

    replace_file     by renaming: it takes the place of the file that was there
    create_file      by linking: only if there is none of that name, so of two writers at once one is told that it lost
    temporary_path   for a writer that does more between the two steps, or that learns the name by writing

Invariant: a reader, and a crash, see the old file or the new one, never a part. With ``sync`` the new one is on disk
when the call returns, and so is its name.

Temporary names are hidden and end with ``.tmp`` (`is_temporary`), and have 64 random bits: processes on other hosts, or
in other containers, may have the same process id. A writer that fails removes its own. What a crash leaves is removed
by the next owner of the directory (`remove_temporary`).
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, TypeAlias

from holdfast.foundation.retries import retrying

Content: TypeAlias = bytes | Callable[[BinaryIO], None]
"""What a file is to hold, or a function that writes it."""

_CANNOT_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS)
"""What network filesystems say that cannot sync a directory; their renames are synchronous."""


def read_file(path: Path) -> bytes:
    """All bytes of a file. A read that gives fewer than there are is an error that may pass, not a shorter file."""

    def read() -> bytes:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            data = file.read()
        if len(data) < size:
            raise OSError(errno.EIO, f"a read gave {len(data)} of {size} bytes", os.fspath(path))
        return data

    return retrying(read)


def replace_file(path: Path, content: Content, *, sync: bool = False, stem: str = "") -> None:
    """Write a file whole, or leave the one that was there. Its directory must exist."""
    with temporary_path(path.parent, stem) as temporary:
        _write(temporary, content, sync)
        os.replace(temporary, path)
    if sync:
        sync_directory(path.parent)


def create_file(path: Path, content: Content, *, stem: str = "") -> bool:
    """Write a file whole unless there is one of its name; whether it was written. If this raises, it may be there or
    not. Its directory must exist, on a filesystem with links."""
    try:
        with temporary_path(path.parent, stem) as temporary:
            _write(temporary, content, sync=False)
            os.link(temporary, path)
    except FileExistsError:
        return False
    with suppress(OSError):
        temporary.unlink(missing_ok=True)
    return True


@contextmanager
def temporary_path(directory: Path, stem: str = "") -> Iterator[Path]:
    """A path in ``directory`` for a file that has no name of its own yet. The caller writes the file and renames it; if
    the block raises, the file is removed."""
    path = directory / temporary_name(stem)
    try:
        yield path
    except BaseException:
        with suppress(OSError):  # what went wrong first is what matters
            path.unlink(missing_ok=True)
        raise


def temporary_name(stem: str = "") -> str:
    """A name that nobody else draws; it begins with ``stem``, for owners that tell their temporary files apart."""
    return f".{stem}{stem and '.'}{secrets.token_hex(8)}.tmp"


def is_temporary(name: str) -> bool:
    """Whether a name is one that files have while they are written."""
    return name.startswith(".") and name.endswith(".tmp")


def remove_temporary(directory: Path) -> None:
    """Remove the temporary files that a crash left. Nobody else may be writing to the directory."""
    for leftover in directory.glob(".*.tmp"):
        leftover.unlink(missing_ok=True)


def _write(path: Path, content: Content, sync: bool) -> None:
    # Exclusive: nobody can have put a link there for us to follow.
    with open(path, "xb") as file:
        if isinstance(content, bytes):
            file.write(content)
        else:
            content(file)
        if sync:
            file.flush()
            os.fsync(file.fileno())


def sync_directory(directory: Path) -> None:
    """Have the names in a directory on disk, where its filesystem can do that."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise
    finally:
        os.close(handle)


def sync_file(path: Path) -> None:
    """Have what a file holds on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_directory(directory: Path) -> None:
    """Make a directory and its parents, durably: a synced file in a directory that is lost is lost, too."""
    if directory.is_dir():
        return
    make_directory(directory.parent)
    directory.mkdir(exist_ok=True)
    sync_directory(directory.parent)
