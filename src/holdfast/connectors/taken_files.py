"""The files that were ever taken, in few bytes each.

The latest ones are in dicts. When these are many, they are put into arrays, behind those that are there already: names
as one text, and places in it sorted by hash, to be found by bisection. So a file costs some 80 bytes for ever, and a
question a few microseconds.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

import numpy as np
import xxhash

_RECENT, _SHARE = 1024, 32
"""Files go to the arrays when there are so many, and as many as this share of those in the arrays."""


class TakenFiles:
    """Path → size and time of change of the file that was taken there last; and, by keys, files that are alike."""

    def __init__(self) -> None:
        self._recent: dict[str, tuple[int, int]] = {}
        self._keys: list[tuple[int, str]] = []
        self._by_key: dict[int, list[str]] = {}
        self._count = 0
        self._directories: dict[str, int] = {}
        self._listed: list[str] = []
        self._names = bytearray()
        self._ends = np.zeros(0, np.int64)
        self._under = np.zeros(0, np.int32)
        self._sizes = np.zeros(0, np.int64)
        self._changed = np.zeros(0, np.int64)
        self._paths = _Index()
        self._alike = _Index()

    def add(self, path: str, size: int, changed: int, keys: Iterable[int]) -> None:
        """Remember a file: ``keys`` are whole numbers that those have which are alike."""
        self._recent[path] = (size, changed)
        for key in keys:
            self._keys.append((key, path))
            self._by_key.setdefault(key, []).append(path)
        if len(self._recent) >= max(_RECENT, self._count // _SHARE):
            self._put_away()

    def at(self, path: str) -> tuple[int, int] | None:
        """Size and time of change of the file that was taken at ``path`` last; None if there was none."""
        found = self._recent.get(path)
        if found is None and self._count:
            place = self._place(path)
            found = None if place is None else (int(self._sizes[place]), int(self._changed[place]))
        return found

    def alike(self, key: int, most: int) -> list[str]:
        """The paths of files with this key, the latest ones, oldest first."""
        recent = self._by_key.get(key, [])[-most:]
        places = self._alike.places(_word(key))[::-1][: most - len(recent)][::-1] if len(recent) < most else ()
        return [*(self._path(int(place)) for place in places), *recent]

    def _put_away(self) -> None:
        """Put the latest files into the arrays."""
        first, paths = self._count, list(self._recent)
        heads = [os.path.split(path) for path in paths]
        names = [os.fsencode(name) for _, name in heads]
        under = [self._directories.setdefault(directory, len(self._directories)) for directory, _ in heads]
        ends = np.cumsum([len(name) for name in names]) + len(self._names)
        self._names += b"".join(names)
        self._ends = np.concatenate([self._ends, ends.astype(np.int64)])
        self._under = np.concatenate([self._under, np.asarray(under, np.int32)])
        told = np.asarray(list(self._recent.values()), np.int64)
        self._sizes = np.concatenate([self._sizes, told[:, 0]])
        self._changed = np.concatenate([self._changed, told[:, 1]])
        self._count += len(paths)
        places = {path: first + place for place, path in enumerate(paths)}
        self._paths.add([_hash(path) for path in paths], list(places.values()))
        self._alike.add([_word(key) for key, _ in self._keys], [places[path] for _, path in self._keys])
        self._recent, self._keys, self._by_key = {}, [], {}
        self._listed = list(self._directories)

    def _place(self, path: str) -> int | None:
        """Where a path is in the arrays: its latest place."""
        for place in self._paths.places(_hash(path))[::-1]:
            if self._path(int(place)) == path:
                return int(place)
        return None

    def _path(self, place: int) -> str:
        start = int(self._ends[place - 1]) if place else 0
        name = os.fsdecode(bytes(self._names[start : int(self._ends[place])]))
        return os.path.join(self._listed[int(self._under[place])], name)


class _Index:
    """Hashes → places. Of equal hashes, the places are in the order in which they came."""

    def __init__(self) -> None:
        self._hashes = np.zeros(0, np.uint64)
        self._places = np.zeros(0, np.int32)

    def add(self, hashes: list[int], places: list[int]) -> None:
        whole = np.concatenate([self._hashes, np.asarray(hashes, np.uint64)])
        order = np.argsort(whole, kind="stable")
        self._hashes = whole[order]
        self._places = np.concatenate([self._places, np.asarray(places, np.int32)])[order]

    def places(self, value: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
        wanted = np.uint64(value)
        first = self._hashes.searchsorted(wanted)
        if first == len(self._hashes) or self._hashes[first] != wanted:
            return self._places[:0]
        return self._places[first : self._hashes.searchsorted(wanted, "right")]


def _hash(path: str) -> int:
    return xxhash.xxh3_64_intdigest(os.fsencode(path))


def _word(key: int) -> int:
    return key & 0xFFFF_FFFF_FFFF_FFFF
