"""The members of a flow: the handlers to tell of them, and the consequence of a loss.

A flow listens to membership events only if a handler or its policy needs them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from holdfast.coordinator.membership import Change
from holdfast.errors import HoldfastError, MemberLost

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from holdfast.spark.membership import Watch

Handler = Callable[[Change], object]
H = TypeVar("H", bound=Handler)

_AGAIN = 0.1
_TIMES = 50
"""When a loss stops a flow, its jobs are cancelled every `_AGAIN` seconds, at most `_TIMES` times, until the flow has
stopped."""


class FlowMembers:
    """Watches the members of a flow's Spark application, if there is a reason to."""

    def __init__(self, flow: str, terminate: bool) -> None:
        """``terminate``: whether a loss stops the flow."""
        self._flow = flow
        self._terminate = terminate
        self._handlers: list[Handler] = []
        self._watch: Watch | None = None
        self._spark: SparkSession | None = None
        self._epoch: Callable[[], int] = lambda: -1
        self._begun = False
        self._loss: Change | None = None
        self._told = threading.Event()
        """Set when the thread that runs the flow was told of the loss that stops it."""

    def add(self, handler: Handler) -> None:
        self._handlers.append(handler)
        if self._watch is not None:
            self._watch(handler)
        elif self._spark is not None:
            self._listen(self._spark)

    def start(self, spark: SparkSession, epoch: Callable[[], int]) -> None:
        """Take the flow's session. Handlers are told nothing before the first epoch, or `wait`."""
        self._spark, self._epoch = spark, epoch
        if self._watch is None and (self._handlers or self._terminate):
            self._listen(spark)

    def _listen(self, spark: SparkSession) -> Watch:
        from holdfast.spark.membership import Watch

        self._watch = watch = Watch(spark, lambda: self._epoch(), begin=False)
        if self._terminate:
            watch.on_loss(self._lost)
        for handler in self._handlers:
            watch(handler)
        if self._begun:
            watch.begin()
        return watch

    def _lost(self, change: Change) -> None:
        from holdfast.spark.epoch_job import EPOCHS

        if self._loss is not None or self._spark is None:
            return
        self._loss, context = change, self._spark.sparkContext

        def cancel() -> None:
            # Repeated, because a job that starts just after a cancel is missed by it. Bounded, because if the flow is
            # at rest, the cancelled jobs are other flows', which try again.
            for _ in range(_TIMES):
                if not self._told.is_set():
                    context.cancelJobGroup(EPOCHS)
                    self._told.wait(_AGAIN)

        threading.Thread(target=cancel, name="holdfast-terminating", daemon=True).start()

    def wait(self, least: int, timeout: float | None) -> None:
        """Wait for at least ``least`` members, which become the initial set."""
        assert self._spark is not None  # the flow has started
        (self._watch or self._listen(self._spark)).wait(least, timeout)
        self._begun = True

    @contextmanager
    def watched(self, safe: Callable[[], int]) -> Iterator[None]:
        """Around an epoch: raise the loss that stops the flow, or a handler's error, instead of the error that it
        caused."""
        if not self._begun:
            self._begun = True
            if self._watch is not None:
                self._watch.begin()
        self._check(safe)
        try:
            yield
        except Exception as error:
            if self._loss is not None or not isinstance(error, HoldfastError):
                try:
                    self._check(safe)
                except HoldfastError as known:
                    raise known from error
            raise
        self._check(safe)

    def _check(self, safe: Callable[[], int]) -> None:
        if self._loss is not None:
            self._told.set()
            member, last = self._loss.lost[0], self._epoch()
            raise MemberLost(
                f"flow '{self._flow}': {member} was lost ({self._loss.reason.strip() or 'no reason given'}), and the "
                f"flow stopped, as on_loss='terminate' says; epochs up to {last} are done, up to {safe()} safe; "
                f"epoch {last + 1} is not done",
                member=member,
                epoch=last,
                safe=safe(),
            )
        if self._watch is not None:
            self._watch.check()

    def close(self) -> None:
        self._told.set()
        if self._watch is not None:
            self._watch.close()
            self._watch = None
