"""Files on disk: which there are, and whether one is still the file that was offered.

All that connectors know of paths is here. Today that is the local file system.

A file's identity is its absolute path, size and time of change. Names that start with ``.`` or ``_`` and names that
end like something half-written are passed over, and so are directories of such names (``_temporary``): whoever writes
into a source's directory must put a file there complete, by renaming it, as Spark, Hadoop and most loaders do. Links
to files are followed; links to directories are not, since a file must not be found under two names.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from holdfast.errors import BadFile, DeclarationError

_UNFINISHED = (".tmp", ".temp", ".part", ".partial", ".inprogress", ".crdownload", ".swp", "~", "._COPYING_")


class File(NamedTuple):
    """A file as it was when it was found."""

    path: str
    size: int
    changed: int
    """Its mtime, in nanoseconds."""


def root(path: str | os.PathLike[str]) -> str:
    """A declared path as an absolute one. It must be there."""
    text = os.fspath(path)
    if "://" in text:
        raise DeclarationError(f"files {text!r}: only local paths can be read yet", path=text)
    absolute = os.path.abspath(os.path.expanduser(text))
    if not os.path.exists(absolute):
        parent = Path(absolute).parent
        there = "" if parent.exists() else f" (neither does {parent})"
        raise DeclarationError(
            f"files {text!r}: {absolute} does not exist{there}; create the directory first, it may be empty",
            path=absolute,
        )
    if not os.access(absolute, os.R_OK):
        raise DeclarationError(f"files {text!r}: {absolute} cannot be read by this user", path=absolute)
    return absolute


def find(path: str, known: Callable[[str], bool]) -> Iterator[File]:
    """The files at or under ``path`` whose paths are not ``known``; those are not even looked at."""
    try:
        if os.path.isfile(path):
            if not known(path):
                yield described(path)
            return
        with os.scandir(path) as entries:
            listed = sorted(entries, key=lambda entry: entry.name)
    except FileNotFoundError:
        raise BadFile(f"files {path!r}: it was there when the source was declared, and is gone", path=path) from None
    except PermissionError:
        raise BadFile(f"files {path!r}: it cannot be read by this user", path=path) from None
    for entry in listed:
        if entry.name.startswith((".", "_")) or entry.name.endswith(_UNFINISHED):
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from find(entry.path, known)
        elif not known(entry.path) and entry.is_file():
            try:
                yield described(entry.path)
            except FileNotFoundError:
                continue  # removed since the listing: it was never offered, so nobody misses it


def described(path: str) -> File:
    """``path`` as it is now."""
    status = os.stat(path)
    return File(path, status.st_size, status.st_mtime_ns)


def check_unchanged(file: File) -> None:
    """Raise `BadFile` if ``file`` is no longer what was offered: its rows would not be those of the offer."""
    try:
        now = described(file.path)
    except FileNotFoundError:
        raise BadFile(f"file {file.path!r}: it was removed after it was offered", path=file.path) from None
    except OSError as error:
        raise BadFile(f"file {file.path!r}: {error.strerror}", path=file.path) from error
    if now != file:
        raise BadFile(
            f"file {file.path!r}: it changed after it was offered (then {file.size} bytes, now {now.size}); "
            "files of a source must be put in place complete and never be written to again",
            path=file.path,
        )
