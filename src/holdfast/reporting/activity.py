"""Activities that may take long: filling views, fetching layers, computing epochs again, a long epoch.

`doing` announces an activity while it runs. Commands that show activities (`holdfast run`, `holdfast verify`) read
`now`. If no command shows it, a line does so after two seconds, and disappears when the activity is done: in a terminal
on standard error, in a notebook below the cell (`reporting.cell_line`).

Cost: an append and a remove per epoch and per step of a recovery; in a notebook also a sleeping thread.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol, TextIO

from holdfast.reporting.cell_line import CellLine, in_notebook

QUIET = 2.0
"""Seconds after which an activity is shown; a shorter one is never shown."""

_EVERY = 0.5
_lock = threading.Lock()
_busy = threading.Event()
_ended = threading.Event()
"""Set when no activity is left; the next activity makes a new event."""

_all: list[Activity] = []
_shown_elsewhere = 0
_line: threading.Thread | None = None
_below_cell: threading.Thread | None = None


@dataclass(eq=False)
class Activity:
    """An activity that is running."""

    subject: str
    what: str
    total: int | None = None
    done: int = 0
    since: float = field(default_factory=time.monotonic)

    def advance(self) -> None:
        """Count one more of ``total`` parts as done."""
        self.done += 1

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.since

    def __str__(self) -> str:
        part = "" if self.total is None or self.total < 2 else f" ({self.done} of {self.total})"
        return f"{self.subject}: {self.what}{part}, {self.seconds:.0f} s"


@contextmanager
def doing(subject: str, what: str, total: int | None = None) -> Iterator[Activity]:
    """Announce an activity while the context is open. From any thread."""
    activity = Activity(subject, what, total)
    global _ended
    with _lock:
        _all.append(activity)
        if len(_all) == 1:
            _ended = threading.Event()
            _busy.set()
            _start_line()
    try:
        yield activity
    finally:
        with _lock:
            _all.remove(activity)
            last = not _all
            if last:
                _busy.clear()
                _ended.set()
        if last and _below_cell is not None:
            _below_cell.join(_EVERY)  # so that the line disappears before the cell is done


def now(least: float = 0.0) -> Activity | None:
    """Return the activity that began last, if it has run for ``least`` seconds or more; else None. From any thread."""
    with _lock:
        found = _all[-1] if _all else None
    return found if found is not None and found.seconds >= least else None


@contextmanager
def shown_elsewhere() -> Iterator[None]:
    """While the context is open, its caller shows activities, and no line is shown here."""
    global _shown_elsewhere
    _shown_elsewhere += 1
    try:
        yield
    finally:
        _shown_elsewhere -= 1


class Line(Protocol):
    """A place where one text is shown at a time."""

    def show(self, text: str, done: int, total: int | None) -> None:
        """Show a text; ``done`` of ``total`` parts are done (None: the activity has no parts)."""

    def wipe(self) -> None:
        """Remove the text."""


class TerminalLine:
    """The current line of a terminal, where the cursor is."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._width = 0

    def show(self, text: str, done: int, total: int | None) -> None:
        text = text[:100]
        self._stream.write(f"\r{text.ljust(self._width)}")
        self._stream.flush()
        self._width = len(text)

    def wipe(self) -> None:
        if self._width:
            self._stream.write(f"\r{' ' * self._width}\r")
            self._stream.flush()
            self._width = 0


def _start_line() -> None:
    global _line, _below_cell
    if in_notebook():
        # A new thread each time: its output belongs to the cell that runs now.
        _below_cell = threading.Thread(target=show, args=(CellLine(), _ended), name="holdfast-progress", daemon=True)
        _below_cell.start()
    elif _line is None and _is_terminal(sys.stderr):
        _line = threading.Thread(target=_show_for_ever, name="holdfast-progress", daemon=True)
        _line.start()


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # the stream is closed
        return False


def _show_for_ever() -> None:
    while True:
        _busy.wait()
        show(TerminalLine(sys.stderr), _ended)


def show(line: Line, ended: threading.Event) -> None:
    """Show activities that run for more than `QUIET` seconds, until ``ended`` is set."""
    while not ended.wait(_EVERY):
        found = now(QUIET) if not _shown_elsewhere else None
        if found is None:
            line.wipe()
        else:
            line.show(str(found), found.done, found.total)
    line.wipe()
