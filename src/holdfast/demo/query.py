"""The query of the demo, as a flow and as plain Spark."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

import holdfast as hf
from holdfast.demo.amplab import RANKINGS, USERVISITS

QUERY = """
SELECT sourceIP, totalRevenue, avgPageRank
FROM (SELECT UV.sourceIP,
             avg(R.pageRank) AS avgPageRank,
             sum(UV.adRevenue) AS totalRevenue
      FROM rankings AS R JOIN uservisits AS UV ON R.pageURL = UV.destURL
      WHERE UV.visitDate BETWEEN DATE'1980-01-01' AND DATE'1981-01-01'
      GROUP BY UV.sourceIP)
ORDER BY totalRevenue DESC, sourceIP
LIMIT 1
"""

VIEW = "best_visitor"

Answer = list[tuple[Any, ...]]
"""The rows of the answer: one, or none as long as nobody visited in 1980."""


def declare(rankings: Path, visits: Path, log: Path) -> hf.Flow:
    """The flow that maintains the query over the files in two directories."""
    flow = hf.Flow("amplab", log=log)
    flow.source("rankings", hf.files(rankings, schema=RANKINGS))
    flow.source("uservisits", hf.files(visits, schema=USERVISITS))
    flow.view(VIEW, QUERY)
    return flow


def follow(flow: hf.Flow) -> Callable[[], Answer]:
    """Have the view's changes delivered, and return a function that says what they add up to so far."""
    copies: Counter[tuple[Any, ...]] = Counter()

    def take(epoch: int, change: pa.Table) -> None:
        for *row, diff in zip(*(column.to_pylist() for column in change.columns), strict=True):
            copies[tuple(row)] += diff

    flow.sink(VIEW, hf.foreach(take))
    return lambda: sorted(copies.elements())


def maintained(flow: hf.Flow) -> Answer:
    """The answer that the flow keeps: all rows of the view."""
    return _rows(flow.read(VIEW))


def recomputed(spark: Any, rankings: Path, visits: Path) -> tuple[Answer, float]:
    """The answer that Spark computes from all files, and the seconds that it took.

    Epochs run with settings that suit them; a batch query gets those that suit it: adaptive execution, and no more
    tasks per exchange than there are cores (Spark's default of 200 would cost more than the query).
    """
    own = spark.newSession()
    own.conf.set("spark.sql.adaptive.enabled", "true")
    own.conf.set("spark.sql.shuffle.partitions", str(own.sparkContext.defaultParallelism))
    started = time.perf_counter()
    own.read.parquet(str(rankings)).createOrReplaceTempView("rankings")
    own.read.parquet(str(visits)).createOrReplaceTempView("uservisits")
    answer = _rows(own.sql(QUERY))
    return answer, time.perf_counter() - started


def _rows(frame: Any) -> Answer:
    # All rows, not the first: a view that kept a row too many would be wrong, and must look so.
    return sorted(tuple(row) for row in frame.collect())
