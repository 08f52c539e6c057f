"""Work beside epochs: whatever other flows of a session copy and merge, an epoch does not wait for it."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from holdfast.runtime.runner import Beside
from holdfast.spark import background_slots
from holdfast.spark.resident_task import GROUP
from holdfast.spark.runner import SparkRunner

_SLOW = 4.0
"""The seconds of a copy that waits for storage."""


def _wait_for_storage(items: list[int]) -> list[float]:
    time.sleep(_SLOW)
    return [float(item) for item in items]


@pytest.mark.parametrize("work", list(Beside))
def test_flows_take_turns_in_upkeep(spark: Any, work: Beside) -> None:
    lock, now, most = threading.Lock(), 0, 0

    def one(_: int) -> None:
        nonlocal now, most
        with background_slots.turn(spark.sparkContext, work):
            with lock:
                now, most = now + 1, max(most, now + 1)
            time.sleep(0.05)
            with lock:
                now -= 1

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(16)))
    assert most == {Beside.MERGING: 1, Beside.MERGING_LOGS: 1, Beside.COPYING: 3, Beside.LAGGING: 1}[work]


def _beside(context: Any) -> int:
    """The jobs that run, without that of the task that stays."""
    tracker = context.statusTracker()
    return len(set(tracker.getActiveJobsIds()) - set(tracker.getJobIdsForGroup(GROUP)))


@pytest.mark.slow
def test_an_epoch_does_not_wait_for_the_copies_of_many_flows(spark: Any) -> None:
    context = spark.sparkContext
    runner = SparkRunner(spark, spark, 2)
    context.parallelize(range(6), 6).map(lambda x: x).count()  # Python workers are there
    with ThreadPoolExecutor(8) as pool:
        copies = [
            pool.submit(runner.tasks, "copying", _wait_for_storage, [number, number], Beside.COPYING)
            for number in range(6)
        ]
        merges = [
            pool.submit(runner.tasks, "merging", _wait_for_storage, [number, number], Beside.MERGING)
            for number in range(2)
        ]
        deadline = time.monotonic() + 10
        while _beside(context) < 4 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert _beside(context) == 4  # three copies and a merge: the others wait
        time.sleep(0.5)
        started = time.monotonic()
        context.setLocalProperty("spark.scheduler.pool", "epoch")
        assert context.parallelize(range(2), 2).map(lambda x: x).count() == 2
        assert time.monotonic() - started < _SLOW / 2
        assert [one.result() for one in copies] == [[float(number)] * 2 for number in range(6)]
        assert all(one.result() for one in merges)


def test_a_python_worker_has_loaded_what_it_needs_when_it_starts(spark: Any) -> None:
    def loaded(_: int) -> tuple[bool, int]:
        import os
        import sys
        import time

        time.sleep(0.5)  # so that no worker does two of these
        return "holdfast.runtime.merging" in sys.modules, os.getpid()

    tasks = spark.sparkContext.defaultParallelism + 1
    found = spark.sparkContext.parallelize(range(tasks), tasks).map(loaded).collect()
    assert all(is_loaded for is_loaded, _ in found)
    assert len({process for _, process in found}) > 1


def test_the_daemon_of_python_workers_is_ours(spark: Any) -> None:
    def daemon(_: int) -> bytes:
        import os
        from pathlib import Path

        return Path(f"/proc/{os.getppid()}/cmdline").read_bytes()

    if not Path("/proc/self").exists():
        pytest.skip("no /proc")
    assert b"holdfast.spark.workers" in spark.sparkContext.parallelize([0], 1).map(daemon).first()
