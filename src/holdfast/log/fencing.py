"""Fencing: one driver at a time drives a flow, and nothing that an earlier driver still does counts.

Five mechanisms do this. Each guarantees something that the others do not, and is there for its own kind of failure:

* The **lock** (``<log>/lock``, below): one of the processes that see a working directory has it. It belongs to the
  process, so it is released when the process dies, however it dies. Failure: a flow is started twice. Limit: a process
  that hangs keeps the lock, and drivers with other working directories do not see it.
* The **lease** (`standby/lease.py`): of the drivers that stand by for each other, on any host, one should lead, and a
  driver that does not renew the lease in time should not. Failure: the leader dies, hangs or is cut off, and no person
  is there to decide. Limit: a driver that is paused between its last check and its next write still writes.
* The **claims** (`log/replica.py`, checked by `runtime/locations.py`): each driver that opens a log gets a term above
  all earlier terms, and writes it to the log locations. A driver that finds a higher term stops making epochs durable
  and releasing input. Failure: two drivers share only the locations. Limit: claims are checked now and then, so a write
  may follow the claim of another driver; it has a digest that is not in the history, and is never read.
* The **generation** of the local layers (``<log>/traces-<n>``, below): a driver that takes the lock from another one
  renames the directory of the traces. Failure: tasks of a driver that lost its lease still write layers. Digests do not
  help there: tasks know only the digests of the last epochs, and trust older layers.
* The **term of the host directories** (``<host directory>/<flow>/traces-<term>``, `log/host_paths.py`): the same for
  hosts with directories of their own, which the driver's lock does not protect. The term is that of the claim.

A driver that opens a flow uses them in this order. It gets the lease, if there is one. It takes the lock; a driver of
the same lease may still hold it. If it leads by a lease, it renames the generation. It claims the locations, reads them
after that, and renames the host directories to its term. From then on `standby/leadership.py` checks lock and lease
before an epoch begins and before it counts; `runtime/replication.py` checks the claims after epochs were made durable
and before input is released. Sinks refuse an epoch that they have from another driver.

Without a lease no generation is needed, since then a lock is never taken from a living process. The lease does not
replace the lock: it does not stop a driver that was started without a lease, or with another one. The lock does not
replace the claims, since only processes with the same working directory see it. The claims do not replace the lock: a
driver that dies does not take its claim back.

**Taking over by renaming.** Directories of traces are numbered, and the highest number counts. A driver takes the
layers over by renaming the directory to a higher number. An earlier driver still writes under the old name: that makes
a directory with a lower number, which is never read, and which the next driver removes. A crash before the rename has
changed nothing; a crash after it leaves directories to remove. In a working directory a link ``traces`` points to the
directory that counts, for people and tools; this module uses the link only if that directory is gone. (A flow that
never had a lease has a directory ``traces``, which counts as long as there is none with a number.)
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from holdfast.errors import Fenced, LogBusy
from holdfast.foundation.atomic_files import temporary_path
from holdfast.foundation.retries import retrying
from holdfast.log.header import to_text

_ATTEMPTS = 5
_PAUSE = 0.05

_TRACES = re.compile(r"traces-(\d{6,})")
_OTHERS_FIRST = (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST)
"""The errors of a rename if another driver was faster."""


# -- the lock ---------------------------------------------------------------------------------------------------------


def take_lock(log: Path, lease: str | None) -> int:
    """Take the lock of a working directory. Returns an open file, which holds the lock until it is closed. The lock is
    also taken from a driver that holds it by the same ``lease``. Raises `LogBusy` if another process holds it."""
    # Try several times: a process that only asks who holds the lock holds it for a moment itself.
    return retrying(lambda: _try_lock(log, lease), on=LogBusy, pauses=(_PAUSE,) * (_ATTEMPTS - 1))


def is_lock(log: Path, lock: int) -> bool:
    """Whether this open file is the lock that counts."""
    try:
        found = os.stat(log / "lock")
    except FileNotFoundError:
        return False
    return os.path.samestat(found, os.fstat(lock))


def lock_holder(log: Path) -> dict[str, Any] | None:
    """The process that holds the lock right now (``pid``, ``host``, ``since``); None if none does."""
    try:
        probe = os.open(log / "lock", os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(probe, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _signed(probe)
    finally:
        os.close(probe)
    return None


def _try_lock(log: Path, lease: str | None) -> int:
    lock = os.open(log / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not is_lock(log, lock):
            raise LogBusy(f"log {log}: drivers take it from each other; try again", path=str(log))
        _sign(lock, lease)
        return lock
    except BlockingIOError:
        holder = _signed(lock)
        os.close(lock)
        if lease is not None and holder.get("lease") == lease:
            return _seize(log, lease)
        raise _busy(log, holder) from None
    except BaseException:
        os.close(lock)
        raise


def _seize(log: Path, lease: str) -> int:
    """Replace the lock of a driver of the same lease by a new lock, so that the old one does not count any more."""
    # Not `replace_file`: the file is locked before it gets its name, and stays open.
    with temporary_path(log, "lock") as temporary:
        lock = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _sign(lock, lease)
            os.replace(temporary, log / "lock")
        except BaseException:
            os.close(lock)
            raise
    return lock


def _sign(lock: int, lease: str | None) -> None:
    said = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.time()}
    text = to_text(said if lease is None else {**said, "lease": lease})
    os.ftruncate(lock, 0)
    os.pwrite(lock, text.encode(), 0)


def _signed(lock: int) -> dict[str, Any]:
    try:
        held = json.loads(os.pread(lock, 4096, 0))
    except (OSError, ValueError):
        return {}  # the holder has the lock, but has not written its name yet
    return held if isinstance(held, dict) else {}


def _busy(log: Path, holder: dict[str, Any]) -> LogBusy:
    pid, host = holder.get("pid"), holder.get("host")
    if pid == os.getpid() and host == socket.gethostname():
        who = "a flow of this very process has it; close() that one first"
    elif pid is None:
        who = "another process has it"
    else:
        who = f"process {pid} on {host} has it; stop that one first"
    return LogBusy(f"log {log}: {who}", path=str(log), pid=pid, host=host)


# -- taking over by renaming ------------------------------------------------------------------------------------------


def traces_of_log(log: Path) -> Path:
    """The directory of traces that counts in a working directory, not the link to it. It need not exist."""
    if found := _numbered(log):
        return found[-1]
    link = log / "traces"
    # If the directory was removed, the link still says which one it was.
    return log / os.readlink(link) if link.is_symlink() else link


def take_traces(log: Path) -> Path:
    """Rename the traces of a working directory to a new name, which no earlier driver knows, and return it. Raises
    `Fenced` if another driver does so at the same time."""
    found, link = _numbered(log), log / "traces"
    own = log / f"traces-{_number(traces_of_log(log)) + 1:06d}"
    try:
        if found:
            os.rename(found[-1], own)
        else:
            own.mkdir()
    except OSError as error:
        if error.errno in _OTHERS_FIRST:
            raise _fenced(log) from None
        raise
    take_over(own)
    _point(link, own.name)
    if (counts := traces_of_log(log)) != own:
        _point(link, counts.name)
        raise _fenced(log)
    return own


def take_over(own: Path) -> None:
    """Rename the traces to ``own``, whichever driver had them before, and remove directories that earlier drivers have
    made since. Raises `Fenced` if a later driver has the traces, and FileNotFoundError if they are being renamed right
    now: then try again."""
    own.parent.mkdir(parents=True, exist_ok=True)
    found = _numbered(own.parent)
    others = [path for path in found if path != own]
    if others and _number(others[-1]) > _number(own):
        raise _fenced(own)
    if others and own not in found:
        os.rename(others.pop(), own)
    own.mkdir(exist_ok=True)
    for other in others:
        shutil.rmtree(other, ignore_errors=True)


def _fenced(path: Path) -> Fenced:
    return Fenced(f"log {path}: another driver has taken over; this one has stopped", path=str(path))


def _numbered(directory: Path) -> list[Path]:
    """The directories of traces; the last of them is the one that counts."""
    try:
        names = retrying(lambda: _directories(directory))
    except FileNotFoundError:
        return []
    there = [directory / name for name in names if name == "traces" or _TRACES.fullmatch(name)]
    # Old versions of Holdfast renamed ``traces`` to number 0 first; if both are there, ``traces`` was not renamed.
    return sorted(there, key=lambda path: (_number(path), path.name == "traces"))


def _directories(directory: Path) -> list[str]:
    # The types come from the listing: a separate stat may fail, and a failed stat does not mean that it is missing.
    with os.scandir(directory) as entries:
        return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]


def _number(path: Path) -> int:
    found = _TRACES.fullmatch(path.name)
    return int(found[1]) if found else 0


def _point(link: Path, name: str) -> None:
    # If tasks of a dead driver have made a directory of that name, it stays until the next driver takes over.
    with suppress(IsADirectoryError), temporary_path(link.parent) as temporary:
        os.symlink(name, temporary)
        os.replace(temporary, link)
