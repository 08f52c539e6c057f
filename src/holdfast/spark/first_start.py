"""The first seconds of a local session, used in parallel.

The JVM takes seconds to start, and this process waits for it: meanwhile a thread imports what a flow needs. Then the
JVM analyses the first views, which needs no Python workers: meanwhile a job that does nothing makes Spark start its
daemon of workers, so that it is ready for the first epoch.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module

from pyspark.sql import SparkSession

_NEEDED = (
    "pandas",
    "pyarrow.parquet",
    "holdfast.spark.planning",
    "holdfast.spark.epoch_job",
    "holdfast.spark.read",
    "holdfast.runtime.engine",
)


@contextmanager
def importing_meanwhile() -> Iterator[None]:
    """Import what a flow needs while the block runs. The imports are complete when the block ends."""
    loading = threading.Thread(target=_load, name="holdfast-imports", daemon=True)
    loading.start()
    try:
        yield
    finally:
        loading.join()


def _load() -> None:
    for module in _NEEDED:
        with suppress(Exception):  # the code that needs the module imports it again, and raises
            import_module(module)


def start_workers(session: SparkSession) -> None:
    """Make Spark start its Python workers, without waiting for it."""
    threading.Thread(target=_run_nothing, args=(session,), name="holdfast-first-job", daemon=True).start()


def _run_nothing(session: SparkSession) -> None:
    with suppress(Exception):  # the session may be stopped by now
        # A lambda, because for a named function workers would import this module and all of pyspark.sql, which the
        # garbage collector would then walk through after every task.
        session.sparkContext.parallelize([0], 1).mapPartitions(lambda items: items).count()
