"""Holdfast's jobs in a thread that is not its own: what they are told stays with them.

Spark gives a job the properties of the thread that starts it: pool, group, description. Who calls ``flow.step()`` has
set some for jobs of their own, perhaps; or else those that come next would be of Holdfast's pool and group, and be
cancelled with an epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import SparkContext


@contextmanager
def own_jobs(context: SparkContext, pool: str, what: str, group: str | None = None) -> Iterator[None]:
    """The jobs of the block belong to ``pool`` and, if that is said, to ``group``. Then the thread has all its
    properties again."""
    spark = context._jsc.sc()
    before = spark.getLocalProperties()
    spark.setLocalProperties(before.clone())
    try:
        context.setLocalProperty("spark.scheduler.pool", pool)
        context.setLocalProperty("spark.jobGroup.id", group)
        context.setJobDescription(what)
        yield
    finally:
        spark.setLocalProperties(before)
