"""The state of a flow: all decisions about what happens next are made by one pure object.

Events go in (`coordinator/events.py`: an epoch ran, a location was listed, a claim was seen, a sink answered, members
were lost), instructions come out (`coordinator/instructions.py`: ship layers, count an epoch, commit to a sink, remove
layers, hand partitions over, stop). The object starts no thread, opens no file, reads no clock and does not use Spark:
`runtime/` carries instructions out, and the simulator drives the same object. So a race is a list of events in a test
(`tests/coordinator/test_flow_state_races.py`).

| part | content |
|---|---|
| `history` | the lineage of all complete epochs, with a base |
| `epochs` | the running epoch, whether it counts, and the layers that failed epochs left |
| `rewinds` | which epochs were undone, and which input is to be taken again |
| `versions`, `edits` | the past, present and declared version of each view |
| `sinks` | the last epoch that each sink has |
| `copies` | what each location holds; the safe point; what may be released, collapsed and removed |
| `ownership` | the owner of each partition |
| `branch` | the approximate epochs, while a flow goes on without lost members; None while the flow is exact |

`FlowState` is not thread-safe: `runtime/` holds one lock around `handle`. Single values (`copies.safe`, `epochs.last`)
may be read without the lock.

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
"""The number of epochs after which a joining member gets its partitions although their layers are not safe yet; it then
takes more of these layers from the other members."""

_LINE = 512
"""Bytes: about the size of an epoch's record of lineage."""


class Mode(Enum):
    """Whether a flow is exact, goes on without lost members, or is being made exact again."""

    EXACT = "exact"
    APPROXIMATE = "approximate"
    REPAIRING = "repairing"


