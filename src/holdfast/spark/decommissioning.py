"""Executors that Spark decommissions hand over their layers before they end.

Spark gives no more tasks to an executor that is being decommissioned, and the executor ends when it has none: layers of
its host that are in no copy yet would be lost. So the watch notices when all executors of a host are being
decommissioned, makes Spark's scheduler give them tasks a little longer, has other members take over the host's layers
(``flow.drain``), and then lets Spark continue. There is limited time for it: an executor first checks whether it is
idle after a pause (``spark.test.executor.decommission.initial.sleep.millis``, a second unless Holdfast's settings are
used). If that is too short, the member is lost like any other, and layers without a copy are computed again.

Spark reports a decommission to no listener. So this file reads and changes the maps in which `TaskSchedulerImpl` and
`CoarseGrainedSchedulerBackend` keep the executors being decommissioned.
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
"""Seconds between two checks. The tasks of an epoch may wait this long if their member is being decommissioned."""


class Decommissioning:
    """The state in Spark's scheduler of executors that are being decommissioned."""

    def __init__(self, context: SparkContext) -> None:
        scala: Any = context._jsc.sc()
        self._scheduler, self._backend = scala.taskScheduler(), scala.schedulerBackend()
        self._held: dict[str, Any] = {}

    def is_pending(self, executor: str) -> bool:
        """Whether an executor is being decommissioned."""
        return bool(self._scheduler.isExecutorDecommissioned(executor))

    def hold(self, executor: str) -> None:
        """Make Spark give tasks to an executor that is being decommissioned, until `release`."""
        said = self._backend.executorsPendingDecommission().remove(executor)
        if said.isDefined():
            self._held[executor] = said.get()
            self._backend.reviveOffers()

    def release(self, executor: str) -> None:
        """Let the decommission of an executor continue."""
        said = self._held.pop(executor, None)
        if said is not None and self._backend.getExecutorIds().contains(executor):
            self._backend.executorsPendingDecommission().put(executor, said)


class DecommissionWatch:
    """While a flow is open, finds members whose executors are all being decommissioned, and has them hand over their
    layers."""

    def __init__(
        self, context: SparkContext, placement: Callable[[], PlacedWork | None], hand_over: Callable[[str], object]
    ) -> None:
        """``placement``: returns the present members and executors. ``hand_over``: called once with each such member,
        in a thread of its own."""
        self._spark = Decommissioning(context)
        self._placement = placement
        self._hand_over = hand_over
        self._closing = threading.Event()
        self._going: dict[str, frozenset[str]] = {}
        """Member → its executors when their decommission was noticed."""

        self._thread = InheritableThread(target=self._watch, daemon=True, name="holdfast-decommissioning")
        self._thread.start()

    @staticmethod
    def is_wanted(context: SparkContext) -> bool:
        """Whether the executors of an application can be decommissioned."""
        return bool(context.getConf().get(_ENABLED, "false") == "true")

    def close(self) -> None:
        """Stop the watch."""
        self._closing.set()

    def _watch(self) -> None:
        while not self._closing.wait(_PAUSE):
            try:
                self._look()
            except Py4JError as error:  # the session has ended, or this version of Spark has other maps
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
            # The member will be lost like any other, and the flow recovers from that.
            _LOG.warning("member %s could not hand over what it keeps: %s", member, error, extra={"member": member})
        finally:
            for executor in executors:
                self._spark.release(executor)
