"""Ctrl-C while a flow runs: the first ends the run after the epoch at hand, the second ends it at once."""

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
"""Whether somebody sees to it already; only the main thread looks."""

_PY4J = ("", "py4j.clientserver")
"""The loggers to which py4j says, with a traceback each, that a call was interrupted."""


@contextmanager
def stopping(stop: Callable[[], None], *, terminated: bool = False) -> Iterator[None]:
    """Have the first Ctrl-C (``terminated``: or TERM) call ``stop``, and say so; the second raises as usual. In another
    thread than the main one, and inside another of these, it does nothing."""
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
    """Raise `KeyboardInterrupt`. The call to Java that it interrupts must not log tracebacks of its own."""
    for name in _PY4J:
        logging.getLogger(name).addFilter(_is_not_of_py4j)
    raise KeyboardInterrupt


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in Path(record.pathname).parts
