"""Silence for tests that break things by the dozen."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet_logs() -> Iterator[None]:
    """Have no logger ``holdfast.*`` say anything."""
    log = logging.getLogger("holdfast")
    before = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        log.setLevel(before)
