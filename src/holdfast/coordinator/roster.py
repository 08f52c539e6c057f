"""The roster of a log: which locations hold it, and how many of them make an epoch safe.

That an epoch is safe is a promise about losses: of n locations, any min_replicas - 1 may be lost. It holds only if
whoever opens the log later looks at enough of them: any n - min_replicas + 1 have, together, all that was ever safe. So
the log itself says who its locations are. Each has an identity, drawn when it was first used; one that was emptied, or
made again, has another, and does not pass for what it was, whatever its address says.

Only locations on the roster count for the safe point. A new one is put on it when it holds all that was promised
before, and one that is gone is taken off when the others do without it. A new roster is in force when so many locations
of the one before have it that nobody can open the log without seeing it; until then an epoch must be safe under both.

Pure: names in, rosters out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from holdfast.coordinator.copy_plan import Holding, reached, safe_point

Version = tuple[int, int]
"""The term of the driver that wrote it, and how many it had written before."""

_NOTHING = Holding({}, -1)


@dataclass(frozen=True)
class Roster:
    """Locations by their identities, with their addresses for people; none: no promise was made yet."""

    version: Version
    min_replicas: int
    locations: Mapping[str, str]

    @property
    def needed(self) -> int:
        """So many of the locations have, whichever they are, all that is safe."""
        return len(self.locations) - self.min_replicas + 1 if self.locations else 0


def by_identity(holdings: Mapping[int, Holding]) -> dict[str, Holding]:
    """Identity → what the location holds."""
    return {holding.location: holding for holding in holdings.values() if holding.location}


def safe_under(
    rosters: Sequence[Roster], held: Mapping[str, Holding], traces: Sequence[str], last: int, min_replicas: int
) -> int:
    """The latest epoch that is safe under all these rosters, and is held by ``min_replicas``; -1 if there is none."""
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
    """The roster that should be next; None if this one is as it should be, or nothing can be changed yet.

    ``declared``: identity → address of the locations that the user gave, as far as they are known; ``all_known``: they
    all are. ``last``: the last epoch; ``promised``: up to here epochs may have been said to be safe."""
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
    """Whether nobody can open the log any more without seeing the new roster, which these locations have: neither by
    the one before (those of it that are gone for good need not have the new one), nor by the new one itself."""
    gone = {each for each in before.locations if all_known and each not in declared}
    wanted = min(before.min_replicas, len(before.locations) - len(gone))
    have = set(have_it)
    return len(have & before.locations.keys()) >= wanted and len(have & new.locations.keys()) >= new.min_replicas
