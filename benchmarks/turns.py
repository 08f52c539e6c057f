"""Flows that take turns, so that the noise of the machine hits all alike.

Either epoch by epoch (`in_turn`): the background work of all of them goes on beside the epochs of all of them. Or a
block of epochs of one, then of the next (`rounds`, `block`): epochs are measured with the flow's own background work
beside them, and what others left to be done is not to be measured with them, so before a block those before it are
brought to rest (`come_to_rest`).
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from against_structured_streaming import Ours
from data import write_rows

from holdfast.guarantees.strategy import PAUSE
from holdfast.spark.resident_task import GROUP

T = TypeVar("T")


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


def in_turn(epochs: Mapping[T, Callable[[], float]], turns: int, warm_up: int, every: float) -> dict[T, list[float]]:
    """An epoch of each, so many times, in another order each time. Their times, but for the first turns'. ``every``: so
    many seconds from the beginning of an epoch to the next one's, if it is over by then."""
    times: dict[T, list[float]] = {name: [] for name in epochs}
    shuffled = random.Random(turns)
    due = time.perf_counter()
    for _ in range(warm_up + turns):
        for name in shuffled.sample(list(epochs), len(epochs)):
            time.sleep(max(0.0, due - time.perf_counter()))
            due = max(due, time.perf_counter()) + every
            times[name].append(epochs[name]())
    return {name: own[warm_up:] for name, own in times.items()}


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


def come_to_rest(spark: Any, side: Ours) -> float:
    """Wait until everything is safe, if it ever is, and nothing is left to be done in the background. The seconds until
    it was safe."""
    started = time.perf_counter()
    if side.flow.status().durability.strategy != "gap":
        side.flow.wait_safe()
    safe = time.perf_counter()
    tracker = spark.sparkContext.statusTracker()
    since = time.perf_counter()
    while time.perf_counter() - since < 1.2 * PAUSE:
        if set(tracker.getActiveJobsIds()) - set(tracker.getJobIdsForGroup(GROUP)):  # the task that stays, stays
            since = time.perf_counter()
        time.sleep(0.02)
    return safe - started


def median_ms(times: Sequence[float]) -> float:
    return statistics.median(times) * 1000


def p95_ms(times: Sequence[float]) -> float:
    return sorted(times)[min(len(times) - 1, int(0.95 * len(times)))] * 1000
