"""The branches of an open flow: made, listed and removed (`log/branches.py` says what a branch is on disk).

Making a branch copies no layer. Its steps only add files:

1. compaction is held back at the root, until the branch is made, and the root is made safe;
2. the branch gets a working directory: links to the local layers as of the root, the lineage up to it, a description;
3. each location gets references to its own layers as of the root, and the lineage;
4. each location and the working directory get ``branch.json``: the branch exists as soon as the first of these files
   is written.

`runtime/branch_roots.py` says which epochs can be a root, `runtime/branch_sizes.py` how much space each branch holds.

A crash before step 4 leaves directories of a branch that does not exist; opening the flow removes them.

The branch on which a flow goes on when members are lost (``on_loss="continue"``) is made by steps 2 and 4 alone: lost
layers are missing from it, and nothing may wait for a location then. `runtime/approximation.py` runs its epochs. It
ends with the repair, or with the driver: the next driver removes it.
"""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path

from holdfast.coordinator import events
from holdfast.coordinator.history import History
from holdfast.errors import (
    DeclarationError,
    LogDamaged,
    MemberUnreachable,
    StoreError,
    UnknownName,
)
from holdfast.foundation import failpoints
from holdfast.foundation.nearest_name import did_you_mean
from holdfast.guarantees.strategy import Copies
from holdfast.log import branches
from holdfast.log.branch_location import DIRECTORY
from holdfast.log.branch_making import BranchMaking
from holdfast.log.branches import BranchRecord
from holdfast.log.host_paths import host_path, scattered, traces_of
from holdfast.log.linked_layers import link_traces
from holdfast.log.location import LocalLocation, Location
from holdfast.reporting.redaction import logger
from holdfast.results.flow_results import BranchInfo
from holdfast.runtime.branch_roots import BranchRoots
from holdfast.runtime.branch_sizes import BranchSizes
from holdfast.runtime.open_flow import OpenFlow

_LOG = logger("holdfast.recovery")

_PATIENCE = 60.0
"""Seconds within which the root of a new branch must become safe."""

_ATTEMPTS = 3
"""The number of rounds within which the root must become safe if the runner has no threads."""


