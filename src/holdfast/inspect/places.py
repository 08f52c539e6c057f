"""The places of a log, seen from outside, without Spark: working directories and log locations.

A *place* is one complete set of layers and lineage. A working directory holds Arrow layers and the stash, a log
location durable layers and segments. One directory may be both; then it is two places, each looked at by itself.
Nothing in this module takes a lock or changes anything.

A flow may be running meanwhile: layers and segments are merged, and a listed file may be gone when it is read. Then the
place is listed again; a file that was merged away is not missing.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from holdfast.coordinator.copy_plan import Holding
from holdfast.coordinator.forecast import Circumstances, Rates
from holdfast.coordinator.history import History
from holdfast.coordinator.true_history import choose
from holdfast.errors import LogDamaged, LogError, LogForeign
from holdfast.log.branch_location import DIRECTORY, FILE, BranchLocation
from holdfast.log.copying import read_intact
from holdfast.log.fencing import traces_of_log
from holdfast.log.lineage_copies import (
    FoundLineage,
    Reader,
    orphans,
    read_location,
    read_places,
    read_working,
    records_of,
)
from holdfast.log.location import LocalLocation, Location, open_location
from holdfast.log.replica import Replica, is_true, layer_path
from holdfast.log.working_directory import LogDirectory
from holdfast.trace.cover import Chain
from holdfast.trace.layer import verify_layer
from holdfast.trace.name import LayerName

Named: TypeAlias = str | os.PathLike[str] | Location
"""The name of a place: a path, a URI, or a location."""

Sizes: TypeAlias = dict[LayerName, int]

LOCAL, REPLICA = "local", "replica"


class Place(ABC):
    """One set of layers and lineage."""

    level: str

    def __init__(self, location: Location) -> None:
        self.location = location
        self.replica = Replica(location)

    @property
    def uri(self) -> str:
        return self.location.uri

    def flow(self) -> str | None:
        """The name of the flow whose log this is; None if there is no log. Raises `LogDamaged` if the header is
        damaged, `LogFormat` if this version cannot read the log."""
        return self.replica.flow()

    def collections(self) -> dict[str, Any]:
        """The description of the flow's collections, from this place. Raises `LogDamaged` if it is not valid."""
        kept = self.replica.read_collections()
        if not _is_description(kept):
            raise LogDamaged(f"log {self.uri}: collections.json does not describe what a flow keeps", path=self.uri)
        return kept

    def rates(self) -> Rates:
        """The measured rates of the flow, from this place; empty if there are none, or they cannot be read."""
        try:
            return Rates.from_json(self.replica.read_rates())
        except (LogDamaged, ValueError, TypeError):
            return Rates()

    def circumstances(self) -> Circumstances | None:
        """The facts that decide how much is lost with a host or member, from this place; None if there are none, or
        they cannot be read."""
        try:
            return Circumstances.from_json(self.replica.read_rates()["known"])
        except (LogDamaged, KeyError, ValueError, TypeError, AttributeError):
            return None

    @abstractmethod
    def lineage(self, known: Collection[str] = ()) -> FoundLineage:
        """The records in this place. A file whose name ends with a digest in ``known`` may be left unread."""

    @abstractmethod
    def traces(self) -> list[str]: ...

    @abstractmethod
    def layers(self, trace: str) -> Sizes:
        """All layers of a trace, of any history, with their sizes."""

    @abstractmethod
    def check(self, trace: str, name: LayerName) -> None:
        """Read and check a layer. Raises `LogDamaged` if it does not hold what its name says, FileNotFoundError if it
        is gone."""

    @abstractmethod
    def path(self, trace: str, name: LayerName) -> str:
        """The path of a layer, relative to the place."""


