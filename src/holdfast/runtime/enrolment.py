"""Which locations of an open flow's log count, as rounds find them: the roster in force, and the next one.

A location that has lost its identity (its directory was removed, or made again, while the flow runs) is enrolled as a
new one: it gets a head, a claim and an identity, is filled again, and counts when it has all that was promised.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Mapping, Sequence

from holdfast.coordinator.copy_plan import Holding
from holdfast.coordinator.roster import Roster, by_identity, is_in_force, safe_under, successor
from holdfast.log.location import Location
from holdfast.log.replica import Claim, Replica
from holdfast.reporting.redaction import logger

_LOG = logger("holdfast.recovery")


class Enrolment:
    """The roster of one open log."""

    def __init__(
        self,
        flow: str,
        roster: Roster,
        identities: Mapping[int, str],
        locations: Sequence[Location],
        promised: int,
        min_replicas: int,
        claim: Claim,
        said: Mapping[str, object],
    ) -> None:
        """``identities``: those of the locations that could be used when the flow was opened, by number; ``promised``:
        up to here epochs may have been said to be safe; ``said``: what the claim says."""
        self._flow = flow
        self._locations = locations
        self._promised = promised
        self._min_replicas = min_replicas
        self._claim = claim
        self._said = dict(said)
        self._lock = threading.Lock()
        self._known = dict(identities)
        self._next: Roster | None = None
        self._have_next: set[str] = set()
        self.roster = roster
        """The roster in force."""

        self.describe: Callable[[Replica], None] = lambda replica: None
        """Has a location say what the flow keeps."""

    def safe(self, holdings: Mapping[int, Holding], traces: Sequence[str], last: int) -> int:
        """The safe point, if the locations hold this."""
        rosters = [self.roster] if self._next is None else [self.roster, self._next]
        return safe_under(rosters, by_identity(holdings), traces, last, self._min_replicas)

    def counts(self, number: int) -> bool:
        """Whether what a location holds makes epochs safe."""
        return self._known.get(number) in self.roster.locations

    def awaited(self) -> list[int]:
        """The locations that lack the next roster, if there is one: until enough have it, it is not in force."""
        with self._lock:
            known = dict(self._known) if self._next is not None else {}
            return [number for number, identity in known.items() if identity not in self._have_next]

    def meet(self, number: int, replica: Replica) -> None:
        """A location was looked at, before anything is written to it: see that it is one, and know which."""
        with self._lock:
            others = {identity for other, identity in self._known.items() if other != number}
            known = self._known.get(number, "")
            if replica.identity and replica.identity not in others:
                self._known[number] = replica.identity
                return
            self._known[number] = identity = secrets.token_hex(8)
        if known:
            _LOG.warning(
                "flow '%s': log location %s has lost what it held, and is filled again",
                self._flow,
                replica.location.uri,
                extra={"flow": self._flow, "location": replica.location.uri},
            )
        replica.open(self._flow)
        replica.claim(self._claim, self._said)
        self.describe(replica)
        replica.write_roster(self.roster, identity)

    def renew(
        self,
        number: int,
        replica: Replica,
        holdings: Mapping[int, Holding],
        traces: Sequence[str],
        last: int,
        safe: int,
    ) -> None:
        """After a round at a location, in which this driver was found to lead: bring its roster up to date."""
        with self._lock:
            identity = self._known.get(number, "")
            declared = {each: self._locations[one].uri for one, each in self._known.items()}
            all_known = len(declared) == len(self._locations)
            if self._next is None:
                self._have_next.clear()
                self._next = successor(
                    self.roster, declared, all_known, by_identity(holdings), traces, last, max(safe, self._promised),
                    self._min_replicas, self._claim.term,
                )  # fmt: skip
            wanted = self._next or self.roster
        if not identity or holdings[number].location != identity:
            return
        if replica.roster_version < wanted.version:
            replica.write_roster(wanted, identity)
        with self._lock:
            if wanted is self._next:
                self._have_next.add(identity)
                if is_in_force(self.roster, wanted, self._have_next, declared, all_known):
                    self.roster, self._next = wanted, None
