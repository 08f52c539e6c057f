"""What is going on that may take its time: filling views, fetching layers, computing epochs again, a long epoch.

`doing` says it while it goes on. Whoever shows it (`holdfast run`, `holdfast verify`) reads `now`. At a prompt, with
nobody else to show it, a line on standard error does so from the third second on, and is gone when it is done.

Cost: an append and a remove, per epoch and step of a recovery.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TextIO

QUIET = 2.0
"""Seconds for which nobody is told."""

_EVERY = 0.5
_lock = threading.Lock()
_busy = threading.Event()
_all: list[Activity] = []
_shown_elsewhere = 0
_line: threading.Thread | None = None


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
    with _lock:
        _all.append(activity)
        _busy.set()
        _start_line()
    try:
        yield activity
    finally:
        with _lock:
            _all.remove(activity)
            if not _all:
                _busy.clear()


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


def _start_line() -> None:
    global _line
    if _line is None and _is_terminal(sys.stderr):
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
        show(sys.stderr)


def show(stream: TextIO) -> None:
    """Show on one line what takes more than a moment, until nothing goes on."""
    width = 0
    while _busy.is_set():
        found = now(QUIET) if not _shown_elsewhere else None
        text = "" if found is None else str(found)[:100]
        if text or width:
            stream.write(f"\r{text.ljust(width)}")
            stream.flush()
            width = len(text)
        time.sleep(_EVERY)
    if width:
        stream.write(f"\r{' ' * width}\r")
        stream.flush()
