"""What Holdfast's loggers say, for tests that expect a line, or none."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager


class _Heard(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@contextmanager
def heard(level: int = logging.WARNING) -> Iterator[list[logging.LogRecord]]:
    """The records of all loggers ``holdfast.*``, from this level on, as they come."""
    log, handler = logging.getLogger("holdfast"), _Heard()
    before = log.level
    log.addHandler(handler)
    log.setLevel(min(level, before or level))
    handler.setLevel(level)
    try:
        yield handler.records
    finally:
        log.removeHandler(handler)
        log.setLevel(before)


@contextmanager
def logged(match: str, level: int = logging.WARNING) -> Iterator[list[logging.LogRecord]]:
    """Expect that a line in which ``match`` is found is logged."""
    with heard(level) as records:
        yield records
    said = [record.getMessage() for record in records]
    assert any(re.search(match, line) for line in said), f"{match!r} was not logged: {said}"
