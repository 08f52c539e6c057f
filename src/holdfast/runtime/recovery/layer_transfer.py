"""Hands layers over from one member to another.

When members come or go, a partition may change its owner although the old owner is still there. The new owner takes
from the log's copies what they have; layers that no copy has yet are handed over by the old owner. So nothing is
computed again that a member or a copy still has. The bytes go through the driver. They are few: only layers of epochs
that are not safe, and only the keys that change owners.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from holdfast.errors import LogDamaged, LogError
from holdfast.foundation.atomic_files import read_file, replace_file
from holdfast.foundation.os_errors import fix
from holdfast.log.host_paths import host_path
from holdfast.runtime.recovery.fetch_layers import Layers
from holdfast.runtime.recovery.record import RecoveryRecord
from holdfast.runtime.runner import Runner
from holdfast.trace.cover import Piece
from holdfast.trace.layer import check_bytes, open_layer, unreadable, write_layer
from holdfast.trace.name import LayerName
from holdfast.trace.search import open_slice

_BATCH = 256
"""The number of layers that are handed over at once, so that the driver can hold them in memory."""


@dataclass(frozen=True)
class LayerTransfer:
    """A layer that the owner of a partition lacks and another member has."""

    giver: str
    """The member that has the layer."""

    directory: str
    """The directory of the trace."""

    name: LayerName
    low: int
    """The first key hash of the partition."""

    cut: tuple[int, int]
    """The range of key hashes that the owner lacks."""

    data: bytes = b""


def hand_over(
    runner: Runner,
    look: Callable[[], Layers],
    traces: Sequence[str],
    ranges: Sequence[tuple[int, int]],
    directory: Path,
    recovery: RecoveryRecord,
    epochs: Mapping[str, tuple[int, int]] | None = None,
) -> Layers:
    """Give every partition's owner the layers that only other members have. Return the layers that are there then.
    ``epochs``: trace → the first and the last epoch as of which the trace must be readable; by default the last epoch
    alone."""
    layers = look()
    wanted: dict[tuple[str, str, LayerName, int], tuple[int, int]] = {}
    for trace in traces:
        for low, high in ranges:
            for giver, piece in layers.elsewhere(trace, low, high, (epochs or {}).get(trace)):
                key = (giver, trace, piece.name, low)  # within a partition, the pieces of a layer are adjacent
                first, last = wanted.get(key, (piece.low, piece.high))
                wanted[key] = min(first, piece.low), max(last, piece.high)
    done = 0
    for some in _batches(
        [
            LayerTransfer(giver, str(directory / trace), name, low, cut)
            for (giver, trace, name, low), cut in wanted.items()
        ]
    ):
        shares: dict[str, list[LayerTransfer]] = {}
        for one in some:
            shares.setdefault(one.giver, []).append(one)
        given = runner.visit("handing layers over", shares, read_layers)
        done += sum(runner.tasks("taking layers", write_layers, given, len(ranges), _low))
    recovery.layers_handed += done
    return look() if done else layers


def _batches(wanted: Sequence[LayerTransfer]) -> Iterator[Sequence[LayerTransfer]]:
    """Yield the transfers in batches that the driver can hold in memory."""
    for first in range(0, len(wanted), _BATCH):
        yield wanted[first : first + _BATCH]


def _low(handing: LayerTransfer) -> int:
    return handing.low


def read_layers(wanted: Sequence[LayerTransfer]) -> list[LayerTransfer]:
    """On the giver: return the transfers with their bytes. Layers that are damaged, or were merged in the meantime, are
    left out."""
    found = []
    for one in wanted:
        directory = host_path(one.directory)
        try:
            data = read_file(directory / one.name.text())
            check_bytes(data, one.name, one.directory)
            name, data = _cut(directory, one, data)
        except (FileNotFoundError, LogDamaged):
            continue
        except OSError as error:
            raise unreadable(one.directory, error) from error
        found.append(replace(one, name=name, data=data))
    return found


def _cut(directory: Path, one: LayerTransfer, whole: bytes) -> tuple[LayerName, bytes]:
    """Return the part of a layer that the owner lacks, as the name and bytes of a layer of its own."""
    name, (low, high) = one.name, one.cut
    if (low, high) == (name.low, name.high):
        return name, whole
    layer = open_layer(directory / name.text())
    rows = open_slice(directory, Piece(name, low, high, name.first - 1, name.last), layer.layout).block()
    with TemporaryDirectory() as place:
        written = write_layer(
            Path(place), rows, layer.layout, low=low, high=high, first=name.first, last=name.last,
            digest=name.digest, since=name.since, metadata=layer.metadata,
        )  # fmt: skip
        return written, read_file(Path(place) / written.text())


def write_layers(given: Sequence[LayerTransfer]) -> list[int]:
    """On the new owner: write the layers. Return how many there were."""
    for one in given:
        directory = host_path(one.directory)
        try:
            directory.mkdir(parents=True, exist_ok=True)
            replace_file(directory / one.name.text(), one.data)
        except OSError as error:
            raise LogError(
                f"log {directory}: a layer of {len(one.data):,} bytes cannot be written: {fix(error)}",
                path=str(directory),
                errno=error.errno,
            ) from error
    return [len(given)]
