"""Membership: user code is told of the members that take part, that joined and that were lost.

`coordinator/membership.py` makes the sequence of changes. This file feeds it with Spark's events, and hands changes to
the user's functions: by one thread, so two calls never overlap, each change once, in order. A function that raises is
not called again; the error is kept (`Watch.failure`) for the flow to raise.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pyspark import InheritableThread, SparkContext
from pyspark.sql import SparkSession

from holdfast.coordinator.membership import Change, Member, Sequencer
from holdfast.errors import MembershipError, TooFewMembers
from holdfast.foundation import arguments
from holdfast.reporting.redaction import logger
from holdfast.spark.listener import Event, ExecutorJoined, ExecutorLost, listener_of

_LOG = logger("holdfast.membership")

Handler = Callable[[Change], object]
H = TypeVar("H", bound=Handler)


class Watch:
    """Watches the members of a Spark application. Used as a decorator, it tells the function of changes."""

    def __init__(self, spark: SparkSession, epoch: Callable[[], int] = lambda: -1, *, begin: bool = True) -> None:
        """``epoch``: returns the last complete epoch. ``begin``: whether the members present now are the initial set;
        if False, functions are told nothing before `wait` has found enough members."""
        self._context = spark.sparkContext
        self._epoch = epoch
        self._sequencer = Sequencer()
        self._changed = threading.Condition()
        self._handlers: list[tuple[Handler, int]] = []
        self._losses: list[Callable[[Change], None]] = []
        self._closing = False
        self._thread: Any = None
        self._listener = listener_of(self._context)
        self._listener.add(self._hear)
        for member in present(self._context):
            self._hear(ExecutorJoined(member))
        if begin:
            self.begin()
        self.failure: MembershipError | None = None
        """The error that a handler raised, if one did."""

    def __call__(self, function: H) -> H:
        """Tell ``function`` of every change, from the initial set on."""
        arguments.callable_with("on_membership", "a handler", function, "one argument, the Change", 1)
        with self._changed:
            self._handlers.append((function, 0))
            if self._thread is None:
                self._thread = InheritableThread(target=self._deliver, daemon=True, name="holdfast-membership")
                self._thread.start()
            self._changed.notify_all()
        return function

    def on_loss(self, function: Callable[[Change], None]) -> None:
        """Call ``function`` at once when a member is lost, in Spark's own thread: it must not take long."""
        self._losses.append(function)

    @property
    def members(self) -> tuple[Member, ...]:
        """The present members."""
        return self._sequencer.members

    @property
    def changes(self) -> Sequence[Change]:
        """All changes so far."""
        with self._changed:
            return tuple(self._sequencer.changes)

    def begin(self) -> None:
        """Take the present members as the initial set."""
        with self._changed:
            self._sequencer.begin(self._epoch())
            self._changed.notify_all()

    def wait(self, least: int, timeout: float | None) -> None:
        """Wait until at least ``least`` members are there. Raises `TooFewMembers` if they are not after ``timeout``
        seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while len(found := self._sequencer.members) < least:
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise TooFewMembers(
                        f"{len(found)} of {least} members are there after {timeout:g} s: "
                        f"{', '.join(map(str, found)) or 'none'}",
                        members=found,
                        least=least,
                    )
                self._changed.wait(left)
            self._sequencer.begin(self._epoch())
            self._changed.notify_all()

    def settle(self, seconds: float = 5.0) -> bool:
        """Wait until every handler has been told of all changes so far. Return False if that takes longer than
        ``seconds``."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while any(told < len(self._sequencer.changes) for _, told in self._handlers) and self.failure is None:
                if not self._changed.wait(max(0.0, deadline - time.monotonic())):
                    return False
        return True

    def check(self) -> None:
        """Raise the error that a handler raised, if one did."""
        if self.failure is not None:
            raise self.failure

    def close(self) -> None:
        """Stop telling handlers. Waits for a running call, unless that call itself closes the watch."""
        self._listener.remove(self._hear)
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread is not None and threading.current_thread() is not self._thread:
            self._thread.join()

    def _hear(self, event: Event) -> None:
        with self._changed:
            before = len(self._sequencer.changes)
            if isinstance(event, ExecutorJoined) and event.member.id != "driver":
                self._sequencer.joined(event.member, self._epoch())
            elif isinstance(event, ExecutorLost):
                self._sequencer.lost(event.id, event.reason, self._epoch())
            fresh = self._sequencer.changes[before:]
            self._changed.notify_all()
        for change in fresh:
            if change.lost:
                for function in self._losses:
                    function(change)

    def _deliver(self) -> None:
        while (found := self._next()) is not None:
            handler, change = found
            failure = None
            try:
                handler(change)
            except Exception as error:
                name = getattr(handler, "__name__", repr(handler))
                failure = MembershipError(
                    f"membership handler {name!r}: {type(error).__name__}: {error}", handler=name, change=change
                )
                failure.__cause__ = error
                _LOG.warning("%s", failure, extra={"handler": name, "epoch": change.epoch})
            with self._changed:
                if failure is not None:
                    self.failure = failure
                    self._closing = True
                self._handlers = [
                    (each, told + 1 if each is handler and told == change.number else told)
                    for each, told in self._handlers
                ]
                self._changed.notify_all()

    def _next(self) -> tuple[Handler, Change] | None:
        """Wait for the next call to make: (handler, change), of the handler furthest behind. None once closed."""
        with self._changed:
            while not self._closing:
                changes = self._sequencer.changes
                behind = [(told, place) for place, (_, told) in enumerate(self._handlers) if told < len(changes)]
                if behind:
                    told, place = min(behind)
                    return self._handlers[place][0], changes[told]
                self._changed.wait(1.0)
        return None


def present(context: SparkContext) -> list[Member]:
    """Return the executors that Spark has now. A local session has one member, the driver itself."""
    scala: Any = context._jsc.sc()
    if scala.isLocal():
        host = context.getConf().get("spark.driver.host") or "localhost"
        return [Member("driver-0", host, context.defaultParallelism)]
    ids = scala.schedulerBackend().getExecutorIds()
    wanted = {ids.apply(place) for place in range(ids.size())}
    deadline = time.monotonic() + 5.0
    while True:
        # The status store hears of executors a moment after the scheduler.
        listed = scala.statusStore().executorList(True)
        found = [listed.apply(place) for place in range(listed.size())]
        members = [Member(one.id(), one.hostPort().rpartition(":")[0], one.totalCores()) for one in found]
        members = [member for member in members if member.id in wanted]
        if len(members) == len(wanted) or time.monotonic() > deadline:
            return members
        time.sleep(0.02)


def on_membership(spark: SparkSession) -> Watch:
    """Watch the members of a Spark application::

        @hf.on_membership(spark)
        def changed(change):
            print(change.members, change.joined, change.lost)

    The function is called with the initial set first, then once per change, in order; two calls never overlap. To keep
    the watch: ``watch = hf.on_membership(spark)``, then ``@watch``, ``watch.members``, ``watch.close()``. If a function
    raises, the watch ends, and the error is ``watch.failure``.
    """
    arguments.session("on_membership", spark)
    return Watch(spark)
