"""The log locations of an open flow: operations on them, and which of them fail.

A location that fails is not used for a while, and does not delay the others. Independent operations run side by side:
over storage that takes a second for each, a round takes as many seconds as operations follow each other.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from holdfast.coordinator.copy_plan import Holding
from holdfast.coordinator.history import History
from holdfast.errors import LogDamaged, StoreError
from holdfast.log.branch_location import referred
from holdfast.log.location import Location
from holdfast.log.replica import Replica, layer_path
from holdfast.trace.name import LayerName

T = TypeVar("T")
R = TypeVar("R")

_STREAMS = 16
"""The number of operations that run side by side at one location: they wait for the network, not for the processor."""

_LONGEST_PAUSE = 30.0
"""The longest pause, in seconds: a location that fails is tried again after one second, then two, four, … up to
this."""


@dataclass
class Trouble:
    """A location that failed: why, how often in a row, and when it is tried again (`time.monotonic`)."""

    error: str
    times: int
    again: float


class Locations:
    """The locations of a log, identified by their index."""

    def __init__(self, locations: Sequence[Location], history: History, threads: bool) -> None:
        """``history``: the lineage of all complete epochs; the object grows as epochs complete. ``threads``: whether
        operations may run side by side."""
        self.all = list(locations)
        self.replicas = [Replica(location) for location in locations]
        self.troubles: dict[int, Trouble] = {}
        self.removing = [threading.Lock() for _ in self.all]
        """A lock for each location, held while layers are removed from it: a branch that is being made waits for it
        before it refers to layers."""

        self._history = history
        self._threads = threads

    def able(self) -> list[int]:
        """Return the locations that may be used now."""
        return [number for number in range(len(self.all)) if self.is_able(number)]

    def is_able(self, number: int) -> bool:
        """Whether a location may be used now."""
        trouble = self.troubles.get(number)
        return trouble is None or trouble.again <= time.monotonic()

    def note(self, number: int, error: Exception) -> None:
        """Note that a location failed, and when to try it again."""
        before = self.troubles.get(number)
        times = before.times + 1 if before is not None else 1
        pause = min(_LONGEST_PAUSE, 2.0 ** (times - 1)) if self._threads else 0.0
        self.troubles[number] = Trouble(str(error), times, time.monotonic() + pause)

    def try_again(self) -> None:
        """Allow failed locations to be used again at once."""
        for trouble in list(self.troubles.values()):
            trouble.again = 0.0

    def each(self, numbers: Collection[int], work: Callable[[int], object]) -> None:
        """Do ``work`` at several locations side by side. A failure is noted, and the other locations go on."""

        def attempt(number: int) -> None:
            try:
                work(number)
            except (StoreError, FileNotFoundError, LogDamaged) as error:
                self.note(number, error)
            else:
                if self.is_able(number):
                    self.troubles.pop(number, None)

        self._at_once(attempt, numbers, len(numbers))

    def at_once(self, work: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """Do ``work`` on several items at one location, side by side, and return the results in order."""
        return self._at_once(work, list(items), _STREAMS)

    def _at_once(self, work: Callable[[T], R], items: Collection[T], streams: int) -> list[R]:
        if not self._threads or len(items) < 2:
            return [work(item) for item in items]
        with ThreadPoolExecutor(min(streams, len(items))) as pool:
            return list(pool.map(work, items))

    def look(self, numbers: Collection[int], traces: Sequence[str]) -> dict[int, Holding]:
        """List what locations hold now, and return it. A location that fails is noted and left out."""
        found: dict[int, Holding] = {}

        def look(number: int) -> None:
            found[number] = self.replicas[number].holding(self._history, traces, self.at_once)

        self.each(numbers, look)
        return {number: found[number] for number in numbers if number in found}

    def flush(self, number: int, has: int, last: int) -> None:
        """Write the lineage of the epochs after ``has``, up to ``last``, to a location."""
        if has < last:
            self.replicas[number].write_lineage(self._history[has + 1 : last + 1])

    def ends(self) -> set[int]:
        """Return the last epochs of the lineage segments that the locations had when they were last listed."""
        return {epoch for replica in self.replicas for epoch in replica.ends()}

    def merge_lineage(self, numbers: Collection[int]) -> None:
        """Merge the lineage segments of these locations into fewer ones."""
        self.each(numbers, lambda number: self.replicas[number].merge_lineage(self._history, self.at_once))

    def remove(self, number: int, names: Iterable[tuple[str, LayerName]]) -> None:
        """Remove (trace, layer) pairs from a location, except layers that a branch refers to."""
        replica = self.replicas[number]
        with self.removing[number]:
            shared = referred(replica.location)
            gone = [one for one in names if layer_path(*one) not in shared]
            self.at_once(lambda one: replica.remove_layer(*one), gone)
