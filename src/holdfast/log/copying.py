"""Copying layers: from the local directory to log locations, back again, and merging many into one inside a location.

All functions run in tasks, touch only what their arguments name, and are idempotent: a copy that is made twice is the
same blob. A failure of a location is a result, not an exception, so that the other locations are not affected.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from holdfast.coordinator.copy_plan import Compact, Copied, Failed, Ship, ShipResult, trusting
from holdfast.errors import EpochUnavailable, HoldfastError, LogDamaged, LogError, StoreError
from holdfast.foundation.os_errors import fix
from holdfast.foundation.processor_priority import in_spare_time
from holdfast.foundation.retries import LISTING_AGAIN, retrying
from holdfast.log.durable_layer import decode_layer, durable_name, encode_layer
from holdfast.log.host_paths import host_path
from holdfast.log.location import Location
from holdfast.log.replica import SECOND_LOOK, Replica
from holdfast.trace.cover import Chain, Piece, cover
from holdfast.trace.layer import list_layers, write_layer
from holdfast.trace.merge import outline
from holdfast.trace.name import LayerName
from holdfast.trace.quiet import changed_metadata
from holdfast.trace.rows import Block, Layout, consolidate
from holdfast.trace.search import Slice, open_slice

_STREAMS = 8
"""The number of concurrent transfers in a task: they wait for the network, not for the processor."""

_ENCODING = threading.BoundedSemaphore(max(1, (os.cpu_count() or 1) // 4))
"""Bounds the number of layers that a process encodes at once: epochs need the processor more, and copies may fall
behind."""


@dataclass(frozen=True)
class Shipment:
    """A `Ship` with everything that a task needs in order to make the copies."""

    ship: Ship
    directory: str
    layout: Layout
    chain: Chain
    digest: str
    since: int
    metadata: dict[str, str]


def ship_all(shipments: Sequence[Shipment], locations: Sequence[Location]) -> list[ShipResult]:
    """Make the copies, several at a time. Returns a result for each copy."""
    if len(shipments) < 2:
        return [result for one in shipments for result in _ship(one, locations)]
    with ThreadPoolExecutor(_STREAMS) as pool:
        return [result for found in pool.map(lambda one: _ship(one, locations), shipments) for result in found]


def _ship(shipment: Shipment, locations: Sequence[Location]) -> list[ShipResult]:
    ship = shipment.ship
    try:
        name, data = _durable(shipment)
    except HoldfastError as error:
        return [Failed(-1, ship.trace, error)]
    return _write(ship, name, data, locations)


def _write(ship: Ship, name: LayerName, data: bytes, locations: Sequence[Location]) -> list[ShipResult]:
    results: list[ShipResult] = []
    for number in ship.locations:
        replica = Replica(locations[number])
        try:
            replica.write_layer(ship.trace, name, data)
            results.append(Copied(number, ship.trace, name, len(data)))
        except HoldfastError as error:
            results.append(Failed(number, ship.trace, error))
            with suppress(StoreError):
                # A blob that a failed write left must not count as a copy.
                replica.remove_layer(ship.trace, name)
    return results


def _durable(shipment: Shipment, exactly: bool = False) -> tuple[LayerName, bytes]:
    """Encode a shipment, at low priority."""
    with _ENCODING:
        return in_spare_time(lambda: _encode(shipment, exactly))


def _encode(shipment: Shipment, exactly: bool) -> tuple[LayerName, bytes]:
    """The epochs to ship as one durable layer, made of the local layers. If compaction has merged these epochs with
    earlier ones, the layer holds all epochs since the first; with ``exactly`` that raises an error."""
    ship, after = shipment.ship, shipment.ship.after
    try:
        slices = _open_slices(shipment, after, is_final=exactly or after >= 0)
    except (EpochUnavailable, LogDamaged) as error:
        if exactly or after < 0 or "path" in error.fields:
            raise
        # Local compaction has passed that epoch: the location gets the whole trace again.
        after = -1
        slices = _open_slices(shipment, after, is_final=False)
    blocks = [opened.block() for opened in slices]
    since = _since([opened.layer.name for opened in slices], after, ship.upto, shipment.since)
    block = _collapsed(blocks, shipment.layout, since)
    found = [(each.layer.name, each.layer.metadata, rows.epoch) for each, rows in zip(slices, blocks, strict=True)]
    metadata = {**shipment.metadata, **changed_metadata(found, since)}
    data = encode_layer(block, shipment.layout, metadata=metadata)
    name = durable_name(ship.low, ship.high, after + 1, ship.upto, shipment.digest, since, data)
    return name, data


def _open_slices(shipment: Shipment, after: int, is_final: bool) -> list[Slice]:
    """The slices of local layers that hold the epochs to ship after ``after``. A listing may miss a layer that a merge
    writes meanwhile: with ``is_final`` missing epochs are an error at once, without it only after further listings."""
    ship, directory = shipment.ship, host_path(shipment.directory)

    def look() -> list[Slice]:
        pieces = cover(list_layers(directory), ship.low, ship.high, ship.upto, shipment.chain, after=after)
        return [open_slice(directory, piece, shipment.layout) for piece in pieces]

    def may_change(error: Exception) -> bool:
        if isinstance(error, EpochUnavailable | LogDamaged):
            return not is_final and "path" not in error.fields
        return isinstance(error, FileNotFoundError)

    try:
        return retrying(look, on=may_change, pauses=LISTING_AGAIN)
    except FileNotFoundError:
        raise LogDamaged(f"trace {directory} changes faster than it can be read", path=str(directory)) from None


def _since(names: Sequence[LayerName], after: int, upto: int, since: int) -> int:
    floors = [name.floor for name in names if name.floor > name.first]
    since = min(max([since, *floors]), upto)
    return since if since > after + 1 else -1


def _collapsed(blocks: Sequence[Block], layout: Layout, since: int) -> Block:
    block = Block.concat(blocks) if blocks else Block.empty(layout)
    if since >= 0:
        block = replace(block, epoch=np.maximum(block.epoch, since))
    return consolidate(block, layout)


@dataclass(frozen=True)
class Fetch:
    """A durable layer to bring back to the local directory; each of ``locations`` has it."""

    trace: str
    name: LayerName
    directory: str
    locations: tuple[int, ...]
    low: int = 0
    """The first key hash of the partition that needs the layer."""

    cuts: tuple[tuple[int, int], ...] = ()
    """The ranges of key hashes that are needed, each of which becomes a local layer; empty: the whole layer is
    needed."""


def fetch_all(fetches: Sequence[Fetch], locations: Sequence[Location]) -> list[ShipResult]:
    """Bring layers back, several at a time. Returns a result for each attempt."""
    if len(fetches) < 2:
        return [result for one in fetches for result in _fetch(one, locations)]
    with ThreadPoolExecutor(_STREAMS) as pool:
        return [result for found in pool.map(lambda one: _fetch(one, locations), fetches) for result in found]


def _fetch(fetch: Fetch, locations: Sequence[Location]) -> list[ShipResult]:
    results: list[ShipResult] = []
    for number in fetch.locations:
        replica = Replica(locations[number])
        try:
            data, (block, layout, metadata) = read_intact(replica, fetch.trace, fetch.name)
        except LogDamaged as error:
            results.append(Failed(number, fetch.trace, error, fetch.name))
            continue
        except (FileNotFoundError, StoreError) as error:
            known = error if isinstance(error, StoreError) else StoreError(f"{fetch.name.durable()} is not there")
            results.append(Failed(number, fetch.trace, known))
            continue
        name = fetch.name
        try:
            for low, high in fetch.cuts or ((name.low, name.high),):
                rows = within(block, Piece(name, low, high, name.first - 1, name.last))
                local = write_layer(
                    host_path(fetch.directory), rows, layout, low=low, high=high, first=name.first,
                    last=name.last, digest=name.digest, since=name.since, metadata=metadata,
                )  # fmt: skip
        except OSError as error:
            # The local disk failed, so another copy would not help.
            results.append(Failed(-1, fetch.trace, _no_room(host_path(fetch.directory), error)))
            break
        results.append(Copied(number, fetch.trace, local, len(data)))
        break
    return results


def _no_room(directory: Path, error: OSError) -> LogError:
    try:
        free = shutil.disk_usage(directory).free
    except OSError:
        free = -1
    return LogError(f"{directory}: {fix(error)}", path=str(directory), errno=error.errno, free=free)


def read_intact(replica: Replica, trace: str, name: LayerName) -> tuple[bytes, tuple[Block, Layout, dict[str, str]]]:
    """The bytes of a durable layer, and their decoded content. Raises `LogDamaged` if a second read finds damage,
    too."""
    where = f"{replica.location.uri}/{trace}/{name.durable()}"

    def read() -> tuple[bytes, tuple[Block, Layout, dict[str, str]]]:
        data = replica.read_layer(trace, name)
        return data, decode_layer(data, name, where)

    return retrying(read, on=LogDamaged, pauses=SECOND_LOOK)


@dataclass(frozen=True)
class Compaction:
    """The same merge in one or more locations, with everything that a task needs in order to make it."""

    shipment: Shipment
    """The merged layer, made of local layers: they hold the same rows, and are mapped into memory already."""

    wanted: tuple[LayersToCompact, ...]
    """One per location."""


@dataclass(frozen=True)
class LayersToCompact:
    """A `Compact` of one location, for the case that local layers cannot tell these epochs apart any more: then the
    location's own layers are read and merged."""

    compact: Compact
    among: tuple[LayerName, ...]
    """All layers of the trace that the location holds."""

    since: int
    last: int


