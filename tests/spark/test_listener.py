"""Spark's events in Python: those that somebody wants, and no others."""

from __future__ import annotations

import time
from typing import Any

from pyspark.sql import SparkSession

from holdfast.foundation.retries import wait_until
from holdfast.spark.listener import Event, Listener, StageSubmitted, TaskEnded


class Counting(Listener):
    """Counts the calls that come from the JVM."""

    calls = 0

    def onStageSubmitted(self, event: Any) -> None:
        self.calls += 1
        super().onStageSubmitted(event)

    def onTaskEnd(self, event: Any) -> None:
        self.calls += 1
        super().onTaskEnd(event)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("on"):
            raise AssertionError(f"{name} was called, and nobody wants it")
        raise AttributeError(name)


def test_events_that_nobody_wants_do_not_leave_the_jvm(spark: SparkSession) -> None:
    from holdfast.spark.listener import listener_of

    listener_of(spark.sparkContext)  # starts the callback server
    listener = Counting(spark.sparkContext)

    def run() -> None:
        spark.sparkContext.parallelize(range(4), 2).count()

    run()
    heard: list[Event] = []
    time.sleep(0.3)
    assert listener.calls == 0
    listener.add(heard.append, tasks=True)
    run()
    assert wait_until(lambda: sum(isinstance(each, TaskEnded) for each in heard) >= 2, 10.0, 0.02)
    assert any(isinstance(each, StageSubmitted) for each in heard)
    listener.remove(heard.append)
    before = listener.calls
    run()
    time.sleep(0.3)
    assert listener.calls == before
