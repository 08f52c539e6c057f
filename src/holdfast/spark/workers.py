"""Spark's daemon of Python workers, as `python -m holdfast.spark.workers`: it loads what tasks need, and forks each
worker as a copy of itself. Otherwise each worker would import all of that first, which takes a second. The first epoch
that runs beside a merge and a copy would wait for that, and so would the first epoch after each pause of a minute,
because Spark ends idle workers.

A worker whose task failed ends without printing (`unheard`). Two things follow from forking after everything is loaded:

* The daemon has one thread. A copy of a process has only the thread that forked, and a lock that another thread held at
  that moment stays locked in the copy for ever.
* The garbage collector ignores what was loaded. PySpark collects after every task, and would walk through 100,000
  objects of modules each time, for 50 ms.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from importlib import import_module

ONE_THREAD = {
    "OPENBLAS_NUM_THREADS": "1",  # otherwise one thread per core, as soon as numpy is imported
    "JE_ARROW_MALLOC_CONF": "background_thread:false",  # otherwise a thread of jemalloc, as soon as Arrow is imported
}
"""Environment variables that numpy and Arrow read when they are loaded. (Threads that they start later, in a worker, do
no harm.)"""

LOADED = (
    "pandas",
    "pyarrow.compute",
    "pyarrow.parquet",
    "pyspark.worker",
    "holdfast.runtime.replication",
    "holdfast.runtime.merging",
    "holdfast.spark.epoch_job",
)


def load() -> None:
    """Import what tasks need, without starting a thread, and exclude it from garbage collection."""
    os.environ.update(ONE_THREAD)
    for module in LOADED:
        import_module(module)
    gc.collect()
    gc.freeze()


def unheard(worker: Callable[..., int]) -> Callable[..., int]:
    """Return PySpark's ``worker`` as one that prints no traceback when the JVM has closed the connection. The JVM does
    so when a task has failed or was cancelled, and the driver has the reason."""

    def quiet(*arguments: object) -> int:
        try:
            return worker(*arguments)
        except (BrokenPipeError, ConnectionResetError):
            return 1  # the worker ends

    return quiet


if __name__ == "__main__":
    from pyspark import daemon

    load()
    daemon.worker = unheard(daemon.worker)
    daemon.manager()
