"""The state of a flow: everything that decides what happens next, in one pure object.

Events go in (`coordinator/events.py`: an epoch ran, a location was listed, a claim was seen, a sink answered, members
were lost), instructions come out (`coordinator/instructions.py`: ship layers, count an epoch, commit to a sink, remove
layers, hand partitions over, stop). It starts no thread, opens no file, reads no clock and knows no Spark: `runtime/`
carries instructions out, and the simulator drives the same object. So a race is a list of events in a test
(`tests/coordinator/test_flow_state_races.py`).

| part | what it knows |
|---|---|
| `history` | the lineage of all complete epochs, with a base |
| `epochs` | the epoch that runs, whether it counts, what failed epochs left behind |
| `rewinds` | which epochs were undone, and which input is to be taken again |
| `versions`, `edits` | what each view is, was, and is declared to be |
| `sinks` | what each sink has |
| `copies` | what each location holds; the safe point; what may be released, collapsed and removed |
| `ownership` | who keeps which partition |
| `branch` | the approximate epochs, while a flow goes on without lost members; None: it is exact |

It is not thread-safe: `runtime/` holds one lock around `handle`. Single values (`copies.safe`, `epochs.last`) may be
read without it.

The file is long because every event has its case in one place.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from typing import Any

from holdfast.coordinator import events, instructions
from holdfast.coordinator.approximate_branch import ApproximateBranch
from holdfast.coordinator.claim import Claim
from holdfast.coordinator.copy_rounds import CopyRounds
from holdfast.coordinator.durability_settings import DurabilitySettings
from holdfast.coordinator.enrolment import Enrolment
from holdfast.coordinator.epochs import EpochSequence
from holdfast.coordinator.events import Event
from holdfast.coordinator.history import History
from holdfast.coordinator.instructions import Instruction
from holdfast.coordinator.lineage import Lineage, to_lines
from holdfast.coordinator.partition_ownership import PartitionOwnership
from holdfast.coordinator.rewinds import Rewinds
from holdfast.coordinator.sink_progress import HeldLineage, SinkProgress
from holdfast.coordinator.view_edits import ViewEdits
from holdfast.coordinator.view_versions import ViewVersion, ViewVersions
from holdfast.errors import Fenced

_WAITS = 16
"""So many epochs a member that joins waits at most; then it gets its share anyway, from the others."""

_LINE = 512
"""Bytes: about the size of an epoch's record."""


class Mode(Enum):
    """How a flow goes on."""

    EXACT = "exact"
    APPROXIMATE = "approximate"
    REPAIRING = "repairing"


