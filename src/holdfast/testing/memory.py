"""A location in memory, for simulations: as fast as a dictionary, and it can lose its content.

It belongs to one process. It cannot be pickled, because a copy would diverge from the original.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import NoReturn

from holdfast.foundation.atomic_files import is_temporary
from holdfast.log.location import Entries, Entry, Location, Names, is_inside, refusal


class MemoryLocation(Location):
    """A location whose blobs are in memory. ``name``: identifies it in messages."""

    def __init__(self, name: str = "copy") -> None:
        self._name = name
        self._blobs: dict[str, dict[str, bytes]] = {}
        self._lock = threading.Lock()

    @property
    def uri(self) -> str:
        return f"memory:{self._name}"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self!r} is the memory of one process, and cannot be sent to another; use a LocalLocation")

    def write(self, path: str, data: bytes) -> None:
        directory, name = self._place("write", path)
        with self._lock:
            self._blobs.setdefault(directory, {})[name] = bytes(data)

    def read(self, path: str) -> bytes:
        directory, name = self._place("read", path)
        try:
            return self._blobs[directory][name]
        except KeyError:
            raise FileNotFoundError(f"{self.uri}/{path}") from None

    def list(self, directory: str) -> Entries:
        self._place("list", directory)
        with self._lock:
            blobs = dict(self._blobs.get(directory.strip("/"), {}))
        return [Entry(name, len(blobs[name])) for name in sorted(blobs) if not is_temporary(name)]

    def directories(self, directory: str) -> Names:
        self._place("list", directory)
        above = f"{directory.strip('/')}/".removeprefix("/")
        with self._lock:
            inside = [one for one, blobs in self._blobs.items() if blobs and one.startswith(above) and one != above]
        return sorted({one.removeprefix(above).split("/")[0] for one in inside} - {""})

    def remove(self, path: str) -> None:
        directory, name = self._place("remove", path)
        with self._lock:
            self._blobs.get(directory, {}).pop(name, None)

    def move(self, path: str, to: str) -> None:
        self._place("move", to)
        self.write(to, self.read(path))
        if to != path:
            self.remove(path)

    def check(self) -> None:
        """Do nothing: the location is always usable."""

    def snapshot(self) -> dict[str, bytes]:
        """Return all blobs, by path."""
        with self._lock:
            return {
                f"{directory}/{name}".removeprefix("/"): data
                for directory, blobs in self._blobs.items()
                for name, data in blobs.items()
            }

    def restore(self, snapshot: Mapping[str, bytes]) -> None:
        """Replace all blobs by those of a snapshot."""
        self.lose()
        for path, data in snapshot.items():
            self.write(path, data)

    def lose(self, path: str | None = None) -> None:
        """Lose one blob, or everything, like a disk that dies."""
        if path is not None:
            self.remove(path)
            return
        with self._lock:
            self._blobs.clear()

    def _place(self, operation: str, path: str) -> tuple[str, str]:
        if not is_inside(path):
            raise refusal(self, operation, path, "the path leads out of the location")
        directory, _, name = path.rpartition("/")
        return directory, name
