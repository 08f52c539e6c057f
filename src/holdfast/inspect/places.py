"""The places of a log, seen from outside, without Spark: working directories and log locations.

A *place* is one complete set of layers and lineage. A working directory holds Arrow layers and the stash, a log
location durable layers and segments. One directory may be both, and is then two places, each looked at by itself.
Nothing here takes a lock or changes anything.

A flow may be running meanwhile: layers and segments are merged, and what a listing named may be gone. Then the place is
listed again; a file that was merged away is not missing.
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
"""How a place is given: a path, a URI, or a location."""

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
        """Whose log it is; None if there is none. LogDamaged if it does not say, LogFormat if this version cannot
        read it."""
        return self.replica.flow()

    def collections(self) -> dict[str, Any]:
        """What the flow keeps, as this place says; LogDamaged if that cannot be."""
        kept = self.replica.read_collections()
        if not _is_description(kept):
            raise LogDamaged(f"log {self.uri}: collections.json does not describe what a flow keeps", path=self.uri)
        return kept

    def rates(self) -> Rates:
        """How fast the flow was, as this place says; nothing if it does not, or cannot be read."""
        try:
            return Rates.from_json(self.replica.read_rates())
        except (LogDamaged, ValueError, TypeError):
            return Rates()

    def circumstances(self) -> Circumstances | None:
        """What decides how much a loss takes along, as this place says; None if it does not, or cannot be read."""
        try:
            return Circumstances.from_json(self.replica.read_rates()["known"])
        except (LogDamaged, KeyError, ValueError, TypeError, AttributeError):
            return None

    @abstractmethod
    def lineage(self, known: Collection[str] = ()) -> FoundLineage:
        """The records that are here. Where ``known`` has the digest that names a file, the file may be passed over."""

    @abstractmethod
    def traces(self) -> list[str]: ...

    @abstractmethod
    def layers(self, trace: str) -> Sizes:
        """All layers of a trace, of any history, with their sizes."""

    @abstractmethod
    def check(self, trace: str, name: LayerName) -> None:
        """Read a layer. LogDamaged if it is not what its name says, FileNotFoundError if it is gone."""

    @abstractmethod
    def path(self, trace: str, name: LayerName) -> str:
        """Where a layer is, inside the place."""


class Working(Place):
    """A working directory."""

    level = LOCAL

    def __init__(self, location: LocalLocation) -> None:
        super().__init__(location)
        self.directory = location.path
        self.stash = location.path / "lineage" / "log.jsonl"

    @property
    def layers_directory(self) -> Path:
        """The directory of the traces. It has another name after another driver has taken over."""
        return traces_of_log(self.directory)

    def holder(self) -> dict[str, Any] | None:
        """Who runs the flow right now; None if nobody does."""
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
    # It has no checksum: that everything refers to something is what can be asked of it.
    operators, collections = kept.get("operators", {}), kept.get("collections", {})
    if not isinstance(operators, dict) or not isinstance(collections, dict):
        return False
    return set(kept) <= _KEYS and all(
        isinstance(entry, dict) and {"kind", "fields", "key"} <= set(entry) and entry.get("fingerprint") in operators
        for entry in collections.values()
    )


# -- finding them -----------------------------------------------------------------------------------------------------


def find_places(named: Sequence[Named]) -> list[Place]:
    """The places at these addresses, whether they hold a log or not. An address that says nothing of itself is taken
    for a log location: a working directory can be made from those."""
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
    """The location as that of a branch, if it is the directory of one: with the layers that it shares."""
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
    """The flow, and the places of its log at these addresses. LogError if one is no log, or another flow's."""
    for each in named:
        path = open_location(each).local()
        if path is not None:
            LogDirectory.open(path)  # says best what is wrong
    places = find_places(named)
    flows = {place.uri: place.flow() for place in places}
    for uri, flow in flows.items():
        if flow is None:
            raise LogError(f"log {uri}: it is not a Holdfast log (there is no holdfast.json in it)", path=uri)
    check_one_flow(flows)
    return next(flow for flow in flows.values() if flow is not None), places


def check_one_flow(flows: dict[str, str | None]) -> None:
    """LogForeign unless all places (address → flow, as far as it is known) are of one flow."""
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
    """Who runs the flow, as far as the working directories among the places say."""
    for place in places:
        if isinstance(place, Working) and (holder := place.holder()) is not None:
            return holder
    return None


def declared(places: Sequence[Place]) -> dict[str, Any]:
    """What the flow keeps (``collections``, ``operators``), as the place says that knows best: a working directory,
    else the location with the latest claim. A place where it does not read is passed over if another has it."""
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
    """The traces of the operators that the flow has now: those that some place holds, and those of its collections."""
    operators = kept.get("operators", {})
    held = {trace for place in places for trace in place.traces() if trace.partition(".")[0] in operators}
    rows = {f"{entry['fingerprint']}.rows" for entry in kept.get("collections", {}).values() if "fingerprint" in entry}
    return sorted(held | rows)


# -- their history ----------------------------------------------------------------------------------------------------


def holding_of(listed: Mapping[str, Sizes], history: History, lineage: int) -> Holding:
    """What a place holds of a history: of the layers that were ``listed`` there, by trace, those that are true."""
    return Holding(
        {
            trace: {name: size for name, size in sizes.items() if is_true(name, history)}
            for trace, sizes in listed.items()
        },
        lineage,
    )


def read_history(places: Sequence[Place]) -> tuple[History, dict[Place, int]]:
    """The history, and how far each place has it. LogDamaged if a part of it is in none of them."""
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
        # What was passed over as known is told by its name.
        by_name = place.replica.holding(history, ()).lineage if isinstance(place, Durable) else -1
        reach[place] = max(by_name, each.upto(history))
    return history, {place: reach[place] for place in places}


def chain_of(history: History) -> Chain:
    """Nothing is trusted: the flow may be running, and the layers of an epoch that it abandoned may still be there."""
    if history.base is None:
        return Chain(-1, tuple(lineage.digest for lineage in history))
    return FoldedChain(history.first - 1, tuple(lineage.digest for lineage in history), history.base.ends)


@dataclass(frozen=True)
class FoldedChain(Chain):
    """A chain of a history with a base: of the epochs before it, those with which layers end."""

    ends: Mapping[int, str]

    def accepts(self, name: LayerName) -> bool:
        return self.digest(name.last) == name.digest

    def digest(self, epoch: int) -> str | None:
        return super().digest(epoch) or self.ends.get(epoch)

    def refutes(self, name: LayerName) -> bool:
        return name.last <= self.end and not self.accepts(name)
