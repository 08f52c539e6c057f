"""The settings of a flow's log (locations, number of copies, retention), checked when the flow is declared."""

from __future__ import annotations

import getpass
import hashlib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from holdfast.errors import DeclarationError
from holdfast.foundation import arguments
from holdfast.reporting.redaction import logger

if TYPE_CHECKING:
    from holdfast.coordinator.durability_settings import DurabilitySettings
    from holdfast.log.location import Location

    Place: TypeAlias = str | Path | Location

_LOG = logger("holdfast.flow")


def working_directory(locations: Sequence[Location], *, make: bool = True) -> Path:
    """Return the working directory: the first log location that is a local directory, else a private directory of this
    user, always the same for the same log. ``make``: create the private directory if it does not exist."""
    from holdfast.log.private_directory import make_private, state_directory

    for location in locations:
        if (path := location.local()) is not None:
            return path
    mark = hashlib.blake2b("\n".join(location.uri for location in locations).encode(), digest_size=8).hexdigest()
    base = state_directory()
    if not make:
        return base / mark
    make_private(base / mark, base)
    before = Path(tempfile.gettempdir()) / f"holdfast-{getpass.getuser()}" / mark
    if os.path.lexists(before):
        _LOG.warning(
            "the working directory is %s; %s, where it was before, is not used any more. What is safe comes from the "
            "log locations; remove the old directory",
            base / mark,
            before,
            extra={"path": str(base / mark), "before": str(before)},
        )
    return base / mark


def refuse_same_place(name: str, places: Sequence[Place]) -> None:
    """Raise `DeclarationError` if two of the places are the same directory, under whatever spelling: a second copy in
    the same place protects nothing."""
    from holdfast.log.location import Location, open_location

    seen: dict[str, str] = {}
    for place in places:
        if not isinstance(place, str | os.PathLike | Location):
            continue  # `parse_settings` reports places of a wrong type
        location = open_location(place)
        identity = location.identity()
        spelled = os.fspath(place) if location.local() is not None and not isinstance(place, Location) else location.uri
        if identity in seen:
            raise DeclarationError(
                f"flow '{name}': log names the same place twice, as {seen[identity]!r} and as {spelled!r}; a copy must "
                "be in another place, on another disk",
                flow=name,
                place=identity,
            )
        seen[identity] = spelled


def parse_settings(
    name: str,
    log: Place | Sequence[Place],
    retain: object,
    min_replicas: object,
    max_unsafe: object,
    strategy: object,
    accept_loss: object = False,
) -> tuple[list[Place], DurabilitySettings]:
    """Check the log locations and their settings, and return them. Raise `DeclarationError` if one is wrong."""
    from holdfast.coordinator.durability_settings import DurabilitySettings
    from holdfast.coordinator.retention import parse_bound, parse_retention
    from holdfast.guarantees.strategies import parse_strategy
    from holdfast.log.location import Location

    places: list[Place] = list(log) if isinstance(log, (list, tuple)) else [log]  # type: ignore[list-item]
    if not places:
        raise DeclarationError(f"flow '{name}': log must name at least one location", flow=name)
    for place in places:
        if not isinstance(place, Location):
            arguments.path(f"flow '{name}'", "log", place)
    chosen = parse_strategy(f"flow '{name}'", strategy)
    refuse_same_place(name, places)
    count = min_replicas
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= len(places):
        raise DeclarationError(
            f"flow '{name}': min_replicas must be from 1 to the number of log locations ({len(places)}), not {count!r}",
            flow=name,
        )
    if not isinstance(accept_loss, bool):
        raise DeclarationError(f"flow '{name}': accept_loss must be True or False, not {accept_loss!r}", flow=name)
    try:
        retention = parse_retention(retain)
    except ValueError as error:
        raise DeclarationError(f"flow '{name}': retain must be {error}, not {retain!r}", flow=name) from None
    try:
        bound = parse_bound(max_unsafe)
    except ValueError as error:
        raise DeclarationError(f"flow '{name}': max_unsafe must be {error}, not {max_unsafe!r}", flow=name) from None
    return places, DurabilitySettings(chosen, count, bound, retention, accept_loss)


def parse_clock_jump(name: str, value: object) -> int | None:
    """Check ``max_clock_jump`` and return it in microseconds; None: no bound. Raise `DeclarationError` if it is
    wrong."""
    from holdfast.coordinator.retention import parse_retention

    if value is None:
        return None
    try:
        if isinstance(value, str) and (seconds := parse_retention(value).seconds):
            return round(seconds * 1e6)
    except ValueError:
        pass
    raise DeclarationError(
        f"flow '{name}': max_clock_jump must be a time such as '1h' or '7d', or None, not {value!r}", flow=name
    )
