"""Maintenance: merging layers in the background, as a Spark job of low weight.

One request runs at a time; while one runs, further ones are dropped (the next epoch will ask again): under load
maintenance falls behind, and epochs do not wait for it.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark import InheritableThread
from pyspark.sql import SparkSession

from holdfast.operators.program import partition_range
from holdfast.trace.cover import Chain
from holdfast.trace.rows import Layout
from holdfast.trace.upkeep import keep_in_shape


@dataclass(frozen=True)
class Upkeep:
    """A trace to keep in shape; epochs up to ``since`` may be collapsed."""

    directory: str
    layout: Layout
    since: int


class Maintenance:
    """Runs upkeep in the background."""

    tolerated = 8
    """Fewer layers than this are left alone: merging eight at once moves a row less often than merging two."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._thread: threading.Thread | None = None
        self.failure: str | None = None
        """Why the last request failed, if it did."""

        self.merges = 0

    @property
    def busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def request(self, upkeep: Sequence[Upkeep], chain: Chain, last: int, partitions: int) -> None:
        """Keep these traces in shape, soon; dropped if the last request is still at work."""
        if self.busy:
            return
        self._thread = InheritableThread(
            target=self._run, args=(list(upkeep), chain, last, partitions), daemon=True, name="holdfast-maintenance"
        )
        self._thread.start()

    def _run(self, upkeep: list[Upkeep], chain: Chain, last: int, partitions: int) -> None:
        try:
            context = self._spark.sparkContext
            context.setLocalProperty("spark.scheduler.pool", "maintenance")
            context.setJobDescription("holdfast: maintenance")
            items = [(one, partition) for one in upkeep for partition in range(partitions)]

            def keep(item: tuple[Upkeep, int]) -> int:
                one, partition = item
                low, high = partition_range(partition, partitions)
                # The epoch that may run now, or be run again, reads as of the one before.
                return keep_in_shape(Path(one.directory), one.layout, low, high, one.since, chain, last - 1)

            slices = max(1, min(len(items), context.defaultParallelism // 2))
            self.merges += context.parallelize(items, slices).map(keep).sum()
            self.failure = None
        except Exception as error:
            # Nothing is lost: epochs go on over more layers, and the next request tries again.
            self.failure = f"{type(error).__name__}: {error}".split("\n", 1)[0]
            warnings.warn(f"holdfast: maintenance failed, and will be tried again: {self.failure}", stacklevel=1)

    def wait(self) -> None:
        """Wait for the request at work, if any."""
        if self._thread is not None:
            self._thread.join()

    def close(self) -> None:
        self.wait()
