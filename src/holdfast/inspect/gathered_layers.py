"""Layers of a trace brought together from the places of a log, each from whichever place has it intact."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from holdfast.coordinator.copy_plan import Copied, Failed
from holdfast.errors import LogDamaged, LogUnreadable
from holdfast.inspect.places import Place, Working
from holdfast.log.copying import Fetch, fetch_all
from holdfast.log.location import Location
from holdfast.trace.cover import Chain, cover
from holdfast.trace.name import ALL, LayerName


def gather(places: Sequence[Place], trace: str, at: int, chain: Chain, directory: Path) -> None:
    """Bring intact layers that cover the trace as of ``at`` into one directory. A damaged one is done without."""
    useless: set[LayerName] = set()
    damage: LogDamaged | LogUnreadable | None = None
    locations = [place.location for place in places]
    while True:
        listed = [place.layers(trace) for place in places]
        names = {name for layers in listed for name in layers if name not in useless}
        try:
            pieces = cover(names, 0, ALL, at, chain)
        except LogDamaged as error:
            raise damage or error from None
        wanted = {piece.name: tuple(n for n, layers in enumerate(listed) if piece.name in layers) for piece in pieces}
        lost = False
        for name, where in wanted.items():
            problem = _bring(places, locations, trace, name, where, directory)
            if problem is not None:
                lost = True
                useless.add(name)
                damage = problem if isinstance(problem, LogDamaged | LogUnreadable) else damage
        if not lost:
            return


def _bring(
    places: Sequence[Place],
    locations: Sequence[Location],
    trace: str,
    name: LayerName,
    where: tuple[int, ...],
    directory: Path,
) -> Exception | None:
    """Bring one layer; why it could not be brought."""
    problem: Exception | None = None
    for number in where:
        place = places[number]
        if isinstance(place, Working):
            try:
                place.check(trace, name)
            except (LogDamaged, LogUnreadable, FileNotFoundError) as error:
                problem = error
                continue
            target = directory / name.text()
            if not target.is_symlink():
                os.symlink(place.directory / place.path(trace, name), target)
            return None
        for result in fetch_all([Fetch(trace, name, str(directory), (number,))], locations):
            match result:
                case Copied():
                    return None
                case Failed():
                    problem = result.error
    return problem
