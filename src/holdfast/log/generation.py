"""The local layers, taken from a driver that may still write.

The lock keeps a second driver away from a working directory; a driver that leads by a lease must be able to take it
from one that is paused, lock and all. What that one writes when it wakes up must not get among the layers: they are
told apart by digests only as far back as the tasks are told. So each driver under a lease has the directory of the
traces under a name of its own, by renaming it: whatever a driver before still does, it does by the old name, in a
directory that nobody reads.

    <log>/traces            a link to the generation that counts
    <log>/traces-000007     the generation; the next driver under a lease renames it to traces-000008

The link is set first, then the directory is renamed. Between the two, the link names a directory that is not there, and
the one before it is the true one: the number says which.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from pathlib import Path

from holdfast.errors import Fenced

_NAME = re.compile(r"traces-(\d{6,})")


def current(log: Path) -> Path:
    """The directory of the traces, by its own name; it need not exist."""
    link = log / "traces"
    if not link.is_symlink():
        first = log / _text(0)
        return first if first.is_dir() and not link.exists() else link
    number = _number(os.readlink(link))
    found = log / _text(number)
    before = log / _text(number - 1)
    return before if number > 0 and not found.is_dir() and before.is_dir() else found


def take(log: Path) -> Path:
    """Have the traces under a new name, which no driver before knows."""
    link = log / "traces"
    had = current(log)
    if had == link:
        # Whoever had it by this name had the lock until it died.
        had.mkdir(exist_ok=True)
        shutil.rmtree(log / _text(0), ignore_errors=True)
        os.rename(had, log / _text(0))
        had = log / _text(0)
    had.mkdir(exist_ok=True)
    if link.is_symlink() and had.name != os.readlink(link):
        _rename(log, had, log / os.readlink(link))  # a driver before died, or sleeps, between its two steps
        had = log / os.readlink(link)
    taken = log / _text(_number(had.name) + 1)
    shutil.rmtree(taken, ignore_errors=True)  # something that a driver before made of an old name
    _point(link, taken.name)
    _rename(log, had, taken)
    for other in log.iterdir():
        if _NAME.fullmatch(other.name) and other != taken:
            shutil.rmtree(other, ignore_errors=True)
    return taken


def _rename(log: Path, had: Path, to: Path) -> None:
    try:
        os.rename(had, to)
    except FileNotFoundError:
        raise Fenced(f"log {log}: another driver has taken over; this one has stopped", path=str(log)) from None


def _point(link: Path, name: str) -> None:
    hidden = link.with_name(f".{link.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    os.symlink(name, hidden)
    os.replace(hidden, link)


def _number(name: str) -> int:
    found = _NAME.fullmatch(name)
    return int(found[1]) if found else 0


def _text(number: int) -> str:
    return f"traces-{number:06d}"
