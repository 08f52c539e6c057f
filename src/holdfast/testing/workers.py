"""Spark's daemon of Python workers, for executors that live for seconds: it has loaded what workers need, and each of
them is a copy of it. Without this every worker of every new executor would import the same modules."""

from __future__ import annotations

import pandas
import pyarrow.compute
import pyarrow.parquet
from pyspark import daemon, worker

import holdfast.spark.epoch

LOADED = (pandas, pyarrow.compute, pyarrow.parquet, worker, holdfast.spark.epoch)

if __name__ == "__main__":
    daemon.manager()
