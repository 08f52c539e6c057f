"""The log location of a branch: a directory in its parent's location, and references to layers of the parent.

    <location>/branches/<name>/references.json    layer → the parent's layer with the same rows, and its bytes
    <location>/branches/<name>/…                  a log location like any other (`log/replica.py`)

A reader finds a referred layer as if it had been copied. The parent does not remove a layer as long as a reference to
it is in the file (`referred`). The branch removes references that it no longer needs. The file is written when the
branch is made; from then on only the branch's driver changes it, one thread at a time.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.errors import LogDamaged
from holdfast.log.location import Entries, Entry, Location, Names

DIRECTORY = "branches"
FILE = "references.json"


@dataclass(frozen=True)
class Reference:
    """A blob of the parent's location that a branch shares."""

    path: str
    size: int


def references_of(data: bytes, where: str) -> dict[str, Reference]:
    """Path in the branch → the parent's blob for it. Raises `LogDamaged` if the file does not parse."""
    try:
        return {path: Reference(str(target), int(size)) for path, (target, size) in json.loads(data).items()}
    except (ValueError, AttributeError, TypeError) as error:
        raise LogDamaged(f"{where}: it does not say what the branch shares: {error}", path=where) from None


def references_bytes(references: Mapping[str, Reference]) -> bytes:
    return json.dumps({path: [each.path, each.size] for path, each in sorted(references.items())}).encode()


def referred(location: Location) -> set[str]:
    """The blobs of a location that its branches refer to, which must not be removed. Raises `LogDamaged` if a file of
    references does not parse."""
    found: set[str] = set()
    for name in location.directories(DIRECTORY):
        path = f"{DIRECTORY}/{name}/{FILE}"
        try:
            found |= {each.path for each in references_of(location.read(path), f"{location.uri}/{path}").values()}
        except FileNotFoundError:
            continue
    return found


class BranchLocation(Location):
    """The log location of a branch, in one location of its parent."""

    def __init__(self, parent: Location, name: str) -> None:
        self.parent = parent
        self.name = name
        self._known: dict[str, Reference] | None = None
        # A lock for each object: a branch of a branch calls its parent's location while it holds its own lock.
        self._changing = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {"parent": self.parent, "name": self.name}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]  # as a new one

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BranchLocation) and (self.parent, self.name) == (other.parent, other.name)

    def __hash__(self) -> int:
        return hash((self.parent, self.name))

    @property
    def uri(self) -> str:
        return f"{self.parent.uri}/{DIRECTORY}/{self.name}"

    def identity(self) -> str:
        return f"{self.parent.identity()}/{DIRECTORY}/{self.name}"

    def _own(self, path: str) -> str:
        return f"{DIRECTORY}/{self.name}/{path}"

    def references(self) -> dict[str, Reference]:
        """Path in the branch → the parent's blob, for all blobs that the branch shares with its parent."""
        with self._changing:
            return dict(self._read())

    def _read(self) -> dict[str, Reference]:
        if self._known is None:
            try:
                self._known = references_of(self.parent.read(self._own(FILE)), f"{self.uri}/{FILE}")
            except FileNotFoundError:
                self._known = {}
        return self._known

    def refer(self, references: Mapping[str, Reference]) -> None:
        """Replace all references by these."""
        with self._changing:
            self.parent.write(self._own(FILE), references_bytes(references))
            self._known = dict(references)

    def _forget(self, path: str) -> bool:
        """Remove the reference for a path. Returns whether there was one."""
        with self._changing:
            known = self._read()
            if path not in known:
                return False
            left = {each: shared for each, shared in known.items() if each != path}
            self.parent.write(self._own(FILE), references_bytes(left))
            self._known = left
        return True

    def write(self, path: str, data: bytes) -> None:
        self.parent.write(self._own(path), data)

    def read(self, path: str) -> bytes:
        shared = self.references().get(path)
        return self.parent.read(self._own(path) if shared is None else shared.path)

    def list(self, directory: str) -> Entries:
        own = {entry.name: entry for entry in self.parent.list(self._own(directory).rstrip("/"))}
        for path, shared in self.references().items():
            where, _, name = path.rpartition("/")
            if where == directory:
                own[name] = Entry(name, shared.size)
        return sorted(own.values(), key=lambda entry: entry.name)

    def directories(self, directory: str) -> Names:
        own = set(self.parent.directories(self._own(directory).rstrip("/")))
        shared = {path.rpartition("/")[0].rpartition("/") for path in self.references()}
        return sorted(own | {name for where, _, name in shared if where == directory})

    def remove(self, path: str) -> None:
        if not self._forget(path):
            self.parent.remove(self._own(path))

    def move(self, path: str, to: str) -> None:
        # The parent sets aside its own damaged layers; the branch only drops its reference.
        if not self._forget(path):
            self.parent.move(self._own(path), self._own(to))

    def check(self) -> None:
        self.parent.check()
