"""The members of a flow: who wants to be told of them, and what a loss means.

A flow that nobody asks about its members does not listen for them.
"""

from __future__ import annotations

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


class Members:
    """Watches the members of a flow's Spark application, if there is a reason to."""

    def __init__(self, flow: str, terminate: bool) -> None:
        """``terminate``: a loss stops the flow."""
        self._flow = flow
        self._terminate = terminate
        self._handlers: list[Handler] = []
        self._watch: Watch | None = None
        self._spark: SparkSession | None = None
        self._epoch: Callable[[], int] = lambda: -1
        self._begun = False
        self._loss: Change | None = None

    def add(self, handler: Handler) -> None:
        self._handlers.append(handler)
        if self._watch is not None:
            self._watch(handler)
        elif self._spark is not None:
            self._listen(self._spark)

    def start(self, spark: SparkSession, epoch: Callable[[], int]) -> None:
        """The flow has a session now. Nothing is told before the first epoch, or `wait`."""
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
        from holdfast.spark.epoch import EPOCHS

        self._loss = self._loss or change
        if self._spark is not None:
            self._spark.sparkContext.cancelJobGroup(EPOCHS)

    def wait(self, least: int, timeout: float | None) -> None:
        """Wait for so many members: they are the initial set."""
        assert self._spark is not None  # the flow has started
        (self._watch or self._listen(self._spark)).wait(least, timeout)
        self._begun = True

    @contextmanager
    def watched(self, safe: Callable[[], int]) -> Iterator[None]:
        """While an epoch runs: a loss that stops the flow, or a handler that raised, is what went wrong."""
        if not self._begun:
            self._begun = True
            if self._watch is not None:
                self._watch.begin()
        self._check(safe)
        try:
            yield
        except HoldfastError:
            raise
        except Exception as error:
            try:
                self._check(safe)
            except HoldfastError as known:
                raise known from error
            raise
        self._check(safe)

    def _check(self, safe: Callable[[], int]) -> None:
        if self._loss is not None:
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
        if self._watch is not None:
            self._watch.close()
            self._watch = None
