"""Atomic writes: files appear whole under their names. Also the syncs that make them durable.

A file is written under a temporary name in its directory, and then gets its final name in one step:

    replace_file     by renaming: it replaces a file of that name
    create_file      by linking: only if there is no file of that name, so that of two writers one is told that it lost
    temporary_path   for a writer that does more between the two steps, or knows the name only after writing

Invariant: a reader, also after a crash, sees the old file or the new one, never a part. With ``sync`` the new file and
its name are on disk when the call returns.

Temporary names are hidden, end with ``.tmp`` (`is_temporary`) and have 64 random bits, because processes on other hosts
or in other containers may have the same process id. A writer that fails removes its temporary file. After a crash, the
next owner of the directory removes it (`remove_temporary`).
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
"""The content of a file, or a function that writes it."""

_CANNOT_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS)
"""The errors of network filesystems that cannot sync a directory; their renames are synchronous."""


def read_file(path: Path) -> bytes:
    """Return all bytes of a file. A read that gives fewer bytes than the file has is an error that may pass, and is
    tried again."""

    def read() -> bytes:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            data = file.read()
        if len(data) < size:
            raise OSError(errno.EIO, f"a read gave {len(data)} of {size} bytes", os.fspath(path))
        return data

    return retrying(read)


def replace_file(path: Path, content: Content, *, sync: bool = False, stem: str = "") -> None:
    """Write a file whole; if this raises, a file of that name stays as it was. Its directory must exist. ``sync``: make
    it durable. ``stem``: as in `temporary_name`."""
    with temporary_path(path.parent, stem) as temporary:
        _write(temporary, content, sync)
        os.replace(temporary, path)
    if sync:
        sync_directory(path.parent)


def create_file(path: Path, content: Content, *, stem: str = "") -> bool:
    """Write a file whole unless one of that name exists. Return whether it was written. If this raises, the file may or
    may not exist. Its directory must exist, on a filesystem with hard links."""
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
    """Yield a temporary path in ``directory``. The caller writes the file there and renames it; if the block raises,
    the file is removed."""
    path = directory / temporary_name(stem)
    try:
        yield path
    except BaseException:
        with suppress(OSError):  # the first error is the one to raise
            path.unlink(missing_ok=True)
        raise


def temporary_name(stem: str = "") -> str:
    """Return a unique temporary name. It begins with ``stem``, by which an owner can recognise its temporary files."""
    return f".{stem}{stem and '.'}{secrets.token_hex(8)}.tmp"


def is_temporary(name: str) -> bool:
    """Whether a name is a temporary one, of a file that is being written."""
    return name.startswith(".") and name.endswith(".tmp")


def remove_temporary(directory: Path) -> None:
    """Remove the temporary files that a crash left. No other process may be writing to the directory."""
    for leftover in directory.glob(".*.tmp"):
        leftover.unlink(missing_ok=True)


def _write(path: Path, content: Content, sync: bool) -> None:
    # Exclusive creation: it cannot follow a link that somebody has put there.
    with open(path, "xb") as file:
        if isinstance(content, bytes):
            file.write(content)
        else:
            content(file)
        if sync:
            file.flush()
            os.fsync(file.fileno())


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable, if its filesystem can sync directories."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise
    finally:
        os.close(handle)


def sync_file(path: Path) -> None:
    """Make the content of a file durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_directory(directory: Path) -> None:
    """Make a directory and its parents durably: a synced file is lost if its directory is lost."""
    if directory.is_dir():
        return
    make_directory(directory.parent)
    directory.mkdir(exist_ok=True)
    sync_directory(directory.parent)