class Branches:
    """The branches of one open flow."""

    def __init__(self, flow: OpenFlow) -> None:
        self._flow = flow
        self._name = flow.compiled.declared.name
        self._log = flow.directory.path
        self._locations = list(flow.compiled.declared.locations)
        self._state = flow.state
        self._roots = BranchRoots(flow)
        self._sizes = BranchSizes(flow, self._missed)
        self._known: dict[str, BranchRecord] = {}
        self._damaged: dict[str, LogDamaged] = {}
        """Branch → its error, of branches that have directories but no readable ``branch.json``."""

        self._complete = False
        """Whether the branches of every location could be read."""

    # -- loading and listing ------------------------------------------------------------------------------------------

    def load(self) -> Collection[str] | None:
        """Read the branches that the working directory and all locations name, write missing ``branch.json`` files, and
        remove what a crash left. Return the names of all branches, damaged ones included. If a location does not
        answer, remove nothing and return None: it may be the only place that names a branch."""
        there: list[tuple[Location, dict[str, BranchRecord]]] = []
        for location in self._locations:
            try:
                has = branches.read_branches(location)
            except StoreError as error:
                self._missed(location, error)
                continue
            # (A location may be the working directory itself, which has approximate branches.)
            there.append((location, {name: record for name, record in has.items() if not record.approximate}))
        local = branches.read_local(self._log)
        for name in [name for name, record in local.items() if record.approximate]:
            branches.remove_local(self._log, name)  # its epochs were in the memory of the driver before
            del local[name]
        told = [has for _, has in there]
        # If another working directory drove the log since, it may have removed branches that this one still names.
        if self._state.epochs.term <= branches.noted_term(self._log) + 1:
            told.append(local)
        found = branches.newest(told)
        for name, record in found.items():
            self._known[name] = record
            self._flow.guard.tell(events.BranchMade(name, record.root))
            if local.get(name) != record:
                if name in local or branches.has_another_local(self._log, record):
                    branches.remove_local(self._log, name)
                branches.write_local(self._log, record)
            for location, has in there:
                if has.get(name) != record and self._emptied(location, record, name in has):
                    self._say(location, record)
        complete = self._find_damaged([location for location, _ in there]) and len(there) == len(self._locations)
        if not complete:
            return None
        self._clear([location for location, _ in there])
        self._complete = True
        self._note_term()
        return {*self._known, *self._damaged}

    def _note_term(self) -> None:
        """Note the driver's term beside the branches: at the next opening the local branches count unless a driver with
        another working directory has claimed the log since."""
        if not self._known:
            branches.remove_term(self._log)
        elif self._complete:
            branches.note_term(self._log, self._state.epochs.term)

    def _find_damaged(self, locations: Sequence[Location]) -> bool:
        """Find branches whose ``branch.json`` cannot be read. Return whether all of these locations answered."""
        complete = True
        for location in (LocalLocation(self._log), *locations):
            try:
                self._damaged |= branches.damaged(location, self._known)
            except StoreError as error:
                self._missed(location, error)
                complete = False
        for name, damage in self._damaged.items():
            _LOG.warning(
                "flow '%s': branch '%s' is damaged, and is left alone until flow.remove_branch('%s'): %s",
                self._name,
                name,
                name,
                damage,
                extra={"flow": self._name, "branch": name, "error": str(damage)},
            )
        return complete

    def _clear(self, locations: Sequence[Location]) -> None:
        """Remove directories that a crash left. Those of damaged branches stay."""
        kept = {*self._known, *self._damaged}
        for location in locations:
            try:
                for name in branches.leftovers(location, kept):
                    branches.remove_from(location, name)
            except StoreError as error:
                self._missed(location, error)
        for name in branches.leftovers(LocalLocation(self._log), kept):
            branches.remove_local(self._log, name)

    def _emptied(self, location: Location, record: BranchRecord, named: bool = True) -> bool:
        """Remove the files that a location has of an older branch with the same name. Return False if the location does
        not answer. ``named``: its files are known to be of another branch."""
        try:
            if record.name in location.directories(DIRECTORY) and (named or branches.has_another(location, record)):
                branches.remove_from(location, record.name)
            return True
        except StoreError as error:
            self._missed(location, error)
            return False

    def listed(self) -> tuple[BranchInfo, ...]:
        """Return the branches, sorted by root."""
        records = sorted(list(self._known.values()), key=lambda each: (each.root, each.name))
        held = self._sizes.held(records)
        return tuple(
            BranchInfo(each.name, each.root, each.digest, each.created, held[each.name], each.approximate)
            for each in records
        )

    # -- making a branch ----------------------------------------------------------------------------------------------

    def make(self, name: str, at: int | datetime | None) -> BranchRecord:
        """Make a branch as of an epoch, or as of the last epoch that was complete at a time (None: the last epoch).
        Return the existing branch if it has this name and root. Raise `DeclarationError` if the name or the strategy
        does not allow a branch, `EpochUnavailable` if the root cannot be read any more, `StoreError` if the root does
        not become safe or too few locations can be written to, `LogDamaged` if local layers that it needs are
        missing."""
        if (known := self.find(name, at)) is not None:
            return known
        self._check(name)
        self._flow.durability.check_claims()
        root = self._roots.epoch(at)
        held = f"branch {name}"  # no snapshot of a user can have this name
        self._flow.guard.tell(events.SnapshotTaken(held, root))
        try:
            self._await_safe(name, root)
            return self._make(name, root)
        finally:
            self._flow.guard.tell(events.SnapshotRemoved(held))

    def find(self, name: str, at: int | datetime | None) -> BranchRecord | None:
        """Return the branch of this name, or None. Raise `DeclarationError` if it has another root or is approximate,
        `LogDamaged` if it is damaged."""
        known = self._known.get(name)
        if known is None and name in self._damaged:
            raise self._damaged[name]
        if known is None:
            return None
        self._check_durable(known)
        if at is None or self._roots.epoch(at) == known.root:
            return known
        raise DeclarationError(
            f"flow '{self._name}': there is a branch '{name}' already, from epoch {known.root}; remove it first "
            "(flow.remove_branch), or take another name",
            flow=self._name,
            branch=name,
        )

    def _check(self, name: str) -> None:
        if (why := branches.why_not(name, [*self._known, *self._damaged])) is not None:
            raise DeclarationError(f"flow '{self._name}': {why}", flow=self._name)
        if self._state.settings.strategy.copies is not Copies.EVERYTHING:
            raise DeclarationError(
                f"flow '{self._name}': strategy {self._state.settings.strategy.name} copies no state, so a branch "
                "could not be kept; use nosync",
                flow=self._name,
            )

    def _await_safe(self, name: str, root: int) -> None:
        """Wait until the root is safe: the references in the locations must be enough for the branch, in case its
        working directory is lost. Raise `StoreError` if the root does not become safe in time."""
        durability, attempts = self._flow.durability, iter(range(_ATTEMPTS))
        alone = not self._flow.runner.threads
        if not durability.wait(root, _PATIENCE, lambda: alone and next(attempts, None) is None):
            raise StoreError(
                f"flow '{self._name}': branch '{name}': epoch {root} is not safe yet, so it could not be kept: "
                f"{durability.why_not()}",
                flow=self._name,
                epoch=root,
            )

    def _make(self, name: str, root: int) -> BranchRecord:
        history, runner = self._state.history, self._flow.runner
        # The input of safe epochs may have been released, by this driver or an earlier one.
        released = self._state.copies.safe
        term = self._state.epochs.term
        record = BranchRecord(name, self._name, root, history[root].digest, time.time(), released, term)
        making = BranchMaking(record, history, self._roots.shared(root), self._flow.directory.read_collections())
        link = partial(link_traces, self._flow.compiled.directory, self.traces_of(record))
        able = [number for number, location in enumerate(self._locations) if self._emptied(location, record)]
        making.work_in(self._log, lambda *which: runner.everywhere("linking layers", partial(link, *which)))
        failpoints.reach("branches.linked")
        referring = {number for number in able if self._refer(number, making)}
        took = len(referring & self._roots.having(root))
        if took < self._state.settings.min_replicas:
            self._remove(record)
            raise StoreError(
                f"flow '{self._name}': branch '{name}' could be written to {took} of {len(self._locations)} log "
                f"locations, and needs {self._state.settings.min_replicas}; it was not made",
                flow=self._name,
            )
        failpoints.reach("branches.written")
        self._made(record)
        return record

    def _made(self, record: BranchRecord) -> None:
        """Register a branch whose files are all written."""
        branches.write_local(self._log, record)
        self._known[record.name] = record
        if not record.approximate:
            self._note_term()
        self._flow.guard.tell(events.BranchMade(record.name, record.root))

    def traces_of(self, record: BranchRecord) -> Path:
        """Return the directory of the local layers with which a branch begins."""
        target = branches.directory_of(self._log, record.name)
        if not self._flow.runner.scattered:
            return target / "traces"
        if record.approximate:  # no other driver ever opens it, so it needs no term of its own
            return scattered(target) / self._flow.compiled.directory.name
        return traces_of(target, self._state.history[record.root].term)

    # -- going on without lost members --------------------------------------------------------------------------------

    def named_after_loss(self, history: History, term: int) -> BranchRecord:
        """Return the record of a branch from the last epoch of ``history``, on which the flow goes on without lost
        members. Its name contains the driver's term, so that a fenced driver cannot remove the branch of another."""
        root, first = history[-1], f"approximate-{history.last}-{term}"
        names = itertools.chain([first], (f"{first}.{number}" for number in itertools.count(2)))
        name = next(name for name in names if name not in self._known)
        return BranchRecord(
            name, self._name, root.epoch, root.digest, time.time(), self._state.copies.safe, term, approximate=True
        )

    def begin(self, record: BranchRecord, history: History, insist: Callable[[Callable[[], object]], object]) -> None:
        """Make a branch from the layers of the members that are left. ``insist`` has work done by all members and copes
        with further losses; if it raises, no branch is made."""
        compiled = self._flow.compiled
        making = BranchMaking(record, history, set(compiled.layouts), self._flow.directory.read_collections())
        link = partial(link_traces, compiled.directory, self.traces_of(record))
        what = "going on with what is left"
        try:
            making.work_in(
                self._log,
                lambda *which: insist(lambda: self._flow.runner.everywhere(what, partial(link, *which))),
            )
        except (LogDamaged, MemberUnreachable):
            self._remove(record)
            raise
        self._made(record)

    def end(self, record: BranchRecord) -> None:
        """Remove the approximate branch, because the flow is exact again or is closed."""
        self._remove(self._known.pop(record.name, record))

    def _check_durable(self, record: BranchRecord) -> None:
        if record.approximate:
            raise DeclarationError(
                f"flow '{self._name}': branch '{record.name}' is what the flow itself goes on with while members are "
                "lost: read its views by flow.read; flow.repair() ends it",
                flow=self._name,
                branch=record.name,
            )

    def _refer(self, number: int, making: BranchMaking) -> bool:
        """Write the references and the ``branch.json`` of a branch to a location. Return whether that succeeded."""
        location = self._locations[number]
        try:
            making.refer_in(location, self._flow.durability.removing[number])
        except (StoreError, FileNotFoundError) as error:
            self._missed(location, error)
            return False
        return self._say(location, making.record)

    def _say(self, location: Location, record: BranchRecord) -> bool:
        try:
            location.write(branches.path_of(record.name), record.to_bytes())
            return True
        except StoreError as error:
            self._missed(location, error)
            return False

    # -- removing a branch --------------------------------------------------------------------------------------------

    def remove(self, name: str) -> None:
        """Remove a branch and everything that belongs to it alone. Raise `UnknownName` if there is none of that
        name."""
        if name not in self._known and name not in self._damaged:
            raise UnknownName(
                f"flow '{self._name}': branch '{name}' not found{did_you_mean(name, self._known)}", name=name
            )
        record = self._known.get(name, BranchRecord(name, self._name, -1, "", 0.0, -1))
        self._check_durable(record)
        self._flow.durability.check_claims()  # a fenced driver must remove nothing
        branches.check_idle(self._log, name)
        self._remove(record)

    def _remove(self, record: BranchRecord) -> None:
        """Remove ``branch.json`` everywhere first, in the working directory last, and then the other files. If a
        location cannot be reached, the branch comes back from it at the next opening."""
        locations = [] if record.approximate else self._locations
        for location in locations:
            failpoints.reach("branches.unnaming")
            try:
                location.remove(branches.path_of(record.name))
            except StoreError as error:
                self._missed(location, error)
        (self._log / branches.path_of(record.name)).unlink(missing_ok=True)
        self._known.pop(record.name, None)
        self._damaged.pop(record.name, None)
        failpoints.reach("branches.unnamed")
        for location in locations:
            failpoints.reach("branches.removing")
            try:
                branches.remove_from(location, record.name)
            except StoreError as error:
                self._missed(location, error)
        if self._flow.runner.scattered:
            target = scattered(branches.directory_of(self._log, record.name))
            with suppress(MemberUnreachable):  # the layers of a member that cannot be reached are never read
                self._flow.runner.everywhere("removing a branch", lambda: shutil.rmtree(host_path(target), True))
        failpoints.reach("branches.removed")
        branches.remove_local(self._log, record.name)
        self._flow.guard.tell(events.BranchRemoved(record.name))
        self._note_term()

    def _missed(self, location: Location, error: Exception) -> None:
        _LOG.warning(
            "flow '%s': log location %s: its branches cannot be kept up to date: %s",
            self._name,
            location.uri,
            error,
            extra={"flow": self._name, "location": location.uri, "error": str(error)},
        )
