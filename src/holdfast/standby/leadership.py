"""Whether this driver leads: asked before an epoch is begun, and again before it counts.

A driver that was paused finds the lease, the lock or the claims changed when it wakes, and stops. What each of them
guarantees, and why what the driver was in the middle of never counts: `log/fencing.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from holdfast.errors import Fenced, LeaseLost
from holdfast.log.working_directory import LogDirectory
from holdfast.standby.lease import Lease


class Claims(Protocol):
    """Who claimed the log locations last (`runtime/replication.py`)."""

    def fence(self, error: Fenced) -> None:
        """Another driver may lead: nothing more is made durable."""

    def check_claims(self) -> None:
        """Raise `Fenced`, and say by whom, if another driver has taken over."""


class Leadership:
    """What an engine asks. Without a lease it always leads, until its claims say otherwise."""

    def __init__(self, directory: LogDirectory, lease: Lease | None, stopping: Callable[[], bool]) -> None:
        self._directory = directory
        self._lease = lease
        self._stopping = stopping
        self._claims: Claims | None = None

    @property
    def leased(self) -> bool:
        return self._lease is not None

    @property
    def timeout(self) -> float:
        """Seconds after which a driver that is gone is missed; 0 if nobody stands by."""
        return 0.0 if self._lease is None else self._lease.timeout

    def attach(self, claims: Claims) -> None:
        """The log is claimed now."""
        self._claims = claims

    def check(self) -> bool:
        """Return when this driver leads, for certain; raise if it does not any more. False if it was told to stop
        before it knew."""
        if self._lease is None:
            return True
        try:
            self._directory.check()
            return self._lease.require(self._stopping)
        except Fenced as error:
            if self._claims is not None:
                self._claims.check_claims()
                self._claims.fence(error)
            raise

    def demand(self) -> None:
        """The same before something counts: not to know is not to lead."""
        if not self.check():
            raise LeaseLost("it was not certain who leads when this driver was told to stop; its last epoch is undone")
