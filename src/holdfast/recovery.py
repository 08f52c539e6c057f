"""Recovery: from whatever is left to a flow that goes on, exactly.

1. **Lineage.** All records that any place holds (the local stash, the log locations, the sinks, the footers of layers)
   form a tree; `coordinator/history.py` chooses the history. What a sink has seen is always part of it.
2. **Layers.** Local layers of that history are used as they are. What they lack is fetched from the log locations,
   wherever an intact copy is.
3. **Replay.** What no copy holds is computed again, alone (`coordinator/recovery.py`), from the lineage.

Every step only adds layers whose names say what they are, so a crash anywhere in it leaves a log from which the same
recovery, run again, has less to do.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from holdfast import marks
from holdfast.coordinator.history import Seen, choose, extend
from holdfast.coordinator.lineage import Lineage, from_lines
from holdfast.coordinator.replication import Holding, trusting
from holdfast.errors import EpochUnavailable, LogDamaged, StoreError
from holdfast.operators.stage import LINEAGE
from holdfast.results import Recovery
from holdfast.runner import Runner
from holdfast.store.copying import Copied, Failed, Fetch, fetch_all
from holdfast.store.lineage import read_stash
from holdfast.store.location import Location
from holdfast.store.replica import Replica, is_true
from holdfast.trace.cover import cover, covered
from holdfast.trace.layer import layer_metadata, list_layers
from holdfast.trace.name import ALL, LayerName


@contextmanager
def timed(recovery: Recovery, phase: str) -> Iterator[None]:
    started = time.perf_counter()
    try:
        yield
    finally:
        recovery.seconds[phase] = recovery.seconds.get(phase, 0.0) + time.perf_counter() - started


# -- lineage --------------------------------------------------------------------------------------------------------


def find_history(
    stash: Path,
    replicas: Mapping[str, Replica],
    sinks: Sequence[tuple[Seen, Sequence[Lineage]]],
    directories: Sequence[Path],
    recovery: Recovery,
) -> list[Lineage]:
    """The history, from all places that hold lineage. ``replicas`` by name; ``sinks``: what each has seen, and the
    lineage it was given; ``directories``: the live local traces, whose layers carry lineage too."""
    records, damaged = read_stash(stash)
    known = {record.digest for record in records}
    _found(recovery, "local", records)
    for name, replica in replicas.items():
        try:
            for segment in replica.segments():
                if segment.digest in known and not damaged:
                    _found(recovery, name, [], segment.last)
                    continue
                try:
                    lineages = replica.read_segment(segment)
                except LogDamaged as error:
                    recovery.damaged.append(str(error))
                    continue
                _found(recovery, name, lineages)
                records += lineages
        except (StoreError, FileNotFoundError) as error:
            recovery.unreachable[name] = str(error)
    for seen, lineages in sinks:
        _found(recovery, seen.subject, lineages)
        records += lineages
    seen_by_sinks = [seen for seen, _ in sinks]
    newest = max((record.epoch for record in records), default=-1)
    footers = list(_footers(directories, -1 if damaged else newest))
    if damaged:
        # What the stash lost may be in the layers.
        records += footers
        recovery.damaged += [f"{stash}: line {number}: {why}" for number, why in damaged]
    history = choose(records, seen_by_sinks)
    if damaged and any(record.epoch >= len(history) for record in records):
        number, why = damaged[0]
        raise LogDamaged(f"lineage {stash}: line {number}: {why}, and no other copy of it was found", path=str(stash))
    following = [record for record in footers if record.epoch >= len(history)]
    if following and directories:
        tentative = extend(history, following, max(record.epoch for record in following))
        complete = min(_complete(directory, tentative) for directory in directories)
        history = extend(history, following, complete)
        _found(recovery, "layers", history)
    recovery.epoch = len(history) - 1
    return history


def _found(recovery: Recovery, where: str, lineages: Sequence[Lineage], last: int = -1) -> None:
    last = max([last, *(lineage.epoch for lineage in lineages)])
    if last >= 0:
        recovery.lineage[where] = max(last, recovery.lineage.get(where, -1))


def _footers(directories: Sequence[Path], after: int) -> Iterator[Lineage]:
    """The lineage that local layers of later epochs carry."""
    for directory in directories:
        for name in local_layers(directory):
            if name.last > after:
                try:
                    yield from from_lines(layer_metadata(directory / name.text()).get(LINEAGE, "").encode())
                except (LogDamaged, ValueError, FileNotFoundError):
                    continue  # a torn layer says nothing; it will be found out when it is used


def _complete(directory: Path, history: Sequence[Lineage]) -> int:
    names = [name for name in local_layers(directory) if is_true(name, history)]
    return covered(names, 0, ALL, trusting(len(history) - 1))


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


# -- layers ---------------------------------------------------------------------------------------------------------


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
