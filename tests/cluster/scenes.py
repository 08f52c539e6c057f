"""What the cluster tests run in drivers of their own: a process that has a Spark session already cannot have another.

Each scene kills something at a moment that Spark's own events decide, and returns plain values.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

FILES, ROWS = 8, 1000


def write_table(directory: Path) -> None:
    """Eight files; in file f the keys f * 1000 …, a group each of seven."""
    directory.mkdir(parents=True)
    for number in range(FILES):
        keys = list(range(number * ROWS, (number + 1) * ROWS))
        pq.write_table(pa.table({"k": keys, "g": [key % 7 for key in keys]}), directory / f"{number}.parquet")


class Trigger:
    """Does something when ``count`` tasks of a stage with a name like ``stage`` have ended."""

    def __init__(self, spark: Any, count: int, action: Callable[[str], None], stages: int = 0) -> None:
        """``stages``: so many stages must have been submitted first. ``action`` gets the executor of the last task."""
        from holdfast.spark.listener import StageSubmitted, TaskEnded, listener_of

        self._listener = listener_of(spark.sparkContext)
        submitted: set[int] = set()
        ended = 0
        self.fired = threading.Event()
        self.at = 0.0

        def hear(event: Any) -> None:
            nonlocal ended
            if isinstance(event, StageSubmitted):
                submitted.add(event.stage)
            if isinstance(event, TaskEnded) and len(submitted) > stages:
                ended += 1
                if ended == count and not self.fired.is_set():
                    self.fired.set()
                    self.at = time.monotonic()
                    action(event.executor)

        self._hear = hear
        self._listener.add(hear, tasks=True)

    def close(self) -> None:
        self._listener.remove(self._hear)


def session(handle: Any, executors: int, **settings: object) -> Any:
    spark = handle.session(
        **{"spark__sql__shuffle__partitions": 3, "spark__sql__files__maxPartitionBytes": 20_000, **settings}
    )
    from holdfast.spark.membership import Watch

    watch = Watch(spark, begin=False)
    watch.wait(executors, 60)
    watch.close()

    def slowly(key: int) -> int:
        if key % ROWS == 0:
            time.sleep(0.5)
        return key

    spark.udf.register("slowly", slowly, "long")
    return spark


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.to_pylist())
