"""A lease: held by one driver at a time, lost when it is not renewed within its timeout.

Time is judged by each driver's own clock, never compared between hosts. The holder counts from *before* its last
confirmed renewal, the others from *after* they saw it, so by the time anybody may take the lease its holder has stopped
to count on it.

    FOLLOWING ──look──► HELD ◄──confirmed── UNSURE      UNSURE: not confirmed for so long, or cut off: nothing may be
                          └──────late──────►  │         committed until it is known again who holds it.
                          LOST ◄──another has─┘

A thread renews a lease that is held. Whoever works under it asks `require` before each thing that must not be done
twice.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from types import TracebackType
from typing import Any, Self

from holdfast.errors import LeaseError, LeaseLost

Clock = Callable[[], float]

_RENEWALS = 4
"""So often a lease is renewed within its timeout."""


class LeaseState(StrEnum):
    """How a lease stands for this driver."""

    FOLLOWING = "following"
    HELD = "held"
    UNSURE = "unsure"
    LOST = "lost"
    RELEASED = "released"


@dataclass(frozen=True)
class Holder:
    """Who holds a lease, as it says itself."""

    pid: int | None = None
    host: str | None = None
    since: float | None = None
    """Seconds since 1970 by the holder's clock; for people."""

    def __str__(self) -> str:
        return f"pid {self.pid or '?'} on {self.host or '?'}"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def here() -> Holder:
        return Holder(os.getpid(), socket.gethostname(), time.time())

    @staticmethod
    def of(said: object) -> Holder:
        """What a record says; nothing, if it says nothing."""
        known = said if isinstance(said, dict) else {}
        return Holder(known.get("pid"), known.get("host"), known.get("since"))


def since_boot() -> float:
    """Seconds, by a clock that goes on while this process, or the host, is paused."""
    if sys.platform == "linux":
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class Lease(ABC):
    """What drivers use; `look`, `renew`, `holder`, `connect` and `leave` are a kind's own."""

    def __init__(self, url: str, timeout: float, clock: Clock = since_boot) -> None:
        self.url = url
        """Its name: drivers with the same one stand by for each other."""

        self.timeout = timeout
        self.term = 0
        """Grows whenever the lease changes hands."""

        self.trouble: str | None = None
        """Why the last attempt to look or to renew failed, if it did."""

        self.on_lost: Callable[[], None] | None = None
        """Called once, in another thread, when the lease is lost."""

        self._clock = clock
        self._confirmed = float("-inf")
        self._cut_off = False
        self._lost: str | None = None
        self._held = False
        self._released = False
        self._connected = False
        self._taking = threading.Lock()
        self._wake = threading.Event()
        self._settled = threading.Condition()
        self._thread: threading.Thread | None = None

    # -- what a kind does -------------------------------------------------------------------------------------------

    @abstractmethod
    def connect(self) -> None:
        """Make sure that the lease can be used; `LeaseError` if not. `acquire` calls it, if nobody did before; to call
        it again does no harm."""

    @abstractmethod
    def look(self) -> bool:
        """See how it stands, and take the lease if it is free: whether it is ours now. Calls `confirm` if so.
        `LeaseError` if it cannot be seen now."""

    @abstractmethod
    def renew(self) -> None:
        """Make sure that the lease is still ours, and `confirm` it. `LeaseLost` if it is not, `LeaseError` if that
        cannot be told now."""

    @abstractmethod
    def holder(self) -> Holder | None:
        """Who holds it, as far as the last look told."""

    @abstractmethod
    def leave(self) -> None:
        """Give up the lease, or the place in the queue, at once; then nothing of it may be used any more."""

    @property
    def pause(self) -> float:
        """Seconds between two looks."""
        return min(0.1, self.timeout / 10)

    def confirm(self, at: float) -> None:
        """The lease was ours at a time after ``at``."""
        self._confirmed = at
        self._cut_off = False
        self.trouble = None

    def cut_off(self) -> None:
        """Nothing is heard any more: not sure, until it is confirmed again."""
        self._cut_off = True

    # -- what drivers do --------------------------------------------------------------------------------------------

    @property
    def state(self) -> LeaseState:
        if self._released:
            return LeaseState.RELEASED
        if self._lost is not None:
            return LeaseState.LOST
        if not self._held:
            return LeaseState.FOLLOWING
        late = self._clock() - self._confirmed >= self.timeout
        return LeaseState.UNSURE if late or self._cut_off else LeaseState.HELD

    def acquire(self, stopping: Callable[[], bool] = lambda: False, waiting: Callable[[], None] | None = None) -> bool:
        """Wait for the lease; False if ``stopping`` said so first. ``waiting`` is called after every look in vain.
        `LeaseError` if it cannot be used at all; if it cannot be seen for a while, that is waited for."""
        if not self._connected:
            self.connect()
        while not stopping():
            with self._taking:
                if self._released:
                    return False
                try:
                    if self.look():
                        self._held = True
                        self._thread = threading.Thread(target=self._keep, name="holdfast-lease", daemon=True)
                        self._thread.start()
                        return True
                    self.trouble = None
                except LeaseError as error:
                    self.trouble = str(error)
            if waiting is not None:
                waiting()
            self._wake.wait(self.pause)
            self._wake.clear()
        return False

    def require(self, stopping: Callable[[], bool] = lambda: False) -> bool:
        """Return when the lease is held, for certain; `LeaseLost` when it is lost. While it is neither, wait; False if
        ``stopping`` said so first."""
        while (state := self.state) is not LeaseState.HELD:
            if state is LeaseState.LOST:
                raise LeaseLost(self._lost or "", lease=self.url)
            if state is not LeaseState.UNSURE:
                raise LeaseError(f"lease {self.url}: it is not held ({state})", lease=self.url)
            if stopping():
                return False
            self._wake.set()
            with self._settled:
                self._settled.wait(0.05)
        return True

    def release(self) -> None:
        """Give the lease up, so that another driver need not wait for its timeout. If another thread waits for it in
        `acquire`, that one gets False."""
        with self._taking:
            if self._released:
                return
            self._released = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(self.timeout)
        with suppress(LeaseError, OSError):
            self.leave()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _keep(self) -> None:
        """In a thread: renew, until it is lost or released."""
        while not self._released:
            self._wake.wait(self.timeout / _RENEWALS if self.trouble is None else self.pause)
            self._wake.clear()
            if self._released:
                return
            try:
                self.renew()
            except LeaseLost as error:
                self._lost = str(error)
                if self.on_lost is not None:
                    self.on_lost()
            except LeaseError as error:
                self.trouble = str(error)
            with self._settled:
                self._settled.notify_all()
            if self._lost is not None:
                return
