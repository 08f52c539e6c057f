"""Files that are read whole and replaced in one step, and the syncs that make them last.

Invariant: a reader, and a crash, see the old file or the new one, never a part. With ``sync`` the new one is on disk
when the call returns, and so is its name.
"""

from __future__ import annotations

import errno
import os
import secrets
from pathlib import Path

from holdfast.foundation.retries import retrying

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


def replace_file(path: Path, data: bytes, *, sync: bool = False) -> None:
    """Write a file whole, or leave what was there. Its directory must exist."""
    hidden = path.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        # Exclusive: nobody can have put a link there for us to follow.
        handle = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
        with open(handle, "wb") as file:
            file.write(data)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        os.replace(hidden, path)
    except BaseException:
        hidden.unlink(missing_ok=True)
        raise
    if sync:
        sync_directory(path.parent)


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


def make_directory(directory: Path) -> None:
    """Make a directory and its parents, durably: a synced file in a directory that is lost is lost, too."""
    if directory.is_dir():
        return
    make_directory(directory.parent)
    directory.mkdir(exist_ok=True)
    sync_directory(directory.parent)
