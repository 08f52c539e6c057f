"""A location that fails in the ways that real ones do; a seed decides when.

Each operation draws its fate from the seed and its number among the operations of this instance. It always draws every
kind of failure, so enabling one kind does not shift the others. The ways to fail:

    fail_before   an error, and nothing happened
    fail_after    it happened, but you were told that it did not
    lose          a write that reports success, and nothing was written
    truncate      a write that leaves only the beginning of the blob, and an error: on a location that promises whole
                  blobs this is a disk that lies, and only a checksum finds it

A pickled copy continues from the original's count, independently of it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

from holdfast.log.location import Entries, Location, Names, refusal

OPERATIONS = ("write", "read", "list", "remove", "move")
"""The operations that can fail. Listing directories counts as ``list``."""

T = TypeVar("T")


@dataclass(frozen=True)
class _Fate:
    before: bool
    after: bool
    lost: bool
    kept: float | None
    """The part of the blob that a torn write leaves."""
    pause: float


class Unreliable(Location):
    """Wraps any location, and makes its operations fail. The rates are probabilities per operation. ``delay`` and
    ``jitter``: seconds before each operation, fixed and random. ``only``: restrict failures and delays to operations of
    these names."""

    def __init__(
        self,
        location: Location,
        seed: int = 0,
        *,
        fail_before: float = 0.0,
        fail_after: float = 0.0,
        lose: float = 0.0,
        delay: float = 0.0,
        jitter: float = 0.0,
        truncate: float = 0.0,
        only: str | Iterable[str] | None = None,
    ) -> None:
        chosen = OPERATIONS if only is None else (only,) if isinstance(only, str) else tuple(only)
        if unknown := sorted(set(chosen) - set(OPERATIONS)):
            raise ValueError(f"only={unknown}: expected operations among {', '.join(OPERATIONS)}")
        self.location = location
        self.seed = seed
        self.fail_before, self.fail_after, self.lose, self.truncate = fail_before, fail_after, lose, truncate
        self.delay, self.jitter = delay, jitter
        self.only = frozenset(chosen)
        self.operations = 0
        """The number of operations so far."""
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()

    @property
    def uri(self) -> str:
        return self.location.uri

    def write(self, path: str, data: bytes) -> None:
        fate = self._draw("write", path)
        if fate.lost:
            return
        if fate.kept is not None:
            self.location.write(path, data[: int(len(data) * fate.kept)])
            raise refusal(self, "write", path, "the connection broke (made up: the write was torn)")
        self._finish(fate, "write", path, lambda: self.location.write(path, data))

    def read(self, path: str) -> bytes:
        return self._do("read", path, lambda: self.location.read(path))

    def list(self, directory: str) -> Entries:
        return self._do("list", directory, lambda: self.location.list(directory))

    def directories(self, directory: str) -> Names:
        return self._do("list", directory, lambda: self.location.directories(directory))

    def remove(self, path: str) -> None:
        self._do("remove", path, lambda: self.location.remove(path))

    def move(self, path: str, to: str) -> None:
        self._do("move", path, lambda: self.location.move(path, to))

    def check(self) -> None:
        """Check the wrapped location, without failures: they begin after a location was checked."""
        self.location.check()

    # ``local`` stays None, so that no caller bypasses the failures.

    def _do(self, operation: str, path: str, act: Callable[[], T]) -> T:
        return self._finish(self._draw(operation, path), operation, path, act)

    def _finish(self, fate: _Fate, operation: str, path: str, act: Callable[[], T]) -> T:
        done = act()
        if fate.after:
            raise refusal(self, operation, path, "the connection broke (made up: it happened)")
        return done

    def _draw(self, operation: str, path: str) -> _Fate:
        with self._lock:
            number = self.operations
            self.operations += 1
        rng = Random(f"{self.seed}/{number}")  # a text seeds the same in every process
        rolls = [rng.random() for _ in range(6)]
        if operation not in self.only:
            return _Fate(False, False, False, None, 0.0)
        torn = rolls[3] < self.truncate
        fate = _Fate(
            before=rolls[0] < self.fail_before,
            after=rolls[1] < self.fail_after,
            lost=rolls[2] < self.lose,
            kept=rolls[4] if torn else None,
            pause=self.delay + self.jitter * rolls[5],
        )
        if fate.pause > 0:
            time.sleep(fate.pause)
        if fate.before:
            raise refusal(self, operation, path, "the connection broke (made up: nothing happened)")
        return fate