class FlowState:
    """Decides what an open flow does next."""

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
        """``history``: the complete epochs, which grows; ``claim``: the claim of this driver. ``uris``: the log's
        locations. ``reaches``: live trace → the number of past epochs as of which it can be read (None: all that are
        retained); ``inputs``: the live traces that hold input which is nowhere else. ``ranges``: the key hashes of each
        partition. ``declared``: the declared versions of the flow's collections; ``before``: their first versions, for
        a log whose history does not name them. ``ownership``: the owners of partitions, None if one host keeps all.
        ``continues``: a loss of members makes the flow approximate. ``root``: if the flow is a branch, the epoch at
        which it begins."""
        self.history = history
        self.settings = settings
        self.fenced: Fenced | None = None
        """The error of a driver that must stop, since another driver has taken over; None while this driver leads."""

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
        """Whether a repair has ended, and the assignment of partitions at rest is still to be taken."""

        self._claim = claim
        self._uris = list(uris)
        self._ranges = list(ranges)
        self._continues = continues
        self._root = root
        self._awaited: int | None = None
        """The epoch that must be safe before members that joined get their partitions; None if no member waits."""

    # -- facts --------------------------------------------------------------------------------------------------------

    @property
    def last(self) -> int:
        """The last complete epoch, approximate or not; -1 before the first."""
        return self.epochs.last if self.branch is None else self.branch.last

    @property
    def lost(self) -> frozenset[int]:
        """The lost partitions, which are missing from what is read."""
        return frozenset() if self.branch is None else self.branch.lost

    def uncommitted(self, epoch: int, held: HeldLineage | None = None) -> bytes:
        """The lineage up to ``epoch`` that is not durable, which a commit to a sink must carry (invariant 6). ``held``:
        the first and the last epoch of the lineage that the sink holds already, which is left out."""
        after = self.copies.flushed if self.settings.strategy.forwards else epoch - 1
        if held is not None and held[0] <= after + 1:
            after = max(after, held[1])
        return to_lines(self.history[min(after + 1, epoch) : epoch + 1])

    @property
    def deliverable(self) -> int:
        """The last exact epoch that may be given to sinks."""
        return self.settings.strategy.deliverable(self.epochs.last, self.copies.safe)

    def surely_has(self, last: int) -> int:
        """The epoch that a sink which cannot tell what it has is assumed to have, if ``last`` is the last epoch that it
        may be given."""
        return self.settings.strategy.surely_has(last)

    def foldable(self, now: int, base_bytes: int) -> int | None:
        """The epoch up to which the history should be folded; None if folding is not worth it yet. An epoch may be
        folded when no reader and no recovery can need it any more: it is safe, and no other driver had claimed the log
        after that; it is older than the retention; and every sink has it. Epochs after the root of a branch are kept,
        since promoting a branch compares what it took with what its parent took. ``now``: the host's clock;
        ``base_bytes``: the size of the current base."""
        if not self.history:
            return None
        # A host's clock that is far ahead (`coordinator.clock`) must not make epochs older than the retention.
        floor = self.settings.retention.floor(self.history, min(now, self.history[-1].clock))
        named = [*self.copies.snapshots.values(), *self.copies.branches.values()]
        named += [] if self._root is None else [self._root]
        upto = min([floor, self.history.last - 1, *named, *(each for each in self.sinks.epochs if each is not None)])
        if self.settings.durable:
            upto = min(upto, self.copies.cleared)
        safe = self.copies.safe if self.settings.durable else self.history.last
        upto = self.rewinds.foldable(upto, min([safe, *named]))  # a copy of a snapshot takes owed input itself
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
        """The lineage of the next exact epoch. The caller runs it, and then reports `EpochRan` or `EpochFailed`.
        ``back``: its clock may be before that of the last epoch. ``rewind``: the epochs that it undoes; ``again``: the
        epoch whose input it takes again (`rewinds.owed`)."""
        return self.epochs.begin(offers, clock, seed, self.edits.said(), back, rewind, again)

    def begin_on_branch(self, offers: dict[str, Any], clock: int, seed: int) -> Lineage:
        """The lineage of the next approximate epoch. The caller runs it, and then reports `BranchEpochRan` or
        `BranchEpochFailed`."""
        assert self.branch is not None
        return self.branch.epochs.begin(offers, clock, seed)

    def handle(self, event: Event) -> list[Instruction]:
        """Take an event in, and return the instructions that follow from it, in the order in which to carry them
        out."""
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
                pass  # its round ends; the holding that was seen last stays valid
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
                # Rounds run at the same time, and copy what is in the history. So the chain gets the epoch before the
                # history does: otherwise a round might copy an epoch whose layers the chain does not know yet.
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
                # Layers move between members during a repair, so no partition is copied until they are back.
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
        """The epoch up to which sources may forget input: it is safe, no other driver had claimed the log after that,
        and the strategy does not need the input to compute state again."""
        upto = self.settings.strategy.releasable(self.copies.cleared, self.copies.state)
        upto = min([upto, *self.copies.branches.values()])
        # Input that was taken again after that may still be read; sources know it by the epoch that took it first.
        needed = self.rewinds.needed(min([upto, *self.copies.snapshots.values()]))
        return instructions.ReleaseInput(upto if needed is None else min(upto, needed))

    # -- epochs -------------------------------------------------------------------------------------------------------

    def remaining(self) -> list[Instruction]:
        """Instructions to remove the layers of failed epochs. If all layers of a failed epoch stayed, the next driver
        would take it for an epoch whose driver died after writing all layers and before counting it."""
        return [instructions.RemoveLayers(digest) for digest in sorted(self.epochs.undone)]

    def _counted(self, lineage: Lineage, size: int) -> list[Instruction]:
        """An epoch counts: tell the sources, then copy it and deliver it as the strategy says."""
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
            # Sinks get the epoch only after it is safe; if waiting fails, they get it before the next epoch.
            found.append(instructions.AwaitSafe(lineage.epoch))
        elif strategy.deliverable(lineage.epoch, self.copies.safe) < lineage.epoch:
            return found  # the strategy holds the output back
        return [*found, *(self._deliver(sink, lineage) for sink in range(len(self.sinks.views)))]

    def _deliver(self, sink: int, lineage: Lineage) -> Instruction:
        past = self.versions.of(self.sinks.views[sink])
        # The first epoch of a version is the difference to the version before, from the logs; epoch 0 has none before.
        is_new = past[-1].first == lineage.epoch and lineage.epoch > 0
        # The change of a rewind is not in the reports of its tasks, only in the logs.
        if is_new or lineage.rewind is not None or self.sinks.epochs[sink] != lineage.epoch - 1:
            return instructions.CatchUp(sink, lineage.epoch)
        return instructions.Commit(sink, lineage.epoch)

    # -- members ------------------------------------------------------------------------------------------------------

    def _membership_changed(self, change: str) -> list[Instruction]:
        """Members came or went. The partitions of a lost member are inherited at once. A new member waits until the
        epochs that were complete when it came are safe: then it takes its share of layers from the copies, and only the
        few newer layers from the other members. The wait is bounded, since storage may fail."""
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
        """Keyed tasks ran. If one ran on a member that does not own its partition, its layers are there: that member
        owns the partition from now on, and gets the layers of the other stages that it lacks."""
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
        """If some, but not all, owners of partitions are lost, the flow goes on without these partitions, on a branch.
        The lost partitions are left out, and every other partition stays with the member that has its layers of the
        branch."""
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
