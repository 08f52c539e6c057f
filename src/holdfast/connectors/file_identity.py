"""What makes a file the same file: its path, or its content.

Every file that is offered gets a **mark**, which is in the offer, so that a flow that is opened again knows it.

* ``"path"``: a file is its path. The mark (4 bytes) is of its first and last 32 KB; it finds a file that has *moved*:
  one with the mark and size of a file that was taken and is no longer where it was, whether the time of change came
  with it (``mv``, ``cp -p``) or not (``cp`` and ``rm``). Its rows would count twice, so it is refused. Two kinds of
  files are alike and have not moved: those without rows, and those that a feed writes again and again. The first count
  nothing; the second are told by this: of that mark and size, two or more were taken. They are taken, with a warning.
* ``"content"``: a file is its content. The mark (16 bytes) is of all of it, so each file is read once more, by the
  driver. Wherever it is moved or copied to, it is not taken again; a path that gets another content is a new file. Two
  files of equal content count once.

Cost: memory for each file that was ever taken, some 80 bytes; per new file one reading of its ends, or of all of it.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Literal, NamedTuple

import xxhash

from holdfast.connectors.file_access import LOCAL, File, FileAccess
from holdfast.connectors.file_offer import Columns, Offered
from holdfast.connectors.taken_files import TakenFiles
from holdfast.reporting.redaction import logger

_LOG = logger("holdfast.sources")

Identity = Literal["path", "content"]

_END = 32 << 10
_BLOCK = 1 << 20
_BRIEF, _WHOLE = 4, 16
"""The bytes of a mark."""

_WATCHED = 200
"""So many of the files that were taken are looked at again in a poll, in the mean; of more, some each time."""

_ALIKE = 64
"""So many files of one mark are looked at, the latest ones: heartbeats are all alike."""


class Other(NamedTuple):
    """A file that was taken, and that another one looks like."""

    path: str
    same_time: bool
    there: bool
    """Whether it is still where it was taken."""

    repeated: bool
    """Whether files of this size and mark were taken more than once."""


class Taken:
    """The files that epochs took."""

    def __init__(self, identity: Identity, access: FileAccess = LOCAL) -> None:
        self._access = access
        self._whole = identity == "content"
        self._files = TakenFiles()
        """They are alike by size and mark; or by size and time, if the mark is of the other identity or missing."""

        self._otherwise: set[int] = set()
        """The sizes of files with marks of the other identity."""

        self._edited: dict[str, int] = {}
        """Path → the time of change at which it was seen to differ from the file that was taken."""

        self._copies: dict[str, File] = {}
        """Path → a file there whose content was taken elsewhere."""

    def mark(self, path: str) -> bytes:
        """The mark of a file. Raises `OSError`."""
        return _digest(path, self._access) if self._whole else ends_of(path, self._access)

    def add(self, offered: Offered) -> None:
        """An epoch took a file."""
        file = offered.file
        told: list[object] = [offered.mark] if offered.mark else []
        if is_whole(offered.mark) != self._whole or not offered.mark:
            told.append(file.changed)
            self._otherwise.add(file.size)
        self._files.add(file.path, file.size, file.changed, [_key(file.size, what) for what in told])

    def add_all(self, offered: Columns) -> None:
        """An epoch, or many of them, took the files of an offer."""
        under, names, sizes, times, marks = offered
        ours = _WHOLE if self._whole else _BRIEF
        if {len(mark) for mark in marks} != {ours}:
            for name, size, changed, mark in zip(names, sizes, times, marks, strict=True):
                self.add(Offered(File(os.path.join(under, name), size, changed), mark))
            return
        self._files.add_all(under, names, sizes, times, [list(map(_key, sizes, marks))])

    def knows(self, path: str, look: Callable[[], File]) -> bool:
        """Whether no epoch needs to look at what is at ``path``."""
        held = self._files.at(path)
        if not self._whole:
            if held is not None and random.random() * len(self._files) < _WATCHED:
                self._watch(path, held, look)
            return held is not None
        if held is None and path not in self._copies:
            return False
        try:
            now = look()
        except OSError:
            return True  # gone: there is nothing to take
        return (now.size, now.changed) == held or self._copies.get(path) == now

    def _watch(self, path: str, held: tuple[int, int], look: Callable[[], File]) -> None:
        """Warn of a file that was taken and has been written to since."""
        try:
            now = look()
            if (now.size, now.changed) == held or self._edited.get(path) == now.changed:
                return
            self._edited[path] = now.changed
            if now.size == held[0] and path in self._files.alike(_key(now.size, self.mark(path)), _ALIKE):
                return  # it was touched, and is the same
        except OSError:
            return
        _LOG.warning(
            "file %r was written to after it was taken; that changes nothing, since identity='path' says that a file "
            "is taken once. Put new rows into a new file; or declare the source with identity='content', or as "
            "hf.replaced(…)",
            path,
            extra={"path": path},
        )

    def has_content(self, offered: Offered, about_to_be: Collection[bytes]) -> bool:
        """Whether a file of this content was taken, or is ``about_to_be`` (where content says what a file is)."""
        if not self._whole:
            return False
        if offered.mark in about_to_be:
            return True
        return bool(self._files.alike(_key(offered.file.size, offered.mark), 1)) or any(
            not other.there or same_content(other.path, offered, self._access) for other in self.others(offered)
        )

    def pass_over(self, file: File) -> None:
        """A file's content was taken elsewhere: it need not be looked at again."""
        self._copies[file.path] = file

    def others(self, offered: Offered) -> Iterable[Other]:
        """The files that were taken which this one, that was not, looks like."""
        file = offered.file
        for what in self._told_by(offered):
            alike = dict.fromkeys(self._files.alike(_key(file.size, what), _ALIKE))
            for path in alike:
                held = self._files.at(path)
                assert held is not None, "a file that is alike was taken"
                size, changed = held
                same_time = changed == file.changed != 0
                if path != file.path and size == file.size and (same_time or what != file.changed):
                    yield Other(path, same_time, self._access.is_there(path), len(alike) > 1)

    def _told_by(self, offered: Offered) -> list[object]:
        """What a file is compared by: its mark; where others have marks of the other identity, that one; its time."""
        file, told = offered.file, [offered.mark]
        if file.size not in self._otherwise:
            return [*told]
        with suppress(OSError):  # it was removed in this moment
            told.append((ends_of if self._whole else _digest)(file.path, self._access))
        return [*told, file.changed]


