"""Log locations: places that hold durable copies of a log, as named blobs in directories, on any filesystem.

A location is a plain value: it can be pickled and sent to a task, and opens connections where it is used. Paths are
relative, with forward slashes.

Invariant: a blob is whole or not there, and a blob whose ``write`` has returned stays. A local directory achieves that
with a hidden name, a sync, a rename and a sync of the directory; an object store shows a blob when its upload is
complete; other filesystems use a rename if they have one. Files with hidden names (``.….tmp``) are left by crashes, and
are not listed. A writer may overwrite another writer's blob, with an equal blob or, for the few small files that
change, with a newer one.

All methods may be called concurrently, from several threads of the driver and from tasks on several hosts: the flow's
background threads copy and remove, tasks fetch, and another driver may be using the same place. The thread that runs
an epoch waits for a location only when the flow is opened, when something lost is recovered, or if the strategy waits
for copies (`guarantees/strategies.py`). How often: a round of copying, every few seconds, lists, writes and removes; a
place that fails is tried again after 1, 2, 4 … 30 seconds. Not guaranteed: the order of calls, and that a call is not
made twice.

Every failure is a `StoreError` that names the place, the operation, the path and the likely fix; only a blob that is
not there is FileNotFoundError. The name for people (``uri``) has no credentials in it, nor has any error.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import unquote, urlsplit

from holdfast.errors import StoreError
from holdfast.foundation import arguments
from holdfast.foundation.atomic_files import (
    is_temporary,
    make_directory,
    read_file,
    replace_file,
    sync_directory,
    temporary_name,
)
from holdfast.foundation.os_errors import said
from holdfast.foundation.retries import retrying
from holdfast.reporting import redaction

if TYPE_CHECKING:
    from holdfast.log.filesystem_location import Credentials


@dataclass(frozen=True)
class Entry:
    """A blob in a listing."""

    name: str
    size: int


Entries: TypeAlias = list[Entry]
Names: TypeAlias = list[str]
# These aliases exist because ``list`` is a method inside the classes below.


class Location(ABC):
    """A place that holds named blobs. You may give an object of your own subclass to ``hf.Flow(log=…)``. It must be
    picklable."""

    @property
    @abstractmethod
    def uri(self) -> str:
        """The name of the place for people, without credentials. It must always be the same for the same place:
        messages and the status of a flow tell locations apart by it."""

    @abstractmethod
    def write(self, path: str, data: bytes) -> None:
        """Write a blob, whole or not at all; it must be durable when this returns. After an error it may be there or
        not. Two writers of one path write the same bytes, except for the few small files that change: there the later
        write wins."""

    @abstractmethod
    def read(self, path: str) -> bytes:
        """Return a blob. Raise FileNotFoundError if it is not there. The location need not find damage: callers
        check."""

    @abstractmethod
    def list(self, directory: str) -> Entries:
        """Return the blobs directly in a directory, sorted by name; none if there is no such directory. A blob that is
        written or removed meanwhile may be among them or not; a blob whose `write` returned before the call must be."""

    @abstractmethod
    def directories(self, directory: str) -> Names:
        """Return the names of the directories in a directory. Empty directories may be among them, or not."""

    @abstractmethod
    def remove(self, path: str) -> None:
        """Remove a blob, if it is there. After a crash of the host the blob may be back."""

    @abstractmethod
    def move(self, path: str, to: str) -> None:
        """Move a blob to another path. Raise FileNotFoundError if it is not there. After an error it may be at both
        paths."""

    @abstractmethod
    def check(self) -> None:
        """Raise `StoreError` if blobs cannot be written, read and removed here. A local directory is made if it is
        missing. Called when a flow is opened, on the driver only."""

    def probe(self) -> None:
        """Write, read and remove a blob with a hidden name."""
        name = temporary_name("check")
        self.write(name, b"holdfast")
        self.read(name)
        self.remove(name)

    def local(self) -> Path | None:
        """Return the directory if the location is on a local disk; None (the default) if it is not. Called on the
        driver, now and then."""
        return None

    def identity(self) -> str:
        """Return a text that is the same for all spellings of one place, as far as that can be told without opening it,
        and that has no credentials in it. Called when a flow is declared: the same place twice is refused."""
        return self.uri

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.uri!r})"


def open_location(place: str | os.PathLike[str] | Location) -> Location:
    """The location for a path, a ``file://`` URI, or a URI that pyarrow or fsspec can open. Raises `StoreError` if the
    place cannot be one."""
    if isinstance(place, Location):
        return place
    if not isinstance(place, str | os.PathLike):
        kind = type(place).__name__
        raise StoreError(
            f"location {place!r}: expected a path, a URI or a Location, found {kind}", location=repr(place)
        )
    text = os.fspath(place)
    if not text:
        raise StoreError("location '': it is empty; give a directory or a URI", location="")
    if isinstance(place, str):
        redaction.shown(text)  # from here on no message shows the credentials in the URI
        if re.match(r"[\w+.:-]+://", text) and not re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", text):
            raise StoreError(
                f"location {redaction.shown(text)}: no such kind of place is known; check the part before ://",
                location=redaction.shown(text),
            )
    if not isinstance(place, str) or not (match := re.match(r"([A-Za-z][A-Za-z0-9+.-]+):/", text)):
        return LocalLocation(Path(text))
    if match[1].lower() == "file":
        parts = urlsplit(text)
        if parts.netloc not in ("", "localhost"):
            raise StoreError(
                f"location {text}: a file:// URI has three slashes before its path; did you mean "
                f"file:///{parts.netloc}{parts.path}?",
                location=text,
            )
        return LocalLocation(Path(unquote(parts.path)))
    if "://" not in text:
        raise StoreError(
            f"location {text}: did you mean {text.replace(':/', '://', 1)}? A directory of that name is ./{text}",
            location=text,
        )
    # Most flows keep their copies in directories, and need not load the libraries of other filesystems.
    from holdfast.log.filesystem_location import FilesystemLocation

    return FilesystemLocation(text)


def location(address: str, *, credentials: Credentials | None = None) -> Location:
    """A place for a flow's log: ``log=hf.location("s3://bucket/log", credentials=provider)``.

    ``credentials`` is called without arguments, once in every process that opens the place (the driver and the Python
    workers). It returns the options that the filesystem needs: for ``s3://`` pyarrow's names (``access_key``,
    ``secret_key``, ``session_token``), for other addresses the options of their fsspec filesystem. The function is sent
    to workers as pickled code, never as a setting or a job property; so let it read a file, the environment or a secret
    store when it is called, in the process that calls it.
    """
    arguments.path("location", "address", address)
    if credentials is None:
        return open_location(address)
    arguments.callable_with("location", "credentials", credentials, "nothing, which returns them")
    found = open_location(address)
    if found.local() is not None or not callable(credentials):
        what = "a local directory needs none" if callable(credentials) else "give a function that returns them"
        raise StoreError(f"location {found.uri}: credentials: {what}", location=found.uri)
    from holdfast.log.filesystem_location import FilesystemLocation

    return FilesystemLocation(address, credentials)


def refusal(location: Location, operation: str, path: str, reason: str, **fields: object) -> StoreError:
    """The `StoreError` for a failed operation on a location."""
    subject = f" {path}" if path else ""
    return StoreError(
        f"location {location.uri}: cannot {operation}{subject}: {reason}",
        location=location.uri,
        operation=operation,
        path=path,
        **fields,
    )


def is_inside(path: str) -> bool:
    """Whether a path is relative and stays inside its location."""
    return not path.startswith("/") and ".." not in path.split("/")


@dataclass(frozen=True, repr=False)
class LocalLocation(Location):
    """A directory on a local disk."""

    path: Path

    def __post_init__(self) -> None:
        # Made absolute, since tasks run in other working directories.
        object.__setattr__(self, "path", Path(os.path.abspath(os.path.expanduser(self.path))))

    @property
    def uri(self) -> str:
        return str(self.path)

    def local(self) -> Path:
        return self.path

    def identity(self) -> str:
        return os.path.realpath(self.path)

    def write(self, path: str, data: bytes) -> None:
        with self._doing("write", path):
            retrying(lambda: self._write(self.path / path, data))

    @staticmethod
    def _write(target: Path, data: bytes) -> None:
        make_directory(target.parent)
        replace_file(target, data, sync=True)

    def read(self, path: str) -> bytes:
        with self._doing("read", path, missing=True):
            return read_file(self.path / path)

    def list(self, directory: str) -> Entries:
        with self._doing("list", directory), suppress(FileNotFoundError):
            return retrying(lambda: self._list(directory))
        return []

    def _list(self, directory: str) -> Entries:
        found: Entries = []
        with os.scandir(self.path / directory) as entries:
            for entry in entries:
                if not is_temporary(entry.name) and entry.is_file():
                    with suppress(FileNotFoundError):  # removed meanwhile
                        found.append(Entry(entry.name, entry.stat().st_size))
        return sorted(found, key=lambda entry: entry.name)

    def directories(self, directory: str) -> Names:
        with self._doing("list", directory), suppress(FileNotFoundError):
            return retrying(lambda: self._directories(directory))
        return []

    def _directories(self, directory: str) -> Names:
        with os.scandir(self.path / directory) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir())

    def remove(self, path: str) -> None:
        with self._doing("remove", path):
            retrying(lambda: (self.path / path).unlink(missing_ok=True))

    def move(self, path: str, to: str) -> None:
        with self._doing("move", path, missing=True), self._doing("move", to, missing=True):
            source, target = self.path / path, self.path / to
            source.stat()
            make_directory(target.parent)
            os.replace(source, target)
            sync_directory(target.parent)
            sync_directory(source.parent)

    def check(self) -> None:
        with self._doing("use", ""):
            make_directory(self.path)
        self.probe()

    @contextmanager
    def _doing(self, operation: str, path: str, *, missing: bool = False) -> Iterator[None]:
        """Turn failures into `StoreError`; with ``missing``, FileNotFoundError stays as it is."""
        if not is_inside(path):
            raise refusal(self, operation, path, "the path leads out of the location")
        try:
            yield
        except OSError as error:
            if missing and isinstance(error, FileNotFoundError):
                raise
            reason = said(error)
            if isinstance(error, FileExistsError):  # raised by mkdir: there is a file in place of a directory
                reason = f"{error.filename} is a file, and must be a directory; remove it, or choose another place"
            raise refusal(self, operation, path, reason, errno=error.errno) from error
