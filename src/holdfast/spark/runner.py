"""Spark as the runner of a flow."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from pyspark import InheritableThread, cloudpickle
from pyspark.sql import SparkSession

from holdfast.coordinator.clock import Reading
from holdfast.coordinator.partition_ownership import PartitionOwnership
from holdfast.errors import DeclarationError
from holdfast.foundation.processor_priority import yield_to_epochs
from holdfast.log.host_paths import LOCAL
from holdfast.log.location import Location
from holdfast.plan.dataflow import Dataflow
from holdfast.runtime.runner import Beside, Job, R, T, unreachable
from holdfast.spark import background_slots
from holdfast.spark.epoch_job import EPOCHS, EpochJob
from holdfast.spark.listener import Event, ExecutorJoined, ExecutorLost, listener_of
from holdfast.spark.own_jobs import own_jobs
from holdfast.spark.placed_work import GRACE, PlacedWork
from holdfast.task.program import Program, bounds
from holdfast.task.sink_parts import ViewWriters


def _yielding(function: Callable[[list[T]], list[R]]) -> Callable[[list[T]], list[R]]:
    """Wrap ``function``, so that it runs in a thread of low priority."""

    def call(items: list[T]) -> list[R]:
        with ThreadPoolExecutor(1, initializer=yield_to_epochs) as thread:
            return thread.submit(function, items).result()

    return call


_REOPENING = 10.0
"""Seconds that a flow being opened waits for the members that it had before: they have its layers."""


def _partition(low: int, partitions: int) -> int:
    return int(np.searchsorted(bounds(partitions), np.uint64(low), side="right")) - 1


class SparkRunner:
    """Runs a flow's work on Spark: epochs in one pool, maintenance in another, of less weight."""

    threads = True
    grace = GRACE

    def __init__(
        self,
        spark: SparkSession,
        own: SparkSession,
        partitions: int,
        heals: bool = True,
        copies: tuple[Location, ...] = (),
        leaving: Collection[str] = (),
    ) -> None:
        """``own``: the session for Holdfast's queries, with its settings. ``heals``: the flow recovers from a loss at
        once; if False, the flow is stopped by its own watch. ``copies``: the log's locations, for tasks. ``leaving``:
        the members that will leave, and get no partition."""
        self._copies = copies
        self._heals = heals
        self._news = ""
        self.placement = PlacedWork(spark.sparkContext, partitions, leaving)
        self.scattered = self.placement.scattered
        self._listener = listener_of(spark.sparkContext) if self.scattered else None
        if self._listener is not None:
            self._listener.add(self._hear)
        self._spark = spark
        self._own = own
        self.partitions = partitions

    def job(
        self,
        flow: Dataflow,
        program: Program,
        before: Job | None = None,
        writers: Mapping[str, ViewWriters] = MappingProxyType({}),
    ) -> Job:
        placement = self.placement if self.scattered else None
        if isinstance(before, EpochJob):
            return before.over(self.partitions, placement)
        return EpochJob(self._own, flow, program, self.partitions, placement, self._heals, self._copies, writers)

    @property
    def ownership(self) -> PartitionOwnership | None:
        return self.placement.ownership if self.scattered else None

    def owners(self) -> tuple[str, ...]:
        return self.placement.owners() or ("",) * self.partitions

    def members(self) -> frozenset[str]:
        return frozenset(self.placement.members)

    def close(self) -> None:
        """Stop listening to membership events. Otherwise the runner of a closed flow would cancel other flows' epochs
        when a member is lost. A second call does nothing."""
        if self._listener is not None:
            self._listener.remove(self._hear)

    def _hear(self, event: Event) -> None:
        match event:
            case ExecutorJoined(member=member):
                self._news = self._news or "joined"
                self.placement.joined(member.id, member.host)
            case ExecutorLost(id=executor):
                if self._heals:
                    self._news = "lost"
                if self.placement.lost(executor) and self._heals:
                    # The running epoch needs the lost layers: cancel it now, since it would fail later.
                    self._spark.sparkContext.cancelJobGroup(EPOCHS)

    @property
    def membership_change(self) -> str:
        return self._news or ("unsettled" if self.placement.ownership.is_provisional else "")

    def refresh(self, settle: bool = False) -> bool:
        if not self.scattered:
            return False
        before, known = self.placement.owners(), self.placement.ownership.members - self.placement.ownership.leaving
        lost, self._news = self._news == "lost", ""
        self.placement.refresh(settle)
        if lost:
            # Spark usually starts a dead executor again, on the same layers.
            self.placement.await_members(known)
        if not self.placement.scattered:
            raise DeclarationError(f"executors must all have {LOCAL} in their environment, or none of them")
        return self.placement.owners() != before

    def await_members(self, names: Sequence[str]) -> None:
        if self.scattered:
            self.placement.await_members(names, _REOPENING)

    def hand_over(self, moves: Mapping[int, str]) -> None:
        self.placement.hand_over(moves)

    def everywhere(self, what: str, function: Callable[[], R]) -> dict[str, R]:
        if not self.scattered:
            return {"": function()}
        members = sorted(self.placement.ownership.asked)
        with self._low_weight(what):
            results = self._placed(lambda _: [function()], [(member, [None]) for member in members])
        return dict(zip(members, results, strict=True))

    def visit(self, what: str, shares: Mapping[str, list[T]], function: Callable[[list[T]], list[R]]) -> list[R]:
        with self._low_weight(what):
            return self._placed(function, sorted(shares.items(), key=lambda one: one[0]))

    def _placed(self, function: Callable[[list[T]], list[R]], shares: Sequence[tuple[str, list[T]]]) -> list[R]:
        losses = self.placement.losses
        try:
            return self.placement.run(_yielding(function), shares)
        except Exception as error:
            if self.placement.is_cause(error, losses, self._heals):
                raise unreachable(error) from error
            raise

    def _low_weight(self, what: str) -> AbstractContextManager[None]:
        return own_jobs(self._spark.sparkContext, "maintenance", f"holdfast: {what}")

    def tasks(
        self,
        what: str,
        function: Callable[[list[T]], list[R]],
        items: Sequence[T],
        slots: int | Beside,
        low: Callable[[T], int] | None = None,
    ) -> list[R]:
        if not items:
            return []
        context = self._spark.sparkContext
        if isinstance(slots, Beside):
            with background_slots.turn(context, slots) as some:
                return self.tasks(what, function, items, some, low)
        if self.scattered and low is not None:
            owners = self.placement.owners()
            shares: dict[str, list[T]] = {}
            for item in items:
                shares.setdefault(owners[_partition(low(item), self.partitions)], []).append(item)
            with self._low_weight(what):
                return self._placed(function, sorted(shares.items(), key=lambda one: one[0]))
        # Spark pickles shipped values with its own serialiser; items may be anything that cloudpickle takes.
        packed = [cloudpickle.dumps(item) for item in items]

        def share(some: Iterator[bytes]) -> Iterator[bytes]:
            yield cloudpickle.dumps(_yielding(function)([cloudpickle.loads(item) for item in some]))

        with self._low_weight(what):
            shares = context.parallelize(packed, max(1, min(len(packed), slots))).mapPartitions(share).collect()
        return [result for one in shares for result in cloudpickle.loads(one)]

    def thread(self, target: Callable[[], None], name: str) -> Any:
        thread = InheritableThread(target=target, daemon=True, name=name)
        thread.start()
        return thread

    def clock(self) -> int:
        return time.time_ns() // 1000

    def reading(self) -> Reading:
        return Reading(self.clock(), *self.uptime())

    def uptime(self) -> tuple[str, int]:
        """Return an id of the machine's boot, and the microseconds since then, sleep included."""
        counted = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
        try:
            start = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        except OSError:
            start = ""
        return start, time.clock_gettime_ns(counted) // 1000

    def draw(self) -> int:
        return secrets.randbits(63)
