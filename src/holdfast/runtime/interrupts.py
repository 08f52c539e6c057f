"""Ctrl-C while a flow runs: the first ends the run after the epoch at hand, the second ends it at once."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_handled = False
"""Whether somebody sees to it already; only the main thread looks."""


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
        signal.signal(signal.SIGINT, signal.default_int_handler)

    numbers = (signal.SIGINT, signal.SIGTERM) if terminated else (signal.SIGINT,)
    before = {number: signal.signal(number, handle) for number in numbers}
    _handled = True
    try:
        yield
    finally:
        _handled = False
        for number, handler in before.items():
            signal.signal(number, handler)
