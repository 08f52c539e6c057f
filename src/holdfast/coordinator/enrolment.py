"""The locations of an open flow's log that count for the safe point: the roster in force, and the next one.

A location that has lost its identity (its directory was removed, or made again, while the flow runs) is enrolled as a
new location: it gets a header, a claim and an identity, is filled again, and counts when it holds everything that was
promised.

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
        """``identities``: location → identity, for the locations that could be used when the flow was opened; ``uris``:
        the addresses of all locations; ``promised``: the epoch up to which epochs may have been called safe."""
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
        """The safe point that follows from these holdings: under the roster in force, and the next one if there is
        one."""
        rosters = [self.roster] if self._next is None else [self.roster, self._next]
        return safe_under(rosters, by_identity(holdings), traces, last, self._min_replicas)

    def counts(self, location: int) -> bool:
        """Whether a location is on the roster in force, and so counts for the safe point."""
        return self._identities.get(location) in self.roster.locations

    def awaited(self) -> list[int]:
        """The locations that lack the next roster, which is not in force before enough have it; none if there is no
        next roster."""
        if self._next is None:
            return []
        return [location for location, identity in self._identities.items() if identity not in self._have_next]

    def meet(self, location: int, identity: str) -> tuple[str, bool] | None:
        """Take in the identity that was found at a location before anything is written to it. Returns None if it can be
        used; else the new identity under which the location must be enrolled, and whether it had another one before."""
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
        """The roster that a location should have, and its identity, after a round that found this driver to lead. None
        if the location's identity is not the expected one."""
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
        """Note that a location has this roster now; it comes into force when enough locations have it."""
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