class Working(Place):
    """A working directory."""

    level = LOCAL

    def __init__(self, location: LocalLocation) -> None:
        super().__init__(location)
        self.directory = location.path
        self.stash = location.path / "lineage" / "log.jsonl"

    @property
    def layers_directory(self) -> Path:
        """The directory of the traces. Its name changes when another driver takes over."""
        return traces_of_log(self.directory)

    def holder(self) -> dict[str, Any] | None:
        """The process that runs the flow right now; None if none does."""
        return LogDirectory(self.directory, "", None).holder()

    def lineage(self, known: Collection[str] = ()) -> FoundLineage:
        return read_working(self.stash)

    def traces(self) -> list[str]:
        return self.location.directories(self.layers_directory.name)

    def layers(self, trace: str) -> Sizes:
        listed = self.location.list(f"{self.layers_directory.name}/{trace}")
        found = ((LayerName.parse(entry.name), entry.size) for entry in listed)
        return {name: size for name, size in found if name is not None}

    def check(self, trace: str, name: LayerName) -> None:
        verify_layer(self.directory / self.path(trace, name))

    def path(self, trace: str, name: LayerName) -> str:
        return f"{self.layers_directory.name}/{trace}/{name.text()}"


class Durable(Place):
    """A log location."""

    level = REPLICA

    def lineage(self, known: Collection[str] = ()) -> FoundLineage:
        return read_location(self.replica, known)

    def traces(self) -> list[str]:
        return self.replica.traces()

    def layers(self, trace: str) -> Sizes:
        return self.replica.layers(trace)

    def check(self, trace: str, name: LayerName) -> None:
        read_intact(self.replica, trace, name)

    def path(self, trace: str, name: LayerName) -> str:
        return layer_path(trace, name)


_KEYS = {"operators", "collections", "dataflow", "before", "former", "session", "versions", "sources"}


def _is_description(kept: dict[str, Any]) -> bool:
    # It has no checksum, so only its structure can be checked: every collection must refer to an operator.
    operators, collections = kept.get("operators", {}), kept.get("collections", {})
    if not isinstance(operators, dict) or not isinstance(collections, dict):
        return False
    return set(kept) <= _KEYS and all(
        isinstance(entry, dict) and {"kind", "fields", "key"} <= set(entry) and entry.get("fingerprint") in operators
        for entry in collections.values()
    )


# -- finding them -----------------------------------------------------------------------------------------------------


def find_places(named: Sequence[Named]) -> list[Place]:
    """The places at these addresses, whether they hold a log or not. An address that is neither a working directory nor
    a log location is taken for an empty log location."""
    found: dict[tuple[str, str], Place] = {}
    for each in named:
        location = open_location(each)
        places: list[Place] = []
        if isinstance(location, LocalLocation) and _is_working(location.path):
            places.append(Working(location))
        durable = branch_location(location)
        if not places or _is_replica(durable):
            places.append(Durable(durable))
        for place in places:
            found.setdefault((place.uri, place.level), place)
    return list(found.values())


def branch_location(location: Location) -> Location:
    """The location; if it is the directory of a branch, as a `BranchLocation` with the layers that the branch
    shares."""
    path = location.local()
    if path is None or path.parent.name != DIRECTORY or not (path / FILE).exists():
        return location
    return BranchLocation(LocalLocation(path.parent.parent), path.name)


def _is_working(path: Path) -> bool:
    return traces_of_log(path).is_dir() or (path / "lineage" / "log.jsonl").exists()


def _is_replica(location: Location) -> bool:
    replica = Replica(location)
    return bool(location.list("claims") or location.directories("layers") or replica.segments())


def open_places(named: Sequence[Named]) -> tuple[str, list[Place]]:
    """The name of the flow, and the places of its log at these addresses. Raises `LogError` if one of them is not a
    log, or is of another flow."""
    for each in named:
        path = open_location(each).local()
        if path is not None:
            LogDirectory.open(path)  # raises the clearest error if something is wrong
    places = find_places(named)
    flows = {place.uri: place.flow() for place in places}
    for uri, flow in flows.items():
        if flow is None:
            raise LogError(f"log {uri}: it is not a Holdfast log (there is no holdfast.json in it)", path=uri)
    check_one_flow(flows)
    return next(flow for flow in flows.values() if flow is not None), places


def check_one_flow(flows: dict[str, str | None]) -> None:
    """Raise `LogForeign` unless all places (address → flow, None if it is not known) are of one flow."""
    known = [(uri, flow) for uri, flow in flows.items() if flow is not None]
    for uri, flow in known:
        if flow != known[0][1]:
            raise LogForeign(
                f"log {uri}: it belongs to flow '{flow}', and {known[0][0]} to flow '{known[0][1]}'; "
                "give the places of one flow",
                path=uri,
                found=flow,
                expected=known[0][1],
            )


