"""Spark's daemon of Python workers, as `python -m holdfast.spark.workers`: it has loaded what tasks need, and each
worker is a copy of it. Without this a worker imports all of it first, for a second. The first epoch that runs beside a
merge and a copy would wait for that, and so would every epoch after a minute in which there was none: Spark ends
workers that have nothing to do.

Two things follow from forking after everything is loaded:

* The daemon has one thread. A copy of a process has only the thread that forked, and a lock that another thread held
  at that moment stays locked in the copy for ever.
* The garbage collector leaves alone what was loaded. PySpark collects after every task, and would walk through 100,000
  objects of modules each time, for 50 ms.
"""

from __future__ import annotations

import gc
import os
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


if __name__ == "__main__":
    from pyspark import daemon

    load()
    daemon.manager()
