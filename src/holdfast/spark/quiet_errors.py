"""Suppress PySpark's own printing of an error, where Holdfast raises an error that says the same."""

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
    """In this thread, suppress PySpark's printing of errors during the block."""
    before = _quiet.set(True)
    try:
        yield
    finally:
        _quiet.reset(before)
