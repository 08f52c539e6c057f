"""No log output, for tests that cause many failures."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet_logs() -> Iterator[None]:
    """Silence all loggers ``holdfast.*`` during the block."""
    log = logging.getLogger("holdfast")
    before = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        log.setLevel(before)
