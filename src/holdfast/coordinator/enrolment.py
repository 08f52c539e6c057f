"""Which locations of an open flow's log count: the roster in force, and the next one.

A location that has lost its identity (its directory was removed, or made again, while the flow runs) is enrolled as a
new one: it gets a head, a claim and an identity, is filled again, and counts when it has all that was promised.

Pure: identities and holdings in, rosters to write out. `coordinator/roster.py` says what a roster is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from holdfast.coordinator.claim import Claim
from holdfast.coordinator.copy_plan import Holding
from holdfast.coordinator.roster import Roster, by_identity, is_in_force, safe_under, successor


class Enrolment:
    """The roster of one open log."""

    def __init__(
        self,
        roster: Roster,
        identities: Mapping[int, str],
        uris: Sequence[str],
        promised: int,
        min_replicas: int,
        claim: Claim,
    ) -> None:
        """``identities``: those of the locations that could be used when the flow was opened, by number; ``uris``: the
        addresses of all locations; ``promised``: up to here epochs may have been said to be safe."""
        self.roster = roster
        """The roster in force."""

        self._uris = list(uris)
        self._promised = promised
        self._min_replicas = min_replicas
        self._claim = claim
        self._identities = dict(identities)
        self._next: Roster | None = None
        self._have_next: set[str] = set()
        self._enrolled = 0

    def safe(self, holdings: Mapping[int, Holding], traces: Sequence[str], last: int) -> int:
        """The safe point, if the locations hold this."""
        rosters = [self.roster] if self._next is None else [self.roster, self._next]
        return safe_under(rosters, by_identity(holdings), traces, last, self._min_replicas)

    def counts(self, location: int) -> bool:
        """Whether what a location holds makes epochs safe."""
        return self._identities.get(location) in self.roster.locations

    def awaited(self) -> list[int]:
        """The locations that lack the next roster, if there is one: until enough have it, it is not in force."""
        if self._next is None:
            return []
        return [location for location, identity in self._identities.items() if identity not in self._have_next]

    def meet(self, location: int, identity: str) -> tuple[str, bool] | None:
        """A location was looked at, before anything is written to it, and says that it is ``identity``. None if that is
        right; else the identity under which it is to be enrolled, and whether it was another one before."""
        others = {each for other, each in self._identities.items() if other != location}
        if identity and identity not in others:
            self._identities[location] = identity
            return None
        known = bool(self._identities.get(location, ""))
        self._enrolled += 1
        # A claim is drawn once per driver, so this is as unique as a random number.
        drawn = f"{self._claim.term}/{self._claim.owner}/{location}/{self._enrolled}"
        self._identities[location] = new = hashlib.blake2b(drawn.encode(), digest_size=8).hexdigest()
        return new, known

    def wanted(
        self, location: int, holdings: Mapping[int, Holding], traces: Sequence[str], last: int, safe: int
    ) -> tuple[Roster, str] | None:
        """After a round at a location, in which this driver was found to lead: the roster that the location should
        have, and its identity; None if the location is not what it was."""
        if self._next is None:
            self._have_next.clear()
            self._next = successor(
                self.roster,
                self._declared(),
                self._all_known,
                by_identity(holdings),
                traces,
                last,
                max(safe, self._promised),
                self._min_replicas,
                self._claim.term,
            )
        identity = self._identities.get(location, "")
        if not identity or holdings[location].location != identity:
            return None
        return self._next or self.roster, identity

    def has(self, location: int, roster: Roster) -> None:
        """A location has this roster now."""
        if self._next is None or roster != self._next:
            return
        self._have_next.add(self._identities.get(location, ""))
        if is_in_force(self.roster, self._next, self._have_next, self._declared(), self._all_known):
            self.roster, self._next = self._next, None

    def _declared(self) -> dict[str, str]:
        return {identity: self._uris[location] for location, identity in self._identities.items()}

    @property
    def _all_known(self) -> bool:
        return len(self._identities) == len(self._uris)
