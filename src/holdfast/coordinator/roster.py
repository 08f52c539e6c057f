"""The roster of a log: which locations hold it, and how many of them make an epoch safe.

A safe epoch is a promise about losses: of n locations, any min_replicas - 1 may be lost. It holds only if a driver that
opens the log later looks at enough locations: any n - min_replicas + 1 of them hold, together, everything that was ever
safe. So the log itself names its locations. Each location has an identity, drawn when it was first used. A location
that was emptied, or made again, has another identity, and does not count as the old one, whatever its address is.

Only locations on the roster count for the safe point. A new location is put on the roster when it holds everything that
was promised before; a location that is gone is taken off when the others are enough without it. A new roster is in
force when so many locations of the roster before have it that no driver can open the log without seeing it; until then
an epoch must be safe under both rosters.

Pure: names in, rosters out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from holdfast.coordinator.copy_plan import Holding, reached, safe_point

Version = tuple[int, int]
"""The term of the driver that wrote a roster, and the number of rosters that this driver had written before."""

_NOTHING = Holding({}, -1)


@dataclass(frozen=True)
class Roster:
    """Identity → address (for messages) of the locations of a log. An empty roster: no epoch was promised to be safe
    yet."""

    version: Version
    min_replicas: int
    locations: Mapping[str, str]

    @property
    def needed(self) -> int:
        """The number of locations that hold, whichever they are, everything that is safe; 0 for an empty roster."""
        return len(self.locations) - self.min_replicas + 1 if self.locations else 0


def by_identity(holdings: Mapping[int, Holding]) -> dict[str, Holding]:
    """Identity → what the location holds, for the locations that have an identity."""
    return {holding.location: holding for holding in holdings.values() if holding.location}


def safe_under(
    rosters: Sequence[Roster], held: Mapping[str, Holding], traces: Sequence[str], last: int, min_replicas: int
) -> int:
    """The latest epoch that is safe under all these rosters, and that at least ``min_replicas`` locations of each of
    them hold; -1 if there is none."""
    return min(
        (
            safe_point(
                [held.get(identity, _NOTHING) for identity in roster.locations],
                traces,
                last,
                max(roster.min_replicas, min_replicas),
            )
            for roster in rosters
        ),
        default=-1,
    )


def successor(
    roster: Roster,
    declared: Mapping[str, str],
    all_known: bool,
    held: Mapping[str, Holding],
    traces: Sequence[str],
    last: int,
    promised: int,
    min_replicas: int,
    term: int,
) -> Roster | None:
    """The next roster; None if this roster needs no change, or if it cannot be changed yet.

    ``declared``: identity → address of the locations that the user gave, as far as their identities are known;
    ``all_known``: all are known. ``last``: the last epoch; ``promised``: the epoch up to which epochs may have been
    called safe."""
    kept = {each: uri for each, uri in roster.locations.items() if each in declared or not all_known}
    caught_up = {
        each: uri
        for each, uri in declared.items()
        if each not in roster.locations and each in held and reached(held[each], traces, last) >= promised
    }
    locations = {**kept, **caught_up}
    least = min_replicas if min_replicas <= len(locations) else roster.min_replicas
    if locations.keys() == roster.locations.keys() and least == roster.min_replicas:
        return None
    count = roster.version[1] + 1 if roster.version[0] == term else 0
    new = Roster((term, count), least, locations)
    return new if safe_under([new], held, traces, last, least) >= promised else None


def is_in_force(
    before: Roster, new: Roster, have_it: Collection[str], declared: Collection[str], all_known: bool
) -> bool:
    """Whether no driver can open the log any more without seeing the new roster, which the locations ``have_it`` have.
    That must hold for a driver that goes by the roster before (its locations that are gone for good do not count) and
    for one that goes by the new roster."""
    gone = {each for each in before.locations if all_known and each not in declared}
    wanted = min(before.min_replicas, len(before.locations) - len(gone))
    have = set(have_it)
    return len(have & before.locations.keys()) >= wanted and len(have & new.locations.keys()) >= new.min_replicas
