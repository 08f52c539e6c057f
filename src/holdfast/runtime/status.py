"""Puts together the status of an open flow, for people and programs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence

from holdfast.plan.drawing import Filtered
from holdfast.plan.fingerprint import fingerprint
from holdfast.reporting.redaction import redacted
from holdfast.results.flow_results import (
    Approximation,
    DurabilityStatus,
    Latency,
    LocationStatus,
    MaintenanceStatus,
    PlacementStatus,
    SinkStatus,
    SourceStatus,
    Status,
    UniqueStatus,
    Unsafe,
    ViewStatus,
)
from holdfast.runtime.compiled_flow import CompiledFlow
from holdfast.runtime.delivery import Delivery
from holdfast.runtime.merging import Merging
from holdfast.runtime.replication import Replication


def status_of(
    compiled: CompiledFlow,
    last: int,
    partitions: int,
    latencies: Sequence[float],
    delivery: Delivery,
    maintenance: Merging,
    durability: Replication,
    held: Mapping[str, tuple[int, int, int]],
    placement: PlacementStatus | None,
    approximate: Approximation | None = None,
    filtered: Callable[[str], Filtered | None] = lambda operator: None,
) -> Status:
    """Return the status of a flow whose last complete epoch is ``last``. ``latencies``: the seconds of its last epochs;
    ``held``: trace → its local layers, bytes and rows; ``placement``: the owners of partitions; ``approximate``: what
    is lost; ``filtered`` gives what the filters of an operator saved."""
    declared = compiled.declared
    ordered = sorted(latencies)
    typical = statistics.median(ordered) if ordered else 0.0
    return Status(
        flow=declared.name,
        log=str(declared.local),
        epoch=last,
        views={
            name: ViewStatus(
                declared.texts.get(name, ""),
                compiled.flow.views[name],
                approximate is not None and name in approximate.views,
            )
            for name in declared.views
        },
        sources={
            name: SourceStatus(source.waiting(), _unique(compiled, name, filtered))
            for name, source in declared.sources.items()
        },
        sinks=tuple(
            SinkStatus(view, type(sink).__name__, delivery.progress.epochs[index])
            for index, (view, sink) in enumerate(declared.sinks)
        ),
        traces=tuple(compiled.sizes(held)),
        latency=Latency(typical, ordered[math.ceil(0.99 * (len(ordered) - 1))] if ordered else 0.0),
        partitions=partitions,
        maintenance=MaintenanceStatus(maintenance.merges, maintenance.busy, redacted(maintenance.failure)),
        durability=_durability(compiled, durability, typical),
        placement=placement,
        approximate=approximate,
    )


def _unique(compiled: CompiledFlow, source: str, filtered: Callable[[str], Filtered | None]) -> UniqueStatus | None:
    """Return what the filters of a source with unique ids saved; None for other sources."""
    if source not in compiled.declared.unique:
        return None
    found = filtered(fingerprint(compiled.declared.expiring[source]))
    if found is None:
        return None
    return UniqueStatus(found.asked, found.looked_up, found.found, found.rate, found.measured_rate, found.bytes)


def _durability(compiled: CompiledFlow, durability: Replication, typical: float) -> DurabilityStatus:
    copies, settings = durability.state.copies, durability.state.settings
    unsafe_bytes, unsafe_epochs = copies.unsafe
    locations = []
    for number, location in enumerate(durability.locations):
        holding = durability.holdings.get(number)
        sizes = [size for layers in holding.layers.values() for size in layers.values()] if holding else []
        trouble = durability.troubles.get(number)
        locations.append(
            LocationStatus(
                location.uri,
                len(sizes),
                sum(sizes),
                durability.counts(number),
                None if trouble is None else redacted(trouble.error),
            )
        )
    return DurabilityStatus(
        strategy=str(settings.strategy),
        safe=copies.safe,
        lineage=copies.flushed,
        levels={name: durability.levels(compiled.traces_behind(name)) for name in compiled.declared.views},
        locations=tuple(locations),
        unsafe=Unsafe(unsafe_epochs, unsafe_bytes),
        back_pressure=not copies.has_room,
        # If this host is lost, the epochs that no location has must be computed again.
        recovery_seconds=unsafe_epochs * typical,
        shipped=durability.shipped,
        busy=durability.busy,
        failure=redacted(durability.failure),
        unsynced=redacted(dict(durability.disk.unsynced)),
    )