def running(places: Sequence[Place]) -> dict[str, Any] | None:
    """The process that runs the flow, by the locks of the working directories among the places; None if none does."""
    for place in places:
        if isinstance(place, Working) and (holder := place.holder()) is not None:
            return holder
    return None


def declared(places: Sequence[Place]) -> dict[str, Any]:
    """The description of what the flow keeps (``collections``, ``operators``), from the most current place: a working
    directory, else the location with the latest claim. A place with a damaged description is passed over if another
    place has one; else `LogDamaged` is raised."""
    problem: LogDamaged | None = None
    for place in sorted(places, key=lambda place: (place.level != LOCAL, -_term(place))):
        try:
            if held := place.collections():
                return held
        except LogDamaged as error:
            problem = error
    if problem is not None:
        raise problem
    return {}


def _term(place: Place) -> int:
    claims = place.replica.claims() if place.level == REPLICA else []
    return claims[-1].term if claims else 0


def live_traces(places: Sequence[Place], kept: dict[str, Any]) -> list[str]:
    """The traces of the flow's present operators that any place holds, and the traces of its collections' rows."""
    operators = kept.get("operators", {})
    held = {trace for place in places for trace in place.traces() if trace.partition(".")[0] in operators}
    rows = {f"{entry['fingerprint']}.rows" for entry in kept.get("collections", {}).values() if "fingerprint" in entry}
    return sorted(held | rows)


# -- their history ----------------------------------------------------------------------------------------------------


def holding_of(listed: Mapping[str, Sizes], history: History, lineage: int) -> Holding:
    """What a place holds of a history: the ``listed`` layers (trace → layers) that belong to it, and the lineage."""
    return Holding(
        {
            trace: {name: size for name, size in sizes.items() if is_true(name, history)}
            for trace, sizes in listed.items()
        },
        lineage,
    )


def read_history(places: Sequence[Place]) -> tuple[History, dict[Place, int]]:
    """The history, and for each place the epoch up to which it has it. Raises `LogDamaged` if a part of the history is
    in none of the places."""
    readers: dict[str, dict[Place, Reader]] = {LOCAL: {}, REPLICA: {}}
    for place in places:
        readers[place.level][place] = place.lineage
    found = read_places(readers[LOCAL], readers[REPLICA])
    records = records_of(found.values())
    history = choose(records)
    for place, each in found.items():
        for damage in each.damaged:
            if history.first + damage.line > history.last + 1:
                raise LogDamaged(
                    f"lineage {place.uri}/{damage.path}: line {damage.line}: {damage.why}, and no other copy of it was "
                    "found; give all log locations",
                    path=f"{place.uri}/{damage.path}",
                    line=damage.line,
                )
    for record in orphans(records):
        raise LogDamaged(
            f"log {places[0].uri}: the lineage of epoch {record.epoch - 1} is in none of the places that were looked "
            "at; give all log locations",
            path=places[0].uri,
            epoch=record.epoch - 1,
        )
    reach = {}
    for place, each in found.items():
        # Segments that were not read count by their names.
        by_name = place.replica.holding(history, ()).lineage if isinstance(place, Durable) else -1
        reach[place] = max(by_name, each.upto(history))
    return history, {place: reach[place] for place in places}


def chain_of(history: History) -> Chain:
    """The chain of all digests of a history. It trusts no layer without a digest: the flow may be running, and layers
    of an abandoned epoch may still be there."""
    if history.base is None:
        return Chain(-1, tuple(lineage.digest for lineage in history))
    return FoldedChain(history.first - 1, tuple(lineage.digest for lineage in history), history.base.ends)


@dataclass(frozen=True)
class FoldedChain(Chain):
    """The chain of a history with a base. Of folded epochs it has the digests of those with which layers end."""

    ends: Mapping[int, str]

    def accepts(self, name: LayerName) -> bool:
        return self.digest(name.last) == name.digest

    def digest(self, epoch: int) -> str | None:
        return super().digest(epoch) or self.ends.get(epoch)

    def refutes(self, name: LayerName) -> bool:
        return name.last <= self.end and not self.accepts(name)
