"""Spark as the runner of a flow."""

from __future__ import annotations

import os
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pyspark import InheritableThread, cloudpickle
from pyspark.sql import SparkSession

from holdfast.operators.program import Program
from holdfast.plan.dataflow import Dataflow, Types
from holdfast.runner import Job, R, T
from holdfast.spark.epoch import EpochJob


def _yield_to_epochs() -> None:
    """Have the system run this thread, and those it starts, when epochs leave it time. Only the thread: the worker's
    process goes on to other tasks."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)


class Cluster:
    """Epoch jobs in one pool; upkeep in another, of less weight."""

    threads = True

    def __init__(self, spark: SparkSession, own: SparkSession, partitions: int) -> None:
        """``own`` is the session for Holdfast's queries, with its settings."""
        self._spark = spark
        self._own = own
        self.partitions = partitions

    def job(self, flow: Dataflow, program: Program, types: Types) -> Job:
        return EpochJob(self._own, flow, program, types, self.partitions)

    def tasks(self, what: str, function: Callable[[list[T]], list[R]], items: Sequence[T], slots: int) -> list[R]:
        if not items:
            return []
        context = self._spark.sparkContext
        context.setLocalProperty("spark.scheduler.pool", "maintenance")
        context.setJobDescription(f"holdfast: {what}")
        # Spark pickles what it ships by value with its own serialiser; items may hold anything that cloudpickle takes.
        packed = [cloudpickle.dumps(item) for item in items]

        def share(some: Iterator[bytes]) -> Iterator[bytes]:
            mine = [cloudpickle.loads(item) for item in some]
            with ThreadPoolExecutor(1, initializer=_yield_to_epochs) as thread:
                yield cloudpickle.dumps(thread.submit(function, mine).result())

        shares = context.parallelize(packed, max(1, min(len(packed), slots))).mapPartitions(share).collect()
        return [result for one in shares for result in cloudpickle.loads(one)]

    def thread(self, target: Callable[[], None], name: str) -> Any:
        thread = InheritableThread(target=target, daemon=True, name=name)
        thread.start()
        return thread

    def clock(self) -> int:
        return time.time_ns() // 1000

    def draw(self) -> int:
        return secrets.randbits(63)
