"""Work beside epochs: how much of it a Spark context has at once, however many flows it has.

Spark does not interrupt a task for an epoch that comes meanwhile. So that none ever waits for one to end, merges and
copies take turns, and a local session has as many slots more than cores as they can take (`session.py`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from pyspark import SparkContext

from holdfast.runtime.runner import Beside

_COPIES = 3
"""So many copies are made at once, in a task each. Copying mostly waits for storage, and one that waits for
long should not hold up all others."""


def _slots(work: Beside, cores: int) -> int:
    """The tasks of one flow's merging, or of its copying."""
    return max(1, cores // 2) if work is Beside.MERGING else 1


def spare(cores: int) -> int:
    """The slots beside those for epochs that a local session has: for all the tasks that there can be at once."""
    return _slots(Beside.MERGING, cores) + _COPIES * _slots(Beside.COPYING, cores)


_AT_ONCE = {Beside.MERGING: 1, Beside.COPYING: _COPIES}
_GATES: dict[tuple[str, Beside], threading.Semaphore] = {}
_MAKING = threading.Lock()


@contextmanager
def turn(context: SparkContext, work: Beside) -> Iterator[int]:
    """Wait until it is this work's turn among the flows of a context, and have so many slots until the block is
    left. Of copies to slow places there is one at a time, so that these never take all turns of copying."""
    with ExitStack() as turns:
        if work is Beside.LAGGING:
            turns.enter_context(_gate(context, Beside.LAGGING))
            work = Beside.COPYING
        turns.enter_context(_gate(context, work))
        yield _slots(work, context.defaultParallelism)


@contextmanager
def quiet(context: SparkContext, seconds: float) -> Iterator[None]:
    """Until the block is left nothing of this begins. What has begun is waited for, so many seconds at the most."""
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
