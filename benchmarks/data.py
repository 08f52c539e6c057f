"""The benchmarks' input: Parquet files of (key bigint, value bigint), a session for all sides, and their arguments."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from holdfast.spark.session import local_builder

SCHEMA = "key bigint, value bigint"


def parse(parser: argparse.ArgumentParser, **quick: Any) -> argparse.Namespace:
    """The arguments of a benchmark. ``quick`` are the defaults of a run that is to show that it works."""
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true", help="a short run over little data; its numbers mean nothing")
    if parser.parse_known_args()[0].quick:
        parser.set_defaults(**quick)
    return parser.parse_args()


def session(event_log: Path | None = None, pauses: Path | None = None) -> SparkSession:
    """One local session for everything that is compared. ``pauses``: a file to which the JVM writes when it stood
    still, and why."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = local_builder(os.cpu_count() or 1).appName("holdfast-benchmark")
    if event_log is not None:
        event_log.mkdir(parents=True, exist_ok=True)
        builder = builder.config("spark.eventLog.enabled", "true").config("spark.eventLog.dir", event_log.as_uri())
        builder = builder.config("spark.eventLog.compress", "false").config("spark.eventLog.rolling.enabled", "false")
    if pauses is not None:
        options = f"-Xlog:gc,safepoint:file={pauses}:timemillis:filecount=1,filesize=0"
        builder = builder.config("spark.driver.extraJavaOptions", options)
    return builder.getOrCreate()


def write_rows(path: Path, keys: np.ndarray, random: np.random.Generator) -> None:
    """A file of these keys with random values, in two row groups, put in place at once."""
    values = random.integers(0, 1000, len(keys))
    table = pa.table({"key": pa.array(keys, pa.int64()), "value": pa.array(values, pa.int64())})
    hidden = path.with_name("." + path.name)
    pq.write_table(table, hidden, row_group_size=max(1, (len(keys) + 1) // 2))
    hidden.rename(path)
