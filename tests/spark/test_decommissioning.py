"""A member leaves when all executors of its host are to go: Spark's scheduler, and who is where, are given.
(On a real cluster: ``cluster/test_flows.py``.)"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from holdfast.errors import DeclarationError
from holdfast.spark.decommissioning import DecommissionWatch


class Found:
    """Scala's Option."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def isDefined(self) -> bool:
        return self._value is not None

    def get(self) -> Any:
        return self._value


class Scheduler:
    """Both of Spark's, and the context that has them."""

    def __init__(self, *executors: str) -> None:
        self.there = set(executors)
        self.known: set[str] = set()
        self.pending: dict[str, str] = {}
        self.revived = 0
        self._jsc = self

    def decommission(self, executor: str) -> None:
        self.pending[executor] = "info"
        self.known.add(executor)

    def sc(self) -> Scheduler:
        return self

    taskScheduler = schedulerBackend = executorsPendingDecommission = getExecutorIds = sc

    def isExecutorDecommissioned(self, executor: str) -> bool:
        return executor in self.known

    def contains(self, executor: str) -> bool:
        return executor in self.there

    def remove(self, executor: str) -> Found:
        return Found(self.pending.pop(executor, None))

    def put(self, executor: str, info: str) -> None:
        self.pending[executor] = info

    def reviveOffers(self) -> None:
        self.revived += 1


class Placement:
    def __init__(self, **members: str) -> None:
        self._members = {name: frozenset(some.split()) for name, some in members.items()}

    def executors(self) -> dict[str, frozenset[str]]:
        return self._members


def _until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30.0
    while not true():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def test_a_member_hands_over_once_all_its_executors_are_to_go_and_goes_then() -> None:
    spark, handed, go = Scheduler("1", "2", "3"), list[str](), threading.Event()

    def hand_over(member: str) -> None:
        handed.append(member)
        go.wait(30.0)

    watch = DecommissionWatch(spark, lambda: Placement(a="1 2", b="3"), hand_over)  # type: ignore[arg-type, return-value]  # stands for both
    try:
        spark.decommission("1")
        time.sleep(0.5)
        assert handed == [] and spark.pending == {"1": "info"}, "its host has another executor"
        spark.decommission("2")
        _until(lambda: handed == ["a"])
        assert spark.pending == {} and spark.revived == 2, "tasks can be run there meanwhile"
        go.set()
        _until(lambda: spark.pending == {"1": "info", "2": "info"})
        time.sleep(0.5)
        assert handed == ["a"], "once"
    finally:
        go.set()
        watch.close()


def test_an_executor_goes_also_if_nobody_can_take_over() -> None:
    spark = Scheduler("1")

    def hand_over(member: str) -> None:
        spark.there.discard("2")
        raise DeclarationError("member 'a' is the last one")

    spark.decommission("1")
    watch = DecommissionWatch(spark, lambda: Placement(a="1"), hand_over)  # type: ignore[arg-type, return-value]  # stands for both
    try:
        _until(lambda: spark.revived == 1)
        _until(lambda: spark.pending == {"1": "info"})
    finally:
        watch.close()
