"""How an open flow stands, put together for people and programs."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.reporting.redaction import redacted
from holdfast.results.flow_results import Approximation, Status
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
    placement: Mapping[str, Any],
    approximate: Approximation | None = None,
) -> Status:
    """The status of a flow whose last complete epoch is ``last``; ``latencies`` are of its last epochs, ``held`` says
    what local layers there are, ``placement`` who keeps them, ``approximate`` what is lost of them."""
    declared = compiled.declared
    ordered = sorted(latencies)
    typical = statistics.median(ordered) if ordered else 0.0
    return Status(
        flow=declared.name,
        log=str(declared.local),
        epoch=last,
        views={
            name: {
                "sql": declared.texts.get(name, ""),
                "operator": compiled.flow.views[name],
                "approximate": approximate is not None and name in approximate.views,
            }
            for name in declared.views
        },
        sources={name: {"waiting": source.waiting()} for name, source in declared.sources.items()},
        sinks=[
            {"view": view, "kind": type(sink).__name__, "epoch": delivery.progress.epochs[index]}
            for index, (view, sink) in enumerate(declared.sinks)
        ],
        traces=compiled.sizes(held),
        latency={"median": typical, "p99": ordered[int(0.99 * (len(ordered) - 1))] if ordered else 0.0},
        partitions=partitions,
        maintenance=redacted({"merges": maintenance.merges, "busy": maintenance.busy, "failure": maintenance.failure}),
        durability=redacted(_durability(compiled, durability, typical)),
        placement=dict(placement),
        approximate=approximate,
    )


def _durability(compiled: CompiledFlow, durability: Replication, typical: float) -> dict[str, Any]:
    copies, settings = durability.state.copies, durability.state.settings
    unsafe_bytes, unsafe_epochs = copies.unsafe
    locations = []
    for number, location in enumerate(durability.locations):
        holding = durability.holdings.get(number)
        sizes = [size for layers in holding.layers.values() for size in layers.values()] if holding else []
        trouble = durability.troubles.get(number)
        locations.append(
            {
                "uri": location.uri,
                "layers": len(sizes),
                "bytes": sum(sizes),
                "counts": durability.counts(number),
                "failure": None if trouble is None else trouble.error,
            }
        )
    return {
        "strategy": settings.strategy,
        "safe": copies.safe,
        "lineage": copies.flushed,
        "levels": {name: durability.levels(compiled.traces_behind(name)) for name in compiled.declared.views},
        "locations": locations,
        "unsafe": {"epochs": unsafe_epochs, "bytes": unsafe_bytes},
        "back_pressure": not copies.has_room,
        # What losing this host would cost: the epochs that no location has, computed again.
        "recovery_seconds": unsafe_epochs * typical,
        "shipped": durability.shipped,
        "busy": durability.busy,
        "failure": durability.failure,
        "unsynced": dict(durability.disk.unsynced),
    }
