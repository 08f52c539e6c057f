"""The files that were ever taken, in few bytes each.

The latest files are in dicts. When these grow large, the files go to arrays, behind the files that are there already:
names as one text, and positions sorted by hash, which are found by bisection. So a file costs about 80 bytes for ever,
and a look-up takes a few microseconds. Many files that are added at once go to the arrays directly, as blocks, and are
sorted in at the next look-up: a flow that is opened again spends about two microseconds on each file that it ever took.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import xxhash

_RECENT, _SHARE = 1024, 32
"""Files move from the dicts to the arrays when there are at least `_RECENT` of them, and at least one for every
`_SHARE` files in the arrays."""


Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Places = npt.NDArray[np.int32]


class _Block(NamedTuple):
    """Files that are not in the arrays yet, as columns."""

    names: bytes
    """All names, one behind the other, without a separator."""

    lengths: Ints
    under: Places
    """The number of each file's directory."""

    sizes: Ints
    changed: Ints
    hashes: Words
    """The hash of each file's path."""

    keys: Words
    keyed: Places
    """For each of ``keys``, the place in this block of the file that has the key."""


class TakenFiles:
    """Path → size and time of change of the file that was taken there last; and key → paths of the files with that key,
    which look alike."""

    def __init__(self) -> None:
        self._recent: dict[str, tuple[int, int]] = {}
        self._keys: list[tuple[int, str]] = []
        self._by_key: dict[int, list[str]] = {}
        self._count = 0
        """How many files are in the arrays and in blocks."""

        self._blocks: list[_Block] = []
        self._directories: dict[str, int] = {}
        self._listed: list[str] = []
        self._names = bytearray()
        self._ends = np.zeros(0, np.int64)
        self._under = np.zeros(0, np.int32)
        self._sizes = np.zeros(0, np.int64)
        self._changed = np.zeros(0, np.int64)
        self._paths = _Index()
        self._alike = _Index()

    def __len__(self) -> int:
        return self._count + len(self._recent)

    def add(self, path: str, size: int, changed: int, keys: Iterable[int]) -> None:
        """Remember a file. ``keys`` are hashes: files that look alike have a key in common."""
        self._recent[path] = (size, changed)
        for key in keys:
            self._keys.append((key, path))
            self._by_key.setdefault(key, []).append(path)
        if len(self._recent) >= max(_RECENT, self._count // _SHARE):
            self._put_away()

    def add_all(
        self,
        under: str,
        names: Sequence[str],
        sizes: Sequence[int],
        changed: Sequence[int],
        keys: Sequence[Sequence[int]],
    ) -> None:
        """Remember the files of these names under a directory, in this order. ``keys`` has one column of keys for each
        key that every file has."""
        if len(names) < _RECENT:
            for place, name in enumerate(names):
                self.add(os.path.join(under, name), sizes[place], changed[place], [column[place] for column in keys])
            return
        self._put_away()  # files in the dicts came earlier, so they go first
        heads = [name.rpartition("/") for name in names]
        self._append(
            [os.path.join(under, head) if head else under for head, _, _ in heads],
            [name for _, _, name in heads],
            sizes,
            changed,
            [key for each in zip(*keys, strict=True) for key in each],
            np.repeat(np.arange(len(names), dtype=np.int32), len(keys)),
        )

    def _append(
        self,
        directories: Sequence[str],
        names: Sequence[str],
        sizes: Sequence[int],
        changed: Sequence[int],
        keys: Sequence[int],
        keyed: Places,
    ) -> None:
        encoded = [os.fsencode(name) for name in names]
        prefixes = {each: os.fsencode(os.path.join(each, "")) for each in set(directories)}
        hashed = (
            xxhash.xxh3_64_intdigest(prefixes[directory] + name)
            for directory, name in zip(directories, encoded, strict=True)
        )
        numbers = {
            each: self._directories.setdefault(each, len(self._directories)) for each in dict.fromkeys(directories)
        }
        block = _Block(
            b"".join(encoded),
            np.fromiter(map(len, encoded), np.int64, len(names)),
            np.fromiter((numbers[each] for each in directories), np.int32, len(names)),
            np.asarray(sizes, np.int64),
            np.asarray(changed, np.int64),
            np.fromiter(hashed, np.uint64, len(names)),
            np.asarray(keys, np.int64).view(np.uint64),
            keyed,
        )
        self._blocks.append(block)
        self._count += len(names)

    def at(self, path: str) -> tuple[int, int] | None:
        """Size and time of change of the file that was taken at ``path`` last; None if none was."""
        found = self._recent.get(path)
        if found is None and self._count:
            self._sort_in()
            place = self._place(path)
            found = None if place is None else (int(self._sizes[place]), int(self._changed[place]))
        return found

    def alike(self, key: int, most: int) -> list[str]:
        """The paths of the latest files with this key, at most ``most``, oldest first."""
        self._sort_in()
        recent = self._by_key.get(key, [])[-most:]
        places = self._alike.places(_word(key))[::-1][: most - len(recent)][::-1] if len(recent) < most else ()
        return [*(self._path(int(place)) for place in places), *recent]

    def _put_away(self) -> None:
        """Move the files in the dicts to a block."""
        if not self._recent:
            return
        paths = list(self._recent)
        heads = [_split(path) for path in paths]
        places = {path: place for place, path in enumerate(paths)}
        self._append(
            [directory for directory, _ in heads],
            [name for _, name in heads],
            [size for size, _ in self._recent.values()],
            [changed for _, changed in self._recent.values()],
            [key for key, _ in self._keys],
            np.asarray([places[path] for _, path in self._keys], np.int32),
        )
        self._recent, self._keys, self._by_key = {}, [], {}

    def _sort_in(self) -> None:
        """Put the blocks into the arrays."""
        if not self._blocks:
            return
        blocks, self._blocks = self._blocks, []
        firsts = np.cumsum([len(self._ends), *(len(block.lengths) for block in blocks)])
        ends = np.cumsum(np.concatenate([block.lengths for block in blocks])) + len(self._names)
        self._names += b"".join(block.names for block in blocks)
        self._ends = np.concatenate([self._ends, ends])
        self._under = np.concatenate([self._under, *(block.under for block in blocks)])
        self._sizes = np.concatenate([self._sizes, *(block.sizes for block in blocks)])
        self._changed = np.concatenate([self._changed, *(block.changed for block in blocks)])
        self._paths.add(
            np.concatenate([block.hashes for block in blocks]), np.arange(firsts[0], firsts[-1], dtype=np.int32)
        )
        keyed = [block.keyed + np.int32(first) for first, block in zip(firsts, blocks, strict=False)]
        self._alike.add(np.concatenate([block.keys for block in blocks]), np.concatenate(keyed))
        self._listed = list(self._directories)

    def _place(self, path: str) -> int | None:
        """The latest place of a path in the arrays; None if it is not there."""
        for place in self._paths.places(_hash(path))[::-1]:
            if self._path(int(place)) == path:
                return int(place)
        return None

    def _path(self, place: int) -> str:
        start = int(self._ends[place - 1]) if place else 0
        name = os.fsdecode(bytes(self._names[start : int(self._ends[place])]))
        return os.path.join(self._listed[int(self._under[place])], name)


class _Index:
    """Hashes → places. Places of equal hashes are in the order in which they were added."""

    def __init__(self) -> None:
        self._hashes = np.zeros(0, np.uint64)
        self._places = np.zeros(0, np.int32)

    def add(self, hashes: Words, places: Places) -> None:
        order = np.argsort(hashes, kind="stable")
        at = self._hashes.searchsorted(hashes[order], "right")
        self._hashes = np.insert(self._hashes, at, hashes[order])
        self._places = np.insert(self._places, at, places[order])

    def places(self, value: int) -> Places:
        wanted = np.uint64(value)
        first = self._hashes.searchsorted(wanted)
        if first == len(self._hashes) or self._hashes[first] != wanted:
            return self._places[:0]
        return self._places[first : self._hashes.searchsorted(wanted, "right")]


def _split(path: str) -> tuple[str, str]:
    """A directory, with the slash behind it, and a name. (``os.path.split`` would take slashes of an address away.)"""
    place = path.rfind("/") + 1
    return path[:place], path[place:]


def _hash(path: str) -> int:
    return xxhash.xxh3_64_intdigest(os.fsencode(path))


def _word(key: int) -> int:
    return key & 0xFFFF_FFFF_FFFF_FFFF