class FlowState:
    """Everything that decides what an open flow does next."""

    def __init__(
        self,
        history: History,
        claim: Claim,
        settings: DurabilitySettings,
        *,
        uris: Sequence[str] = (),
        reaches: Mapping[str, int | None] | None = None,
        inputs: Collection[str] = (),
        ranges: Sequence[tuple[int, int]] = ((0, 2**64),),
        enrolment: Enrolment,
        sinks: SinkProgress | None = None,
        declared: Mapping[str, ViewVersion] | None = None,
        before: Mapping[str, ViewVersion] | None = None,
        ownership: PartitionOwnership | None = None,
        continues: bool = False,
        root: int | None = None,
    ) -> None:
        """``history``: the complete epochs, as they grow; ``claim``: this driver's. ``uris``: the log's locations.
        ``reaches``: live trace → how many epochs of it can be read as of (None: as many as are retained); ``inputs``:
        those among them that hold input which is nowhere else. ``ranges``: the key hashes of each partition.
        ``declared``: what the flow's collections are; ``before``: what they were at first, in a log whose history does
        not say so. ``ownership``: who keeps which partition, None where one host keeps all. ``continues``: a loss makes
        the flow approximate. ``root``: the epoch with which it begins, if it is a branch."""
        self.history = history
        self.settings = settings
        self.fenced: Fenced | None = None
        """Another driver has taken over."""

        self.epochs = EpochSequence(history, claim.term)
        self.rewinds = Rewinds(history)
        self.versions = ViewVersions(history, before)
        self.sinks = sinks or SinkProgress(())
        self.edits = ViewEdits(
            history, self.versions, declared or {}, self.sinks, settings.retention, settings.strategy.surely_has
        )
        self.copies = CopyRounds(
            history,
            settings,
            reaches or {},
            inputs,
            ranges,
            enrolment,
            self.edits.former_traces,
            lambda: self.edits.spared(self.copies.safe),
            ownership is not None,
            self.rewinds,
        )
        self.ownership = ownership
        self.branch: ApproximateBranch | None = None
        self.mode = Mode.EXACT
        self.is_unsettled = False
        """Whether members came or went while that could not be made up for."""

        self._claim = claim
        self._uris = list(uris)
        self._ranges = list(ranges)
        self._continues = continues
        self._root = root
        self._awaited: int | None = None
        """Members have joined that wait until this epoch is safe."""

    # -- facts --------------------------------------------------------------------------------------------------------

    @property
    def last(self) -> int:
        """The last complete epoch, approximate or not; -1 before the first."""
        return self.epochs.last if self.branch is None else self.branch.last

    @property
    def lost(self) -> frozenset[int]:
        """The partitions that are left out of what is read."""
        return frozenset() if self.branch is None else self.branch.lost

    def uncommitted(self, epoch: int, held: HeldLineage | None = None) -> bytes:
        """The lineage up to ``epoch`` that is not durable: what a commit to a sink must carry (invariant 6). ``held``:
        the first and the last epoch of what the sink holds already, and need not be given again."""
        after = self.copies.flushed if self.settings.strategy.forwards else epoch - 1
        if held is not None and held[0] <= after + 1:
            after = max(after, held[1])
        return to_lines(self.history[min(after + 1, epoch) : epoch + 1])

    @property
    def deliverable(self) -> int:
        """The last exact epoch that sinks may be given."""
        return self.settings.strategy.deliverable(self.epochs.last, self.copies.safe)

    def surely_has(self, last: int) -> int:
        """The epoch that a sink which cannot tell is taken to have, if ``last`` is the last that it may be given."""
        return self.settings.strategy.surely_has(last)

    def foldable(self, now: int, base_bytes: int) -> int | None:
        """The epoch up to which the history is to be folded; None if that is not worth it. An epoch may be folded when
        nobody can ask for it any more: it is safe, and no other driver has claimed the log since; it is behind the
        retention; and every sink has it. What a branch took since its root is compared with what its parent took when
        it is promoted. ``now``: the host's clock; ``base_bytes``: the size of the base there is."""
        if not self.history:
            return None
        # A host's clock that is far ahead (`coordinator.clock`) makes no epoch old.
        floor = self.settings.retention.floor(self.history, min(now, self.history[-1].clock))
        named = [*self.copies.snapshots.values(), *self.copies.branches.values()]
        named += [] if self._root is None else [self._root]
        upto = min([floor, self.history.last - 1, *named, *(each for each in self.sinks.epochs if each is not None)])
        if self.settings.durable:
            upto = min(upto, self.copies.cleared)
        upto = self.rewinds.foldable(upto, self.copies.safe if self.settings.durable else self.history.last)
        folded = self.history.base.epoch if self.history.base is not None else -1
        return upto if upto - folded >= max(self.settings.fold, base_bytes // _LINE) else None

    # -- epochs -------------------------------------------------------------------------------------------------------

    def begin(
        self,
        offers: dict[str, Any],
        clock: int,
        seed: int,
        back: bool = False,
        rewind: Mapping[str, Any] | None = None,
        again: int | None = None,
    ) -> Lineage:
        """The lineage of the next exact epoch; it is run, and then `EpochRan` or `EpochFailed` is told. ``rewind``:
        what it undoes; ``again``: the epoch whose input it takes again (`rewinds.owed`)."""
        return self.epochs.begin(offers, clock, seed, self.edits.said(), back, rewind, again)

    def begin_on_branch(self, offers: dict[str, Any], clock: int, seed: int) -> Lineage:
        """The lineage of the next approximate epoch; it is run, and then `BranchEpochRan` or `BranchEpochFailed` is
        told."""
        assert self.branch is not None
        return self.branch.epochs.begin(offers, clock, seed)

    def handle(self, event: Event) -> list[Instruction]:
        """What follows from an event, in the order in which it is to be done."""
        match event:
            # Copying.
            case events.RoundDue(location=location, now=now):
                return [] if self.fenced is not None else self.copies.begin(location, now)
            case events.LocationSeen(location=location, holding=holding, now=now):
                return self.copies.seen_in_round(location, holding, now)
            case events.LocationsSeen(holdings=holdings):
                self.copies.seen(holdings)
            case events.LayersShipped(location=location, results=results):
                return self.copies.shipped(location, results)
            case events.ClaimSeen():
                return self._claim_seen(event)
            case events.DriverFenced(error=error):
                self.fenced = error
                return [instructions.Stop(error)]
            case events.RosterWritten(location=location, roster=roster):
                self.copies.roster_written(location, roster)
            case events.SnapshotTaken(name=name, epoch=epoch):
                self.copies.snapshot_taken(name, self.history.last if epoch is None else epoch)
            case events.SnapshotRemoved(name=name):
                self.copies.snapshots.pop(name, None)
            case events.BranchMade(name=name, root=root):
                self.copies.branches[name] = root
            case events.BranchRemoved(name=name):
                self.copies.branches.pop(name, None)
            case events.TracesForgotten(location=location):
                self.copies.forgotten(location)
            case events.LocationFailed():
                pass  # its round ends; what it holds is as it was seen last
            case events.SafetyWanted(epoch=epoch):
                self.copies.want(epoch)
            case events.StateGone(epoch=epoch):
                if all(each is not None and each >= epoch for each in self.sinks.epochs):
                    self.copies.state_gone(epoch)
            case events.RoundEnded(location=location, troubled=troubled):
                return self.copies.end(location, troubled)
            # Epochs.
            case events.EpochRan(lineage=lineage):
                self.epochs.ran(lineage)
                return [instructions.CountEpoch(lineage)]
            case events.EpochWritten(lineage=lineage):
                # Rounds go on meanwhile, and go by the history: the chain has an epoch before the history does, so that
                # none is copied whose layers the chain does not know yet.
                self.epochs.complete(lineage)
                self.history.append(lineage)
                self.rewinds.add(lineage)
                self.versions.add(lineage)
            case events.EpochCounted(lineage=lineage, bytes=size):
                return self._counted(lineage, size)
            case events.EpochFailed(lineage=lineage):
                self.epochs.abandon(lineage)
                return self.remaining()
            case events.LayersRemoved(digest=digest):
                self.epochs.removed(digest)
            case events.HistoryFolded(base=base):
                self.history.fold(base)
                self.rewinds.add(base)
            # Sinks and inputs.
            case events.CommitBegan(sink=sink):
                self.sinks.commit_began(sink)
            case events.SinkAnswered(sink=sink, epoch=epoch, carried=carried):
                self.sinks.answered(sink, epoch, carried)
            case events.SinkStarted(sink=sink, epoch=epoch):
                self.sinks.started(sink, epoch)
            case events.InputsAbsent(traces=traces, whole=whole):
                self.copies.absent, self.copies.absent_whole = traces, dict(whole)
            # Members.
            case events.MembershipChanged(change=change):
                return self._membership_changed(change)
            case events.MemberLeaves(member=member):
                if self.ownership is not None and self.ownership.leave(member):
                    return [instructions.BringOver(member)]
            case events.MemberLeft(member=member):
                if self.ownership is not None:
                    self.ownership.left(member)
            case events.TasksRan(tasks=tasks):
                return self._tasks_ran(tasks)
            case events.MembersLost():
                return self._members_lost(event)
            case events.RangeDamaged(low=low, high=high):
                assert self.branch is not None
                self.branch.damaged(low, high)
            case events.BranchImpossible():
                self.branch, self.mode, self.copies.lost = None, Mode.EXACT, frozenset()
            case events.BranchEpochRan(lineage=lineage):
                assert self.branch is not None
                self.branch.complete(lineage)
            case events.BranchEpochFailed(lineage=lineage):
                assert self.branch is not None
                self.branch.epochs.abandon(lineage)
            case events.RepairBegan():
                self.mode = Mode.REPAIRING
                # What is copied in the meantime may be elsewhere than it was, and elsewhere than the branch needs it.
                self.copies.lost = frozenset(range(len(self._ranges)))
            case events.LayersRecovered():
                self.copies.lost = frozenset()
            case events.RepairEnded(exact=exact):
                self._repaired(exact)
        return []

    # -- copying ------------------------------------------------------------------------------------------------------

    def _claim_seen(self, event: events.ClaimSeen) -> list[Instruction]:
        if event.claim is not None and event.claim > self._claim:
            self.fenced = Fenced(
                f"log {self._uris[event.location]}: another driver has taken over "
                f"(process {event.process} on {event.host}, term {event.claim.term}); "
                f"this one, of term {self._claim.term}, has stopped, and nothing that it wrote since counts",
                term=event.claim.term,
            )
            return [instructions.Stop(self.fenced)]
        if self.fenced is not None or event.now is None:
            return []
        return self.copies.claim_confirmed(event)

    def release(self) -> instructions.ReleaseInput:
        """What the sources may be told to forget: the input of epochs that are safe, unless another driver took
        over before that was seen, and unless the strategy needs it to compute state again."""
        upto = self.settings.strategy.releasable(self.copies.cleared, self.copies.state)
        upto = min([upto, *self.copies.branches.values()])
        # What was taken again after that may be read again; sources know it by the epoch that took it first.
        needed = self.rewinds.needed(upto)
        return instructions.ReleaseInput(upto if needed is None else min(upto, needed))

    # -- epochs -------------------------------------------------------------------------------------------------------

    def remaining(self) -> list[Instruction]:
        """What epochs that failed have left to be done: their layers must go. If all of them stayed, whoever opens the
        log would take such an epoch for one whose driver died before it could say that it was complete."""
        return [instructions.RemoveLayers(digest) for digest in sorted(self.epochs.undone)]

    def _counted(self, lineage: Lineage, size: int) -> list[Instruction]:
        """An epoch counts: it may be seen, by the sources first."""
        self.epochs.counted()
        self.copies.counted(lineage.epoch, size)
        found: list[Instruction] = []
        if self.mode is not Mode.REPAIRING and lineage.again is None:
            found.append(instructions.AdvanceSources(lineage))
        strategy = self.settings.strategy
        after = strategy.after_epoch(lineage.epoch)
        if after.copy:
            found.append(instructions.RequestCopies())
        if after.wait:
            # Nothing is to be seen of it before it is safe; else sinks get it before the next epoch.
            found.append(instructions.AwaitSafe(lineage.epoch))
        elif strategy.deliverable(lineage.epoch, self.copies.safe) < lineage.epoch:
            return found  # its output is held
        return [*found, *(self._deliver(sink, lineage) for sink in range(len(self.sinks.views)))]

    def _deliver(self, sink: int, lineage: Lineage) -> Instruction:
        past = self.versions.of(self.sinks.views[sink])
        # The very first epoch of a view's first version is like any other if the sink has all before it.
        is_new = past[-1].first == lineage.epoch and lineage.epoch > 0
        # What a rewind gives back is in the logs alone.
        if is_new or lineage.rewind is not None or self.sinks.epochs[sink] != lineage.epoch - 1:
            return instructions.CatchUp(sink, lineage.epoch)
        return instructions.Commit(sink, lineage.epoch)

    # -- members ------------------------------------------------------------------------------------------------------

    def _membership_changed(self, change: str) -> list[Instruction]:
        """Members came or went. What a lost one had is inherited at once. One that comes waits until what the others
        had then is safe: then it takes its share from the copies, and the little that came since from the others. It
        does not wait for ever, if storage fails."""
        change = change or ("unsettled" if self.is_unsettled else "")
        if not change:
            return []
        if change != "lost" and self.settings.durable:
            last = self.history.last
            self._awaited = last if self._awaited is None else self._awaited
            if self.copies.safe < self._awaited and last < self._awaited + _WAITS:
                return [instructions.HurryRounds()]
        self._awaited, self.is_unsettled = None, False
        return [instructions.Refresh(settle=change != "lost")]

    def _tasks_ran(self, tasks: Sequence[tuple[int, str]]) -> list[Instruction]:
        """A keyed task that ran elsewhere than at home has its layers there: its partition is kept there from now on,
        and what the new member lacks of the other stages is brought."""
        if self.ownership is None:
            return []
        owners = self.ownership.owners
        moves = {partition: member for partition, member in tasks if member != owners[partition]}
        return [instructions.HandOver(moves)] if moves else []

    # -- continuing without lost members ------------------------------------------------------------------------------

    @property
    def may_branch(self) -> bool:
        """Whether a loss now would make the flow approximate."""
        return self._continues and self.mode is Mode.EXACT and self.ownership is not None and self.last >= 0

    def _members_lost(self, event: events.MembersLost) -> list[Instruction]:
        """If members are gone with partitions of theirs, and not with all, the flow goes on without. On a branch: what
        is gone is left out, and every partition that is left is kept where its layers of the branch are."""
        begins = self.branch is None
        if begins:
            if not self.may_branch or event.members >= set(event.before) or not event.members & set(event.before):
                return []
            self.branch = ApproximateBranch(self.history, self._claim.term, event.before, self._ranges)
            self.mode = Mode.APPROXIMATE
        assert self.branch is not None
        gone = {partition for partition, owner in enumerate(event.before) if owner not in event.members}
        self.copies.lost |= gone
        moves = self.branch.seen(event.members, event.owners)
        found: list[Instruction] = [instructions.HandOver(moves, recover=False)] if moves else []
        return [*found, instructions.BeginBranch()] if begins else found

    def _repaired(self, exact: bool) -> None:
        if exact:
            self.branch, self.mode, self.is_unsettled = None, Mode.EXACT, True
        else:
            self.mode = Mode.APPROXIMATE
            self.copies.lost = frozenset(range(len(self._ranges)))
