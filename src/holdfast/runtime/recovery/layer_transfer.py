"""Layers from one member to another.

When members come or go, a partition may change hands although its member is still there. The new one takes from the
log's copies what they have; what they lack yet, the old one has, and hands over: nothing is computed again that anybody
holds. The bytes go through the driver. They are few: of the layers of the epochs that are not safe, the keys that
change hands.
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
"""So many layers are handed over at once."""


@dataclass(frozen=True)
class LayerTransfer:
    """A layer that the member of a partition lacks and another one has."""

    giver: str
    directory: str
    """Of the trace."""

    name: LayerName
    low: int
    """The partition begins here."""

    cut: tuple[int, int]
    """The range of key hashes that is lacked."""

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
    """Have every partition's member take what only other members have. What is there then. ``epochs``: trace → the
    first and the last epoch as of which it must be readable, if it is not the last alone."""
    layers = look()
    wanted: dict[tuple[str, str, LayerName, int], tuple[int, int]] = {}
    for trace in traces:
        for low, high in ranges:
            for giver, piece in layers.elsewhere(trace, low, high, (epochs or {}).get(trace)):
                key = (giver, trace, piece.name, low)  # of one partition the pieces of a layer are neighbours
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
    """So many at a time that the driver can hold them."""
    for first in range(0, len(wanted), _BATCH):
        yield wanted[first : first + _BATCH]


def _low(handing: LayerTransfer) -> int:
    return handing.low


def read_layers(wanted: Sequence[LayerTransfer]) -> list[LayerTransfer]:
    """On the member that has them. What is damaged, or merged in the meantime, is left out."""
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
    """The part of a layer that is lacked, as a layer."""
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
    """On the member that needs them; how many there are."""
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
