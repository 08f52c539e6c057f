"""Spark's daemon of Python workers, as `python -m holdfast.spark.workers`: it has loaded what tasks need, and each
worker is a copy of it. Without this a worker imports all of it first, for a second. The first epoch that runs beside a
merge and a copy would wait for that, and so would every epoch after a minute in which there was none: Spark ends
workers that have nothing to do."""

from __future__ import annotations

import pandas
import pyarrow.compute
import pyarrow.parquet
from pyspark import daemon, worker

import holdfast.durability
import holdfast.maintenance
import holdfast.spark.epoch

LOADED = (
    pandas,
    pyarrow.compute,
    pyarrow.parquet,
    worker,
    holdfast.durability,
    holdfast.maintenance,
    holdfast.spark.epoch,
)

if __name__ == "__main__":
    daemon.manager()
