"""Taking turns: of the threads that use a flow one at a time is at work in it, in the order in which they came.

A call that would wait for itself (a sink's function that runs an epoch of the flow that just gave it one) is refused
instead. Calls that only look are welcome there: the thread has its turn already.
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
    """Let this thread have the turns of another one, which waits for what this one does."""
    before = getattr(_acting, "thread", None)
    _acting.thread = thread
    try:
        yield
    finally:
        _acting.thread = before


def _me() -> int:
    return getattr(_acting, "thread", None) or threading.get_ident()


class Turns:
    """A fair lock that knows what its holder is doing. Fair: a loop of epochs must not keep others out for ever."""

    def __init__(self, flow: str) -> None:
        self._flow = flow
        self._changed = threading.Condition()
        self._queue: deque[object] = deque()
        self._holder: int | None = None
        self._doing: list[str] = []

    @property
    def inside(self) -> bool:
        """Whether this thread is at work in the flow already, and so was called from there."""
        return self._holder == _me()

    @property
    def is_free(self) -> bool:
        """Whether nobody is at work in the flow, nor waits for that."""
        return self._holder is None and not self._queue

    @property
    def inside_another(self) -> bool:
        """Whether this thread's call came from inside another one of its own."""
        return self.inside and len(self._doing) > 1

    def refuse_inside(self, what: str) -> None:
        """Raise if this thread is at work in the flow already: ``what`` would wait for itself."""
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
        """Wait for this thread's turn, and have it. ``looks``: what is done then may also be done in the middle of
        something else of the same thread."""
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
        """Let others have their turns in the meantime; for whoever waits for something that takes long."""
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
            finally:  # an interrupt while waiting leaves the queue as it found it
                self._queue.remove(mine)
                self._changed.notify_all()

    def _give(self) -> None:
        with self._changed:
            self._holder = None
            self._doing = []
            self._changed.notify_all()
