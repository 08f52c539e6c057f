"""Opening a log: which of its locations can be used, whether they are enough, and the claim that tells an earlier
driver to stop.

Enough of the locations on the log's roster (`coordinator/roster.py`) must be reachable and whole that every epoch that
was ever safe is in one of them. If fewer are, the flow does not begin, unless the user accepts the loss.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from holdfast.coordinator.claim import Claim
from holdfast.coordinator.enrolment import Enrolment
from holdfast.coordinator.history import History
from holdfast.coordinator.roster import Roster
from holdfast.errors import DeclarationError, LogDamaged, StoreError, TooFewLocations
from holdfast.log.branches import BranchRecord
from holdfast.log.location import Location
from holdfast.log.replica import Replica
from holdfast.reporting.redaction import logger
from holdfast.runtime.declaration import ConnectorProgress, Declaration
from holdfast.runtime.recovery.record import RecoveryRecord

T = TypeVar("T")

_LOG = logger("holdfast.recovery")


class Opening:
    """The locations of a log while it is opened. ``replicas``: the locations that can be used, by URI."""

    def __init__(self, declared: Declaration, told: ConnectorProgress, recovery: RecoveryRecord, threads: bool) -> None:
        self._declared = declared
        self._told = told
        self._goes_on = False
        """Whether this process was the last driver of the log: then it knows every epoch that was ever safe."""

        self._recovery = recovery
        self._threads = threads
        self.replicas: dict[str, Replica] = {}
        self._roster: Roster | None = None
        self._accepted = False
        """Whether too few locations are there and the user accepted the loss."""

        if declared.settings.durable:
            self._open()
            self._check_enough()

    def _open(self) -> None:
        replicas = {location.uri: Replica(location) for location in self._declared.locations}
        self.replicas = dict(replicas)

        def open_one(replica: Replica) -> Roster | None:
            replica.open(self._declared.name)
            return replica.read_roster()

        rosters = self._each(open_one)
        self._tell_apart()
        self._roster = max((roster for roster in rosters if roster), key=lambda roster: roster.version, default=None)
        if self._roster is not None and not self._roster.locations:
            self._roster = None  # the driver that created this log did not reach its first epoch

    def _each(self, work: Callable[[Replica], T]) -> list[T]:
        """Do ``work`` at all locations side by side and return the results. A location that raises `StoreError` is not
        used from then on."""

        def attempt(replica: Replica) -> T | StoreError:
            try:
                return work(replica)
            except StoreError as error:
                return error

        some = list(self.replicas.items())
        if self._threads and len(some) > 1:
            with ThreadPoolExecutor(len(some)) as pool:
                found = list(pool.map(lambda one: attempt(one[1]), some))
        else:
            found = [attempt(replica) for _, replica in some]
        done: list[T] = []
        for (uri, _), result in zip(some, found, strict=True):
            if isinstance(result, StoreError):
                self._recovery.unreachable[uri] = str(result)
                del self.replicas[uri]
            else:
                done.append(result)
        return done

    def _tell_apart(self) -> None:
        """Handle two locations with the same identity: raise `DeclarationError` if they are the same directory under
        two URIs; if one is a copy of the other, make it a new location."""
        seen: dict[str, Replica] = {}
        for replica in self.replicas.values():
            other = seen.setdefault(replica.identity, replica) if replica.identity else replica
            if other is replica:
                continue
            if _is_same(other.location, replica.location):
                raise DeclarationError(
                    f"flow '{self._declared.name}': {other.location.uri} and {replica.location.uri} are the same "
                    "place; a copy must be in another place, on another disk",
                    flow=self._declared.name,
                )
            replica.identity = ""  # a copy of the other directory: it becomes a new location

    def _check_enough(self, unread: Mapping[str, str] | None = None) -> None:
        """Raise `TooFewLocations` unless enough locations are reachable and whole, or the loss is accepted. ``unread``:
        URI → the reason, of locations that answer but could not be read completely."""
        recovery, settings, unread = self._recovery, self._declared.settings, unread or {}
        here = {replica.identity for uri, replica in self.replicas.items() if uri not in unread}
        if self._roster is None:
            # A log of an earlier version of Holdfast, or a new log: its locations are those that were declared.
            count, found = len(self._declared.locations), len(self.replicas.keys() - unread.keys())
            least, needed = settings.min_replicas, count - settings.min_replicas + 1
            missing = [f"{uri} cannot be reached ({why})" for uri, why in recovery.unreachable.items()]
            missing += [f"{uri} {why}" for uri, why in unread.items() if uri not in recovery.unreachable]
        else:
            count, needed, least = len(self._roster.locations), self._roster.needed, self._roster.min_replicas
            gone = {each: uri for each, uri in self._roster.locations.items() if each not in here}
            now = {replica.identity: uri for uri, replica in self.replicas.items()}
            missing = [self._missing(now.get(each, uri), unread) for each, uri in gone.items()]
            found = count - len(gone)
        for one in missing:
            said = f"log location {one}"
            if "cannot be reached" not in one and said not in recovery.lost:
                recovery.lost.append(said)
        if found >= needed or (found >= least and not unread and self._nobody_since()):
            return
        text = (
            f"flow '{self._declared.name}': {found} of the {count} locations of its log are reachable and whole, and "
            f"{needed} must be: with min_replicas={least}, epochs that were safe may be in the others alone. "
            f"Missing: {'; '.join(missing)}"
        )
        if not settings.accept_loss:
            raise TooFewLocations(
                f"{text}. Bring them back, or begin with what is left: accept_loss=True (holdfast run --accept-loss)",
                flow=self._declared.name,
                found=found,
                needed=needed,
                missing=missing,
            )
        if not self._accepted:
            recovery.lost.append(f"{text}. The loss was accepted")
        self._accepted = True

    def _nobody_since(self) -> bool:
        """Whether the last claim on the log is that of the previous engine in this process. A driver that claimed the
        log since did so at so many locations that any ``min_replicas`` of them include one with its claim."""
        if self._told.claim is not None and not self._goes_on:
            claims = [claim for some in self._each(Replica.claims) for claim in some]
            self._goes_on = max(claims, default=None) == self._told.claim
        return self._goes_on

    def _missing(self, uri: str, unread: Mapping[str, str]) -> str:
        if uri in self._recovery.unreachable:
            return f"{uri} cannot be reached ({self._recovery.unreachable[uri]})"
        if uri in unread:
            return f"{uri} {unread[uri]}"
        if uri in self.replicas:
            return f"{uri} was emptied or made again, and has lost what it held"
        return f"{uri} is not among the locations that were given"

    def claim(self, drawn: int) -> Claim:
        """Claim the log, before its history is read, and return the claim. An earlier driver that still runs will see
        it and stop. Locations that raise are not used from then on. ``drawn``: a random number that tells apart two
        drivers that claim at the same time."""
        terms = [claim.term for claims in self._each(Replica.claims) for claim in claims]
        claim = Claim(max(terms, default=0) + 1, f"{drawn:016x}")
        self._each(lambda replica: replica.claim(claim, this_driver()))
        if self._declared.settings.durable:
            if not self.replicas:
                raise StoreError(next(iter(self._recovery.unreachable.values())))
            self._check_enough()
        return claim

    def check_found(self, history: History) -> None:
        """Check the history that was found. Raise if lineage that could not be read may hold later safe epochs, or if a
        branch does not begin with the epochs of its parent."""
        before = self._told.history
        if self._goes_on and len(before) and history.digest(before.last) != before[-1].digest:
            self._goes_on = False
            self._told.claim = None
            self._check_enough()
        unread = {uri: why for uri, why in self._recovery.unreachable.items() if uri in self.replicas}
        for uri, replica in self.replicas.items():
            if later := [segment for segment in replica.torn if segment.last > history.last]:
                first, last = min(each.first for each in later), max(each.last for each in later)
                unread.setdefault(uri, f"has a damaged lineage of {_epochs(max(first, history.last + 1), last)}")
        if unread:
            self._check_enough(unread)
        # No history was found, but a location that does not answer may have one: do not begin a new log.
        if not history and not self._goes_on and self._recovery.unreachable and not self._declared.settings.accept_loss:
            raise StoreError(next(iter(self._recovery.unreachable.values())))
        if (branch := self._declared.branch) is not None:
            _check_root(branch, history)

    def enrol(self, claim: Claim, last: int) -> Enrolment:
        """Give each usable location without an identity a new one, and return the enrolment with the roster in force.
        ``last``: the last epoch of the history."""
        settings = self._declared.settings
        roster = self._roster or Roster((claim.term, 0), settings.min_replicas, {})
        if self.replicas:
            self._each(lambda replica: _identify(replica, roster))
            if self._roster is None or self._accepted:
                roster = self._found_anew(roster, claim)
        numbers = {location.uri: number for number, location in enumerate(self._declared.locations)}
        return Enrolment(
            roster,
            {numbers[uri]: replica.identity for uri, replica in self.replicas.items()},
            [location.uri for location in self._declared.locations],
            last,
            settings.min_replicas,
            claim,
        )

    def _found_anew(self, before: Roster, claim: Claim) -> Roster:
        """Write and return a new roster: the usable locations that were on the roster ``before``; all usable ones if
        none was."""
        mine = {replica.identity: uri for uri, replica in self.replicas.items()}
        locations = {each: uri for each, uri in mine.items() if each in before.locations} or mine
        least = min(self._declared.settings.min_replicas, max(1, len(locations)))
        roster = Roster((claim.term, 1), least, locations)
        written = self._each(lambda replica: replica.write_roster(roster, replica.identity))
        if not written:
            raise StoreError(next(iter(self._recovery.unreachable.values())))
        return roster


def _epochs(first: int, last: int) -> str:
    return f"epoch {first}" if first == last else f"epochs {first} to {last}"


def _identify(replica: Replica, roster: Roster) -> None:
    if not replica.identity:
        replica.write_roster(roster, secrets.token_hex(8))


def _check_root(branch: BranchRecord, history: History) -> None:
    """Raise `LogDamaged` unless a branch's log has the epochs that it shares with its parent."""
    found = history.digest(branch.root)
    if history.last >= branch.root and found in (None, branch.digest):  # None: the root was folded
        return
    has = "none of them" if not history else f"other epochs, up to {history.last}"
    raise LogDamaged(
        f"branch '{branch.name}' of flow '{branch.flow}': it begins with the epochs up to {branch.root} of the flow, "
        f"and its log has {has}. Bring back what was lost, or remove the branch (flow.remove_branch('{branch.name}')) "
        "and make another",
        branch=branch.name,
        epoch=branch.root,
    )


