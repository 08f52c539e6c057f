"""The identity of a file: whether a file is one that was taken already is decided by its path, or by its content.

Every offered file gets a **mark**, a hash of its content. It is in the offer, so that a flow that is opened again knows
it.

* ``"path"``: a file is identified by its path. The mark (4 bytes) is a hash of the file's first and last 32 KB, and
  finds a file that has *moved*: a file with the size and mark of a file that was taken, and that is no longer at its
  old path. Its time of change may be the same (``mv``, ``cp -p``) or another (``cp`` and ``rm``). The rows of a moved
  file would count twice, so it is refused. Two kinds of files are equal although none has moved: files without rows,
  which do no harm, and files that a feed writes again and again. The latter are recognised because two or more files of
  that size and mark were taken; they are taken, with a warning.
* ``"content"``: a file is identified by its content. The mark (16 bytes) is a hash of all of it, so the driver reads
  each file one time more. A file that is moved or copied is not taken again; a path that gets other content is a new
  file. Two files of equal content count once.

Cost: about 80 bytes of memory for each file that was ever taken; per new file one read of its ends, or of all of it.
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
"""The bytes of a mark: for identity "path" and for identity "content"."""

_WATCHED = 200
"""How many of the taken files a poll looks at again, on average; if there are more, each poll looks at a random
sample."""

_ALIKE = 64
"""How many files with an equal mark are looked at, the latest first: a feed may write very many equal files."""


class Other(NamedTuple):
    """A taken file that an offered file looks like."""

    path: str
    same_time: bool
    there: bool
    """Whether it is still at the path at which it was taken."""

    repeated: bool
    """Whether files of this size and mark were taken more than once."""


class Taken:
    """The files that epochs took."""

    def __init__(self, identity: Identity, access: FileAccess = LOCAL) -> None:
        self._access = access
        self._whole = identity == "content"
        self._files = TakenFiles()
        """Its keys are hashes of size and mark; for files whose mark is missing or of the other identity also hashes of
        size and time of change."""

        self._otherwise: set[int] = set()
        """The sizes of files whose mark is missing or of the other identity."""

        self._edited: dict[str, int] = {}
        """Path → the time of change at which it was seen to differ from the file that was taken."""

        self._copies: dict[str, File] = {}
        """Path → the file at that path, whose content was taken at another path."""

    def mark(self, path: str) -> bytes:
        """The mark of the file at ``path``. Raises `OSError` if it cannot be read."""
        return _digest(path, self._access) if self._whole else ends_of(path, self._access)

    def add(self, offered: Offered) -> None:
        """Note that an epoch took a file."""
        file = offered.file
        told: list[object] = [offered.mark] if offered.mark else []
        if is_whole(offered.mark) != self._whole or not offered.mark:
            told.append(file.changed)
            self._otherwise.add(file.size)
        self._files.add(file.path, file.size, file.changed, [_key(file.size, what) for what in told])

    def add_all(self, offered: Columns) -> None:
        """Note that an epoch, or several whose offers were folded, took the files of an offer."""
        under, names, sizes, times, marks = offered
        ours = _WHOLE if self._whole else _BRIEF
        if {len(mark) for mark in marks} != {ours}:
            for name, size, changed, mark in zip(names, sizes, times, marks, strict=True):
                self.add(Offered(File(os.path.join(under, name), size, changed), mark))
            return
        self._files.add_all(under, names, sizes, times, [list(map(_key, sizes, marks))])

    def knows(self, path: str, look: Callable[[], File]) -> bool:
        """Whether the file at ``path`` is known, so that it need not be offered; ``look`` describes the file that is
        there now."""
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
            return True  # the file is gone: there is nothing to take
        return (now.size, now.changed) == held or self._copies.get(path) == now

    def _watch(self, path: str, held: tuple[int, int], look: Callable[[], File]) -> None:
        """Log a warning if a file has been written to since it was taken."""
        try:
            now = look()
            if (now.size, now.changed) == held or self._edited.get(path) == now.changed:
                return
            self._edited[path] = now.changed
            if now.size == held[0] and path in self._files.alike(_key(now.size, self.mark(path)), _ALIKE):
                return  # only its time of change differs
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
        """Whether a file of this content was taken, or has one of the marks ``about_to_be`` taken in the same offer.
        Always False with identity "path"."""
        if not self._whole:
            return False
        if offered.mark in about_to_be:
            return True
        return bool(self._files.alike(_key(offered.file.size, offered.mark), 1)) or any(
            not other.there or same_content(other.path, offered, self._access) for other in self.others(offered)
        )

    def pass_over(self, file: File) -> None:
        """Note that a file's content was taken at another path, so that the file is not offered."""
        self._copies[file.path] = file

    def others(self, offered: Offered) -> Iterable[Other]:
        """The taken files that ``offered``, which was not taken, looks like."""
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
        """The values by which a file is compared: its mark; and, if files of its size have no mark or one of the other
        identity, also its mark of the other identity and its time of change."""
        file, told = offered.file, [offered.mark]
        if file.size not in self._otherwise:
            return [*told]
        with suppress(OSError):  # the file may just have been removed
            told.append((ends_of if self._whole else _digest)(file.path, self._access))
        return [*told, file.changed]


def _key(size: int, what: object) -> int:
    return hash((size, what))


def ends_of(path: str, access: FileAccess = LOCAL) -> bytes:
    """The mark for identity "path": a hash of a file's first and last bytes. Raises `OSError`."""
    with access.opened(path) as file:  # buffered, since an unbuffered read may return fewer bytes than asked for
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
    """Whether a mark is the hash of a file's whole content (identity "content")."""
    return len(mark) == _WHOLE


def marked_as(path: str, mark: bytes, access: FileAccess = LOCAL) -> bool:
    """Whether the file at ``path`` has this mark, of either identity. True if the mark is empty; False if the file
    cannot be read."""
    try:
        return not mark or mark == (_digest if is_whole(mark) else ends_of)(path, access)
    except OSError:
        return False


def same_content(path: str, offered: Offered, access: FileAccess = LOCAL) -> bool:
    """Whether the file at ``path`` has the whole content of the offered file. False if that has a mark of its ends
    only."""
    try:
        sized = access.described(path).size == offered.file.size
    except OSError:
        return False
    return sized and is_whole(offered.mark) and marked_as(path, offered.mark, access)
