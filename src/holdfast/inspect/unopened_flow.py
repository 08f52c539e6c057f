"""The state of a flow that is declared and not open, read from its log: nothing is locked, claimed, recovered or
written. Another driver may be running the flow meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.coordinator.history import History
from holdfast.errors import LogForeign
from holdfast.inspect.describe import describe_places
from holdfast.inspect.places import Place, Working, declared, find_places, read_history, running
from holdfast.log.location import Location
from holdfast.results.flow_results import (
    DurabilityStatus,
    Latency,
    LocationStatus,
    MaintenanceStatus,
    RunningDriver,
    SinkStatus,
    SourceStatus,
    Status,
    TraceStatus,
    Unsafe,
    ViewStatus,
)

if TYPE_CHECKING:
    from holdfast.connectors.sink import Sink
    from holdfast.connectors.source import Source
    from holdfast.coordinator.durability_settings import DurabilitySettings


@dataclass(frozen=True)
class UnopenedLog:
    """The existing places of a flow's log; there may be none."""

    places: Sequence[Place]
    kept: Mapping[str, Any] = field(default_factory=dict)
    """The description of what the flow kept when it ran last (``collections.json``); empty if it never ran."""

    @property
    def there(self) -> bool:
        return bool(self.places)

    def history(self) -> History:
        return read_history(self.places)[0] if self.places else History()

    def driver(self) -> RunningDriver | None:
        """The driver that runs the flow right now, by the lock of its working directory; None if none does."""
        return RunningDriver.of(running(self.places))

    def sizes(self, trace: str) -> int:
        """The bytes of a trace, in the place where it is largest."""
        return max((sum(place.layers(trace).values()) for place in self.places), default=0)


def look_at(name: str, locations: Sequence[Location], local: Path | None) -> UnopenedLog:
    """The log of a flow: those of its locations and its working directory that hold a log."""
    named: list[Location | Path] = [*locations]
    if local is not None and all(one.local() != local for one in locations):
        named.append(local)
    places = []
    for place in find_places(named):
        owner = place.flow()
        if owner is None:
            continue
        if owner != name:
            raise LogForeign(
                f"log {place.uri}: it belongs to flow '{owner}', not to '{name}'; give each flow a log of its own",
                path=place.uri,
                found=owner,
                expected=name,
            )
        places.append(place)
    return UnopenedLog(places, declared(places) if places else {})


def status_unopened(
    name: str,
    log: UnopenedLog,
    local: Path,
    locations: Sequence[Location],
    settings: DurabilitySettings,
    texts: Mapping[str, str],
    sources: Mapping[str, Source],
    sinks: Sequence[tuple[str, Sink]],
    partitions: int,
) -> Status:
    """The status of a flow that is not open in this process."""
    found = describe_places(name, log.places, settings.min_replicas) if log.there else {}
    kept = log.kept.get("collections", {})
    levels = {level["level"]: level for level in found.get("levels", ())}
    risk = found.get("at_risk") or {}
    epoch = found.get("epoch", -1)
    safe = found.get("safe")
    return Status(
        flow=name,
        log=str(local),
        epoch=epoch,
        views={view: ViewStatus(text, kept.get(view, {}).get("fingerprint"), False) for view, text in texts.items()},
        sources={source: SourceStatus(one.waiting()) for source, one in sources.items()},
        sinks=tuple(SinkStatus(view, type(sink).__name__, None) for view, sink in sinks),
        traces=tuple(
            TraceStatus(one["trace"], _kind(log.kept, one["trace"]), one["layers"], one["bytes"])
            for one in found.get("traces", ())
        ),
        latency=Latency(),
        partitions=partitions,
        maintenance=MaintenanceStatus(),
        durability=DurabilityStatus(
            strategy=str(settings.strategy),
            safe=-1 if safe is None else safe,
            lineage=max((level["lineage"] for level in levels.values()), default=-1),
            levels={
                view: found["collections"][view]["levels"] for view in texts if view in found.get("collections", {})
            },
            locations=tuple(
                LocationStatus(
                    location.uri,
                    levels.get(location.uri, {}).get("layers", 0),
                    levels.get(location.uri, {}).get("bytes", 0),
                )
                for location in locations
            ),
            unsafe=Unsafe(risk.get("epochs", epoch + 1), risk.get("bytes") or 0),
            back_pressure=False,
            recovery_seconds=0.0,
            shipped=0,
            busy=False,
            failure=None,
        ),
        open=False,
        running=log.driver(),
    )


def _kind(kept: Mapping[str, Any], trace: str) -> str:
    return str(kept.get("operators", {}).get(trace.partition(".")[0], ""))


def traces_directory(log: UnopenedLog, local: Path) -> Path:
    """The directory of the local layers, which need not exist."""
    return next((place.layers_directory for place in log.places if isinstance(place, Working)), local / "traces")
