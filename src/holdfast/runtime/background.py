"""Work that is done beside epochs, on request: with a pause between two passes, and never two passes at once.

Requests do not queue up: all requests during a pass lead to one more pass after it. Under load passes take longer and
fewer are made, and epochs do not wait.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from holdfast.runtime.runner import Runner

_NEXT = 1.0
"""The seconds that a requested pass waits, after the pause, for the next request before it is made anyway."""


class Background:
    """Calls ``work`` in a thread of its own whenever it was requested; ``pause``: seconds between two calls."""

    def __init__(self, runner: Runner, name: str, work: Callable[[], None], pause: float) -> None:
        self._runner = runner
        self._name = name
        self._work = work
        self._pause = pause
        self._wanted = threading.Event()
        self._asked = threading.Event()
        self._hurried = threading.Event()
        self._closing = threading.Event()
        self._one_at_a_time = threading.Lock()
        self._thread: Any = None
        self.busy = False

    def request(self) -> None:
        """Ask for a pass, soon."""
        self._wanted.set()
        self._asked.set()
        if self._thread is None and self._runner.threads and not self._closing.is_set():
            self._thread = self._runner.thread(self._loop, self._name)

    def hurry(self) -> None:
        """Ask for a pass at once, without the pause, because a caller waits for it."""
        self._hurried.set()
        self.request()

    def now(self) -> None:
        """Make a pass in this thread, if one was requested."""
        with self._one_at_a_time:
            if self._wanted.is_set():
                self._wanted.clear()
                self._pass()

    def _loop(self) -> None:
        while not self._closing.is_set():
            if self._wanted.wait(timeout=1.0) and not self._closing.is_set():
                self._hurried.clear()
                self.now()
                if self._pause and not self._hurried.wait(self._pause):
                    # A request that came during the pause waits for the next request, which comes when an epoch ends:
                    # it is better to begin a pass between two epochs than beside one.
                    self._asked.clear()
                    self._asked.wait(_NEXT)

    def _pass(self) -> None:
        self.busy = True
        try:
            self._work()
        finally:
            self.busy = False

    def ends_within(self, seconds: float) -> bool:
        """Wait inside a pass, at most ``seconds``. Return whether the pass is told to end."""
        return self._closing.wait(seconds)

    def stop(self) -> None:
        """Tell the thread to end after the running pass, and do not wait for it."""
        self._closing.set()
        self._wanted.set()
        self._asked.set()
        self._hurried.set()

    def close(self) -> None:
        """End the thread, after the running pass."""
        self.stop()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._wanted.clear()

    def resume(self) -> None:
        """Start again after `close`, with a pass."""
        self._closing.clear()
        self.request()
