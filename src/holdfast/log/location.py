"""Places that hold durable copies of a log: named blobs in directories, whatever is beneath.

A location is a plain value: it can be pickled and sent to a task, and opens what it needs where it is used. Paths are
relative, with forward slashes.

Invariant: a blob is whole or not there, and what ``write`` returned from stays. A local directory gets it from a hidden
name, a sync, a rename and a sync of the directory; an object store shows a blob when its upload is complete; other
filesystems get it from a rename where they have one. Hidden names (``.….tmp``) are what a crash left; nobody lists
them. One writer may overwrite another's blob, by an equal one or, for the few small files that change, by a newer one.

All methods may be called at once, from several threads of the driver and from tasks on several hosts: the flow's
background threads copy and remove, tasks fetch, and another driver may be using the same place. The thread that runs
an epoch waits for a location only when the flow is opened, recovers something that was lost, or has a strategy that
waits for copies (`guarantees/strategies.py`). How often: a round of copying, every few seconds, lists, writes and
removes; a place that fails is asked again after 1, 2, 4 … 30 seconds. Nothing is promised about the order of calls, nor
that one is not made twice.

Everything that fails is a `StoreError` that names the place, the operation, the path and the likely fix; only a blob
that is not there is FileNotFoundError. A name for people (``uri``) has no credentials in it, nor has any error.
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
# Inside the classes below, ``list`` is a method.


class Location(ABC):
    """A place that holds named blobs. Give one of your own to ``hf.Flow(log=…)``. It must be picklable."""

    @property
    @abstractmethod
    def uri(self) -> str:
        """How the place is named to people, without credentials. Always the same for the same place: messages and the
        status of a flow tell locations apart by it."""

    @abstractmethod
    def write(self, path: str, data: bytes) -> None:
        """Write a blob, whole or not at all; durable when this returns. After an error it may be there or not. Two
        writers of one path write the same bytes, but for the few small files that change: there the later one wins."""

    @abstractmethod
    def read(self, path: str) -> bytes:
        """A blob; FileNotFoundError if it is not there. Damage is not for the location to find: callers check."""

    @abstractmethod
    def list(self, directory: str) -> Entries:
        """The blobs directly in a directory, by name; none if there is no such directory. A blob that is written or
        removed meanwhile may be among them or not; one whose `write` returned before the call is."""

    @abstractmethod
    def directories(self, directory: str) -> Names:
        """The names of the directories in a directory. An empty one may be among them, or not."""

    @abstractmethod
    def remove(self, path: str) -> None:
        """Remove a blob, if it is there. After a crash of the host it may be back."""

    @abstractmethod
    def move(self, path: str, to: str) -> None:
        """Set a blob aside; FileNotFoundError if it is not there. After an error it may be in both places."""

    @abstractmethod
    def check(self) -> None:
        """Raise `StoreError` at once if blobs cannot be written, read and removed here. Makes a local directory.
        Called when a flow is opened, on the driver alone."""

    def probe(self) -> None:
        """Write, read and remove a blob that nobody lists."""
        name = temporary_name("check")
        self.write(name, b"holdfast")
        self.read(name)
        self.remove(name)

    def local(self) -> Path | None:
        """The directory, if it is on a local disk; None (the default) if not. Asked on the driver, now and then."""
        return None

    def identity(self) -> str:
        """A text that is the same for all spellings of one place, as far as that can be told without opening it. It has
        no credentials in it. Asked when a flow is declared: the same place twice is refused."""
        return self.uri

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.uri!r})"


def open_location(place: str | os.PathLike[str] | Location) -> Location:
    """The location of a path, of a ``file://`` URI, or of a URI that pyarrow or fsspec can open."""
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
        redaction.shown(text)  # whatever is said of it from here on does not show its credentials
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
    # Most flows keep their copies in directories; they need not load what speaks to the rest of the world.
    from holdfast.log.filesystem_location import FilesystemLocation

    return FilesystemLocation(text)


def location(address: str, *, credentials: Credentials | None = None) -> Location:
    """A place for a flow's log: ``log=hf.location("s3://bucket/log", credentials=provider)``.

    ``credentials`` is called with nothing, once in every process that opens the place (the driver and the Python
    workers), and returns what the filesystem wants: for ``s3://`` pyarrow's names (``access_key``, ``secret_key``,
    ``session_token``), for other addresses the options of their fsspec filesystem. It travels to workers as pickled
    code, never as a setting or a job property, so have it read a file, the environment or a secret store *there*.
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
    """The error of an operation."""
    subject = f" {path}" if path else ""
    return StoreError(
        f"location {location.uri}: cannot {operation}{subject}: {reason}",
        location=location.uri,
        operation=operation,
        path=path,
        **fields,
    )


def is_inside(path: str) -> bool:
    """Whether a relative path stays in its location."""
    return not path.startswith("/") and ".." not in path.split("/")


@dataclass(frozen=True, repr=False)
class LocalLocation(Location):
    """A directory on a local disk."""

    path: Path

    def __post_init__(self) -> None:
        # Tasks run in other working directories.
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
        """Failures become StoreErrors; that a blob is not there stays what it is if ``missing``."""
        if not is_inside(path):
            raise refusal(self, operation, path, "the path leads out of the location")
        try:
            yield
        except OSError as error:
            if missing and isinstance(error, FileNotFoundError):
                raise
            reason = said(error)
            if isinstance(error, FileExistsError):  # of mkdir: what is there is a file
                reason = f"{error.filename} is a file, and must be a directory; remove it, or choose another place"
            raise refusal(self, operation, path, reason, errno=error.errno) from error