def _key(size: int, what: object) -> int:
    return hash((size, what))


def ends_of(path: str, access: FileAccess = LOCAL) -> bytes:
    """The mark of a file's first and last bytes."""
    with access.opened(path) as file:  # buffered: a single read may give less than was asked for
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        found = xxhash.xxh3_64(file.read(_END))
        if size > _END:
            file.seek(max(_END, size - _END))
            found.update(file.read(_END))
        return found.digest()[:_BRIEF]


def _digest(path: str, access: FileAccess = LOCAL) -> bytes:
    found = xxhash.xxh3_128()
    with access.opened(path) as file:
        while block := file.read(_BLOCK):
            found.update(block)
    return found.digest()


def is_whole(mark: bytes) -> bool:
    """Whether a mark is of a file's whole content."""
    return len(mark) == _WHOLE


def marked_as(path: str, mark: bytes, access: FileAccess = LOCAL) -> bool:
    """Whether the file at ``path`` has that mark, of either identity; true if there is none."""
    try:
        return not mark or mark == (_digest if is_whole(mark) else ends_of)(path, access)
    except OSError:
        return False


def same_content(path: str, offered: Offered, access: FileAccess = LOCAL) -> bool:
    """Whether the file at ``path`` is the one that was offered, by its whole content."""
    try:
        sized = access.described(path).size == offered.file.size
    except OSError:
        return False
    return sized and is_whole(offered.mark) and marked_as(path, offered.mark, access)
