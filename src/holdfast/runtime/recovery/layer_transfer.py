"""Layers from one member to another.

When members come or go, a partition may change hands although its member is still there. The new one takes from the
log's copies what they have; what they lack yet, the old one has, and hands over: nothing is computed again that anybody
holds. The bytes go through the driver. They are few: the layers of the epochs that are not safe.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import LogDamaged, LogError
from holdfast.foundation.atomic_files import read_file, replace_file
from holdfast.foundation.os_errors import fix
from holdfast.log.host_paths import host_path
from holdfast.runtime.recovery.fetch_layers import Layers
from holdfast.runtime.recovery.record import RecoveryRecord
from holdfast.runtime.runner import Runner
from holdfast.trace.layer import check_bytes, unreadable
from holdfast.trace.name import LayerName


@dataclass(frozen=True)
class LayerTransfer:
    """A layer that the member of a partition lacks and another one has."""

    giver: str
    directory: str
    """Of the trace."""

    name: LayerName
    low: int
    """The partition begins here."""

    data: bytes = b""


def hand_over(
    runner: Runner,
    look: Callable[[], Layers],
    traces: Sequence[str],
    ranges: Sequence[tuple[int, int]],
    directory: Path,
    recovery: RecoveryRecord,
) -> Layers:
    """Have every partition's member take what only other members have. What is there then."""
    layers = look()
    done = 0
    for trace in traces:
        shares: dict[str, list[LayerTransfer]] = {}
        for low, high in ranges:
            for giver, name in layers.elsewhere(trace, low, high).items():
                for each in name:
                    shares.setdefault(giver, []).append(LayerTransfer(giver, str(directory / trace), each, low))
        if shares:
            given = runner.visit("handing layers over", shares, read_layers)
            done += sum(runner.tasks("taking layers", write_layers, given, len(ranges), _low))
    recovery.layers_handed += done
    return look() if done else layers


def _low(handing: LayerTransfer) -> int:
    return handing.low


def read_layers(wanted: Sequence[LayerTransfer]) -> list[LayerTransfer]:
    """On the member that has them. What is damaged, or merged in the meantime, is left out."""
    found = []
    for one in wanted:
        try:
            data = read_file(host_path(one.directory) / one.name.text())
            check_bytes(data, one.name, one.directory)
        except (FileNotFoundError, LogDamaged):
            continue
        except OSError as error:
            raise unreadable(one.directory, error) from error
        found.append(LayerTransfer(one.giver, one.directory, one.name, one.low, data))
    return found


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
