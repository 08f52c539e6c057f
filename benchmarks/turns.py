"""Flows that take turns: a block of epochs of one, then of the next, so that the noise of the machine hits all alike.

Epochs are measured with the flow's own background work beside them. What others left to be done in the
background is not to be measured with them: before a block, those before it are brought to rest.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from against_structured_streaming import Ours
from data import write_rows

from holdfast.testing.unreliable import Unreliable

T = TypeVar("T")

_PAUSE = 5.0
"""A flow makes rounds of background work, and pauses so long between two."""


class Feed:
    """Input for several flows over the same keys, made as they ask for it."""

    def __init__(self, home: Path, keys: int, rows: int, seed: int) -> None:
        self._home = home
        self._keys = keys
        self._rows = rows
        self._random = np.random.default_rng(seed)
        self._files = 0

    def every_key(self, side: Ours) -> float:
        """One epoch that has every key once. The seconds it took."""
        return self._give(side, self._random.permutation(self._keys))

    def epoch(self, side: Ours) -> float:
        """One epoch of random keys. The seconds it took."""
        return self._give(side, self._random.integers(0, self._keys, self._rows))

    def _give(self, side: Ours, keys: np.ndarray) -> float:
        self._files += 1
        file = self._home / f"batch-{self._files:06d}.parquet"
        write_rows(file, keys, self._random)
        seconds = side.take(file)
        file.unlink()
        return seconds


def rounds(names: Sequence[T], count: int) -> Iterator[T]:
    """Everyone has a turn, ``count`` times; each time another one begins."""
    for number in range(count):
        first = number % len(names)
        yield from names[first:]
        yield from names[:first]


def block(epoch: Callable[[], float], seconds: float, warm_up: int, every: float = 0.0) -> list[float]:
    """Epochs for so long; the times of all but the first ones, and of one at least. ``every``: so many seconds from the
    beginning of one to the next, if it is over by then; otherwise they are run back to back.

    A block has a length, not a number of epochs, so that it can be made longer than a round of background work: blocks
    that always ended before a round comes to its copying would never be measured beside it."""
    times: list[float] = []
    due = time.perf_counter()
    end = due + seconds
    while len(times) <= warm_up or time.perf_counter() < end:
        time.sleep(max(0.0, due - time.perf_counter()))
        due = max(due, time.perf_counter()) + every
        times.append(epoch())
    return times[warm_up:]


def come_to_rest(spark: Any, side: Ours, storage: Unreliable | None = None) -> float:
    """Wait until everything is safe and nothing is left to be done in the background. The seconds until it was safe.

    A round at work shows as a job of Spark or as operations on ``storage``, each of which lasts for its delay."""
    started = time.perf_counter()
    side.flow.wait_safe()
    safe = time.perf_counter()
    quiet = 1.2 * (_PAUSE + (storage.delay if storage is not None else 0.0))
    tracker = spark.sparkContext.statusTracker()
    since, before = time.perf_counter(), -1
    while time.perf_counter() - since < quiet:
        done = storage.operations if storage is not None else before
        if tracker.getActiveJobsIds() or done != before:
            since, before = time.perf_counter(), done
        time.sleep(0.02)
    return safe - started


def median_ms(times: Sequence[float]) -> float:
    return statistics.median(times) * 1000


def p95_ms(times: Sequence[float]) -> float:
    return sorted(times)[min(len(times) - 1, int(0.95 * len(times)))] * 1000
