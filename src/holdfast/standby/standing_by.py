"""Running a flow under a lease: get ready, stand by, open the log when the lease is ours, give it back at the end.

Getting ready comes before standing in the queue: a driver that is not warm yet should not win over one that is. While
it waits, it stays warm.
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
"""Seconds after which Spark is used again. It ends Python workers that had nothing to do for a minute."""


@contextmanager
def leading(
    flow: Flow, lease: str | Lease, timeout: float | str | None, on_event: Callable[[LeaseEvent], None] | None
) -> Iterator[bool]:
    """Stand by until the flow leads, and open it; False if it was told to stop before. Closes it at the end."""
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
                flow._standing_by = True  # who comes next must not open the log before the lease is given back
                flow._end()
    except Fenced:
        end = "lost"
        raise
    finally:
        held.release()
        tell(end)


@contextmanager
def _following(flow: Flow) -> Iterator[None]:
    """Have the leader's epochs run here, too, while this driver stands by, if the flow's strategy wants that."""
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
    """Tells of what happens."""

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
    """Called after every look in vain: tells who holds the lease when that changes, and keeps Spark warm."""

    def __init__(self, flow: Flow, lease: Lease, tell: _Teller) -> None:
        self._flow, self._lease, self._tell = flow, lease, tell
        self._told: tuple[Holder | None, str | None] | None = None
        self._warm = time.monotonic()

    def __call__(self) -> None:
        now = self._lease.holder(), self._lease.trouble
        if now != self._told:
            self._told = now
            self._tell("standby", holder=now[0], trouble=now[1])
        follows = self._flow._settings.strategy.follows  # then Spark has enough to do
        if not follows and time.monotonic() - self._warm >= _WARM_FOR:
            with self._flow._turns.taken("run()"):
                self._flow._prepared().run_empty()
            self._warm = time.monotonic()