def compact_all(compactions: Sequence[Compaction], locations: Sequence[Location]) -> list[ShipResult]:
    """Merge layers inside locations, several at a time. The old layers are not removed."""
    with ThreadPoolExecutor(_STREAMS) as pool:
        return [result for found in pool.map(lambda one: _merged(one, locations), compactions) for result in found]


def _merged(compaction: Compaction, locations: Sequence[Location]) -> list[ShipResult]:
    try:
        name, data = _durable(compaction.shipment, exactly=True)
    except HoldfastError:
        return [_compact(wanted, locations) for wanted in compaction.wanted]
    return _write(compaction.shipment.ship, name, data, locations)


def _compact(compaction: LayersToCompact, locations: Sequence[Location]) -> ShipResult:
    compact = compaction.compact
    replica, chain = Replica(locations[compact.location]), trusting(compaction.last)
    try:
        low, high = compact.low, compact.high
        after, upto, since = outline(compact.names, low, high, compaction.since, chain, among=compaction.among)
        pieces = cover(compact.names, low, high, upto, chain, after=after)
        blocks, found, layout = [], [], None
        for piece in pieces:
            try:
                _, (block, layout, said) = read_intact(replica, compact.trace, piece.name)
            except LogDamaged as error:
                return Failed(compact.location, compact.trace, error, piece.name)
            blocks.append(within(block, piece))
            found.append((piece.name, said, blocks[-1].epoch))
        assert layout is not None  # a merge has at least two layers
        digest = next(name.digest for name in compaction.among if name.last == upto)
        merged = _collapsed(blocks, layout, since)
        data = encode_layer(merged, layout, metadata=changed_metadata(found, since))
        name = durable_name(low, high, after + 1, upto, digest, since, data)
        try:
            replica.write_layer(compact.trace, name, data)
        except StoreError:
            with suppress(StoreError):
                replica.remove_layer(compact.trace, name)
            raise
        return Copied(compact.location, compact.trace, name, len(data))
    except FileNotFoundError as error:
        return Failed(compact.location, compact.trace, StoreError(f"{replica.location.uri}: {error} is gone"))
    except HoldfastError as error:
        return Failed(compact.location, compact.trace, error)


def within(block: Block, piece: Piece) -> Block:
    """The rows of ``block`` that a piece of a cover wants: its epochs and key hashes."""
    keep = (block.epoch > piece.after) & (block.epoch <= piece.upto) & (block.hash >= np.uint64(piece.low))
    if piece.high < 1 << 64:
        keep &= block.hash < np.uint64(piece.high)
    return block if keep.all() else block.filter(keep)
