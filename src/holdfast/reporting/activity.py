"""What is going on that may take its time: filling views, fetching layers, computing epochs again, a long epoch.

`doing` says it while it goes on. Whoever shows it (`holdfast run`, `holdfast verify`) reads `now`. With nobody else to
show it, from the third second on a line does so that is gone when it is done: at a prompt on standard error, in a
notebook below the cell (`reporting.cell_line`).

Cost: an append and a remove, per epoch and step of a recovery; in a notebook a thread that sleeps.
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
"""Seconds for which nobody is told."""

_EVERY = 0.5
_lock = threading.Lock()
_busy = threading.Event()
_ended = threading.Event()
"""Set when nothing goes on any more; what begins after that has another one."""

_all: list[Activity] = []
_shown_elsewhere = 0
_line: threading.Thread | None = None
_below_cell: threading.Thread | None = None


@dataclass(eq=False)
class Activity:
    """Something that goes on."""

    subject: str
    what: str
    total: int | None = None
    done: int = 0
    since: float = field(default_factory=time.monotonic)

    def advance(self) -> None:
        """One of ``total`` is done."""
        self.done += 1

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.since

    def __str__(self) -> str:
        part = "" if self.total is None or self.total < 2 else f" ({self.done} of {self.total})"
        return f"{self.subject}: {self.what}{part}, {self.seconds:.0f} s"


@contextmanager
def doing(subject: str, what: str, total: int | None = None) -> Iterator[Activity]:
    """Say that this goes on, until it is done. From any thread."""
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
            _below_cell.join(_EVERY)  # the line is gone before the cell is done


def now(least: float = 0.0) -> Activity | None:
    """What was begun last and still goes on, if that is so for ``least`` seconds. From any thread."""
    with _lock:
        found = _all[-1] if _all else None
    return found if found is not None and found.seconds >= least else None


@contextmanager
def shown_elsewhere() -> Iterator[None]:
    """Meanwhile somebody else shows what goes on."""
    global _shown_elsewhere
    _shown_elsewhere += 1
    try:
        yield
    finally:
        _shown_elsewhere -= 1


class Line(Protocol):
    """A place where one text is shown at a time."""

    def show(self, text: str, done: int, total: int | None) -> None:
        """Show what goes on; ``done`` of ``total`` parts of it are done, if it has parts."""

    def wipe(self) -> None:
        """Show nothing any more."""


class TerminalLine:
    """The line of a terminal at which the cursor is."""

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
        # A thread of its own each time: what it shows belongs to the cell that runs now.
        _below_cell = threading.Thread(target=show, args=(CellLine(), _ended), name="holdfast-progress", daemon=True)
        _below_cell.start()
    elif _line is None and _is_terminal(sys.stderr):
        _line = threading.Thread(target=_show_for_ever, name="holdfast-progress", daemon=True)
        _line.start()


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # it is closed
        return False


def _show_for_ever() -> None:
    while True:
        _busy.wait()
        show(TerminalLine(sys.stderr), _ended)


def show(line: Line, ended: threading.Event) -> None:
    """Show what takes more than a moment, until nothing goes on."""
    while not ended.wait(_EVERY):
        found = now(QUIET) if not _shown_elsewhere else None
        if found is None:
            line.wipe()
        else:
            line.show(str(found), found.done, found.total)
    line.wipe()
