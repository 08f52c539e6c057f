"""Spark's daemon of Python workers, as `python -m holdfast.spark.workers`: it has loaded what tasks need, and each
worker is a copy of it. Without this a worker imports all of it first, for a second. The first epoch that runs beside a
merge and a copy would wait for that, and so would every epoch after a minute in which there was none: Spark ends
workers that have nothing to do.

A worker whose task failed ends without a word (`unheard`). Two things follow from forking after everything is loaded:

* The daemon has one thread. A copy of a process has only the thread that forked, and a lock that another thread held
  at that moment stays locked in the copy for ever.
* The garbage collector leaves alone what was loaded. PySpark collects after every task, and would walk through 100,000
  objects of modules each time, for 50 ms.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from importlib import import_module

ONE_THREAD = {
    "OPENBLAS_NUM_THREADS": "1",  # otherwise one per core, as soon as numpy is imported
    "JE_ARROW_MALLOC_CONF": "background_thread:false",  # otherwise jemalloc's own, as soon as Arrow is imported
}
"""Environment that numpy and Arrow read while they are loaded. (What they start later, in a worker, is their own.)"""

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
    """Import what tasks need, without starting a thread, and take it out of the garbage collector's sight."""
    os.environ.update(ONE_THREAD)
    for module in LOADED:
        import_module(module)
    gc.collect()
    gc.freeze()


def unheard(worker: Callable[..., int]) -> Callable[..., int]:
    """PySpark's ``worker``, which says nothing when the JVM has closed the connection: it does so when a task has
    failed or was cancelled, and the driver has the reason. Each worker would print a traceback otherwise."""

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
