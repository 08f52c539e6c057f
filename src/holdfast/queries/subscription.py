"""Subscriptions: the changes of a view as epochs complete, one item per epoch, for other threads and other processes.

A subscription reads the log at its own pace: a slow one delays nothing, and only the batch that it read last is
buffered. Its `epoch` is a position in the log: a new subscription with ``since=epoch`` continues there, and misses and
repeats nothing, if that epoch was safe. (An epoch that was not safe may have been lost, and its number may stand for
another epoch now.) A subscription can fall behind as far as the flow retains; beyond that, `EpochUnavailable` says
where changes begin.

The caller says where changes come from, and how to wait for more: `Flow.subscribe` is woken when an epoch completes,
`LogReader.subscribe` polls.
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
"""The greatest number of epochs that are read at once."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.005, 0.5

Pull = Callable[[int], tuple[pa.Table, int] | None]
"""A function: epoch → the changes after it (with ``_epoch`` and ``_diff``) and the last epoch that they cover; None if
there is no later epoch yet."""

Wait = Callable[[int, float], None]
"""A function that waits for more: called with the number of empty pulls so far, and the greatest number of seconds."""


class Subscription(Iterator[Changes]):
    """The changes of a view, epoch by epoch, without epochs in which it did not change. `next` waits for the next one.

    One thread at a time may use it; `close` may be called from any thread."""

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
        """``ended`` says whether no more epochs will come; ``release`` is called once, at the end."""
        self.view = view
        self._pull, self._ended, self._wait, self._release = pull, ended, wait, release
        self._timeout = timeout
        self._given = self._read = since
        self._ready: deque[Changes] = deque()
        self._closed = False

    @property
    def epoch(self) -> int:
        """The epoch up to which all changes were given: a new subscription with ``since=`` this epoch continues after
        them. From any thread."""
        return self._given

    def __next__(self) -> Changes:
        deadline = None if self._timeout is None else time.monotonic() + self._timeout
        empty = 0
        while not self._closed:
            if self._ready:
                change = self._ready.popleft()
                self._given = change.epoch if self._ready else self._read
                return change
            over = self._ended()  # asked before the pull, so that changes before the end are still given
            try:
                found = self._pull(self._read)
            except HoldfastError:
                if self._closed:
                    break  # it was closed during the pull
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
        """End the subscription; a thread that waits in `next` gets StopIteration. From any thread; a second call has no
        effect."""
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
    """Return the epoch up to which to read next. From the very beginning all epochs are read at once, because compacted
    epochs are a single change that may end at any epoch."""
    return last if after < 0 else min(last, after + BATCH)


def check_since(view: str, since: int | None, last: int) -> int:
    """Return the epoch after which a subscription begins: by default the last. Raise `EpochUnavailable` if ``since`` is
    later than the last epoch."""
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
    """Sleep before the next pull: the longer, the more pulls were empty, and at most ``most`` seconds."""
    time.sleep(min(most, _LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(empty, 10)))


def _by_epoch(view: str, table: pa.Table) -> Iterator[Changes]:
    """Yield a table of changes as one item per epoch, in order."""
    epochs = physical.fixed(physical.plain(table.column("_epoch")))
    rows = table.drop_columns(["_epoch"])
    for epoch in np.unique(epochs).tolist():
        yield Changes(view, epoch, rows.filter(pa.array(epochs == epoch)))
