"""Spark's daemon of Python workers, which has loaded already what workers need: each of them is a copy of it.

A life of a killed process is short; without this, half of it would be four workers that import the same modules.
"""

from __future__ import annotations

import pyarrow.compute
import pyarrow.parquet
from pyspark import daemon, worker

import holdfast.durability
import holdfast.maintenance
import holdfast.spark.epoch

LOADED = (pyarrow.compute, pyarrow.parquet, worker, holdfast.durability, holdfast.maintenance, holdfast.spark.epoch)

if __name__ == "__main__":
    daemon.manager()
