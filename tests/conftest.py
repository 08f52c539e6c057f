"""One Spark session for all tests of a process: the one that a flow would start."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

os.environ["TZ"] = "UTC"
os.environ["PYSPARK_PYTHON"] = sys.executable


@pytest.fixture(scope="session")
def spark() -> Iterator[object]:
    from holdfast.spark.session import start_local

    session = start_local()
    session.conf.set("spark.sql.shuffle.partitions", "2")
    yield session
    session.stop()
