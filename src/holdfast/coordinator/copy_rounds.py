"""Durability as a state: what every location holds, how far that makes epochs safe, and what a round has to do.

A *round* makes everything up to the last complete epoch durable at one location. Rounds at several locations go on side
by side; each is a sequence of events and instructions:

    RoundDue ─ Look ─ LocationSeen ─ (Enrol) WriteLineage ShipLayers ─ LayersShipped ─ Look ─ LocationSeen
             ─ CheckClaim ─ ClaimSeen ─ RemoveCopies CompactCopies MergeLineage ForgetTraces WriteRoster ─ RoundEnded

Order matters in two places, and both are kept here:

* Lineage first, then layers, then the safe point, then the claims: a driver that finds its own claim still the greatest
  *after* its epochs were durable may release input, since whoever claims the log later will find them there. The claims
  that count are those of the locations that make the epochs safe.
* A layer is removed only after the layers that replace it were seen in a listing.

The first listing is left out where the location holds, as far as is known, what it held at the end of its last round:
if that is wrong, the listing at the end of this one tells.

Pure: a part of `FlowState`. The file is long because what a round does and how far it makes epochs safe are read from,
and written to, the same few facts.
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
    """A round at a location, as far as it is."""

    last: int
    """The last complete epoch when it began: up to here it copies."""

    copied: bool = False
    """Whether the copies were made, and the next listing says what the location holds now."""

    listed: bool = False
    """Whether that listing was made."""


class CopyRounds:
    """What the locations of one open log hold, and how far its epochs are safe."""

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
        """``reaches``: live trace → how many epochs of it can be read as of (None: as many as are retained);
        ``inputs``: those of them that hold input which is nowhere else; ``ranges``: the key hashes of each partition;
        ``former``: traces of logs that views had before and that a sink still needs; ``retained``: traces that the
        flow has no more and that readers may still ask for, None while traces that the flow has no more may be needed
        by a sink."""
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
        """As of this epoch locations have all state, whoever copied it, and this driver leads."""

        self._gone = -1
        """As of this epoch there is no state: that is said to locations, in layers without rows, also by strategies
        that copy none."""

        self._wanted = -1
        """Somebody waits until this epoch is safe."""

        self.cleared = -1
        """Up to here input may be released: it was safe, and after that nobody else had claimed the log."""

        self.flushed = -1
        """The lineage up to this epoch is durable."""

        self.snapshots: dict[str, int] = {}
        """Name → the epoch that has it: every trace stays readable as of that."""

        self.branches: dict[str, int] = {}
        """Branch → its root: what came after that may be fed to it again, so inputs and lineage are kept from there
        on. (The state that it began with is its own.)"""

        self.holdings: dict[int, Holding] = {}
        """Location → what it held when it was last looked at."""

        self.absent: frozenset[str] = frozenset()
        """Traces of inputs that are not declared now: they may be again, and their rows are nowhere else."""

        self.absent_whole: Mapping[str, int] = {}
        """Of these, the traces that can be copied, each up to an epoch."""

        self.lost: frozenset[int] = frozenset()
        """Partitions whose members do not have their layers, while a flow goes on without them: nothing of these can be
        copied before they are back, so no epoch after what copies have of them becomes safe."""

        self.former_safe: frozenset[str] = frozenset()
        """The traces among `former` that are safe."""

        self._rounds: dict[int, _Round] = {}
        self._confirmed: dict[int, Holding] = {}
        """Location → what it held before its claims were last looked at, and found to be this driver's."""

        self._unchanged: set[int] = set()
        """Locations that hold what they did when they were last looked at, and maybe more: as far as is known."""

        self._doubtful: dict[int, set[str]] = {}
        """Location → traces of which its last round did not find all layers with the members that should have them."""

        self._spared: frozenset[str] = frozenset()
        self._forgotten: set[int] = set()
        """Locations (-1: the local directories) that have only traces that the flow needs."""

        self._written: deque[tuple[int, int]] = deque()
        """Epochs that are not safe, each with the bytes of its layers."""

    # -- how far everything is ----------------------------------------------------------------------------------------

    @property
    def traces(self) -> list[str]:
        """The live traces that are copied."""
        return list(self._copied)

    @property
    def live(self) -> list[str]:
        """The live traces, copied or not: what locations have of them is looked at, whoever copied it."""
        return list(self._reaches)

    @property
    def target(self) -> int:
        """Up to this epoch a round that begins now copies: what the strategy says, and what somebody waits for."""
        last = self._history.last
        return max(self.settings.strategy.copied_upto(last), min(self._wanted, last))

    @property
    def has_work(self) -> bool:
        """Whether a round now has anything to make safe."""
        return self.safe < self.target or self.state < self._gone

    def state_gone(self, epoch: int) -> None:
        """There is no state as of an epoch, and every sink has its output."""
        self._gone = max(self._gone, epoch)

    def want(self, epoch: int) -> None:
        """Somebody waits until an epoch is safe."""
        self._wanted = max(self._wanted, epoch)

    @property
    def former(self) -> dict[str, int]:
        """Traces that the flow has no more, each with the epoch up to which it is kept: those that a sink needs, and
        those of inputs that may come back. No epoch after that is safe before they are: what a sink has must not be
        forgotten before it was brought away from it."""
        return {**{each: log.upto for each, log in self._former_of().items() if each not in self._reaches},
                **self.absent_whole}  # fmt: skip

    @property
    def unsafe(self) -> tuple[int, int]:
        """Bytes and epochs that are not safe yet."""
        safe = self.safe
        return sum(size for epoch, size in list(self._written) if epoch > safe), self._history.last - safe

    @property
    def has_room(self) -> bool:
        """Whether no more is unsafe than the bound allows (back-pressure)."""
        return not self.settings.durable or self.settings.bound.allows(*self.unsafe)

    @property
    def live_after(self) -> int:
        """Every epoch from this one on must stay readable: those that may have to be computed again read as of it."""
        last = self._history.last
        upto = min(self.safe, last - 1) if self.settings.durable else last - 1
        return min([upto, *(log.since for log in self._former_of().values())])

    def floor(self, trace: str, history: History, now: int) -> int:
        """Before this epoch of a history a trace needs not be readable. ``now``: the host's clock."""
        reach = self._reaches[trace]
        # A host's clock that is far ahead (`coordinator.clock`) makes no epoch old.
        floor = self.settings.retention.floor(history, min(now, history[-1].clock) if history else now)
        floor = floor if reach is None else max(floor, history.last - reach)
        held = list(self.branches.values()) if trace in self._inputs else []
        safe = self.safe if self.settings.durable else history.last
        undoing, owed = self._rewinds.held(safe), self._rewinds.needed(min([safe, *self.branches.values()]))
        # What is taken again is read from the log of the source, if it has one: and that reaches back for ever.
        held += [undoing] if undoing is not None else []
        held += [owed] if owed is not None and reach is None else []
        # An edit that is taken back has the log that a sink must first be brought away from.
        held += [former.since] if (former := self._former_of().get(trace)) is not None else []
        return min([floor, *self.snapshots.values(), *held])

    def snapshot_taken(self, name: str, epoch: int) -> None:
        """An epoch has a name. Before the first epoch there is nothing to name."""
        if epoch >= 0:
            self.snapshots[name] = epoch

    def since(self, trace: str, now: int) -> int:
        """Epochs of a trace up to this one may be collapsed: behind the safe point, and behind what can be read."""
        floor = self.floor(trace, self._history, now)
        return min(floor, self.safe) if self.settings.durable else floor

    def counted(self, epoch: int, size: int) -> None:
        """An epoch is complete; its layers have so many bytes."""
        self._written.append((epoch, size))

    def seen(self, holdings: Mapping[int, Holding]) -> None:
        """Locations were listed, and not in the course of a round."""
        self.holdings = {**self.holdings, **holdings}
        self._settle(self._history.last)

    def _settle(self, last: int) -> None:
        """Compute how far everything is safe. What was promised is not taken back."""
        self.flushed = max(self.flushed, self.enrolment.safe(self.holdings, (), last))
        former = self.former
        unsafe = [upto for trace, upto in former.items() if self.enrolment.safe(self.holdings, [trace], upto) < upto]
        self.former_safe = frozenset() if unsafe else frozenset(former)
        self.safe = max(self.safe, self.enrolment.safe(self.holdings, self.traces, min([last, *unsafe])))

    # -- a round ------------------------------------------------------------------------------------------------------

    def begin(self, location: int, now: int) -> list[Instruction]:
        """A round is to be made at a location."""
        if not self.settings.durable or self.target < 0:
            return []
        self._rounds[location] = _Round(self.target)
        known = self.holdings.get(location) if location in self._unchanged else None
        self._unchanged.discard(location)
        return [self._look(location)] if known is None else self._copy(location, known, now)

    def seen_in_round(self, location: int, holding: Holding, now: int) -> list[Instruction]:
        """A location was listed in the course of its round."""
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
        """What a location lacks that holds this: lineage first, then layers."""
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
        """Tasks have copied layers to a location, or merged layers there, as far as they could."""
        found: list[Instruction] = []
        damage: list[LogDamaged] = []
        before, doubtful = self._doubtful.get(location, set()), set()
        for result in results:
            match result:
                case Copied():
                    pass
                case Failed(location=-1, error=LogDamaged() as error):
                    if self._scattered and "path" not in error.fields and result.trace not in before:
                        # Its partition may just be on its way to another member. If not, the next round says so again.
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
        """A location says, after its copies were listed, that this driver is the last one to have claimed the log."""
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
        """Compact a location by itself, and remove what was replaced before."""
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
        """Remove the traces that the flow has no more, once nobody can need them, here and in each location."""
        spared = self._retained()
        if spared is None or self.snapshots:
            return []
        if spared != self._spared:
            self._spared = spared
            self._forgotten.clear()
        kept = spared.union(self._reaches, self.absent)
        return [ForgetTraces(each, kept) for each in (location, -1) if each not in self._forgotten]

    def forgotten(self, location: int) -> None:
        """A location (-1: the local directories) has no trace any more that the flow does not need."""
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
        """A location has this roster now."""
        self.enrolment.has(location, roster)
        self._settle(self._history.last)

    def end(self, location: int, troubled: bool) -> list[Instruction]:
        """The round at a location is over, however it went."""
        one = self._rounds.pop(location, None)
        last = self.target if one is None else one.last
        while self._written and self._written[0][0] <= self.safe:
            self._written.popleft()
        again = troubled or not self.enrolment.counts(location) or (self._lags(location, last) and not self.lost)
        # A location that has everything else, and lacks the next roster, would have no round any more.
        wanted = dict.fromkeys([*([location] if again else []), *self.enrolment.awaited()])
        return [RequestRound(each) for each in wanted]

    def _lags(self, location: int, last: int) -> bool:
        holding = self.holdings.get(location)
        return last >= 0 and (holding is None or reached(holding, self.traces, last) < last)
