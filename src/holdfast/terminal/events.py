"""What Holdfast's loggers say, shown to the person at the terminal.

Each warning is one line on stderr. A program that sets up logging itself (the user's file may) shows them its own way,
and then nothing is shown here: a line is never printed twice.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager


class _Lines(logging.Handler):
    """Prints to whatever stderr is at the moment: while a live table is drawn, that is above the table."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.name == "holdfast.zookeeper":
            return  # kazoo speaks of every attempt to connect; what matters of it the lease says itself
        if not logging.getLogger().handlers:
            print(f"holdfast: {record.getMessage()}", file=sys.stderr, flush=True)


@contextmanager
def events_shown() -> Iterator[None]:
    """Show warnings of ``holdfast.*`` while a command runs."""
    log, lines = logging.getLogger("holdfast"), _Lines(logging.WARNING)
    log.addHandler(lines)
    try:
        yield
    finally:
        log.removeHandler(lines)
