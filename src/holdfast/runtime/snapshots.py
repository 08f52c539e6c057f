"""The named snapshots of an open flow: taken, listed and removed while epochs run.

Taking a snapshot has three steps, and none of them waits for an epoch:

1. the state is told (`SnapshotTaken`), under its lock: the last complete epoch gets the name, and from then on neither
   compaction nor folding passes it;
2. the snapshot's file is written to the working directory;
3. the file is written to the locations. With ``min_replicas`` copies the snapshot survives the loss of other locations.

A crash before step 2 leaves nothing. After step 2 the snapshot exists: opening reads the files of the directory and all
locations, and writes the file where it is missing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from holdfast.coordinator import events
from holdfast.errors import DeclarationError, StoreError, UnknownName
from holdfast.foundation import failpoints
from holdfast.foundation.nearest_name import did_you_mean
from holdfast.guarantees.strategy import Copies
from holdfast.log.location import Location
from holdfast.log.snapshots import NAME, NamedEpoch, path_of, read_local, read_snapshots, remove_local, write_local
from holdfast.reporting.redaction import logger
from holdfast.results.flow_results import Snapshot
from holdfast.runtime.guarded_state import GuardedState

_LOG = logger("holdfast.recovery")


class Snapshots:
    """The snapshots of one open flow."""

    def __init__(
        self,
        flow: str,
        directory: Path,
        locations: Iterable[Location],
        guard: GuardedState,
        traces: Iterable[str],
        description: Callable[[], dict[str, Any]],
    ) -> None:
        """``directory``: the working directory; ``traces``: the traces that the flow keeps; ``description`` gives the
        content of its ``collections.json``."""
        self._flow = flow
        self._directory = directory
        self._locations = list(locations)
        self._guard = guard
        self._state = guard.state
        self._traces = tuple(traces)
        self._description = description
        self._known: dict[str, NamedEpoch] = {}
        self._lock = threading.Lock()

    def load(self) -> None:
        """Read the snapshots of the directory and all locations, and write files where they are missing or older. A
        snapshot of an epoch that was lost is left out. Where places say different epochs for a name, the latest counts:
        the name was given again while the other places, or this host, were away."""
        there: list[tuple[Location, dict[str, NamedEpoch]]] = []
        for location in self._locations:
            try:
                there.append((location, read_snapshots(location)))
            except StoreError as error:
                self._missed(location, error)
        local = read_local(self._directory)
        found: dict[str, list[NamedEpoch]] = {}
        for places in (*(has for _, has in there), local):
            for name, snapshot in places.items():
                found.setdefault(name, []).append(snapshot)
        for name, said in found.items():
            kept = [each for each in said if self._state.history.digest(each.epoch) == each.digest]
            if not kept:
                epoch = max(each.epoch for each in said)
                _LOG.warning(
                    "flow '%s': snapshot '%s' is of epoch %d, which was lost; it is left out",
                    self._flow,
                    name,
                    epoch,
                    extra={"flow": self._flow, "snapshot": name, "epoch": epoch},
                )
                continue
            snapshot = max(kept, key=lambda each: each.epoch)
            self._known[name] = snapshot
            self._guard.tell(events.SnapshotTaken(name, snapshot.epoch))
            if local.get(name) != snapshot:
                write_local(self._directory, snapshot)
            for location, has in there:
                if has.get(name) != snapshot:
                    self._give(location, snapshot)

    def take(self, name: str) -> Snapshot:
        """Give the last complete epoch a name."""
        with self._lock:
            return self._take(name)

    def _take(self, name: str) -> Snapshot:
        if not NAME.fullmatch(name):
            raise DeclarationError(
                f"flow '{self._flow}': a snapshot's name is made of letters, digits, '.', '_' and '-', not {name!r}",
                flow=self._flow,
            )
        if self._state.settings.strategy.copies is not Copies.EVERYTHING:
            raise DeclarationError(
                f"flow '{self._flow}': strategy {self._state.settings.strategy.name} copies no state, so a snapshot "
                "could not be kept; use nosync",
                flow=self._flow,
            )
        if name in self._known:
            raise DeclarationError(
                f"flow '{self._flow}': there is a snapshot '{name}' already, of epoch {self._known[name].epoch}; "
                "remove it first, or take another name",
                flow=self._flow,
                snapshot=name,
            )
        self._guard.tell(events.SnapshotTaken(name))
        epoch = self._state.copies.snapshots.get(name)
        if epoch is None:
            raise DeclarationError(f"flow '{self._flow}': there is no epoch yet to take a snapshot of", flow=self._flow)
        failpoints.reach("snapshot.taken")
        digest = self._state.history[epoch].digest
        snapshot = NamedEpoch(name, epoch, digest, self._flow, self._traces, self._description())
        try:
            write_local(self._directory, snapshot)
        except OSError as error:
            self._guard.tell(events.SnapshotRemoved(name))
            raise StoreError(
                f"flow '{self._flow}': snapshot '{name}' cannot be written to {self._directory}: {error.strerror}",
                path=str(self._directory),
            ) from error
        failpoints.reach("snapshot.written")
        took = sum([self._give(location, snapshot) for location in self._locations])
        if took < self._state.settings.min_replicas:
            self._forget(snapshot)
            raise StoreError(
                f"flow '{self._flow}': snapshot '{name}' could be written to {took} of {len(self._locations)} log "
                f"locations, and needs {self._state.settings.min_replicas}; it was not taken",
                flow=self._flow,
            )
        self._known[name] = snapshot
        return self._shown(snapshot)

    def listed(self) -> tuple[Snapshot, ...]:
        return tuple(self._shown(each) for each in sorted(self._known.values(), key=lambda each: each.epoch))

    def remove(self, name: str) -> None:
        """Remove a snapshot: its epoch may be compacted like any other. Raise `UnknownName` if there is none of that
        name."""
        with self._lock:
            if name not in self._known:
                raise UnknownName(
                    f"flow '{self._flow}': snapshot '{name}' not found{did_you_mean(name, self._known)}", name=name
                )
            self._forget(self._known.pop(name))

    def _forget(self, snapshot: NamedEpoch) -> None:
        """Remove a snapshot's files. If a location cannot be reached, the snapshot comes back from it at the next
        opening."""
        for location in self._locations:
            try:
                location.remove(path_of(snapshot.name))
            except StoreError as error:
                self._missed(location, error)
        failpoints.reach("snapshot.removed")
        remove_local(self._directory, snapshot.name)
        self._guard.tell(events.SnapshotRemoved(snapshot.name))

    def _shown(self, snapshot: NamedEpoch) -> Snapshot:
        return Snapshot(snapshot.name, snapshot.epoch, snapshot.digest, snapshot.epoch <= self._state.copies.safe)

    def _give(self, location: Location, snapshot: NamedEpoch) -> bool:
        try:
            location.write(path_of(snapshot.name), snapshot.to_bytes())
            return True
        except StoreError as error:
            self._missed(location, error)
            return False

    def _missed(self, location: Location, error: StoreError) -> None:
        _LOG.warning(
            "flow '%s': log location %s: its snapshots cannot be kept up to date: %s",
            self._flow,
            location.uri,
            error,
            extra={"flow": self._flow, "location": location.uri, "error": str(error)},
        )
