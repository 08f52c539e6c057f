"""A lease in a directory that all drivers see: a local path, or any shared POSIX mount.

    <directory>/term-000000000007        the holder of the 7th term, and a beat that it counts up

The highest term holds the lease. A driver takes a term by linking its file, which fails if the file exists: of two
drivers only one gets it. The holder renews its term by replacing the file with one of a higher beat. A driver that has
seen the highest term unchanged for the whole timeout, by its own clock, takes the next term; if the highest term is
released, it takes the next one without waiting.

Why two drivers never count on the lease at once, whenever one of them is paused: after the holder wrote a beat, it
looks for a higher term. After another driver took a higher term, it looks whether the beat has changed, and withdraws
if so. Whichever wrote first, the other sees it. A holder that is late must not simply renew: it must take the next
term, like any other driver.

A crash leaves a hidden file, which a later holder removes, or a term that is not renewed, after which another driver
takes the next term when the timeout is over.

On a network mount the timeout must be longer than the time for which attributes are cached there (NFS: ``actimeo``);
otherwise a beat is seen late.
"""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from holdfast.errors import LeaseError, LeaseLost
from holdfast.foundation.atomic_files import create_file, replace_file, temporary_path
from holdfast.foundation.os_errors import fix
from holdfast.standby.lease import Clock, Holder, Lease, since_boot

_TERM = re.compile(r"term-(\d{12,})")
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


class FileLease(Lease):
    """A lease in a shared directory (see the head of this file)."""

    def __init__(
        self, directory: Path, timeout: float, clock: Clock = since_boot, holder: Holder | None = None
    ) -> None:
        super().__init__(directory.absolute().as_uri(), timeout, clock)
        self._directory = directory.absolute()
        self._me = holder or Holder.here()
        self._token = secrets.token_hex(8)
        self._beat = 0
        self._seen: tuple[int, bytes] | None = None
        self._since = 0.0
        self._holder: Holder | None = None

    def connect(self) -> None:
        if self._directory.is_file():
            raise LeaseError(f"lease {self.url}: it is a file; a lease is a directory", lease=self.url)
        with self._failing():
            self._directory.mkdir(parents=True, exist_ok=True)
            with temporary_path(self._directory, _stem(0)) as probe:
                probe.write_bytes(b"")
                probe.unlink()
        self._connected = True

    def look(self) -> bool:
        with self._failing():
            started = self._clock()
            top = self._top()
            if top == 0:
                return self._take(1, None, started)
            found = self._read(top)
            if found is None:
                return False  # its holder has just taken the next term: look again
            if self._seen != (top, found):
                self._seen, self._since = (top, found), self._clock()
                self._holder = _holder(found)
            released = _is_released(found)
            if released or started - self._since >= self.timeout:
                return self._take(top + 1, None if released else (top, found), started)
            return False

    def renew(self) -> None:
        with self._failing():
            started = self._clock()
            late = started - self._confirmed >= self.timeout
            self._check_top()
            if late:
                before = self._read(self.term)
                if not self._take(self.term + 1, None if before is None else (self.term, before), started):
                    self._check_top()
                    raise LeaseError(f"lease {self.url}: it was not renewed in time", lease=self.url)
                return
            self._beat += 1
            self._replace(self.term, self._record())
            self._check_top()
            self.confirm(started)

    def holder(self) -> Holder | None:
        return self._holder

    def leave(self) -> None:
        with self._failing():
            if self._held and self._lost is None and self._top() == self.term:
                self._beat += 1
                self._replace(self.term, self._record(released=True))

    # -- terms ------------------------------------------------------------------------------------------------------

    def _take(self, term: int, before: tuple[int, bytes] | None, started: float) -> bool:
        """Try to take a term, and return whether this driver has it. ``before``: the term that was not renewed, and its
        record as it was seen."""
        if not self._create(term, self._record()):
            return False
        moved = before is not None and self._read(before[0]) not in (before[1], None)
        if moved or self._top() != term:
            self._path(term).unlink(missing_ok=True)
            return False
        self.term, self._holder = term, self._me
        self.confirm(started)
        self._tidy()
        return True

    def _check_top(self) -> None:
        top = self._top()
        if top > self.term:
            found = self._read(top)
            self._holder = _holder(found or b"")
            raise LeaseLost(
                f"lease {self.url}: it went to {self._holder} (term {top}; this driver had term {self.term}); "
                "this driver has stopped, so that the other may go on",
                lease=self.url,
                term=top,
            )

    def _top(self) -> int:
        return max(
            (int(found[1]) for name in os.listdir(self._directory) if (found := _TERM.fullmatch(name))), default=0
        )

    def _read(self, term: int) -> bytes | None:
        try:
            return self._path(term).read_bytes()
        except FileNotFoundError:
            return None

    def _record(self, released: bool = False) -> bytes:
        record = {"token": self._token, "beat": self._beat, "released": released, **self._me.to_dict()}
        return json.dumps(record).encode()

    def _create(self, term: int, record: bytes) -> bool:
        """Create a term's file. Return False if it exists already."""
        try:
            return create_file(self._path(term), record, stem=_stem(term))
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
        # The filesystem has no links. Until the record is written, readers see an empty one: to them that is a beat.
        try:
            with open(self._path(term), "xb") as file:
                file.write(record)
        except FileExistsError:
            return False
        return True

    def _replace(self, term: int, record: bytes) -> None:
        replace_file(self._path(term), record, stem=_stem(term))

    def _tidy(self) -> None:
        """Remove the files of earlier terms. (An earlier holder that wakes up may write its file again, which is
        harmless.)"""
        for name in os.listdir(self._directory):
            found = _TERM.fullmatch(name) or re.fullmatch(r"\.term-(\d{12,})\..*\.tmp", name)
            if found is not None and int(found[1]) < self.term:
                with suppress(OSError):
                    (self._directory / name).unlink(missing_ok=True)

    def _path(self, term: int) -> Path:
        return self._directory / _stem(term)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise LeaseError(f"lease {self.url}: {fix(error)}", lease=self.url, errno=error.errno) from error


def _stem(term: int) -> str:
    """Return the file name of a term. Its temporary files begin with the same name, so that a later holder can tell
    which ones to remove."""
    return f"term-{term:012d}"


def _said(record: bytes) -> dict[str, object]:
    try:
        said = json.loads(record)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _holder(record: bytes) -> Holder:
    return Holder.of(_said(record))


def _is_released(record: bytes) -> bool:
    return _said(record).get("released") is True
