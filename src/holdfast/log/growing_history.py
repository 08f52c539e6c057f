"""The history of a log that another process may be running, followed from outside: only new lines are read.

The stash of a working directory grows by whole lines, and is replaced when the history is folded or another driver
opens the log. So as long as it is the same file (its inode) and has only grown, its new lines are the new epochs, each
with its parent's digest; otherwise everything is read again. If a log has only locations, everything is read each time.

Cost of a read if the log has not changed: one ``stat``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from holdfast.coordinator.history import History
from holdfast.coordinator.lineage import Lineage


class GrowingHistory:
    """The history of a log, seen from outside. For one thread at a time."""

    def __init__(self, stash: Path | None, read: Callable[[], History]) -> None:
        """``stash``: the file to follow, if the log has one; ``read`` reads the history from all places."""
        self._stash = stash
        self._read = read
        self._history: History | None = None
        self._file = self._end = self._written = -1

    def read(self) -> tuple[History, bool]:
        """The current history, and whether it is the history of the last call, grown in place; False: it is a new
        object."""
        if self._history is not None and self._follow(self._history):
            return self._history, True
        # Look before reading: lines that are appended meanwhile are read again, and recognised.
        self._file, self._end, self._written = self._look()
        self._history = self._read()
        return self._history, False

    def _look(self) -> tuple[int, int, int]:
        """The inode of the stash, its length, and its time of change."""
        if self._stash is None:
            return -1, -1, -1
        try:
            found = os.stat(self._stash)
        except OSError:
            return -1, -1, -1
        return found.st_ino, found.st_size, found.st_mtime_ns

    def _follow(self, history: History) -> bool:
        """Append the new lines of the stash to ``history``. Returns False if everything must be read again."""
        file, end, written = self._look()
        if self._stash is None or file < 0 or file != self._file or end < self._end:
            return False
        if end == self._end:
            return written == self._written  # else it may be another file with the same inode
        try:
            with open(self._stash, "rb") as opened:
                if os.fstat(opened.fileno()).st_ino != file:
                    return False
                opened.seek(self._end)
                text = opened.read(end - self._end)
            records = [Lineage.from_json(line.decode()) for line in text.split(b"\n")[:-1] if line]
        except (OSError, ValueError):
            return False
        for record in records:
            if record.epoch <= history.last and history.digest(record.epoch) == record.digest:
                continue  # it was appended while the history was read
            if record.epoch != history.last + 1 or (history and record.parent != history[-1].digest):
                return False
            history.append(record)
        self._written = written
        self._end += text.rfind(b"\n") + 1  # a line without its end is still being written
        return True
