"""A flow that runs beside the program: in a thread, until it is stopped or fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from holdfast.reporting.redaction import logger

_LOG = logger("holdfast.flow")


class BackgroundRun:
    """One run of a flow in a thread, and when it last had nothing to do."""

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
        """Whether somebody waits until nothing waits: then every source is asked."""
        return self._awaited > 0

    def idle(self, since: float) -> None:
        """The run found nothing to do in a look that began at ``since``."""
        with self._news:
            self._idle_since = since
            self._news.notify_all()

    def await_idle(self, timeout: float | None) -> bool:
        """Wait for a look that begins from now on and finds nothing; False if the time is over, or the run ended."""
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
        """Wait for its end; whether it has ended."""
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
