"""Holdfast's jobs in a user's thread: their properties do not stay with the thread.

Spark gives a job the properties of the thread that starts it: pool, group, description. The thread that calls
``flow.step()`` may have set its own. Without restoring them, the user's next jobs would be in Holdfast's pool and
group, and would be cancelled with an epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from pyspark import SparkContext


@contextmanager
def own_jobs(context: SparkContext, pool: str, what: str, group: str | None = None) -> Iterator[None]:
    """Run the jobs of the block in ``pool`` and, if given, in ``group``. Afterwards the thread has its own properties
    again."""
    spark = context._jsc.sc()
    before = spark.getLocalProperties()
    spark.setLocalProperties(before.clone())
    try:
        context.setLocalProperty("spark.scheduler.pool", pool)
        context.setLocalProperty("spark.jobGroup.id", group)
        context.setJobDescription(what)
        yield
    except BaseException:
        # After an interrupt Java may be gone, too: what ended the block is what the caller must see.
        with suppress(Exception):
            spark.setLocalProperties(before)
        raise
    spark.setLocalProperties(before)
