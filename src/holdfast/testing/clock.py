"""A clock that a test sets, for views whose rows come and go as time passes.

::

    with hf.testing.stopped_clock("2026-01-01 12:00:00") as clock:
        flow.step()
        clock.advance(hours=1)
        flow.step()
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.spark.runner import SparkRunner


class Clock:
    """The time of all flows in this process."""

    def __init__(self, now: datetime.datetime) -> None:
        self.now = now
        self._jumped = datetime.timedelta()

    def advance(self, **much: float) -> None:
        """Let time pass: ``hours=1``, ``minutes=5``, as for `datetime.timedelta`."""
        self.now += datetime.timedelta(**much)

    def jump(self, **much: float) -> None:
        """Set the clock to another time, without time passing."""
        self.now += datetime.timedelta(**much)
        self._jumped += datetime.timedelta(**much)

    @property
    def uptime(self) -> int:
        """Microseconds of a clock that nobody sets: `jump` does not change it."""
        return self.micros - self._jumped // datetime.timedelta(microseconds=1)

    @property
    def micros(self) -> int:
        """Microseconds since 1970."""
        return (self.now - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)) // datetime.timedelta(microseconds=1)


@contextmanager
def stopped_clock(now: str | datetime.datetime) -> Iterator[Clock]:
    """Within the block, the time of all flows is ``now`` (UTC, if it has no time zone), and passes only by
    `Clock.advance`."""
    moment = datetime.datetime.fromisoformat(now) if isinstance(now, str) else now
    clock = Clock(moment if moment.tzinfo is not None else moment.replace(tzinfo=datetime.UTC))
    real, uptime = SparkRunner.clock, SparkRunner.uptime
    SparkRunner.clock = lambda self: clock.micros  # type: ignore[method-assign]
    SparkRunner.uptime = lambda self: ("stopped", clock.uptime)  # type: ignore[method-assign]
    try:
        yield clock
    finally:
        SparkRunner.clock, SparkRunner.uptime = real, uptime  # type: ignore[method-assign]
