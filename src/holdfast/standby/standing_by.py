"""Running a flow under a lease: prepare, stand by, open the log once this driver has the lease, give it back at the
end.

A driver prepares before it enters the queue: a driver that is not warm should not win over one that is. While it waits,
it is kept warm.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from holdfast.errors import DeclarationError, Fenced
from holdfast.standby.address import open_lease
from holdfast.standby.events import LeaseEvent, What
from holdfast.standby.lease import Holder, Lease

if TYPE_CHECKING:
    from holdfast.flow import Flow

_WARM_FOR = 30.0
"""Seconds after which an empty epoch is run again while waiting: Spark ends Python workers that are idle for a
minute."""


@contextmanager
def leading(
    flow: Flow, lease: str | Lease, timeout: float | str | None, on_event: Callable[[LeaseEvent], None] | None
) -> Iterator[bool]:
    """Stand by until this driver leads, and open the flow. Yield True, or False if the driver was told to stop before.
    The flow is closed at the end."""
    held = open_lease(lease, timeout)
    with flow._turns.taken("run()"):
        if flow._engine is not None or flow._lease is not None:
            how = "without a lease" if flow._lease is None else "or about to be, by another call of run()"
            raise DeclarationError(
                f"flow '{flow.name}': it is open already, {how}; run it with the lease before anything else"
            )
        flow._lease, flow._standing_by = held, True
    try:
        with _led(flow, held, on_event) as leads:
            yield leads
    finally:
        flow._lease, flow._standing_by = None, False


@contextmanager
def _led(flow: Flow, held: Lease, on_event: Callable[[LeaseEvent], None] | None) -> Iterator[bool]:
    tell = _Teller(held, on_event)
    held.connect()
    end: What = "released"
    try:
        tell("preparing")
        started = time.monotonic()
        flow.prepare()
        prepared = time.monotonic()
        with _following(flow):
            acquired_it = held.acquire(lambda: flow._stopping, _Waiting(flow, held, tell))
        if not acquired_it:
            yield False
            return
        acquired = time.monotonic()
        tell("acquired", seconds={"prepare": prepared - started, "wait": acquired - prepared})
        held.on_lost = flow._stop_waiting
        try:
            flow._standing_by = False
            with flow._turns.taken("run()"):
                engine = flow._started()
            phases = {f"open: {name}": spent for name, spent in engine.recovery.seconds.items()}
            tell("leading", seconds={"open": time.monotonic() - acquired, **phases}, epoch=engine.last)
            yield True
        finally:
            with flow._turns.taken("run()"):
                flow._standing_by = True  # no other call may open the log before the lease is given back
                flow._end()
    except Fenced:
        end = "lost"
        raise
    finally:
        held.release()
        tell(end)


@contextmanager
def _following(flow: Flow) -> Iterator[None]:
    """Run the leader's epochs in this driver, too, while the context is open, if the flow's strategy asks for it."""
    with flow._turns.taken("run()"):
        follower = flow._prepared().following()
    if follower is None:
        yield
        return
    follower.start()
    try:
        yield
    except BaseException:
        follower.discard()
        raise
    finally:
        follower.stop()


class _Teller:
    """Calls the user's ``on_event`` with what happens to the lease."""

    def __init__(self, lease: Lease, on_event: Callable[[LeaseEvent], None] | None) -> None:
        self._lease = lease
        self._on_event = on_event

    def __call__(
        self,
        event: What,
        holder: Holder | None = None,
        trouble: str | None = None,
        seconds: dict[str, float] | None = None,
        epoch: int | None = None,
    ) -> None:
        if self._on_event is not None:
            self._on_event(LeaseEvent(event, self._lease.url, holder, trouble, seconds or {}, epoch))


class _Waiting:
    """Called after every look that did not get the lease: reports a changed holder, and keeps Spark warm."""

    def __init__(self, flow: Flow, lease: Lease, tell: _Teller) -> None:
        self._flow, self._lease, self._tell = flow, lease, tell
        self._told: tuple[Holder | None, str | None] | None = None
        self._warm = time.monotonic()

    def __call__(self) -> None:
        now = self._lease.holder(), self._lease.trouble
        if now != self._told:
            self._told = now
            self._tell("standby", holder=now[0], trouble=now[1])
        follows = self._flow._settings.strategy.follows  # a driver that follows keeps Spark warm by that
        if not follows and time.monotonic() - self._warm >= _WARM_FOR:
            with self._flow._turns.taken("run()"):
                self._flow._prepared().run_empty()
            self._warm = time.monotonic()
