"""What to copy where, and how far everything is safe: from names alone.

A location holds, per trace, durable layers, and segments of the lineage. Both say in their names which epochs they
hold and of which history, so "how far is this copy" needs a listing and nothing else. A location lacks, for a trace
and a range of key hashes, the epochs after those that it covers: they are shipped as *one* layer, however many epochs
they are. So a location that is slow, or was away, gets fewer and larger files, and catches up; nothing else changes.

The **safe point** S is the latest epoch that at least ``min_replicas`` locations cover, for every live trace, and whose
lineage as many hold (invariant 5). Quiet partitions write empty layers, which count like others, so they never hold S
back. S only grows: that a copy was lost later does not take back what was promised when it was there.

Pure: names in, instructions out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from holdfast.errors import HoldfastError
from holdfast.trace.cover import Chain, covered, garbage
from holdfast.trace.merge import plan_merge
from holdfast.trace.name import ALL, LayerName

COMPACT_FROM = 32
"""A location merges the layers of a trace and range when there are so many. More than a local trace has: they are read
in recovery only, and merging many at once moves a row less often."""


@dataclass(frozen=True)
class Holding:
    """What one location holds of the true history."""

    layers: Mapping[str, Mapping[LayerName, int]]
    """Trace → layer → bytes."""

    lineage: int
    """The lineage up to this epoch is there; -1: none."""

    location: str = ""
    """The identity of the location (`coordinator/roster.py`); none if it has none."""

    roster: tuple[int, int] = (-1, -1)
    """The version of its roster."""


@dataclass(frozen=True)
class Ship:
    """Copy the epochs after < e ≤ upto of a trace, in [low, high), to these locations, as one layer each."""

    trace: str
    low: int
    high: int
    after: int
    upto: int
    locations: tuple[int, ...]


@dataclass(frozen=True)
class Copied:
    """A layer that is in a location now."""

    location: int
    trace: str
    name: LayerName
    bytes: int


@dataclass(frozen=True)
class Failed:
    """What did not work: a location that failed (``location`` ≥ 0), a damaged layer (``path`` names it), or the local
    disk."""

    location: int
    trace: str
    error: HoldfastError
    name: LayerName | None = None


ShipResult = Copied | Failed


@dataclass(frozen=True)
class Compact:
    """Merge these layers of one location."""

    location: int
    trace: str
    low: int
    high: int
    names: tuple[LayerName, ...]


@dataclass(frozen=True)
class Remove:
    """These layers of one location are needed by nobody."""

    location: int
    trace: str
    names: tuple[LayerName, ...]


def trusting(last: int) -> Chain:
    """A chain for names that were compared with the history already."""
    return Chain(last, ())


def reached(holding: Holding, traces: Iterable[str], last: int) -> int:
    """The last epoch that the location covers, for all traces and the lineage."""
    chain = trusting(last)
    upto = min(holding.lineage, last)
    for trace in traces:
        upto = min(upto, covered(holding.layers.get(trace, ()), 0, ALL, chain))
    return upto


def safe_point(holdings: Sequence[Holding], traces: Sequence[str], last: int, min_replicas: int) -> int:
    """The latest epoch that is held by ``min_replicas`` locations, trace by trace; -1 if there is none."""
    if not 0 < min_replicas <= len(holdings):
        return -1
    chain = trusting(last)

    def held(epochs: list[int]) -> int:
        return sorted(epochs, reverse=True)[min_replicas - 1]

    upto = min(last, held([holding.lineage for holding in holdings]))
    for trace in traces:
        upto = min(upto, held([covered(one.layers.get(trace, ()), 0, ALL, chain) for one in holdings]))
    return upto


def plan_ships(
    holdings: Mapping[int, Holding], traces: Sequence[str], ranges: Sequence[tuple[int, int]], last: int
) -> list[Ship]:
    """What the locations (by number) lack of the traces, up to epoch ``last``."""
    ships = []
    chain = trusting(last)
    for trace in traces:
        for low, high in ranges:
            behind: dict[int, list[int]] = {}
            for number, holding in holdings.items():
                after = covered(holding.layers.get(trace, ()), low, high, chain)
                if after < last:
                    behind.setdefault(after, []).append(number)
            ships += [Ship(trace, low, high, after, last, tuple(numbers)) for after, numbers in sorted(behind.items())]
    return ships


def plan_compactions(holdings: Mapping[int, Holding], ranges: Sequence[tuple[int, int]], last: int) -> list[Compact]:
    """Merges that keep the number of a location's files logarithmic. Each location is judged by itself."""
    found = []
    chain = trusting(last)
    for number, holding in holdings.items():
        for trace, layers in holding.layers.items():
            for low, high in ranges:
                mine = [(name, size) for name, size in layers.items() if name.low < high and low < name.high]
                if len(mine) >= COMPACT_FROM and (names := plan_merge(mine, low, high, chain)) is not None:
                    found.append(Compact(number, trace, low, high, tuple(names)))
    return found


def plan_removals(holdings: Mapping[int, Holding], last: int, live_after: int) -> list[Remove]:
    """Layers that no reader as of ``live_after`` or later needs."""
    found = []
    for number, holding in holdings.items():
        for trace, layers in holding.layers.items():
            names = garbage(layers, trusting(last), live_after)
            if names:
                found.append(Remove(number, trace, tuple(names)))
    return found
