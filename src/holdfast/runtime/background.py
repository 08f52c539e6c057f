"""Work that is done beside epochs: when something asked for it, at most so often, never twice at once.

Requests do not queue up: who asks while a pass is at work gets one more pass after it. Under load passes take longer,
fewer are made, and epochs do not wait.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from holdfast.runtime.runner import Runner

_NEXT = 1.0
"""So many seconds a pass waits for the next request, after the pause, before it is made without one."""


class Background:
    """Calls ``work`` in a thread of its own, whenever it was requested."""

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
        """Have a pass made, soon."""
        self._wanted.set()
        self._asked.set()
        if self._thread is None and self._runner.threads and not self._closing.is_set():
            self._thread = self._runner.thread(self._loop, self._name)

    def hurry(self) -> None:
        """Have a pass made at once: somebody waits for it."""
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
                    # What was asked for meanwhile can wait for who asks next: that is where an epoch ends, and it is
                    # better to begin between two than beside one.
                    self._asked.clear()
                    self._asked.wait(_NEXT)

    def _pass(self) -> None:
        self.busy = True
        try:
            self._work()
        finally:
            self.busy = False

    def ends_within(self, seconds: float) -> bool:
        """For a pass that waits for something: whether it is told to end, within this time."""
        return self._closing.wait(seconds)

    def stop(self) -> None:
        """Have the thread end after the pass at work, without waiting for that."""
        self._closing.set()
        self._wanted.set()
        self._asked.set()
        self._hurried.set()

    def close(self) -> None:
        """End the thread. A pass at work is waited for."""
        self.stop()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._wanted.clear()

    def resume(self) -> None:
        """Go on after `close`, with a pass."""
        self._closing.clear()
        self.request()
