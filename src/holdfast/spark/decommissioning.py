"""Executors that Spark decommissions hand over what they keep before they go.

Spark gives an executor that is being decommissioned no more tasks, and the executor ends when it has none: layers of
its host that are in no copy yet would be lost. So whoever watches sees that a host's executors are all to go, asks
Spark's scheduler to give them tasks a little longer, has others take over what the host keeps (``flow.drain``), and
lets Spark go on then. An executor looks for the first time after a pause whether it has nothing to do
(``spark.test.executor.decommission.initial.sleep.millis``, a second unless Holdfast's settings are used): that is the
time that there is. If it is too short, the member is lost as any other, and what no copy has is computed again.

Spark tells no listener of it. What is asked and changed here are the maps by which `TaskSchedulerImpl` and
`CoarseGrainedSchedulerBackend` know who is to go.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import Any

from py4j.protocol import Py4JError
from pyspark import InheritableThread, SparkContext

from holdfast.errors import HoldfastError
from holdfast.reporting.redaction import logger
from holdfast.spark.placed_work import PlacedWork

_LOG = logger("holdfast.membership")

_ENABLED = "spark.decommission.enabled"
_PAUSE = 0.2
"""Seconds between two looks. An epoch's tasks wait so long if their member is to go."""


class Decommissioning:
    """What Spark's scheduler knows of executors that are to go."""

    def __init__(self, context: SparkContext) -> None:
        scala: Any = context._jsc.sc()
        self._scheduler, self._backend = scala.taskScheduler(), scala.schedulerBackend()
        self._held: dict[str, Any] = {}

    def is_pending(self, executor: str) -> bool:
        """Whether an executor is to go."""
        return bool(self._scheduler.isExecutorDecommissioned(executor))

    def hold(self, executor: str) -> None:
        """Have an executor that is to go be given tasks, until `release`."""
        said = self._backend.executorsPendingDecommission().remove(executor)
        if said.isDefined():
            self._held[executor] = said.get()
            self._backend.reviveOffers()

    def release(self, executor: str) -> None:
        """Let an executor go."""
        said = self._held.pop(executor, None)
        if said is not None and self._backend.getExecutorIds().contains(executor):
            self._backend.executorsPendingDecommission().put(executor, said)


class DecommissionWatch:
    """Looks, while a flow is open, for members whose executors are all to go, and has them hand over what they keep."""

    def __init__(
        self, context: SparkContext, placement: Callable[[], PlacedWork | None], hand_over: Callable[[str], object]
    ) -> None:
        """``placement``: who is where now; ``hand_over``: called with each such member, once, in a thread of its
        own."""
        self._spark = Decommissioning(context)
        self._placement = placement
        self._hand_over = hand_over
        self._closing = threading.Event()
        self._going: dict[str, frozenset[str]] = {}
        """Member → its executors when it was found to go."""

        self._thread = InheritableThread(target=self._watch, daemon=True, name="holdfast-decommissioning")
        self._thread.start()

    @staticmethod
    def is_wanted(context: SparkContext) -> bool:
        """Whether the executors of an application can be decommissioned."""
        return bool(context.getConf().get(_ENABLED, "false") == "true")

    def close(self) -> None:
        """Look no more."""
        self._closing.set()

    def _watch(self) -> None:
        while not self._closing.wait(_PAUSE):
            try:
                self._look()
            except Py4JError as error:  # the session has ended, or this Spark keeps it in another way
                if not self._closing.is_set():
                    _LOG.warning("executors that Spark decommissions are not seen any more: %s", error)
                return

    def _look(self) -> None:
        placement = self._placement()
        for member, executors in placement.executors().items() if placement is not None else ():
            if self._going.get(member) == executors or not all(map(self._spark.is_pending, executors)):
                continue
            self._going[member] = executors
            for executor in executors:
                self._spark.hold(executor)
            _LOG.info("member %s is decommissioned by Spark, and hands over", member, extra={"member": member})
            InheritableThread(
                target=self._leave, args=(member, executors), daemon=True, name="holdfast-handing-over"
            ).start()

    def _leave(self, member: str, executors: Collection[str]) -> None:
        try:
            self._hand_over(member)
        except HoldfastError as error:
            # It is lost then as any other; the flow recovers from that.
            _LOG.warning("member %s could not hand over what it keeps: %s", member, error, extra={"member": member})
        finally:
            for executor in executors:
                self._spark.release(executor)