def this_driver() -> dict[str, Any]:
    """Return what a claim says of this process."""
    return {"pid": os.getpid(), "host": socket.gethostname(), "since": time.time()}


def _is_same(one: Location, other: Location) -> bool:
    """Whether a file that is written to one location is found in the other."""
    probe = f".same-{secrets.token_hex(8)}.tmp"
    one.write(probe, b"holdfast")
    try:
        other.read(probe)
        return True
    except FileNotFoundError:
        return False
    finally:
        one.remove(probe)


def say(recovery: RecoveryRecord) -> None:
    """Log what a recovery found lost, damaged or unreachable, and the views that are planned differently now."""
    for what in recovery.lost:
        _LOG.warning("lost: %s", what, extra={"lost": what})
    for view in recovery.otherwise:
        _LOG.warning(
            "view '%s' is read otherwise than when it was kept last, by another version of Holdfast or of Spark; it "
            "was filled again from its sources",
            view,
            extra={"view": view},
        )
    for what in recovery.damaged:
        _LOG.warning("damaged, and set aside: %s", what, extra={"damaged": what})
    for uri, why in recovery.unreachable.items():
        _LOG.warning(
            "log location %s cannot be used now, and will be tried again: %s",
            uri,
            why,
            extra={"location": uri, "error": why},
        )
