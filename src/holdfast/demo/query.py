"""The query of the demo, as a flow and as plain Spark."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

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


def declare(rankings: Path, visits: Path, log: Path) -> hf.Flow:
    """The flow that maintains the query over the files in two directories."""
    flow = hf.Flow("amplab", log=log)
    flow.source("rankings", hf.files(rankings, schema=RANKINGS))
    flow.source("uservisits", hf.files(visits, schema=USERVISITS))
    flow.view(VIEW, QUERY)
    return flow


def maintained(flow: hf.Flow) -> tuple[Any, ...] | None:
    """The answer that the flow keeps."""
    row = flow.read(VIEW).first()
    return None if row is None else tuple(row)


def recomputed(spark: Any, rankings: Path, visits: Path) -> tuple[tuple[Any, ...] | None, float]:
    """The answer that Spark computes from all files, and the seconds that it took."""
    started = time.perf_counter()
    spark.read.parquet(str(rankings)).createOrReplaceTempView("rankings")
    spark.read.parquet(str(visits)).createOrReplaceTempView("uservisits")
    row = spark.sql(QUERY).first()
    return None if row is None else tuple(row), time.perf_counter() - started
