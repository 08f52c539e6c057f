"""What a look ahead found out about files, so that the poll after it need not find it out again.

A source of files looks ahead (`Files.upcoming`) between two polls. That must change nothing: the poll lists, describes
and checks the files that are there then. Two things are remembered, for the next poll alone. The footer of a file that
was read need not be read again while the file has the same size, time of change and mark. And a listing of a long
backlog, of which the next offer takes only the oldest files, is used once more if it is young: files that came since
belong behind that backlog.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from holdfast.connectors.file_access import File
from holdfast.connectors.file_offer import Offered

_YOUNG = 2.0
"""Seconds for which a listing may be used again: so long a file may come too late to be in order anyway, since that is
the coarsest resolution of a filesystem's times."""


class SeenAhead:
    """The facts that the last look ahead has found out."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._marks: dict[File, bytes] = {}
        self._backlog: list[File] | None = None
        self._listed = 0.0

    def saw(self, backlog: list[File], limit: int | None, sound: Iterable[Offered]) -> None:
        """Remember the files of a listing, and those among them whose footers were read and are right."""
        self._marks = {each.file: each.mark for each in sound}
        self._backlog = backlog if limit is not None and len(backlog) > limit else None
        self._listed = self._clock()

    def is_sound(self, file: File, mark: Callable[[], bytes]) -> bool:
        """Whether the footer of this file was read and is right. ``mark`` gives the mark of the file as it is now."""
        return file in self._marks and self._marks[file] == mark()

    def backlog(self) -> list[File] | None:
        """The listing of a long backlog, if it is young; None: list again."""
        return self._backlog if self._clock() - self._listed < _YOUNG else None

    def forget(self) -> None:
        """Forget everything: a poll has used it, or a file was found to be bad."""
        self._marks, self._backlog = {}, None
