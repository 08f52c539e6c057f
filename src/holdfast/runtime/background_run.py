"""Runs a flow in a background thread, until it is stopped or fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from holdfast.reporting.redaction import logger

_LOG = logger("holdfast.flow")


class BackgroundRun:
    """One run of a flow in a thread, and the time when it last was idle."""

    def __init__(self, flow: str, run: Callable[[], object]) -> None:
        self._flow = flow
        self._run = run
        self._news = threading.Condition()
        self._idle_since = -1.0
        self._awaited = 0
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name=f"holdfast-run-{flow}", daemon=True)
        self._thread.start()

    @property
    def active(self) -> bool:
        return self._thread.is_alive()

    @property
    def awaited(self) -> bool:
        """Whether a caller is in `await_idle`: the run then polls every source, without patience."""
        return self._awaited > 0

    def idle(self, since: float) -> None:
        """Note that a poll which began at ``since`` (`time.monotonic`) found nothing to do."""
        with self._news:
            self._idle_since = since
            self._news.notify_all()

    def await_idle(self, timeout: float | None) -> bool:
        """Wait until a poll that begins from now on finds nothing to do. Return False if ``timeout`` seconds are over
        or the run ended before."""
        asked = time.monotonic()
        deadline = None if timeout is None else asked + timeout
        with self._news:
            self._awaited += 1
            try:
                while self._idle_since < asked and self.active:
                    left = 1.0 if deadline is None else min(1.0, deadline - time.monotonic())
                    if left <= 0:
                        break
                    self._news.wait(left)
                return self._idle_since >= asked
            finally:
                self._awaited -= 1

    def join(self, timeout: float | None) -> bool:
        """Wait for the end of the run, at most ``timeout`` seconds. Return whether it has ended."""
        self._thread.join(timeout)
        return not self.active

    def _work(self) -> None:
        try:
            self._run()
        except BaseException as error:
            self.error = error
            _LOG.error("flow '%s' stopped running: %s", self._flow, error, extra={"flow": self._flow})
        finally:
            with self._news:
                self._news.notify_all()
