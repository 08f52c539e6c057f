"""Maintenance: merging local layers in the background, in tasks of low weight.

While a pass runs, all further requests of its lane wait for one pass after it. Under load maintenance falls behind:
traces have more layers, but epochs do not wait.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from holdfast.errors import HoldfastError, LogDamaged, MultiplicityOverflow
from holdfast.foundation import failpoints
from holdfast.foundation.processor_priority import in_spare_time
from holdfast.log.host_paths import host_path
from holdfast.reporting.redaction import logger
from holdfast.runtime.background import Background
from holdfast.runtime.runner import Beside, Runner
from holdfast.task.program import partition_range
from holdfast.trace.cover import Chain
from holdfast.trace.pins import Pin, held
from holdfast.trace.rows import Layout
from holdfast.trace.upkeep import keep_in_shape

_LOG = logger("holdfast.maintenance")


@dataclass(frozen=True)
class Upkeep:
    """A trace whose layers are to be merged, in one partition."""

    directory: str
    layout: Layout
    low: int
    high: int
    since: int
    """Epochs up to this one may be collapsed."""

    chain: Chain
    live_after: int
    """Every epoch from this one on must stay readable."""

    pins: tuple[Pin, ...] = ()
    """The epochs that readers hold; layers that they need stay."""

    log: bool = False
    """Whether epochs only write the trace, and do not read it."""


@dataclass(frozen=True)
class MergeRequest:
    """A trace that has many layers."""

    directory: Path
    layout: Layout
    since: int
    """Epochs up to this one may be collapsed."""

    floor: int = -1
    """Pins of readers on epochs before this one do not count any more."""

    log: bool = False
    """Whether epochs only write the trace, and do not read it."""


class Merging:
    """Runs upkeep in the background, in two lanes. The traces that epochs read do not wait for logs, which epochs only
    write: a log keeps every change as far back as the flow's retention, so its merges take minutes."""

    tolerated = 8
    """Traces with fewer layers are not merged: merging eight layers at once moves a row less often than merging two."""

    def __init__(
        self, runner: Runner, state: Callable[[], tuple[Chain, int]], copying: Callable[[], Sequence[Pin]] = tuple
    ) -> None:
        """``state`` gives the chain of digests, and the epoch from which on every epoch must stay readable. ``copying``
        gives the epochs that rounds of copying read now."""
        self._read = _Lane(runner, state, copying, Beside.MERGING, "holdfast-maintenance")
        self._logs = _Lane(runner, state, copying, Beside.MERGING_LOGS, "holdfast-maintenance-logs")
        self._lanes = (self._read, self._logs)
        self.damaged: list[LogDamaged] = self._read.damaged
        """Layers that a pass found damaged, for the engine to repair."""

        self._logs.damaged = self.damaged

    @property
    def busy(self) -> bool:
        return any(lane.background.busy for lane in self._lanes)

    @property
    def failure(self) -> str | None:
        """Why the last pass of a lane failed; None if both succeeded."""
        return self._read.failure or self._logs.failure

    @property
    def merges(self) -> int:
        return sum(lane.merges for lane in self._lanes)

    def request(self, wanted: Sequence[MergeRequest]) -> None:
        """Ask for these traces to be merged, soon. A request replaces one for the same trace that no pass has taken
        yet."""
        for lane, log in ((self._read, False), (self._logs, True)):
            if (mine := [one for one in wanted if one.log == log]) or not log:
                lane.request(mine)

    def upkeep(self) -> None:
        """Make one pass in this thread, if one was requested; for a runner without threads."""
        for lane in self._lanes:
            lane.background.now()

    def close(self) -> None:
        for lane in self._lanes:
            lane.background.stop()
        for lane in self._lanes:
            lane.background.close()

    def resume(self) -> None:
        """Start merging again after `close`."""
        for lane in self._lanes:
            lane.background.resume()


class _Lane:
    """Passes over the traces that were requested since the last one, one pass at a time."""

    def __init__(
        self,
        runner: Runner,
        state: Callable[[], tuple[Chain, int]],
        copying: Callable[[], Sequence[Pin]],
        slots: Beside,
        name: str,
    ) -> None:
        self._runner = runner
        self._state = state
        self._copying = copying
        self._slots = slots
        self._wanted: dict[Path, MergeRequest] = {}
        """Directory → the request for it that no pass has taken yet."""

        self._asking = threading.Lock()
        self.background = Background(runner, name, self._run, 0.0)
        self.failure: str | None = None
        """Why the last pass failed; None if it succeeded."""

        self._said: str | None = None
        """The failure that was logged last; None again once a pass succeeds."""

        self.damaged: list[LogDamaged] = []
        self.merges = 0

    def request(self, wanted: Sequence[MergeRequest]) -> None:
        with self._asking:
            self._wanted.update((each.directory, each) for each in wanted)
        self.background.request()

    def _run(self) -> None:
        with self._asking:
            wanted, self._wanted = list(self._wanted.values()), {}
        chain, live_after = self._state()
        copying = tuple(self._copying())
        ranges = [partition_range(each, self._runner.partitions) for each in range(self._runner.partitions)]
        items = [
            Upkeep(str(one.directory), one.layout, low, high, one.since, chain, live_after, pins, one.log)
            for one in wanted
            # Pins, and what rounds copy, are read after the chain: a reader that begins later can use every layer that
            # is made here. A round that was begun before knows less of the history, and would take layers for lost.
            for pins in (held(str(one.directory), one.floor) + copying,)
            for low, high in ranges
        ]
        try:
            results = self._runner.tasks("merging layers", keep_all, items, self._slots, _low)
        except Exception as error:
            # No data is lost: epochs go on with more layers, and the next request tries again.
            self._failed(error)
            return
        self.failure = None
        for result in results:
            if isinstance(result, int):
                self.merges += result
            elif isinstance(result, LogDamaged) and "path" in result.fields:
                self.damaged.append(result)
            else:
                self._failed(result)
        if self.failure is None:
            self._said = None

    def _failed(self, error: Exception) -> None:
        self.failure = f"{type(error).__name__}: {error}".split("\n", 1)[0]
        if self.failure == self._said:
            return  # the same failure again is logged only once
        self._said = self.failure
        _LOG.warning("maintenance failed, and will be tried again: %s", self.failure, extra={"error": self.failure})


def _low(item: Upkeep) -> int:
    return item.low


def keep_all(items: Sequence[Upkeep]) -> list[int | HoldfastError]:
    """In a task: merge the layers of these items, one after the other, in the processor's spare time. Return, for each
    item, how many merges were made, or its error."""
    results: list[int | HoldfastError] = []
    for item in items:
        failpoints.reach("merge")
        try:
            results.append(in_spare_time(partial(_keep, item)))
        except MultiplicityOverflow as error:
            results.append(MultiplicityOverflow(f"trace {item.directory}: {error}", path=item.directory))
        except HoldfastError as error:
            results.append(error)
        except FileNotFoundError:
            results.append(0)  # another task removes these layers at the same time: leave the trace to it
    return results


def _keep(item: Upkeep) -> int:
    directory = host_path(item.directory)

    return keep_in_shape(
        directory, item.layout, item.low, item.high, item.since, item.chain, item.live_after, item.pins, item.log
    )
