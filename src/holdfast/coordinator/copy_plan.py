"""What to copy to which location, and the safe point: both computed from names alone.

A location holds, per trace, durable layers, and segments of the lineage. Both say in their names which epochs they
hold, and of which history, so a listing is enough to tell up to which epoch a copy reaches. For a trace and a range of
key hashes, a location lacks the epochs after those that it covers: they are shipped as *one* layer, however many epochs
they are. So a location that is slow, or could not be reached, gets fewer and larger files, and catches up.

The **safe point** S is the latest epoch that at least ``min_replicas`` locations cover, for every live trace, and whose
lineage as many locations hold (invariant 5). Quiet partitions write empty layers, which count like others, so they
never hold S back. S only grows: if a copy is lost later, the promise that was made stays.

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
"""The number of layers of a trace and range from which on a location merges them. It is larger than for local traces:
layers in locations are read in recovery only, and merging more layers at once rewrites a row less often."""


@dataclass(frozen=True)
class Holding:
    """What one location holds of the true history."""

    layers: Mapping[str, Mapping[LayerName, int]]
    """Trace → layer → bytes."""

    lineage: int
    """The epoch up to which the location has the lineage; -1: none."""

    location: str = ""
    """The identity of the location (`coordinator/roster.py`); "" if it has none."""

    roster: tuple[int, int] = (-1, -1)
    """The version of the roster that the location has."""


@dataclass(frozen=True)
class Ship:
    """A copy to be made: the epochs after < e ≤ upto of a trace, with key hashes in [low, high), as one layer in each
    of these locations."""

    trace: str
    low: int
    high: int
    after: int
    upto: int
    locations: tuple[int, ...]


@dataclass(frozen=True)
class Copied:
    """A result: the layer was copied, and is in the location now."""

    location: int
    trace: str
    name: LayerName
    bytes: int


@dataclass(frozen=True)
class Failed:
    """A result: copying failed, because of a location (``location`` ≥ 0), a damaged layer (the error's ``path`` names
    it), or the local disk."""

    location: int
    trace: str
    error: HoldfastError
    name: LayerName | None = None


ShipResult = Copied | Failed


@dataclass(frozen=True)
class Compact:
    """A merge to be made: these layers of one location become one layer."""

    location: int
    trace: str
    low: int
    high: int
    names: tuple[LayerName, ...]


@dataclass(frozen=True)
class Remove:
    """Layers of one location that no reader needs."""

    location: int
    trace: str
    names: tuple[LayerName, ...]


def trusting(last: int) -> Chain:
    """A chain that accepts every layer up to ``last``, for names that were compared with the history already."""
    return Chain(last, ())


def reached(holding: Holding, traces: Iterable[str], last: int) -> int:
    """The last epoch that a location covers, for all these traces and the lineage."""
    chain = trusting(last)
    upto = min(holding.lineage, last)
    for trace in traces:
        upto = min(upto, covered(holding.layers.get(trace, ()), 0, ALL, chain))
    return upto


def safe_point(holdings: Sequence[Holding], traces: Sequence[str], last: int, min_replicas: int) -> int:
    """The latest epoch that, for each trace and the lineage, ``min_replicas`` locations hold; -1 if there is none."""
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
    """The copies to make so that these locations hold the traces up to epoch ``last``."""
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
    """The merges that keep the number of a location's files logarithmic, planned for each location by itself."""
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
    """The layers that no reader as of an epoch from ``live_after`` on needs."""
    found = []
    for number, holding in holdings.items():
        for trace, layers in holding.layers.items():
            names = garbage(layers, trusting(last), live_after)
            if names:
                found.append(Remove(number, trace, tuple(names)))
    return found
