"""Carries out the instructions of a round of copying at its location (`coordinator/copy_rounds.py` decides them): tasks
of low weight make the copies, listings and claims are read, and each result is returned to the state as an event.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from holdfast.coordinator import events, instructions
from holdfast.coordinator.claim import Claim
from holdfast.coordinator.copy_plan import Copied, Ship, ShipResult
from holdfast.coordinator.events import Event
from holdfast.coordinator.flow_state import FlowState
from holdfast.coordinator.instructions import Instruction
from holdfast.errors import LogDamaged
from holdfast.foundation import failpoints
from holdfast.log.copying import Compaction, LayersToCompact, Shipment, compact_all, ship_all
from holdfast.log.layer_sync import forget_others
from holdfast.log.replica import Replica
from holdfast.reporting.redaction import logger
from holdfast.runtime.compiled_flow import log_layout
from holdfast.runtime.locations import Locations
from holdfast.runtime.runner import Beside, Runner
from holdfast.trace.rows import Layout

_SLOW = 5.0
"""Seconds: a location is slow if the copies of one round take longer."""

_LOG = logger("holdfast.recovery")


class RoundWork:
    """Carries out the instructions of rounds."""

    def __init__(
        self,
        runner: Runner,
        flow: str,
        state: FlowState,
        places: Locations,
        layouts: Mapping[str, Layout],
        directory: Path,
        claim: Claim,
        claimed_by: Mapping[str, object],
        describe: Callable[[Replica], None],
        request: Callable[[int], None],
    ) -> None:
        """``layouts``: the layouts of the live traces. ``directory`` holds the local traces. ``claimed_by``: what the
        claim says of this driver. ``describe`` writes the description of the flow's state to a location; ``request``
        asks for another round at a location."""
        self._runner = runner
        self._flow = flow
        self._state = state
        self._places = places
        self.locations = places.all
        self._layouts = dict(layouts)
        self._directory = directory
        self._claim = claim
        self._claimed_by = dict(claimed_by)
        self._describe = describe
        self._request = request
        self._slow: set[int] = set()
        """Locations whose last round was slow. Their tasks take turns among themselves, so that the other locations do
        not wait for them."""

        self.damaged: list[LogDamaged] = []
        """Local layers that a round found damaged, for the engine to repair."""

        self.failures: dict[int, str] = {}
        """Location (-1: syncing) → why its last round failed."""

        self.shipped = 0
        """Bytes sent to locations."""

    def add_layouts(self, layouts: Mapping[str, Layout]) -> None:
        """Add layouts of traces that are not live but may have to be copied."""
        self._layouts = {**layouts, **self._layouts}

    def carry_out(self, instruction: Instruction) -> Event | None:
        """Carry out an instruction. Return the event that tells its result to the state, or None."""
        match instruction:
            case instructions.Look(location=location, traces=traces):
                return self._seen(location, traces)
            case instructions.Enrol():
                return self._enrol(instruction)
            case instructions.WriteLineage(location=location, after=after, upto=upto):
                failpoints.reach("round.before_lineage")
                self._places.each([location], lambda each: self._places.flush(each, after, upto))
            case instructions.ShipLayers(location=location):
                failpoints.reach("round.before_layers")
                return events.LayersShipped(location, tuple(self._ship(instruction)))
            case instructions.SetAside(location=location, trace=trace, name=name):
                self._places.each([location], lambda each: self._places.replicas[each].set_aside(trace, name))
            case instructions.NoteTrouble(location=location, error=error):
                self._places.note(location, error)
            case instructions.NoteFailure(location=location, error=error):
                self.failures[location] = str(error)
            case instructions.RepairLayers(damage=damage):
                self.damaged += damage
            case instructions.CheckClaim(location=location):
                return self._claimed(location)
            case instructions.RemoveCopies(location=location, layers=layers):
                self._places.each([location], lambda each: self._places.remove(each, layers))
            case instructions.CompactCopies(location=location):
                failpoints.reach("round.before_compaction")
                return events.LayersShipped(location, tuple(self._compact(instruction)))
            case instructions.MergeLineage(location=location):
                self._places.merge_lineage([location])
            case instructions.ForgetTraces(location=location, kept=kept):
                return self._forget(location, kept)
            case instructions.WriteRoster(location=location, roster=roster, identity=identity):
                if self._done(location, lambda each: self._places.replicas[each].write_roster(roster, identity)):
                    return events.RosterWritten(location, roster)
            case instructions.RequestRound(location=location):
                self._request(location)
            case instructions.Stop():
                pass  # the next epoch raises the error
            case _:
                raise AssertionError(f"{instruction} is no part of a round")
        return None

    def _done(self, location: int, work: Callable[[int], object]) -> bool:
        """Do ``work`` at a location and return whether it succeeded. A failure of the location is noted."""
        done: list[int] = []

        def attempt(each: int) -> None:
            work(each)
            done.append(each)

        self._places.each([location], attempt)
        return bool(done)

    def _seen(self, location: int, traces: Sequence[str]) -> Event:
        failpoints.reach("round.before_look")
        found = self._places.look([location], traces).get(location)
        if found is None:
            return events.LocationFailed(location)
        return events.LocationSeen(location, found, self._runner.clock())

    def _enrol(self, instruction: instructions.Enrol) -> Event | None:
        replica = self._places.replicas[instruction.location]
        if instruction.was_known:
            _LOG.warning(
                "flow '%s': log location %s has lost what it held, and is filled again",
                self._flow,
                replica.location.uri,
                extra={"flow": self._flow, "location": replica.location.uri},
            )

        def enrol(_: int) -> None:
            replica.open(self._flow)
            replica.claim(self._claim, self._claimed_by)
            self._describe(replica)
            replica.write_roster(instruction.roster, instruction.identity)

        return None if self._done(instruction.location, enrol) else events.LocationFailed(instruction.location)

    def claim_at(self, location: int, now: int | None = None) -> events.ClaimSeen:
        """Return the greatest claim at a location; if it is greater than this driver's, with the process it belongs
        to."""
        replica = self._places.replicas[location]
        claims = replica.claims()
        if not claims or claims[-1] <= self._claim:
            return events.ClaimSeen(location, claims[-1] if claims else None, now=now)
        by = replica.claimed_by(claims[-1])
        return events.ClaimSeen(location, claims[-1], str(by.get("pid", "?")), str(by.get("host", "?")), now)

    def _claimed(self, location: int) -> Event:
        found: list[Event] = []
        self._done(location, lambda each: found.append(self.claim_at(each, self._runner.clock())))
        failpoints.reach("round.before_removal")
        return found[0] if found else events.LocationFailed(location)

    def _ship(self, instruction: instructions.ShipLayers) -> list[ShipResult]:
        location, since, locations = instruction.location, instruction.since, self.locations
        started = time.monotonic()
        results = self._runner.tasks(
            "making layers durable",
            lambda some: ship_all(some, locations),
            [self._shipment(ship, since[ship.trace]) for ship in instruction.ships],
            self._turn(location),
            lambda one: one.ship.low,
        )
        (self._slow.add if time.monotonic() - started > _SLOW else self._slow.discard)(location)
        return self._counted(results)

    def _compact(self, instruction: instructions.CompactCopies) -> list[ShipResult]:
        locations = self.locations
        compactions = [
            Compaction(
                self._shipment(one.ship, one.since), (LayersToCompact(one.compact, one.among, one.since, one.last),)
            )
            for one in instruction.merges
        ]
        results = self._runner.tasks(
            "compacting copies",
            lambda items: compact_all(items, locations),
            compactions,
            self._turn(instruction.location),
            lambda one: one.shipment.ship.low,
        )
        return self._counted(results)

    def _counted(self, results: list[ShipResult]) -> list[ShipResult]:
        self.shipped += sum(result.bytes for result in results if isinstance(result, Copied))
        return results

    def _turn(self, location: int) -> Beside:
        return Beside.LAGGING if location in self._slow else Beside.COPYING

    def _shipment(self, ship: Ship, since: int) -> Shipment:
        digest = self._state.history.digest(ship.upto)
        if digest is None:
            raise LogDamaged(f"the lineage of epoch {ship.upto} was folded, and no layer ends with it", epoch=ship.upto)
        return Shipment(
            ship=ship,
            directory=str(self._directory / ship.trace),
            layout=self._layout(ship.trace),
            chain=self._state.epochs.chain(),
            digest=digest,
            since=since,
            metadata={},
        )

    def _layout(self, trace: str) -> Layout:
        if trace not in self._layouts:
            # The trace is the former log of an edited view.
            self._layouts |= {each.trace: log_layout(each) for each in self._state.edits.former()}
        return self._layouts[trace]

    def _forget(self, location: int, kept: frozenset[str]) -> Event | None:
        """Remove all traces except ``kept``: from a location, or from all members if ``location`` is negative."""
        failpoints.reach("round.before_forgetting")
        if location < 0:
            directory = self._directory
            self._runner.everywhere("removing what is not used any more", lambda: forget_others(directory, kept))
            return events.TracesForgotten(location)

        def forget(each: int) -> None:
            replica = self._places.replicas[each]
            for trace in sorted(set(replica.traces()) - kept):
                self._places.remove(each, [(trace, name) for name in replica.layers(trace)])

        return events.TracesForgotten(location) if self._done(location, forget) else None
