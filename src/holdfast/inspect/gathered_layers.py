"""Layers of a trace, gathered from the places of a log, each from a place that has it intact."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from holdfast.coordinator.copy_plan import Copied, Failed
from holdfast.errors import LogDamaged, LogUnreadable
from holdfast.inspect.places import Place, Working
from holdfast.log.copying import Fetch, fetch_all
from holdfast.log.location import Location
from holdfast.trace.cover import Chain, cover
from holdfast.trace.layer import retain
from holdfast.trace.name import ALL, LayerName


@dataclass
class _Fetched:
    """A directory with gathered layers of a trace, and the number of readers that use it."""

    epoch: int
    path: Path
    around: tempfile.TemporaryDirectory[str]
    """The temporary directory that contains it, which is removed at the end of the process at the latest."""

    users: int = 0
    wanted: bool = True
    """Whether the directory is kept for the next reader."""


class GatheredLayers:
    """Gathered layers, for each trace as of the epoch that was asked for last. All methods may be called from any
    thread; a directory stays as long as any reader uses it."""

    def __init__(self, places: Sequence[Place]) -> None:
        self._places = places
        self._lock = threading.Lock()
        self._latest: dict[str, _Fetched] = {}
        self._closed = False

    @contextmanager
    def using(self, trace: str, epoch: int, chain: Chain) -> Iterator[Path]:
        """Yield a directory with intact layers that cover the trace as of ``epoch``. Raises as `gather` does."""
        with self._lock:
            found = self._latest.get(trace)
            if found is None or found.epoch != epoch:
                fetched = self._fetched(trace, epoch, chain)
                if found is not None:
                    _unwanted(found)
                found = self._latest[trace] = fetched
                found.wanted = not self._closed
            found.users += 1
        try:
            yield found.path
        finally:
            with self._lock:
                found.users -= 1
                if not found.wanted:
                    _unwanted(found)

    def _fetched(self, trace: str, epoch: int, chain: Chain) -> _Fetched:
        around = tempfile.TemporaryDirectory(prefix="holdfast-", ignore_cleanup_errors=True)
        try:
            target = Path(around.name) / trace
            target.mkdir()
            gather(self._places, trace, epoch, chain, target)
        except BaseException:
            around.cleanup()
            raise
        return _Fetched(epoch, target, around)

    def close(self) -> None:
        """Remove the directories that have no reader; the others are removed with their last reader."""
        with self._lock:
            self._closed = True
            for found in self._latest.values():
                _unwanted(found)
            self._latest.clear()


def _unwanted(fetched: _Fetched) -> None:
    """Remove a directory now, or when its last reader is done."""
    fetched.wanted = False
    if fetched.users == 0:
        retain(fetched.path, ())
        fetched.around.cleanup()


def gather(places: Sequence[Place], trace: str, at: int, chain: Chain, directory: Path) -> None:
    """Gather intact layers that cover the trace as of ``at`` in one directory. Damaged layers are left out. Raises
    `LogDamaged`, `LogUnreadable` or `EpochUnavailable` if the others do not cover it."""
    useless: set[LayerName] = set()
    damage: LogDamaged | LogUnreadable | None = None
    locations = [place.location for place in places]
    while True:
        listed = [place.layers(trace) for place in places]
        names = {name for layers in listed for name in layers if name not in useless}
        try:
            pieces = cover(names, 0, ALL, at, chain)
        except LogDamaged as error:
            raise damage or error from None
        wanted = {piece.name: tuple(n for n, layers in enumerate(listed) if piece.name in layers) for piece in pieces}
        lost = False
        for name, where in wanted.items():
            problem = _bring(places, locations, trace, name, where, directory)
            if problem is not None:
                lost = True
                useless.add(name)
                damage = problem if isinstance(problem, LogDamaged | LogUnreadable) else damage
        if not lost:
            return


def _bring(
    places: Sequence[Place],
    locations: Sequence[Location],
    trace: str,
    name: LayerName,
    where: tuple[int, ...],
    directory: Path,
) -> Exception | None:
    """Fetch or link one layer into the directory. Returns the error if no place has it intact; else None."""
    problem: Exception | None = None
    for number in where:
        place = places[number]
        if isinstance(place, Working):
            try:
                place.check(trace, name)
            except (LogDamaged, LogUnreadable, FileNotFoundError) as error:
                problem = error
                continue
            target = directory / name.text()
            if not target.is_symlink():
                os.symlink(place.directory / place.path(trace, name), target)
            return None
        for result in fetch_all([Fetch(trace, name, str(directory), (number,))], locations):
            match result:
                case Copied():
                    return None
                case Failed():
                    problem = result.error
    return problem
