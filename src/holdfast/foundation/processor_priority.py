"""Who gets the processor: epochs first, then what they wait for sooner or later, then what can wait.

Tasks beside epochs *yield*: they have a tenth of the weight. That decides who gets how much, but not who comes first:
a thread runs to the end of its slice, however light it is, so an epoch beside one that never stops takes a tenth
longer, whatever its weight (`benchmarks/beside_an_epoch.py`). Only threads of the idle class are left at once, and cost
it about half of that: what remains is that they share caches and memory. But on a machine that has no time to spare
they would stand still, and so would whoever waits for them. So what is long and can wait is done `in_spare_time`: by
such a thread, where there is any.

Only Linux has priorities for threads; elsewhere everything is done as it comes.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

_WEIGHT = 10
"""The niceness of what yields."""

_ENOUGH = 0.15
"""The part of the machine's time that must have been spare: less, and a thread that yields gets more than an idle
one."""

_LATELY = (0.5, 30.0)
"""Seconds: a look at what was spare is not repeated sooner, and says nothing any more later."""


def yield_to_epochs() -> None:
    """Have the system give this thread, and those it starts, less of the processor than epochs. Only them: the
    worker's process goes on to other tasks."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _WEIGHT)


def in_spare_time(work: Callable[[], T]) -> T:
    """The result of ``work``, done when nobody else wants the processor, if that is the case now and then. If not, and
    in a thread that does not yield, it is done at once."""
    if not _yields() or _machine.spare() < _ENOUGH:
        return work()
    with ThreadPoolExecutor(1, "holdfast-spare", initializer=_come_last) as thread:
        return thread.submit(work).result()


def _yields() -> bool:
    return sys.platform == "linux" and os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) >= _WEIGHT


def _come_last() -> None:
    with suppress(OSError):  # a sandbox that forbids it: then the thread only yields
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


class _Machine:
    """How much of its time was spare lately: nobody's, or of those who yield."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._looked = float("-inf")
        self._times = (0, 0)
        self._share = 0.0

    def spare(self) -> float:
        """The part of all processors' time since it was last asked for; nothing, where nobody knows."""
        with self._lock:
            now = time.monotonic()
            age = now - self._looked
            if age >= _LATELY[0]:
                times = _processor_times()
                spare, whole = times[0] - self._times[0], times[1] - self._times[1]
                self._share = spare / whole if whole > 0 and age <= _LATELY[1] else 0.0
                self._looked, self._times = now, times
            return self._share


_machine = _Machine()


def _processor_times() -> tuple[int, int]:
    """Of all processors, since the machine was started: spare time, and all time."""
    _, user, nice, system, idle, waiting, *others = Path("/proc/stat").read_text().split("\n", 1)[0].split()[:9]
    spare = int(nice) + int(idle) + int(waiting)
    return spare, spare + int(user) + int(system) + sum(int(one) for one in others)
