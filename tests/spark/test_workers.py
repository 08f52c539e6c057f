"""The daemon whose copies are Spark's Python workers: what a copy inherits."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable

import pytest
from pyspark.sql import SparkSession


def test_the_daemon_has_one_thread_when_it_begins_to_fork() -> None:
    program = "import os, holdfast.spark.workers as w; w.load(); print(len(os.listdir('/proc/self/task')))"
    # Spark itself says OMP_NUM_THREADS=1 to its daemons, and OpenBLAS listens to it; ours does not rely on that.
    found = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=120)
    assert found.stdout.strip() == "1"


def test_a_worker_collects_garbage_over_its_own_objects_alone(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Another environment has another daemon: a worker that ran other tests has what they imported.
    monkeypatch.setitem(spark.sparkContext.environment, "HOLDFAST_FRESH_WORKERS", "1")

    def look(_: Iterable[int]) -> list[tuple[int, int, int]]:
        import gc
        import os

        return [(len(gc.get_objects()), gc.get_freeze_count(), len(os.listdir(f"/proc/{os.getppid()}/task")))]

    [(walked, frozen, threads_of_the_daemon)] = spark.sparkContext.parallelize([1], 1).mapPartitions(look).collect()
    assert walked < 20_000 < frozen
    assert threads_of_the_daemon == 1


def test_the_jvm_does_not_stand_still_when_spark_asks_it_to_collect_garbage(spark: SparkSession) -> None:
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    given = jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()
    assert "-XX:+ExplicitGCInvokesConcurrent" in list(given)
