"""Whether this driver leads: asked before an epoch begins, and again before it counts.

A driver that was paused finds the lease, the lock or the claims changed when it wakes up, and stops. `log/fencing.py`
says what each of them guarantees, and why the epoch that the driver was in never counts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from holdfast.errors import Fenced, LeaseLost
from holdfast.log.working_directory import LogDirectory
from holdfast.standby.lease import Lease


class Claims(Protocol):
    """The claims on the log locations (`runtime/replication.py`)."""

    def fence(self, error: Fenced) -> None:
        """Stop making epochs durable, because another driver may lead."""

    def check_claims(self) -> None:
        """Raise `Fenced`, with the process of the new driver, if another driver has taken over."""


class Leadership:
    """Tells an engine whether it leads. A driver without a lease always leads, until its claims say otherwise."""

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
        """Seconds after which another driver takes over from a dead one; 0 without a lease, when no driver stands
        by."""
        return 0.0 if self._lease is None else self._lease.timeout

    def attach(self, claims: Claims) -> None:
        """Give the claims on the log locations, once the log is claimed."""
        self._claims = claims

    def check(self) -> bool:
        """Wait until it is certain whether this driver leads. Return True if it leads, False if it was told to stop
        before that was certain. Raise `Fenced` if it does not lead any more."""
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
        """Return only if this driver leads for certain, before an epoch counts. Raise `LeaseLost` if that is not
        certain when the driver is told to stop, `Fenced` if it does not lead any more."""
        if not self.check():
            raise LeaseLost("it was not certain who leads when this driver was told to stop; its last epoch is undone")
