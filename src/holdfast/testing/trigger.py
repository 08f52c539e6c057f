"""An action at a moment that Spark's progress decides: ``AfterTasks(spark, 3, lambda executor: …)``."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from holdfast.spark.listener import Event, StageSubmitted, TaskEnded, listener_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class AfterTasks:
    """Calls ``action`` once, with an executor's id: of the executor that ended the ``count``-th task from now on."""

    def __init__(self, spark: SparkSession, count: int, action: Callable[[str], object], stages: int = 0) -> None:
        """``stages``: tasks count only after this many stages were submitted before theirs."""
        self._listener = listener_of(spark.sparkContext)
        self._count = count
        self._action = action
        self._stages = stages
        self._submitted: set[int] = set()
        self._ended = 0
        self.fired = threading.Event()
        self.at = 0.0
        """The time of the action, by the monotonic clock, in seconds."""

        self.executor = ""
        self._listener.add(self._hear, tasks=True)

    def _hear(self, event: Event) -> None:
        match event:
            case StageSubmitted(stage=stage):
                self._submitted.add(stage)
            case TaskEnded(executor=executor) if len(self._submitted) > self._stages and not self.fired.is_set():
                self._ended += 1
                if self._ended >= self._count:
                    self.at, self.executor = time.monotonic(), executor
                    self.fired.set()
                    self._action(executor)

    def close(self) -> None:
        self._listener.remove(self._hear)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
