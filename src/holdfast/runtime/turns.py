"""Turns: threads use a flow one at a time, in the order in which they came.

A call that would wait for itself is refused: for example when a sink's function, called by an epoch, runs an epoch of
the same flow. Calls that only read are allowed there, because the thread has the turn already.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.errors import FlowBusy

_acting = threading.local()


@contextmanager
def acting_for(thread: int) -> Iterator[None]:
    """Let this thread act with the turn of another thread, which waits for it."""
    before = getattr(_acting, "thread", None)
    _acting.thread = thread
    try:
        yield
    finally:
        _acting.thread = before


def _me() -> int:
    return getattr(_acting, "thread", None) or threading.get_ident()


class Turns:
    """A fair lock that knows what its holder is doing. It is fair so that a loop of epochs cannot keep other threads
    out for ever."""

    def __init__(self, flow: str) -> None:
        self._flow = flow
        self._changed = threading.Condition()
        self._queue: deque[object] = deque()
        self._holder: int | None = None
        self._doing: list[str] = []

    @property
    def inside(self) -> bool:
        """Whether this thread has the turn already, so that this call comes from inside another one."""
        return self._holder == _me()

    @property
    def is_free(self) -> bool:
        """Whether no thread has the turn or waits for it."""
        return self._holder is None and not self._queue

    @property
    def inside_another(self) -> bool:
        """Whether this thread is in a nested call: one that came from inside another call of the same thread."""
        return self.inside and len(self._doing) > 1

    def refuse_inside(self, what: str) -> None:
        """Raise `FlowBusy` if this thread has the turn already, because ``what`` would wait for itself."""
        if self.inside:
            raise FlowBusy(
                f"flow '{self._flow}': {what} was called from inside {self._doing[-1]}, by code that the flow "
                "itself called (a function of a sink or a source): it would wait for itself; call it after that, "
                "or in a thread that nobody waits for",
                flow=self._flow,
                called=what,
                inside=self._doing[-1],
            )

    @contextmanager
    def taken(self, what: str, *, looks: bool = False) -> Iterator[None]:
        """Wait for the turn, and have it while the context is open. ``looks``: the call only reads, so it is also
        allowed inside another call of the same thread. Raise `FlowBusy` for any other call inside."""
        if not looks:
            self.refuse_inside(what)
        if self.inside:
            self._doing.append(what)
            try:
                yield
            finally:
                self._doing.pop()
            return
        self._take()
        self._doing = [what]
        try:
            yield
        finally:
            self._give()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Give up the turn while the context is open, so that other threads can have theirs during a long wait."""
        doing = self._doing
        self._give()
        try:
            yield
        finally:
            self._take()
            self._doing = doing

    def _take(self) -> None:
        mine = object()
        with self._changed:
            self._queue.append(mine)
            try:
                while self._holder is not None or self._queue[0] is not mine:
                    self._changed.wait()
                self._holder = _me()
            finally:  # also leaves the queue after an interrupt while waiting
                self._queue.remove(mine)
                self._changed.notify_all()

    def _give(self) -> None:
        with self._changed:
            self._holder = None
            self._doing = []
            self._changed.notify_all()
