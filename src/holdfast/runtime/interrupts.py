"""Ctrl-C while a flow runs: the first one ends the run after the current epoch, the second one ends it at once."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

_handled = False
"""Whether the handlers are installed already; only the main thread reads or sets it."""

_PY4J = ("", "py4j.clientserver")
"""The loggers to which py4j writes, with a traceback, that a call was interrupted."""


@contextmanager
def stopping(stop: Callable[[], None], *, terminated: bool = False) -> Iterator[None]:
    """While the context is open, the first Ctrl-C (``terminated``: or SIGTERM) calls ``stop`` and prints a line, and
    the second raises `KeyboardInterrupt`. Outside the main thread, and inside another such context, it does nothing."""
    global _handled
    if _handled or threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        stop()
        if number == signal.SIGINT:
            print("\nholdfast: stopping after this epoch; Ctrl-C again stops at once", file=sys.stderr, flush=True)
        signal.signal(signal.SIGINT, _raise_quietly)

    numbers = (signal.SIGINT, signal.SIGTERM) if terminated else (signal.SIGINT,)
    before = {number: signal.signal(number, handle) for number in numbers}
    _handled = True
    try:
        yield
    finally:
        _handled = False
        for number, handler in before.items():
            signal.signal(number, handler)
        for name in _PY4J:
            logging.getLogger(name).removeFilter(_is_not_of_py4j)


def _raise_quietly(number: int, frame: FrameType | None) -> NoReturn:
    """Raise `KeyboardInterrupt`, and keep py4j from logging tracebacks of the call to Java that it interrupts."""
    for name in _PY4J:
        logging.getLogger(name).addFilter(_is_not_of_py4j)
    raise KeyboardInterrupt


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in Path(record.pathname).parts
