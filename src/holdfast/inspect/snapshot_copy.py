"""Copying a snapshot to another place, where it is a log of its own: `hf.copy_snapshot`.

The copy is made of the files in one location, without Spark, and without opening the flow, which may be running
meanwhile. Each trace becomes one layer per range of key hashes, with its rows as of the snapshot's epoch (and its
changes since the input that a rewind undid and no epoch had taken again by then, since the copy will); the lineage
is the history up to that epoch. The order makes it safe: layers are written first, then the lineage, without which
there is no history. A copy that broke off is made again over the files that are there.
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from holdfast.coordinator.claim import Claim
from holdfast.coordinator.copy_plan import trusting
from holdfast.coordinator.history import History
from holdfast.coordinator.rewinds import Rewinds
from holdfast.coordinator.true_history import choose
from holdfast.errors import DeclarationError, EpochUnavailable, LogDamaged, StoreError, UnknownName
from holdfast.foundation import arguments, failpoints
from holdfast.foundation.nearest_name import did_you_mean
from holdfast.foundation.retries import relisted
from holdfast.log.copying import read_intact, within
from holdfast.log.durable_layer import durable_name, encode_layer
from holdfast.log.lineage_copies import read_location
from holdfast.log.location import Location, open_location
from holdfast.log.replica import Replica, is_true
from holdfast.log.snapshots import NamedEpoch, read_snapshots
from holdfast.results.flow_results import Snapshot
from holdfast.trace.cover import cover
from holdfast.trace.name import LayerName
from holdfast.trace.quiet import changed_metadata
from holdfast.trace.rows import Block, consolidate

if TYPE_CHECKING:
    from typing import TypeAlias

    Place: TypeAlias = str | Path | Location


def copy_snapshot(log: Place, name: str, target: Place, *, flow: str | None = None) -> Snapshot:
    """Copy the snapshot ``name`` of the log at ``log`` to ``target``, a place without a log: from then on that is a log
    of its own, of a flow named ``flow`` (by default the same name). Declare the same sources and views on it, with
    other places for sinks, and the flow goes on from the snapshot's epoch.

    The flow may be running meanwhile. The snapshot must be safe: `StoreError` if the location does not have all of it
    yet."""
    for what, place in (("log", log), ("target", target)):
        if not isinstance(place, Location):
            arguments.path("copy_snapshot", what, place)
    arguments.text("copy_snapshot", "name", name, "the name of a snapshot")
    if flow is not None:
        arguments.text("copy_snapshot", "flow", flow, "the name of a flow")
    source, copy = Replica(open_location(log)), Replica(open_location(target))
    known = read_snapshots(source.location)
    if name not in known:
        raise UnknownName(
            f"log {source.location.uri}: snapshot '{name}' not found{did_you_mean(name, known)}", name=name
        )
    snapshot = known[name]
    if copy.segments():
        raise DeclarationError(
            f"copy_snapshot: {copy.location.uri} holds a log already; name an empty place", path=copy.location.uri
        )
    history = choose(read_location(source).records)
    if history.digest(snapshot.epoch) != snapshot.digest:
        raise _not_yet(source, snapshot)
    copy.open(flow or snapshot.flow)
    copy.write_collections(snapshot.collections)
    owed = Rewinds(history[: snapshot.epoch + 1]).needed(snapshot.epoch)
    for trace in snapshot.traces:
        _copy_trace(source, copy, trace, snapshot, history, snapshot.epoch if owed is None else owed)
    copy.claim(Claim(history[snapshot.epoch].term, secrets.token_hex(8)), {"copied": snapshot.name})
    failpoints.reach("snapshot.copied_layers")
    copy.write_lineage(history[: snapshot.epoch + 1])
    return Snapshot(snapshot.name, snapshot.epoch, snapshot.digest, True)


def _copy_trace(source: Replica, copy: Replica, trace: str, snapshot: NamedEpoch, history: History, since: int) -> None:
    """Copy a trace as of the snapshot, with its single changes after epoch ``since``, if they are still there."""

    def make() -> None:
        names = [each for each in source.layers(trace) if is_true(each, history)]
        bounds = sorted({bound for each in names for bound in (each.low, each.high)})
        if not bounds or (bounds[0], bounds[-1]) != (0, 1 << 64):
            raise _not_yet(source, snapshot)
        for low, high in pairwise(bounds):
            _copy_range(source, copy, trace, snapshot, names, low, high, history.last, since)

    relisted(make)  # a layer that has disappeared was merged, and the next listing has its rows


def _copy_range(
    source: Replica,
    copy: Replica,
    trace: str,
    snapshot: NamedEpoch,
    names: list[LayerName],
    low: int,
    high: int,
    last: int,
    since: int,
) -> None:
    epoch = snapshot.epoch
    try:
        pieces = cover(names, low, high, epoch, trusting(last))
    except (EpochUnavailable, LogDamaged) as error:
        raise _not_yet(source, snapshot) from error
    blocks, found, layout = [], [], None
    for piece in pieces:
        _, (block, layout, said) = read_intact(source, trace, piece.name)
        blocks.append(within(block, piece))
        found.append((piece.name, said, blocks[-1].epoch))
    if layout is None:
        return
    rows = Block.concat(blocks)
    since = min(epoch, max([since, *(min(name.since, name.last) for name, _, _ in found)]))
    rows = consolidate(replace(rows, epoch=np.maximum(rows.epoch, since)), layout)
    since = since if since > 0 else -1
    data = encode_layer(rows, layout, metadata=changed_metadata(found, since))
    copy.write_layer(trace, durable_name(low, high, 0, epoch, snapshot.digest, since, data), data)


def _not_yet(source: Replica, snapshot: NamedEpoch) -> StoreError:
    return StoreError(
        f"log {source.location.uri}: it does not have all of snapshot '{snapshot.name}' (epoch {snapshot.epoch}) yet; "
        f"wait with flow.wait_safe({snapshot.epoch})",
        path=source.location.uri,
        epoch=snapshot.epoch,
    )
