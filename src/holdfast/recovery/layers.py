"""Bringing layers back: what is there locally, what the log locations hold, and what to fetch.

Local layers are used as they are. What they lack is fetched from wherever an intact copy is; a copy that does not have
its checksum is set aside, and another one used.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from holdfast import marks
from holdfast.coordinator.lineage import Lineage
from holdfast.coordinator.replication import Holding, trusting
from holdfast.errors import EpochUnavailable, LogDamaged
from holdfast.results import Recovery
from holdfast.runner import Runner
from holdfast.store.copying import Copied, Failed, Fetch, fetch_all
from holdfast.store.location import Location
from holdfast.store.replica import Replica, is_true
from holdfast.trace.cover import cover, covered
from holdfast.trace.layer import list_layers
from holdfast.trace.name import LayerName


def local_layers(directory: Path) -> list[LayerName]:
    return list_layers(directory) if directory.is_dir() else []


def remove_stale(directories: Sequence[Path], history: Sequence[Lineage]) -> None:
    """Remove local layers of epochs that are not in the history: what a crash or an abandoned epoch left behind."""
    for directory in directories:
        for torn in directory.glob(".*.tmp"):
            torn.unlink(missing_ok=True)
        for name in local_layers(directory):
            if not is_true(name, history):
                (directory / name.text()).unlink(missing_ok=True)


def set_aside(path: Path, root: Path) -> bool:
    """Move a damaged local layer out of the way; whether there was one."""
    target = root / "damaged" / path.parent.name
    try:
        target.mkdir(parents=True, exist_ok=True)
        os.replace(path, target / path.name)
    except FileNotFoundError:
        return False
    return True


class Layers:
    """The layers of all live traces: the local ones, and what the log locations hold."""

    def __init__(self, traces: Sequence[str], directory: Path, last: int, holdings: Mapping[int, Holding]) -> None:
        self._directory = directory
        self._chain = trusting(last)
        self.last = last
        self.local = {trace: local_layers(directory / trace) for trace in traces}
        self._holdings = holdings

    def _remote(self, trace: str) -> list[LayerName]:
        return [name for holding in self._holdings.values() for name in holding.layers.get(trace, {})]

    def reach(self, trace: str, low: int, high: int) -> int:
        """How far the range is covered by all copies together."""
        return covered([*self.local[trace], *self._remote(trace)], low, high, self._chain)

    def readable(self, trace: str, low: int, high: int, first: int, last: int) -> bool:
        """Whether the range can be read as of each of these epochs."""
        names = [*self.local[trace], *self._remote(trace)]
        try:
            for each in range(max(first, 0), last + 1):
                cover(names, low, high, each, self._chain)
        except (EpochUnavailable, LogDamaged):
            return False
        return True

    def missing(self, trace: str, ranges: Sequence[tuple[int, int]]) -> list[Fetch]:
        """What to fetch so that the local layers cover as much as all copies together."""
        wanted: dict[LayerName, None] = {}
        local, remote = self.local[trace], self._remote(trace)
        for low, high in ranges:
            here = covered(local, low, high, self._chain)
            there = self.reach(trace, low, high)
            if there <= here:
                continue
            try:
                pieces = cover([*local, *remote], low, high, there, self._chain, after=here)
            except (EpochUnavailable, LogDamaged):
                pieces = cover([*local, *remote], low, high, there, self._chain)
            mine = set(local)
            wanted.update(dict.fromkeys(piece.name for piece in pieces if piece.name not in mine))
        return [
            Fetch(
                trace,
                name,
                str(self._directory / trace),
                tuple(n for n, holding in self._holdings.items() if name in holding.layers.get(trace, {})),
            )
            for name in wanted
        ]


def fetch_missing(
    runner: Runner,
    look: Callable[[], Layers],
    traces: Sequence[str],
    ranges: Sequence[tuple[int, int]],
    locations: Sequence[Location],
    recovery: Recovery,
) -> Layers:
    """Bring back what local traces lack and some location has. A damaged copy is set aside, and another one used."""
    while True:
        layers = look()
        fetches = [fetch for trace in traces for fetch in layers.missing(trace, ranges)]
        if not fetches:
            return layers
        marks.reach("recovery.before_fetch")
        results = runner.tasks("bringing layers back", lambda items: fetch_all(items, locations), fetches, len(ranges))
        progress = False
        for result in results:
            match result:
                case Copied():
                    recovery.layers_fetched += 1
                    recovery.bytes_fetched += result.bytes
                    progress = True
                case Failed(name=name) if name is not None:
                    Replica(locations[result.location]).set_aside(result.trace, name)
                    recovery.damaged.append(str(result.error))
                    progress = True
                case Failed():
                    recovery.unreachable[locations[result.location].uri] = str(result.error)
        if not progress:
            raise next(result.error for result in results if isinstance(result, Failed))
