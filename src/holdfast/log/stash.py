"""The lineage stash: one line of JSON per complete epoch, in order, in a local file that is not synced.

A line is appended with a single write when its epoch is complete. It survives the process, not the host. From the stash
the lineage goes to the log locations (`runtime/replication.py`), and with every commit to the sinks.

Every line has its own digest and its parent's, so a damaged line is found, and makes no other line unusable; its record
may be found in another place (`coordinator/true_history.py`).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from holdfast.coordinator.folded import Folded
from holdfast.coordinator.history import History
from holdfast.coordinator.lineage import GENESIS, Lineage, to_lines
from holdfast.errors import LogDamaged, LogError, LogUnreadable
from holdfast.foundation.atomic_files import read_file, replace_file
from holdfast.foundation.os_errors import fix


def read_stash(path: Path) -> tuple[list[Lineage], list[tuple[int, str]]]:
    """All records that can be read, and number and reason for each line that cannot. A torn last line (the process died
    during the write) is an epoch that was never complete, and is not damage. Raises `LogUnreadable` if the file cannot
    be read now."""
    try:
        text = read_file(path)
    except FileNotFoundError:
        return [], []
    except OSError as error:
        raise LogUnreadable(
            f"lineage {path} cannot be read now: {fix(error)}", path=str(path), errno=error.errno
        ) from error
    records: list[Lineage] = []
    damaged: list[tuple[int, str]] = []
    lines = text.split(b"\n")
    # A line counts only with its end: the part that a failed write left does not, even if it parses.
    for number, line in enumerate(lines):
        if not line or number == len(lines) - 1:
            continue
        try:
            records.append(Lineage.from_json(line.decode()))
        except ValueError as error:
            damaged.append((number + 1, str(error)))
    return records, damaged


def read_lineage(path: Path) -> list[Lineage]:
    """All complete epochs, with digests, parents and numbers checked. For readers that have only this file. Raises
    `LogDamaged`."""
    records, damaged = read_stash(path)
    if damaged:
        number, why = damaged[0]
        raise LogDamaged(f"lineage {path}: line {number}: {why}", path=str(path), line=number)
    parent, last = GENESIS, -1
    for place, lineage in enumerate(records):
        folded = place == 0 and isinstance(lineage, Folded)
        if not folded and (lineage.epoch != last + 1 or lineage.parent != parent):
            raise LogDamaged(
                f"lineage {path}: line {place + 1}: epoch {lineage.epoch} does not follow epoch {last}",
                path=str(path),
                line=place + 1,
            )
        parent, last = lineage.digest, lineage.epoch
    return records


def _held(path: Path) -> bytes | None:
    try:
        return read_file(path)
    except FileNotFoundError:
        return None


class LineageLog:
    """The stash, open for appending."""

    def __init__(self, path: Path, history: Sequence[Lineage], anew: bool = False) -> None:
        """``history``: the epochs that the file must hold. A new file is written if it does not hold them, or with
        ``anew``: then another driver that still has the old file open appends to a file that is never read."""
        self.path = path
        self.history = History(history)
        path.parent.mkdir(parents=True, exist_ok=True)
        wanted = to_lines(self.history)
        try:
            if anew or _held(path) != wanted:
                replace_file(path, wanted)
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o644)
            self._size = os.fstat(self._file).st_size
            self._torn = False
            self._stray = False
        except OSError as error:
            raise LogError(f"lineage {path}: {error.strerror}", path=str(path)) from error

    def append(self, lineage: Lineage, written: Callable[[Lineage], object]) -> None:
        """Append the line of a complete epoch: afterwards the whole line is there; if this raises `LogError`, no line
        that counts is. ``written`` is called when the line is there, and adds the epoch to the history."""
        line = lineage.to_json().encode() + b"\n"
        try:
            if self._stray or not os.path.lexists(self.path):
                self._anew()
            if self._torn:
                self._cut()
            if os.write(self._file, line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            self._torn = True
            with suppress(OSError):  # else it is cut off before the next line; without its end it does not count anyway
                self._cut()
            raise LogError(
                f"lineage {self.path}: {error.strerror}; epoch {lineage.epoch} is not complete: nothing of it counts",
                path=str(self.path),
                epoch=lineage.epoch,
            ) from error
        self._size += len(line)
        written(lineage)

    def fold(self, base: Folded) -> None:
        """Replace the lines of all epochs up to the base's by one line. The caller then folds the history. If this
        raises `LogError`, nothing has changed."""
        folded = self.history.copy()
        folded.fold(base)
        try:
            self._replace(to_lines(folded))
        except OSError as error:
            raise LogError(f"lineage {self.path}: {error.strerror}", path=str(self.path)) from error

    def _cut(self) -> None:
        """Cut off the part of a line that a failed write left."""
        os.ftruncate(self._file, self._size)
        self._torn = False

    def _anew(self) -> None:
        """Write the whole file again, where the next driver looks: its directory was lost while the flow ran."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._replace(to_lines(self.history))

    def _replace(self, lines: bytes) -> None:
        """Replace the file by another one with these lines. If this fails after the replacement and before the new file
        is open, lines would be appended to a file that is never read; so `append` first tries again."""
        self._stray = True
        replace_file(self.path, lines)
        before, self._file = self._file, os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW)
        os.close(before)
        self._size, self._torn, self._stray = len(lines), False, False

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
