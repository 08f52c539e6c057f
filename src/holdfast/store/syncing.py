"""What a round of durability does where the layers are: sync them to the host's disk, and make the copies of them.

All functions run in tasks, or on each member, and touch only what their arguments name.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.store.copying import Result, Shipment, ship_all
from holdfast.store.here import here
from holdfast.store.location import Location
from holdfast.trace.layer import list_layers


@dataclass(frozen=True)
class Sync:
    """Sync the local layers of a trace after an epoch."""

    directory: str
    after: int


def make_durable(items: Sequence[Sync | Shipment], locations: Sequence[Location]) -> list[Result]:
    """In a task: sync, then ship."""
    results: list[Result] = []
    for item in items:
        if isinstance(item, Sync):
            sync_layers(Path(item.directory), item.after)
    results += ship_all([item for item in items if isinstance(item, Shipment)], locations)
    return results


def sync_all(directories: Sequence[str], after: int) -> None:
    """On a member: sync its own layers."""
    for directory in directories:
        sync_layers(here(directory), after)


def forget_others(directory: Path, kept: Collection[str]) -> None:
    """Remove the local traces that are not among these."""
    own = here(directory)
    for path in own.iterdir() if own.is_dir() else ():
        if path.is_dir() and path.name not in kept:
            shutil.rmtree(path, ignore_errors=True)


def sync_layers(directory: Path, after: int) -> None:
    """Have the host write a trace's newer layers to its disk, and the directory that names them."""
    if not directory.is_dir():
        return
    for path in [directory / name.text() for name in list_layers(directory) if name.last > after] + [directory]:
        try:
            opened = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            continue  # merged and removed in the meantime
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
