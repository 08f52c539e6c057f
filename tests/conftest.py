"""The Spark session of the tests, and how they are handed out to processes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest

os.environ["TZ"] = "UTC"
os.environ["PYSPARK_PYTHON"] = sys.executable


@pytest.fixture(scope="session")
def spark() -> Iterator[object]:
    from .session import shared_session

    session = shared_session()
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
    "standby/",
    "test_code_in_documents",
    "flow/",
    "examples/",
    "inspect/",
)
"""Files that take minutes, longest first. Begun last, one of them would keep a single process busy at the end. (Hence
``--no-loadscope-reorder`` in the Makefile: a file of one long test is not to be the last.)"""


_SPREAD = (
    "tests/oracle/test_cases.py",
    "tests/oracle/test_recursion.py",
    "tests/operators/test_loop.py",
    "tests/operators/test_loop_bodies.py",
    "tests/simulator/",
    "tests/faults/test_seeds.py",
)
"""Files whose tests share nothing: any process may run any of them. Of all others one process runs a whole file, whose
tests may share a cluster."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest: tests are handed out in this order to the processes that run them."""

    def rank(item: pytest.Item) -> int:
        return next((index for index, part in enumerate(_LONG) if part in item.nodeid), len(_LONG))

    items.sort(key=rank)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand out files, and the tests of some of them one by one."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return nodeid if nodeid.startswith(_SPREAD) else nodeid.partition("::")[0]

    return ByFile(config, log)
