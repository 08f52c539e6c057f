"""Durability: what every location holds, up to which epoch that is safe, and what a round of copying has to do.

A *round* makes everything up to the last complete epoch durable at one location. Rounds at several locations run
concurrently; each is a sequence of events and instructions:

    RoundDue ─ Look ─ LocationSeen ─ (Enrol) WriteLineage ShipLayers ─ LayersShipped ─ Look ─ LocationSeen
             ─ CheckClaim ─ ClaimSeen ─ RemoveCopies CompactCopies MergeLineage ForgetTraces WriteRoster ─ RoundEnded

The order matters in two places, and this class keeps it:

* Lineage first, then layers, then the safe point, then the claims. A driver whose claim is still the greatest *after*
  its epochs were durable may release input, since any driver that claims the log later finds these epochs there. Claims
  are checked at the locations that make the epochs safe.
* A layer is removed only after the layers that replace it were seen in a listing.

The first listing is left out if the location is believed to hold what it held at the end of its last round. If that is
wrong, the listing at the end of the round shows it.

Pure: a part of `FlowState`. The file is long because the plan of a round and the safe point are computed from the same
few facts, and both change them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from holdfast.coordinator.copy_plan import (
    Copied,
    Failed,
    Holding,
    Ship,
    ShipResult,
    plan_compactions,
    plan_removals,
    plan_ships,
    reached,
    trusting,
)
from holdfast.coordinator.durability_settings import DurabilitySettings
from holdfast.coordinator.enrolment import Enrolment
from holdfast.coordinator.events import ClaimSeen
from holdfast.coordinator.history import History
from holdfast.coordinator.instructions import (
    CheckClaim,
    CompactCopies,
    Enrol,
    ForgetTraces,
    Instruction,
    Look,
    MergeCopies,
    MergeLineage,
    NoteFailure,
    NoteTrouble,
    RemoveCopies,
    RepairLayers,
    RequestRound,
    SetAside,
    ShipLayers,
    WriteLineage,
    WriteRoster,
)
from holdfast.coordinator.rewinds import Rewinds
from holdfast.coordinator.roster import Roster
from holdfast.coordinator.view_edits import FormerLog
from holdfast.errors import LogDamaged
from holdfast.guarantees.strategy import Copies
from holdfast.trace.merge import outline


@dataclass
class _Round:
    """The progress of a round at a location."""

    last: int
    """The epoch up to which the round copies."""

    copied: bool = False
    """Whether copying has begun: the next listing is the one at the end of the round."""

    listed: bool = False
    """Whether the listing at the end of the round was made."""


class CopyRounds:
    """What the locations of one open log hold, and up to which epoch it is safe."""

    def __init__(
        self,
        history: History,
        settings: DurabilitySettings,
        reaches: Mapping[str, int | None],
        inputs: Collection[str],
        ranges: Sequence[tuple[int, int]],
        enrolment: Enrolment,
        former: Callable[[], Mapping[str, FormerLog]],
        retained: Callable[[], frozenset[str] | None],
        scattered: bool,
        rewinds: Rewinds,
    ) -> None:
        """``reaches``: live trace → the number of past epochs as of which it can be read (None: all that are retained);
        ``inputs``: the live traces that hold input which is nowhere else; ``ranges``: the key hashes of each partition;
        ``former``: traces of former logs of views that a sink still needs; ``retained``: traces that are not live and
        that readers may still read, None as long as a sink may need any trace that is not live; ``scattered``: each
        member keeps layers in its own directory."""
        self._history = history
        self.settings = settings
        self._reaches = dict(reaches)
        every = settings.strategy.copies is Copies.EVERYTHING
        self._copied = [trace for trace in reaches if every or trace in inputs]
        self._inputs = frozenset(inputs)
        self._ranges = list(ranges)
        self._former_of = former
        self._retained = retained
        self._scattered = scattered
        self._rewinds = rewinds
        self.enrolment = enrolment
        self.safe = -1
        """The safe point."""

        self.state = -1
        """The epoch up to which locations hold all state, whichever driver copied it, and this driver was confirmed to
        lead after that."""

        self._gone = -1
        """The last epoch as of which there is no state at all. Locations are given layers without rows up to it, also
        by strategies that copy no state."""

        self._wanted = -1
        """The greatest epoch that a caller waits for until it is safe."""

        self.cleared = -1
        """The epoch up to which input may be released: it was safe, and no other driver had claimed the log after
        that."""

        self.flushed = -1
        """The epoch up to which the lineage is durable."""

        self.snapshots: dict[str, int] = {}
        """Name → epoch of the snapshot: every trace stays readable as of it."""

        self.branches: dict[str, int] = {}
        """Branch → its root. Input after the root may be replayed into the branch, so inputs and lineage are kept from
        there on. (The branch has its own copy of the state at the root.)"""

        self.holdings: dict[int, Holding] = {}
        """Location → what it held when it was last listed."""

        self.absent: frozenset[str] = frozenset()
        """Traces of inputs that are not declared now. They may be declared again, and their rows are nowhere else."""

        self.absent_whole: Mapping[str, int] = {}
        """The traces among `absent` that can be copied, each with the epoch up to which it can."""

        self.lost: frozenset[int] = frozenset()
        """Partitions that are not copied, because their layers are not with the members that own them: their members
        are lost, or layers are being moved. Until they are back, no epoch becomes safe that copies lack for them."""

        self.former_safe: frozenset[str] = frozenset()
        """The traces of `former`, if all of them are safe; else none."""

        self._rounds: dict[int, _Round] = {}
        self._confirmed: dict[int, Holding] = {}
        """Location → what it held when it was listed before its last check of claims that found this driver leading."""

        self._unchanged: set[int] = set()
        """Locations that are believed to hold at least what they held when they were last listed."""

        self._doubtful: dict[int, set[str]] = {}
        """Location → traces for which its last round did not find all layers on the members that own them."""

        self._spared: frozenset[str] = frozenset()
        self._forgotten: set[int] = set()
        """Locations (-1: the local directories) that hold no trace that is not needed."""

        self._written: deque[tuple[int, int]] = deque()
        """Epochs that are not safe, each with the bytes of its layers."""

    # -- what is safe -------------------------------------------------------------------------------------------------

    @property
    def traces(self) -> list[str]:
        """The live traces that are copied."""
        return list(self._copied)

    @property
    def live(self) -> list[str]:
        """The live traces, copied or not: locations are listed for all of them, since another driver, with another
        strategy, may have copied them."""
        return list(self._reaches)

    @property
    def target(self) -> int:
        """The epoch up to which a round that begins now copies: as the strategy says, and at least up to the epoch that
        a caller waits for."""
        last = self._history.last
        return max(self.settings.strategy.copied_upto(last), min(self._wanted, last))

    @property
    def copying(self) -> list[tuple[int, int]]:
        """The epochs that running rounds read of local layers: (first, last) of each. Any thread may call this."""
        return [(min(self.safe, one.last), one.last) for one in list(self._rounds.values())]

    @property
    def has_work(self) -> bool:
        """Whether a round that begins now could make anything safe."""
        return self.safe < self.target or self.state < self._gone

    def state_gone(self, epoch: int) -> None:
        """Note that there is no state as of an epoch, and that every sink has its output."""
        self._gone = max(self._gone, epoch)

    def want(self, epoch: int) -> None:
        """Note that a caller waits until an epoch is safe."""
        self._wanted = max(self._wanted, epoch)

    @property
    def former(self) -> dict[str, int]:
        """Traces that are not live and are copied all the same, each with the epoch up to which it is: former logs of
        views that a sink still needs, and inputs that may be declared again. No epoch after that becomes safe before
        these traces are safe: rows that a sink has must not be lost before the sink got the change that replaces
        them."""
        return {**{each: log.upto for each, log in self._former_of().items() if each not in self._reaches},
                **self.absent_whole}  # fmt: skip

    @property
    def unsafe(self) -> tuple[int, int]:
        """Bytes and epochs that are not safe yet."""
        safe = self.safe
        return sum(size for epoch, size in list(self._written) if epoch > safe), self._history.last - safe

    @property
    def has_room(self) -> bool:
        """Whether the bound allows another unsafe epoch (back-pressure)."""
        return not self.settings.durable or self.settings.bound.allows(*self.unsafe)

    @property
    def live_after(self) -> int:
        """The first epoch as of which all traces must stay readable: epochs that may be computed again read as of it,
        and so do sinks that need former logs."""
        last = self._history.last
        upto = min(self.safe, last - 1) if self.settings.durable else last - 1
        return min([upto, *(log.since for log in self._former_of().values())])

    def floor(self, trace: str, history: History, now: int) -> int:
        """The first epoch as of which a trace must stay readable, for retention, snapshots, branches, rewinds and
        sinks. ``now``: the host's clock."""
        reach = self._reaches[trace]
        # A host's clock that is far ahead (`coordinator.clock`) must not make epochs older than the retention.
        floor = self.settings.retention.floor(history, min(now, history[-1].clock) if history else now)
        floor = floor if reach is None else max(floor, history.last - reach)
        held = list(self.branches.values()) if trace in self._inputs else []
        safe = self.safe if self.settings.durable else history.last
        others = (*self.branches.values(), *self.snapshots.values())
        undoing, owed = self._rewinds.held(safe), self._rewinds.needed(min([safe, *others]))
        # Input that is taken again is read from the source's log, if it has one; such a log has no reach.
        held += [undoing] if undoing is not None else []
        held += [owed] if owed is not None and reach is None else []
        again = self._rewinds.reachable(floor) if reach is None else None
        held += [again] if again is not None else []
        # If an edit was taken back, a sink may still need the changes of this log since the epoch that it has.
        held += [former.since] if (former := self._former_of().get(trace)) is not None else []
        return min([floor, *self.snapshots.values(), *held])

    def snapshot_taken(self, name: str, epoch: int) -> None:
        """Note a snapshot. Before the first epoch (``epoch`` is -1) there is nothing to keep."""
        if epoch >= 0:
            self.snapshots[name] = epoch

    def since(self, trace: str, now: int) -> int:
        """The epoch up to which epochs of a trace may be collapsed: not after the safe point, and not after `floor`."""
        floor = self.floor(trace, self._history, now)
        return min(floor, self.safe) if self.settings.durable else floor

    def counted(self, epoch: int, size: int) -> None:
        """Note that an epoch is complete; its layers have ``size`` bytes."""
        self._written.append((epoch, size))

    def seen(self, holdings: Mapping[int, Holding]) -> None:
        """Take in listings that were made outside a round."""
        self.holdings = {**self.holdings, **holdings}
        self._settle(self._history.last)

    def _settle(self, last: int) -> None:
        """Compute the safe point and what depends on it. None of them ever goes back."""
        self.flushed = max(self.flushed, self.enrolment.safe(self.holdings, (), last))
        former = self.former
        unsafe = [upto for trace, upto in former.items() if self.enrolment.safe(self.holdings, [trace], upto) < upto]
        self.former_safe = frozenset() if unsafe else frozenset(former)
        self.safe = max(self.safe, self.enrolment.safe(self.holdings, self.traces, min([last, *unsafe])))

    # -- a round ------------------------------------------------------------------------------------------------------

    def begin(self, location: int, now: int) -> list[Instruction]:
        """Begin a round at a location."""
        if not self.settings.durable or self.target < 0:
            return []
        self._rounds[location] = _Round(self.target)
        known = self.holdings.get(location) if location in self._unchanged else None
        self._unchanged.discard(location)
        return [self._look(location)] if known is None else self._copy(location, known, now)

    def seen_in_round(self, location: int, holding: Holding, now: int) -> list[Instruction]:
        """Take in a listing of a location during its round: copy what is missing, or check the claims."""
        one = self._rounds[location]
        if not one.copied:
            return self._copy(location, holding, now)
        one.listed = True
        self.holdings = {**self.holdings, location: holding}
        self._settle(one.last)
        self._unchanged.add(location)
        return [CheckClaim(location)]

    def _look(self, location: int) -> Look:
        return Look(location, tuple(dict.fromkeys([*self._reaches, *self.former])))

    def _copy(self, location: int, holding: Holding, now: int) -> list[Instruction]:
        """Instructions to copy what a location with this holding lacks: lineage first, then layers."""
        one = self._rounds[location]
        one.copied = True
        found: list[Instruction] = []
        if (enrol := self.enrolment.meet(location, holding.location)) is not None:
            found.append(Enrol(location, self.enrolment.roster, *enrol))
        if holding.lineage < one.last:
            found.append(WriteLineage(location, holding.lineage, one.last))
        ranges = [each for partition, each in enumerate(self._ranges) if partition not in self.lost]
        ships = plan_ships({location: holding}, self.traces, ranges, one.last)
        if self._gone >= 0 and (others := [trace for trace in self.live if trace not in self._copied]):
            ships += plan_ships({location: holding}, others, ranges, min(self._gone, one.last))
        for trace, upto in self.former.items():
            ships += plan_ships({location: holding}, [trace], ranges, upto)
        since = {ship.trace: self.since(ship.trace, now) if ship.trace in self._reaches else -1 for ship in ships}
        return [*found, ShipLayers(location, tuple(ships), since)]

    def shipped(self, location: int, results: Sequence[ShipResult]) -> list[Instruction]:
        """Take in the results of tasks that copied layers to a location, or merged layers there."""
        found: list[Instruction] = []
        damage: list[LogDamaged] = []
        before, doubtful = self._doubtful.get(location, set()), set()
        for result in results:
            match result:
                case Copied():
                    pass
                case Failed(location=-1, error=LogDamaged() as error):
                    if self._scattered and "path" not in error.fields and result.trace not in before:
                        # Its partition may just be moving to another member. If not, the next round fails, too.
                        doubtful.add(result.trace)
                    else:
                        damage.append(error)
                case Failed(error=LogDamaged(), name=name) if name is not None:
                    self._unchanged.discard(result.location)
                    found.append(SetAside(result.location, result.trace, name))
                case Failed() if result.location >= 0:
                    self._unchanged.discard(result.location)
                    found.append(NoteTrouble(result.location, result.error))
                case Failed():
                    found.append(NoteFailure(location, result.error))
        self._doubtful[location] = doubtful
        if damage:
            found.append(RepairLayers(tuple(damage)))
        one = self._rounds.get(location)
        if one is not None and not one.listed:
            found.append(self._look(location))
        return found

    def claim_confirmed(self, event: ClaimSeen) -> list[Instruction]:
        """A location confirmed, after its copies were listed, that no later driver has claimed the log."""
        location, one = event.location, self._rounds[event.location]
        holding, now = self.holdings[location], event.now or 0
        self._confirmed[location] = holding
        confirmed = self.enrolment.safe(self._confirmed, self.traces, one.last)
        self.cleared = max(self.cleared, min(self.safe, confirmed))
        whole = len(self._copied) == len(self._reaches)
        state = confirmed if whole else self.enrolment.safe(self._confirmed, self.live, one.last)
        self.state = max(self.state, state)
        return [
            *self._tidy(location, holding, one.last, now),
            MergeLineage(location),
            *self._forget(location),
            *self._renew(location, holding),
        ]

    def _tidy(self, location: int, holding: Holding, last: int, now: int) -> list[Instruction]:
        """Instructions to compact a location's layers, and to remove layers that earlier merges replaced."""
        found: list[Instruction] = []
        holdings = {location: holding}
        gone = {(each.trace, name) for each in plan_removals(holdings, last, self.live_after) for name in each.names}
        if gone:
            found.append(RemoveCopies(location, tuple(sorted(gone))))
        ranges = [each for partition, each in enumerate(self._ranges) if partition not in self.lost]
        merges = []
        for compact in plan_compactions(holdings, ranges, last):
            if compact.trace not in self._reaches or any((compact.trace, name) in gone for name in compact.names):
                continue
            among = tuple(holding.layers[compact.trace])
            since = self.since(compact.trace, now)
            after, upto, _ = outline(compact.names, compact.low, compact.high, since, trusting(last), among=among)
            ship = Ship(compact.trace, compact.low, compact.high, after, upto, (location,))
            merges.append(MergeCopies(compact, ship, among, since, last))
        if merges:
            found += [CompactCopies(location, tuple(merges)), RequestRound(location)]
        return found

    def _forget(self, location: int) -> list[Instruction]:
        """Instructions to remove traces that are not live from the location and the local directories, once no sink,
        reader or snapshot can need them."""
        spared = self._retained()
        if spared is None or self.snapshots:
            return []
        if spared != self._spared:
            self._spared = spared
            self._forgotten.clear()
        kept = spared.union(self._reaches, self.absent)
        return [ForgetTraces(each, kept) for each in (location, -1) if each not in self._forgotten]

    def forgotten(self, location: int) -> None:
        """Note that a location (-1: the local directories) holds no trace any more that is not needed."""
        self._forgotten.add(location)

    def _renew(self, location: int, holding: Holding) -> list[Instruction]:
        wanted = self.enrolment.wanted(location, self.holdings, self.traces, self._history.last, self.safe)
        if wanted is None:
            return []
        if holding.roster < wanted[0].version:
            return [WriteRoster(location, *wanted)]
        self.roster_written(location, wanted[0])
        return []

    def roster_written(self, location: int, roster: Roster) -> None:
        """Note that a location has this roster now."""
        self.enrolment.has(location, roster)
        self._settle(self._history.last)

    def end(self, location: int, troubled: bool) -> list[Instruction]:
        """End the round at a location, whether it succeeded or not. Returns requests for further rounds."""
        one = self._rounds.pop(location, None)
        last = self.target if one is None else one.last
        while self._written and self._written[0][0] <= self.safe:
            self._written.popleft()
        again = troubled or not self.enrolment.counts(location) or (self._lags(location, last) and not self.lost)
        # A location that lacks only the next roster would otherwise not get another round.
        wanted = dict.fromkeys([*([location] if again else []), *self.enrolment.awaited()])
        return [RequestRound(each) for each in wanted]

    def _lags(self, location: int, last: int) -> bool:
        holding = self.holdings.get(location)
        return last >= 0 and (holding is None or reached(holding, self.traces, last) < last)
