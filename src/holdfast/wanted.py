"""What the user wants of a flow's log: where it is, how many copies, for how long; checked when it is declared."""

from __future__ import annotations

import getpass
import hashlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from holdfast.errors import DeclarationError

if TYPE_CHECKING:
    from holdfast.durability import Settings
    from holdfast.store.location import Location

    Place: TypeAlias = str | Path | Location


def working_directory(locations: Sequence[Location]) -> Path:
    """Where the working files are: in the first log location that is a local directory, else in one for temporary
    files, always the same for the same log."""
    for location in locations:
        if (path := location.local()) is not None:
            return path
    mark = hashlib.blake2b("\n".join(location.uri for location in locations).encode(), digest_size=8).hexdigest()
    return Path(tempfile.gettempdir()) / f"holdfast-{getpass.getuser()}" / mark


def checked(
    name: str,
    log: Place | Sequence[Place],
    retain: object,
    min_replicas: object,
    max_unsafe: object,
    strategy: object,
) -> tuple[list[Place], Settings]:
    """The log locations, and what is wanted of them, checked."""
    from holdfast.coordinator.retention import parse_bound, parse_retention
    from holdfast.durability import Settings

    places: list[Place] = list(log) if isinstance(log, (list, tuple)) else [log]  # type: ignore[list-item]
    if not places:
        raise DeclarationError(f"flow '{name}': log must name at least one location", flow=name)
    if strategy not in ("nosync", "synchronous-log", "volatile"):
        raise DeclarationError(
            f"flow '{name}': strategy must be 'nosync', 'synchronous-log' or 'volatile', not {strategy!r}", flow=name
        )
    count = min_replicas
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= len(places):
        raise DeclarationError(
            f"flow '{name}': min_replicas must be from 1 to the number of log locations ({len(places)}), not {count!r}",
            flow=name,
        )
    try:
        retention = parse_retention(retain)
    except ValueError as error:
        raise DeclarationError(f"flow '{name}': retain must be {error}, not {retain!r}", flow=name) from None
    try:
        bound = parse_bound(max_unsafe)
    except ValueError as error:
        raise DeclarationError(f"flow '{name}': max_unsafe must be {error}, not {max_unsafe!r}", flow=name) from None
    return places, Settings(str(strategy), count, bound, retention)
