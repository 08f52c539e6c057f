"""The lineage stash: one line of JSON per complete epoch, in order, in a local file that nobody waits for.

A line is appended with a single write when its epoch is complete, and not synced: it survives the process, not the
host. From here the lineage goes to the log locations (`runtime/replication.py`), and with every commit to the sinks.

Every line carries its own digest and its parent's, so a damaged one shows, and takes only itself away: what it said may
be found elsewhere (`coordinator/true_history.py`).
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
    """All records that read, and for each line that does not its number and why. A torn last line (the process died in
    the middle of the write) is an epoch that never completed, and is not counted as damage."""
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
    # A line counts once its end is there: what a failed write left of it is none, even if it reads.
    for number, line in enumerate(lines):
        if not line or number == len(lines) - 1:
            continue
        try:
            records.append(Lineage.from_json(line.decode()))
        except ValueError as error:
            damaged.append((number + 1, str(error)))
    return records, damaged


def read_lineage(path: Path) -> list[Lineage]:
    """All complete epochs, checked: digests, parents, numbers. For readers that have this file alone."""
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
        """``history`` is what it must hold; it is written anew if it does not, or if ``anew``: then another driver that
        still has it open appends to a file that nobody reads."""
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
        """Say that an epoch is complete: all of its line is there, or, if this raises `LogError`, none that counts.
        ``written`` is called when the line is there: it has the history take the epoch."""
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
            with suppress(OSError):  # then before the next one; without its end the line is none, also if it stays
                self._cut()
            raise LogError(
                f"lineage {self.path}: {error.strerror}; epoch {lineage.epoch} is not complete: nothing of it counts",
                path=str(self.path),
                epoch=lineage.epoch,
            ) from error
        self._size += len(line)
        written(lineage)

    def fold(self, base: Folded) -> None:
        """Epochs up to the base's are one line from now on; the history is to be told. If this raises, all is as it
        was."""
        folded = self.history.copy()
        folded.fold(base)
        try:
            self._replace(to_lines(folded))
        except OSError as error:
            raise LogError(f"lineage {self.path}: {error.strerror}", path=str(self.path)) from error

    def _cut(self) -> None:
        """Take away what a write left that failed in the middle."""
        os.ftruncate(self._file, self._size)
        self._torn = False

    def _anew(self) -> None:
        """The directory was lost while the flow ran: write all of it again, where the next driver looks."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._replace(to_lines(self.history))

    def _replace(self, lines: bytes) -> None:
        """Have another file in place of this one. Until it is open, what is appended would go to one that nobody reads;
        so if this fails in the middle, the next line is preceded by another attempt."""
        self._stray = True
        replace_file(self.path, lines)
        before, self._file = self._file, os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW)
        os.close(before)
        self._size, self._torn, self._stray = len(lines), False, False

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
