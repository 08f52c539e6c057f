"""One Spark session for all tests of a process, with the settings that a flow would give it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

os.environ["TZ"] = "UTC"
os.environ["PYSPARK_PYTHON"] = sys.executable


@pytest.fixture(scope="session")
def spark() -> Iterator[object]:
    from holdfast.spark.session import local_builder

    builder = local_builder(2).appName("holdfast-tests")
    # Tests run hundreds of queries once, over a few rows: compiling each would take most of the time.
    compiled = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    for key, value in {**compiled, "spark.sql.shuffle.partitions": "2"}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")  # many tests are about failures; what matters of them is asserted
    yield session
    session.stop()


_LONG = (
    "oracle/test_cases",
    "durability/test_killed",
    "cluster/",
    "demo/test_crash",
    "durability/",
    "oracle/",
    "tpch/",
    "simulator/",
    "nexmark/",
    "lease/",
    "flow/",
    "verify/",
)
"""Files that take minutes, longest first. Begun last, one of them would keep a single process busy at the end. (Hence
``--no-loadscope-reorder`` in the Makefile: a file of one long test is not to be the last.)"""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest: tests are handed out in this order to the processes that run them.

    A process runs a whole file, whose tests may share a cluster, unless the file says that its tests may be spread.
    """

    def rank(item: pytest.Item) -> int:
        return next((index for index, part in enumerate(_LONG) if part in item.nodeid), len(_LONG))

    for item in items:
        if item.get_closest_marker("spread") is None:
            item.add_marker(pytest.mark.xdist_group(str(item.path)))
    items.sort(key=rank)
