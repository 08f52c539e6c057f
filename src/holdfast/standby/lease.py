"""A lease: one driver at a time holds it, and loses it if it does not renew it within its timeout.

Each driver measures time by its own clock; clocks of different hosts are never compared. The holder counts the timeout
from *before* its last confirmed renewal, other drivers from *after* they saw that renewal. So when another driver may
take the lease, its holder does not count on it any more.

    FOLLOWING ──look──► HELD ◄──confirmed── UNSURE      UNSURE: not confirmed within the timeout, or cut off: nothing
                          └──────late──────►  │         may be committed until it is known again who holds the lease.
                          LOST ◄──another has─┘

A thread renews a lease that is held. Work under a lease calls `require` before each action that must not be done twice.
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
"""How often a lease is renewed within its timeout."""


class LeaseState(StrEnum):
    """The state of a lease, as this driver sees it."""

    FOLLOWING = "following"
    HELD = "held"
    UNSURE = "unsure"
    LOST = "lost"
    RELEASED = "released"


@dataclass(frozen=True)
class Holder:
    """The process that holds a lease, as it describes itself."""

    pid: int | None = None
    host: str | None = None
    since: float | None = None
    """When it began, in seconds since 1970 by the holder's clock; only shown to people."""

    def __str__(self) -> str:
        return f"pid {self.pid or '?'} on {self.host or '?'}"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def here() -> Holder:
        return Holder(os.getpid(), socket.gethostname(), time.time())

    @staticmethod
    def of(said: object) -> Holder:
        """Return the holder that a record describes; its fields are None if the record is not readable."""
        known = said if isinstance(said, dict) else {}
        return Holder(known.get("pid"), known.get("host"), known.get("since"))


def since_boot() -> float:
    """Return seconds by a clock that also counts the time while this process or the host is paused."""
    if sys.platform == "linux":
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class Lease(ABC):
    """A lease, as drivers use it. A kind of lease implements `connect`, `look`, `renew`, `holder` and `leave`."""

    def __init__(self, url: str, timeout: float, clock: Clock = since_boot) -> None:
        self.url = url
        """The name of the lease: drivers with the same name stand by for each other."""

        self.timeout = timeout
        """Seconds."""

        self.term = 0
        """A number that grows whenever the lease gets another holder."""

        self.trouble: str | None = None
        """Why the last attempt to look or to renew failed; None if it succeeded."""

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

    # -- implemented by each kind of lease --------------------------------------------------------------------------

    @abstractmethod
    def connect(self) -> None:
        """Make sure that the lease can be used; raise `LeaseError` if not. `acquire` calls it if it was not called
        before; a second call has no effect."""

    @abstractmethod
    def look(self) -> bool:
        """Read the lease, and take it if it is free. Return whether this driver has it now, after a call of `confirm`.
        Raise `LeaseError` if the lease cannot be read now."""

    @abstractmethod
    def renew(self) -> None:
        """Renew the lease and `confirm` it. Raise `LeaseLost` if this driver does not have it any more, `LeaseError` if
        that is not known now."""

    @abstractmethod
    def holder(self) -> Holder | None:
        """Return the holder at the last look; None if not known."""

    @abstractmethod
    def leave(self) -> None:
        """Give up the lease, or the place in the queue, at once. No other method may be called after it."""

    @property
    def pause(self) -> float:
        """Seconds between two looks."""
        return min(0.1, self.timeout / 10)

    def confirm(self, at: float) -> None:
        """Note that this driver had the lease at a moment after ``at`` (by the lease's clock)."""
        self._confirmed = at
        self._cut_off = False
        self.trouble = None

    def cut_off(self) -> None:
        """Note that the connection is gone: the lease is unsure until it is confirmed again."""
        self._cut_off = True

    # -- used by drivers --------------------------------------------------------------------------------------------

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
        """Wait for the lease. Return True when this driver has it, False if ``stopping`` says so or `release` is called
        first. ``waiting`` is called after every look without success. Raise `LeaseError` if the lease cannot be used at
        all; if it only cannot be read for a while, go on waiting."""
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
        """Return True once it is certain that this driver has the lease; wait while that is unsure. Return False if
        ``stopping`` says so first. Raise `LeaseLost` if the lease is lost."""
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
        """Give the lease up, so that another driver need not wait for its timeout. A thread that waits in `acquire`
        gets False."""
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
        """Renew the lease until it is lost or released. Runs in a thread."""
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
