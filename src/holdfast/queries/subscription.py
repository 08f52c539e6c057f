"""The changes of a view as epochs complete, one item per epoch: for other threads, and for other processes.

A subscription reads the log at its own pace, so a slow one holds nobody back, and nothing is buffered for it but what
it read last. Its `epoch` is a place in the log: whoever subscribes again with ``since=epoch`` goes on there, and misses
and repeats nothing, if the epoch was safe: one that was not may have been lost, and its number be another's. It can
fall behind as far as the flow retains; then `EpochUnavailable` says where changes begin.

Where changes come from, and how to wait for more, is the caller's to say: `Flow.subscribe` is woken by the epoch that
completes, `LogReader.subscribe` looks again and again.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa

from holdfast.errors import EpochUnavailable, HoldfastError
from holdfast.results.view_results import Changes
from holdfast.trace import physical

BATCH = 256
"""So many epochs are read at once."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.005, 0.5

Pull = Callable[[int], tuple[pa.Table, int] | None]
"""Epoch → what changed after it (with ``_epoch`` and ``_diff``), and up to which epoch; None if nothing came yet."""

Wait = Callable[[int, float], None]
"""Wait for more: how often nothing had come, and how many seconds at most."""


class Subscription(Iterator[Changes]):
    """The changes of a view, epoch by epoch; epochs that changed nothing in it are passed over. `next` waits for one.

    For one thread at a time; `close` from any."""

    def __init__(
        self,
        view: str,
        since: int,
        pull: Pull,
        ended: Callable[[], bool],
        wait: Wait,
        release: Callable[[], None],
        timeout: float | None,
    ) -> None:
        """``ended``: whether nothing will come any more; ``release`` is called at the end."""
        self.view = view
        self._pull, self._ended, self._wait, self._release = pull, ended, wait, release
        self._timeout = timeout
        self._given = self._read = since
        self._ready: deque[Changes] = deque()
        self._closed = False

    @property
    def epoch(self) -> int:
        """The epoch up to which all changes were given: ``since=`` this goes on behind them. From any thread."""
        return self._given

    def __next__(self) -> Changes:
        deadline = None if self._timeout is None else time.monotonic() + self._timeout
        empty = 0
        while not self._closed:
            if self._ready:
                change = self._ready.popleft()
                self._given = change.epoch if self._ready else self._read
                return change
            over = self._ended()  # asked first: what came before the end is given
            try:
                found = self._pull(self._read)
            except HoldfastError:
                if self._closed:
                    break  # in the middle of it
                raise
            if found is not None:
                table, self._read = found
                self._ready.extend(_by_epoch(self.view, table))
                if not self._ready:
                    self._given = self._read
                continue
            left = _LONGEST_PAUSE if deadline is None else deadline - time.monotonic()
            if over:
                self.close()
            if over or left <= 0:
                break
            self._wait(empty, min(left, _LONGEST_PAUSE))
            empty += 1
        raise StopIteration

    def close(self) -> None:
        """End it: whoever waits for a change is let go. From any thread; twice does no harm."""
        if not self._closed:
            self._closed = True
            self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Subscription({self.view!r}, epoch {self.epoch}{', closed' if self._closed else ''})"


def batch_end(after: int, last: int) -> int:
    """The epoch up to which to read next. From the very beginning all is read at once: what was compacted is one
    change, wherever it ends."""
    return last if after < 0 else min(last, after + BATCH)


def check_since(view: str, since: int | None, last: int) -> int:
    """The epoch after which a subscription begins; by default the last. `EpochUnavailable` if it is not there."""
    if since is not None and since > last:
        raise EpochUnavailable(
            f"view '{view}', subscribe: epoch {since} is not there; the last is {last}. If it was there once, the flow "
            "was recovered without it: read the view anew, and subscribe since the epoch of that",
            view=view,
            epoch=since,
            latest=last,
        )
    return last if since is None else since


def pause(empty: int, most: float) -> None:
    """Sleep before the next look, the longer the more often nothing had come."""
    time.sleep(min(most, _LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(empty, 10)))


def _by_epoch(view: str, table: pa.Table) -> Iterator[Changes]:
    """A table of changes, one item per epoch, in order."""
    epochs = physical.fixed(physical.plain(table.column("_epoch")))
    rows = table.drop_columns(["_epoch"])
    for epoch in np.unique(epochs).tolist():
        yield Changes(view, epoch, rows.filter(pa.array(epochs == epoch)))
