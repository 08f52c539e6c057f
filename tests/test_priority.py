"""What can wait is done by threads that are left at once when somebody else wants the processor, where there is time to
spare."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest

from holdfast.foundation import processor_priority

T = TypeVar("T")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="threads have no priority of their own there")


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[processor_priority._Machine]:
    fresh = processor_priority._Machine()
    monkeypatch.setattr(processor_priority, "_machine", fresh)
    yield fresh


def _beside(work: Callable[[], T]) -> T:
    with ThreadPoolExecutor(1, initializer=processor_priority.yield_to_epochs) as thread:
        return thread.submit(processor_priority.in_spare_time, work).result()


def _policy() -> int:
    return os.sched_getscheduler(0)


def test_where_there_is_time_to_spare_an_idle_thread_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor_priority, "_ENOUGH", 0.0)  # other tests may use all of it
    assert _beside(_policy) == os.SCHED_IDLE
    # Nothing of that stays with whoever asked, nor with the process.
    assert _policy() == os.SCHED_OTHER
    assert os.getpriority(os.PRIO_PROCESS, 0) == 0


def _cpu_seconds(process: int) -> float:
    """What a process has had of the machine so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_where_there_is_none_it_is_not_left_to_starve(machine: processor_priority._Machine) -> None:
    assert _beside(_policy) == os.SCHED_OTHER  # nobody knows yet
    if len(os.sched_getaffinity(0)) < (os.cpu_count() or 1) or os.getpriority(os.PRIO_PROCESS, 0) > 0:
        pytest.skip("this process cannot keep the whole machine busy")
    busy = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(busy) for _ in range(2 * len(os.sched_getaffinity(0)))]
    try:
        time.sleep(0.6)
        began, used = time.monotonic(), sum(_cpu_seconds(other.pid) for other in others)
        machine.spare()
        time.sleep(0.6)
        spare = machine.spare()
        used = sum(_cpu_seconds(other.pid) for other in others) - used
        if spare >= 0.15 and used < 0.85 * (time.monotonic() - began) * len(os.sched_getaffinity(0)):
            pytest.skip("this machine is held back by its host")
        assert spare < 0.15
        assert _beside(_policy) == os.SCHED_OTHER
    finally:
        for other in others:
            other.kill()
            other.wait()


def test_a_thread_that_does_not_yield_does_it_at_once() -> None:
    assert processor_priority.in_spare_time(threading.current_thread) is threading.current_thread()


def test_what_goes_wrong_in_spare_time_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise ValueError("as it is")

    monkeypatch.setattr(processor_priority, "_ENOUGH", 0.0)
    with pytest.raises(ValueError, match="as it is"):
        _beside(fail)
