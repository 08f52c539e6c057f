"""Background work: how many merges and copies a Spark context runs at once, however many flows it has.

Spark does not interrupt a running task for an epoch that arrives. So that an epoch never waits for such a task to end,
merges and copies take turns, and a local session has as many slots beside its cores as they can fill (`session.py`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from pyspark import SparkContext

from holdfast.runtime.runner import Beside

_COPIES = 3
"""Copies made at once, in a task each. A copy mostly waits for storage, and a slow one must not block all others."""


def _slots(work: Beside, cores: int) -> int:
    """The number of tasks of one flow's merging, or of its copying."""
    return max(1, cores // 2) if work is Beside.MERGING else 1


def spare(cores: int) -> int:
    """Return the slots that a local session has beside those for epochs: one for each task that can run at once."""
    return sum(at_once * _slots(work, cores) for work, at_once in _AT_ONCE.items())


_AT_ONCE = {Beside.MERGING: 1, Beside.MERGING_LOGS: 1, Beside.COPYING: _COPIES}
_GATES: dict[tuple[str, Beside], threading.Semaphore] = {}
_MAKING = threading.Lock()


@contextmanager
def turn(context: SparkContext, work: Beside) -> Iterator[int]:
    """Wait until it is this work's turn among the flows of a context, and hold it during the block. Yields the number
    of tasks that it may run. Copies to slow locations also take turns among themselves, one at a time, so that they
    never take all turns of copying."""
    with ExitStack() as turns:
        if work is Beside.LAGGING:
            turns.enter_context(_gate(context, Beside.LAGGING))
            work = Beside.COPYING
        turns.enter_context(_gate(context, work))
        yield _slots(work, context.defaultParallelism)


@contextmanager
def quiet(context: SparkContext, seconds: float) -> Iterator[None]:
    """During the block, no background work begins. First waits up to ``seconds`` for running work to end."""
    deadline = time.monotonic() + seconds
    taken: list[threading.Semaphore] = []
    try:
        for work, at_once in _AT_ONCE.items():
            gate = _gate(context, work)
            for _ in range(at_once):
                if gate.acquire(timeout=max(0.0, deadline - time.monotonic())):
                    taken.append(gate)
        yield
    finally:
        for gate in taken:
            gate.release()


def _gate(context: SparkContext, work: Beside) -> threading.Semaphore:
    with _MAKING:
        return _GATES.setdefault((context.applicationId, work), threading.Semaphore(_AT_ONCE.get(work, 1)))
