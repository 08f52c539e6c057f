"""PySpark keeps to itself what it would print of an error, where Holdfast says it in an error of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from pyspark.logger import PySparkLogger

_quiet: ContextVar[bool] = ContextVar("holdfast_quiet", default=False)

for _name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
    PySparkLogger.getLogger(_name).addFilter(lambda record: not _quiet.get())


@contextmanager
def quietly() -> Iterator[None]:
    """Print nothing of the errors that PySpark finds meanwhile, in this thread."""
    before = _quiet.set(True)
    try:
        yield
    finally:
        _quiet.reset(before)
