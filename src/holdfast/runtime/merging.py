"""Maintenance: merging local layers in the background, in tasks of low weight.

While a pass is at work, further requests wait for one pass after it: under load maintenance falls behind, traces have
more layers, and epochs do not wait.
"""

from __future__ import annotations

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
    """A trace to keep in shape, in one partition."""

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
    """What readers hold."""


@dataclass(frozen=True)
class MergeRequest:
    """A trace that has many layers."""

    directory: Path
    layout: Layout
    since: int
    floor: int = -1
    """What readers hold before this epoch they hold no more."""


class Merging:
    """Runs upkeep in the background."""

    tolerated = 8
    """Fewer layers than this are left alone: merging eight at once moves a row less often than merging two."""

    def __init__(self, runner: Runner, state: Callable[[], tuple[Chain, int]]) -> None:
        """``state`` gives the chain, and the epoch from which on all must stay readable."""
        self._runner = runner
        self._state = state
        self._wanted: list[MergeRequest] = []
        self._background = Background(runner, "holdfast-maintenance", self._run, 0.0)
        self.failure: str | None = None
        """Why the last pass failed, if it did."""

        self._said: str | None = None
        """The failure that was logged last, until a pass succeeds."""

        self.damaged: list[LogDamaged] = []
        """Layers that a pass found damaged, for the engine to repair."""

        self.merges = 0

    @property
    def busy(self) -> bool:
        return self._background.busy

    def request(self, wanted: Sequence[MergeRequest]) -> None:
        """Keep these traces in shape, soon."""
        self._wanted = list(wanted)
        self._background.request()

    def upkeep(self) -> None:
        """One pass in this thread, for those who drive without threads."""
        self._background.now()

    def _run(self) -> None:
        wanted = self._wanted
        chain, live_after = self._state()
        ranges = [partition_range(each, self._runner.partitions) for each in range(self._runner.partitions)]
        items = [
            Upkeep(str(one.directory), one.layout, low, high, one.since, chain, live_after, pins)
            for one in wanted
            # After the chain: who reads from now on knows all that is merged here.
            for pins in (held(str(one.directory), one.floor),)
            for low, high in ranges
        ]
        try:
            results = self._runner.tasks("merging layers", keep_all, items, Beside.MERGING, _low)
        except Exception as error:
            # Nothing is lost: epochs go on over more layers, and the next request tries again.
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
            return  # it goes on failing: one line is enough
        self._said = self.failure
        _LOG.warning("maintenance failed, and will be tried again: %s", self.failure, extra={"error": self.failure})

    def close(self) -> None:
        self._background.close()

    def resume(self) -> None:
        """Go on after `close`."""
        self._background.resume()


def _low(item: Upkeep) -> int:
    return item.low


def keep_all(items: Sequence[Upkeep]) -> list[int | HoldfastError]:
    """In a task: keep these in shape, one after the other, with the time that everything else leaves."""
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
            results.append(0)  # removed beside us, again and again: the next pass will find it in shape
    return results


def _keep(item: Upkeep) -> int:
    directory = host_path(item.directory)

    return keep_in_shape(
        directory, item.layout, item.low, item.high, item.since, item.chain, item.live_after, item.pins
    )
