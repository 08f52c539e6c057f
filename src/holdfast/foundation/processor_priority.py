"""Processor priorities: epochs come first, then background work that they will need, then work that can wait.

Tasks beside epochs *yield*: they have a tenth of the weight. The weight decides how much time a thread gets, but not
which thread runs first: a thread runs to the end of its time slice, however light it is. So an epoch beside a thread
that never pauses takes a tenth longer, whatever the weight of that thread (`benchmarks/beside_an_epoch.py`). Only
threads of the idle class are interrupted at once. They cost the epoch about half of that, since they still share caches
and memory. But on a machine without spare time they would stand still, and so would everything that waits for them. So
long work that can wait is done `in_spare_time`: by an idle thread if the machine has spare time, otherwise at once.

Only Linux has priorities for threads; on other systems all work runs with the same priority.
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
"""The niceness of threads that yield."""

_ENOUGH = 0.15
"""The part of the machine's time that must have been spare for an idle thread; with less, a thread that yields gets
more than an idle one."""

_LATELY = (0.5, 30.0)
"""Seconds: spare time is not measured again sooner than the first, and a measurement older than the second is not
used."""


def yield_to_epochs() -> None:
    """Give this thread, and threads that it starts, less of the processor than epochs. Other threads of the process
    keep their priority, because a worker process goes on to other tasks."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _WEIGHT)


def in_spare_time(work: Callable[[], T]) -> T:
    """Do ``work`` and return its result. If this thread yields and the machine has spare time, ``work`` runs in a
    thread of the idle class; otherwise it runs at once in this thread."""
    if not _yields() or _machine.spare() < _ENOUGH:
        return work()
    with ThreadPoolExecutor(1, "holdfast-spare", initializer=_come_last) as thread:
        return thread.submit(work).result()


def _yields() -> bool:
    return sys.platform == "linux" and os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) >= _WEIGHT


def _come_last() -> None:
    with suppress(OSError):  # a sandbox may forbid it: the thread then only yields
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


class _Machine:
    """Measures how much of the machine's processor time was spare lately: idle, or used by threads that yield."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._looked = float("-inf")
        self._times = (0, 0)
        self._share = 0.0

    def spare(self) -> float:
        """Return the spare part of all processors' time since the last measurement, from 0 to 1; 0 if not known."""
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
    """Return the spare time and the whole time of all processors since the machine was started, in clock ticks."""
    _, user, nice, system, idle, waiting, *others = Path("/proc/stat").read_text().split("\n", 1)[0].split()[:9]
    spare = int(nice) + int(idle) + int(waiting)
    return spare, spare + int(user) + int(system) + sum(int(one) for one in others)
