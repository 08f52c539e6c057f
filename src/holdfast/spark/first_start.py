"""The first seconds of a local session, spent side by side.

The JVM takes seconds to start, and this process waits for it: meanwhile a thread imports what a flow needs. Then the
JVM analyses the first views, which do not need Spark's daemon of Python workers: a job that does nothing has it started
meanwhile, so that the first epoch finds it there.
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
    """Import what a flow needs while something else goes on. It is imported when this ends."""
    loading = threading.Thread(target=_load, name="holdfast-imports", daemon=True)
    loading.start()
    try:
        yield
    finally:
        loading.join()


def _load() -> None:
    for module in _NEEDED:
        with suppress(Exception):  # whoever needs it imports it again, and is told
            import_module(module)


def start_workers(session: SparkSession) -> None:
    """Have Spark start its Python workers. Nobody waits for that."""
    threading.Thread(target=_run_nothing, args=(session,), name="holdfast-first-job", daemon=True).start()


def _run_nothing(session: SparkSession) -> None:
    with suppress(Exception):  # the session may be stopped by now
        # A lambda: a function with a name would have workers import this module, and with it all of pyspark.sql, which
        # they would then collect garbage over after every task.
        session.sparkContext.parallelize([0], 1).mapPartitions(lambda items: items).count()
