"""Durability, off the critical path: each layer climbs from memory to disk to the log locations, in the background.

A *round* makes everything up to the last complete epoch durable at one location: it ships what that one lacks
(`coordinator/copy_plan.py` decides, tasks of low weight do it). Each location has rounds of its own, side by side
with those of the others (`runtime/replication_lanes.py`); local layers are synced in a lane of their own. Epochs never
wait for a round; while one is slow, epochs pile up, and the next round takes them all at once. After a round the safe
point is computed from the names that were seen everywhere, from whichever locations have them, and sources may forget
what lies behind it.

Order matters in two places, and both are kept here:

* Lineage first, then layers, then the safe point, then the claims: a driver that finds its own claim still the greatest
  *after* its epochs were durable may release input, since whoever claims the log later will find them there. The claims
  that count are those of the locations that make the epochs safe.
* A layer is removed only after the layers that replace it were seen in a listing.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from holdfast.coordinator.copy_plan import Holding, Ship, plan_compactions, plan_removals, plan_ships, reached, trusting
from holdfast.coordinator.history import History
from holdfast.coordinator.lineage import to_lines
from holdfast.coordinator.retention import Bound, Retention
from holdfast.errors import Fenced, HoldfastError, LogDamaged
from holdfast.foundation import failpoints
from holdfast.log.copying import Compaction, Copied, Failed, LayersToCompact, Result, Shipment, compact_all, ship_all
from holdfast.log.layer_sync import forget_others
from holdfast.log.location import Location
from holdfast.log.replica import Claim
from holdfast.runtime.enrolment import Enrolment
from holdfast.runtime.local_sync import LocalSync
from holdfast.runtime.locations import Locations
from holdfast.runtime.replication_lanes import Lanes
from holdfast.runtime.runner import Beside, Runner
from holdfast.task.program import partition_range
from holdfast.trace.cover import Chain
from holdfast.trace.merge import outline
from holdfast.trace.name import LayerName
from holdfast.trace.rows import Layout

PAUSE = 5.0
"""Between two rounds, unless somebody waits for one: copying takes what epochs leave of the machine, not half of it."""

_SLOW = 5.0
"""Seconds: a location to which the copies of one round take longer is slow."""

_ATTEMPTS = 3


@dataclass(frozen=True)
class DurabilitySettings:
    """What the user wants of durability."""

    strategy: str = "nosync"
    min_replicas: int = 1
    bound: Bound = field(default_factory=Bound)
    retention: Retention = field(default_factory=Retention)
    accept_loss: bool = False
    """Begin although too few locations are there to be sure that nothing is lost."""
    fold: int = 256
    """So many epochs behind what is retained are folded at once."""

    @property
    def durable(self) -> bool:
        return self.strategy != "volatile"


@dataclass(frozen=True)
class LiveTrace:
    """A live trace: its layout, and how many epochs of it can be read as of."""

    layout: Layout
    reach: int | None
    """None: as many as the flow retains."""


class Replication:
    """The rounds of one open flow."""

    def __init__(
        self,
        runner: Runner,
        locations: Sequence[Location],
        settings: DurabilitySettings,
        traces: Mapping[str, LiveTrace],
        directory: Path,
        history: History,
        chain: Callable[[], Chain],
        claim: Claim,
        enrolment: Enrolment,
    ) -> None:
        """``history`` is the lineage of all complete epochs, as it grows; ``directory`` holds the local traces."""
        self._runner = runner
        self._places = Locations(locations, history, claim, runner.threads)
        self._enrolment = enrolment
        self.locations = self._places.all
        self.troubles = self._places.troubles
        self.settings = settings
        self._traces = dict(traces)
        self._directory = directory
        self._history = history
        self._chain = chain
        self._changed = threading.Condition()
        self._written: deque[tuple[int, int]] = deque()
        self._lock = threading.RLock()
        """Held by a round while it changes what all of them know."""

        self._background = Lanes(
            runner,
            "holdfast-durability",
            [*(partial(self._round_at, number) for number in range(len(locations))), self._sync_round],
            0.0 if settings.strategy == "synchronous-log" else PAUSE,
        )
        self.safe = -1
        """The safe point."""

        self.cleared = -1
        """Up to here input may be released: it was safe, and after that nobody else had claimed the log."""

        self.disk = LocalSync(runner, list(traces), directory)
        self.flushed = -1
        """The lineage up to this epoch is durable."""

        self.holdings: dict[int, Holding] = {}
        """Location → what it held when it was last looked at."""

        self._confirmed: dict[int, Holding] = {}
        """Location → what it held before its claims were last looked at, and found to be this driver's."""

        self._unchanged: set[int] = set()
        """Locations that hold what they did when they were last looked at, and maybe more: as far as we know."""

        self.damaged: list[LogDamaged] = []
        """Local layers that a round found damaged, for the engine to repair."""

        self.former: dict[str, tuple[Layout, int]] = {}
        """Traces that the flow has no more and that a sink still needs, each up to an epoch. No epoch after that is
        safe before they are: what a sink has must not be forgotten before it was brought away from it."""

        self.absent: frozenset[str] = frozenset()
        """Traces of inputs that are not declared now: they may be again, and their rows are nowhere else."""

        self.lost: frozenset[int] = frozenset()
        """Partitions whose members do not have their layers, while a flow goes on without them: nothing of these can be
        copied before they are back, so no epoch after what copies have of them becomes safe."""

        self._doubtful: dict[int, set[str]] = {}
        """Location → traces of which its last round did not find all layers with the members that should have them."""

        self._former_safe: frozenset[str] = frozenset()
        self.is_settled: Callable[[], bool] = lambda: False
        """Whether nobody can need traces any more that the flow does not have."""

        self.retained: Callable[[], frozenset[str]] = frozenset
        """Traces that the flow has no more, and that readers may still ask for."""

        self._spared: frozenset[str] = frozenset()
        self._settled: set[int] = set()
        """Locations (-1: the local directory) from which such traces were removed."""

        self._slow: set[int] = set()
        """Locations whose last round took long: they take turns among themselves, so as not to hold up the others."""

        self._failures: dict[int, str] = {}
        """Location (-1: syncing) → why its last round failed."""

        self.rounds = 0
        self.shipped = 0
        """Bytes sent to locations."""

    @property
    def history(self) -> History:
        """The lineage of all complete epochs."""
        return self._history

    @property
    def fenced(self) -> Fenced | None:
        """Another driver has taken over."""
        return self._places.fenced

    @fenced.setter
    def fenced(self, error: Fenced | None) -> None:
        self._places.fenced = error

    @property
    def busy(self) -> bool:
        """Whether a round is at work."""
        return self._background.busy

    @property
    def failure(self) -> str | None:
        """Why a round failed last, other than because of its location."""
        return next(iter(list(self._failures.values())), None)

    # -- what the engine says and asks --------------------------------------------------------------------------------

    def completed(self, epoch: int, written: int) -> None:
        """An epoch is complete; its layers have so many bytes."""
        with self._changed:
            self._written.append((epoch, written))
        self.request()

    def request(self) -> None:
        """Have a round made, if there is anything to make safe."""
        if self.settings.durable and self.safe < self._history.last:
            self._background.request()

    def hurry(self) -> None:
        """Have a round made at once: something waits for it."""
        if self.settings.durable and self.safe < self._history.last:
            self._background.hurry()

    def uncommitted(self, epoch: int, held: tuple[int, int] | None = None) -> bytes:
        """The lineage up to ``epoch`` that is not durable: what a commit to a sink must carry (invariant 6). ``held``:
        the first and the last epoch of what the sink holds already, and need not be given again."""
        after = self.flushed if self.settings.durable else epoch - 1
        if held is not None and held[0] <= after + 1:
            after = max(after, held[1])
        return to_lines(self._history[min(after + 1, epoch) : epoch + 1])

    @property
    def unsafe(self) -> tuple[int, int]:
        """Bytes and epochs that are not safe yet."""
        with self._changed:
            safe = self.safe
            return sum(size for epoch, size in self._written if epoch > safe), self._history.last - safe

    @property
    def has_room(self) -> bool:
        """Whether no more is unsafe than the bound allows."""
        return not self.settings.durable or self.settings.bound.allows(*self.unsafe)

    def wait_for_room(self, stopping: Callable[[], bool], waiting: Callable[[], None]) -> float:
        """Wait while more is unsafe than the bound allows (back-pressure). The seconds it took."""
        started = time.perf_counter()
        told = False
        while not self.has_room and not stopping():
            self._check_fence()
            if not told:
                waiting()
                told = True
            self._advance(0.2)
        return time.perf_counter() - started if told else 0.0

    def wait(self, epoch: int, timeout: float | None = None, stopping: Callable[[], bool] = lambda: False) -> bool:
        """Wait until ``epoch`` is safe; False if it was not within ``timeout`` seconds, or before ``stopping``."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.safe < epoch:
            self._check_fence()
            left = None if deadline is None else deadline - time.monotonic()
            if stopping() or (left is not None and left <= 0):
                return False
            self._advance(0.2 if left is None else min(0.2, left))
        return True

    def wait_former(self, timeout: float) -> bool:
        """Wait until all traces that the flow has no more and a sink needs are safe; False if they were not in time."""
        deadline = time.monotonic() + timeout
        attempts = 0
        if self.settings.durable and not self.former.keys() <= self._former_safe:
            self.look()  # most often they were made safe when the flow was closed
        while self.settings.durable and not self.former.keys() <= self._former_safe:
            self._check_fence()
            attempts += 1
            if time.monotonic() > deadline or (attempts > _ATTEMPTS and not self._runner.threads):
                return False
            self._advance(0.2)
        return True

    def why_not(self) -> str:
        """Why something is not safe."""
        why = "; ".join(trouble.error for trouble in list(self.troubles.values()))
        return why or self.failure or "the copies are not finished"

    def _advance(self, seconds: float) -> None:
        self._background.request()
        self._background.hurry([number for number in range(len(self.locations)) if number not in self.troubles])
        if not self._runner.threads:
            self._background.now()
            return
        with self._changed:
            self._changed.wait(seconds)

    def _check_fence(self) -> None:
        if self.fenced is not None:
            raise self.fenced

    def check_claims(self) -> None:
        """Raise `Fenced` if another driver has taken over, as far as the locations that answer say."""
        if self.settings.durable:
            self._places.check_claims(range(len(self.locations)))
            self._check_fence()

    def upkeep(self) -> None:
        """One round in this thread, for those who drive without threads."""
        self._background.now()

    def abandon(self) -> None:
        """End, and leave everything as it is."""
        self._background.close()

    def close(self) -> None:
        """End; what is not safe yet is given one more round."""
        self._background.close()
        if self.settings.durable and self.fenced is None and self.safe < self._history.last:
            self._places.try_again()
            self._round()

    # -- a round ------------------------------------------------------------------------------------------------------

    def _round(self) -> None:
        """One round at every location, and of syncing."""
        self._background.each()

    def _round_at(self, number: int) -> None:
        """One round at a location."""
        last = self._history.last
        if last < 0 or self.fenced is not None:
            return
        if self._places.is_able(number):
            self._attempt(number, lambda: self._make_durable(number, last))
            self.rounds += 1
        with self._changed:
            while self._written and self._written[0][0] <= self.safe:
                self._written.popleft()
            self._changed.notify_all()
        if (self._lags(number, last) and not self.lost) or number in self.troubles or not self.counts(number):
            self._background.request(number)
        for each in self._enrolment.awaited():
            # One that has everything else would have no round any more.
            self._background.request(each)

    def _lags(self, number: int, last: int) -> bool:
        holding = self.holdings.get(number)
        return holding is None or reached(holding, list(self._traces), last) < last

    def _attempt(self, number: int, work: Callable[[], None]) -> None:
        try:
            work()
            self._failures.pop(number, None)
        except HoldfastError as error:
            self._failures[number] = str(error)
        except Exception as error:
            # Nothing is lost: epochs go on, and the next round tries again.
            self._failures[number] = f"{type(error).__name__}: {error}".split("\n", 1)[0]

    def _make_durable(self, number: int, last: int) -> None:
        traces = list(self._traces)
        # What was there at the end of the last round is there now. If not, the look at the end of this one tells.
        known = self.holdings.get(number) if number in self._unchanged else None
        self._unchanged.discard(number)
        holding = known or self._look([number], traces).get(number)
        if holding is None or not self._meet(number):
            return
        failpoints.reach("round.before_lineage")
        self._places.each([number], lambda each: self._places.flush(each, holding.lineage, last))
        if not self._places.is_able(number):
            return
        count = self._runner.partitions
        ranges = [partition_range(each, count) for each in range(count) if each not in self.lost]
        failpoints.reach("round.before_layers")
        shipments = [self._shipment(ship) for ship in plan_ships({number: holding}, traces, ranges, last)]
        shipments += self._former_shipments({number: holding}, ranges)
        locations = self.locations
        started = time.monotonic()
        results = self._runner.tasks(
            "making layers durable",
            lambda some: ship_all(some, locations),
            shipments,
            self._turn(number),
            lambda one: one.ship.low,
        )
        (self._slow.add if time.monotonic() - started > _SLOW else self._slow.discard)(number)
        self._noted(number, results)
        if not self._places.is_able(number):
            return
        failpoints.reach("round.before_look")
        found = self._look([number], traces)
        if number not in found:
            return
        with self._lock:
            self.holdings.update(found)
            self._settle(traces, last)
            if number not in self.troubles:
                self._unchanged.add(number)
        if self._places.check_claims([number]):
            with self._lock:
                self._confirmed.update(found)
                self.cleared = max(self.cleared, min(self.safe, self._safe_point(self._confirmed, traces, last)))
            self._tidy(number, found[number], ranges, last)
            self._places.merge_lineage(found)
            self._forget(found)
            self._places.each([number], lambda each: self._renew(each, traces))

    def _meet(self, number: int) -> bool:
        """See that a location is what it was; whether it can be written to."""
        replica = self._places.replicas[number]
        met: list[int] = []

        def meet(each: int) -> None:
            self._enrolment.meet(each, replica)
            met.append(each)

        self._places.each([number], meet)
        return bool(met)

    def _renew(self, number: int, traces: Sequence[str]) -> None:
        with self._lock:
            holdings = dict(self.holdings)
        self._enrolment.renew(number, self._places.replicas[number], holdings, traces, self._history.last, self.safe)
        with self._lock:
            self._settle(traces, self._history.last)

    def counts(self, number: int) -> bool:
        """Whether what a location holds makes epochs safe."""
        return self._enrolment.counts(number)

    def _turn(self, number: int) -> Beside:
        return Beside.LAGGING if number in self._slow else Beside.COPYING

    def _sync_round(self) -> None:
        """Sync local layers, if it is time."""
        last = self._history.last
        if last < 0 or self.fenced is not None or not self.settings.durable:
            return
        if self.disk.is_due(last, bool(self.troubles)):
            self._attempt(-1, lambda: self.disk.sync(last))
        if self.disk.synced < last:
            self._background.request(len(self.locations))

    def _shipment(self, ship: Ship) -> Shipment:
        return Shipment(
            ship=ship,
            directory=str(self._directory / ship.trace),
            layout=self._layout(ship.trace),
            chain=self._chain(),
            digest=self._digest(ship.upto),
            since=self.since(ship.trace) if ship.trace in self._traces else -1,
            metadata={},
        )

    def _safe_point(self, holdings: Mapping[int, Holding], traces: Sequence[str], last: int) -> int:
        """The safe point, if the locations hold this."""
        return self._enrolment.safe(holdings, traces, last)

    def _settle(self, traces: Sequence[str], last: int) -> None:
        self.flushed = max(self.flushed, self._safe_point(self.holdings, (), last))
        former = dict(self.former)
        unsafe = [upto for trace, (_, upto) in former.items() if self._safe_point(self.holdings, [trace], upto) < upto]
        self._former_safe = frozenset() if unsafe else frozenset(former)
        last = min([last, *unsafe])
        self.safe = max(self.safe, self._safe_point(self.holdings, traces, last))

    def look(self) -> None:
        """See how far everything is durable, without changing anything."""
        if not self.settings.durable or not self._history:
            return
        found = self._look(range(len(self.locations)), list(self._traces))
        with self._lock:
            self.holdings.update(found)
            self._settle(list(self._traces), self._history.last)

    def look_again(self, traces: Collection[str]) -> None:
        """Have layers that were set aside count again in their locations if they have their checksums after all."""

        def look(number: int) -> None:
            replica = self._places.replicas[number]
            for trace, name in replica.aside():
                if trace in traces:
                    replica.put_back(trace, name)

        if self.settings.durable:
            self._places.each(self._places.able(), look)

    def peek(self, traces: Sequence[str]) -> dict[int, Holding]:
        """What the locations hold of traces that may not be the flow's any more."""
        return self._look(range(len(self.locations)), traces) if self.settings.durable else {}

    def ends(self) -> set[int]:
        """The last epochs of all layers and segments that locations are known to hold."""
        found = {
            name.last for holding in self.holdings.values() for layers in holding.layers.values() for name in layers
        }
        return found | self._places.ends()

    def _digest(self, epoch: int) -> str:
        """The digest of an epoch with which a layer ends, or will."""
        digest = self._history.digest(epoch)
        if digest is None:
            raise LogDamaged(f"the lineage of epoch {epoch} was folded, and no layer ends with it", epoch=epoch)
        return digest

    def _layout(self, trace: str) -> Layout:
        return self._traces[trace].layout if trace in self._traces else self.former[trace][0]

    def _former_shipments(self, holdings: Mapping[int, Holding], ranges: Sequence[tuple[int, int]]) -> list[Shipment]:
        """What the locations lack of traces that the flow has no more, as far as a sink needs them."""
        return [
            self._shipment(ship)
            for trace, (_, upto) in dict(self.former).items()
            for ship in plan_ships(holdings, [trace], ranges, upto)
        ]

    def _forget(self, numbers: Collection[int]) -> None:
        """Remove the traces that the flow has no more, once nobody can need them, here and in each location."""
        if not self.is_settled():
            return
        with self._lock:
            if (spared := self.retained()) != self._spared:
                self._spared = spared
                self._settled.clear()

        def forget(number: int) -> None:
            replica = self._places.replicas[number]
            for trace in sorted(set(replica.traces()) - self._traces.keys() - self.absent - spared):
                self._places.remove(number, [(trace, name) for name in replica.layers(trace)])
            self._settled.add(number)

        if wanted := [number for number in numbers if number not in self._settled]:
            failpoints.reach("round.before_forgetting")
            self._places.each(wanted, forget)
        with self._lock:
            if -1 in self._settled:
                return
            directory, kept = self._directory, spared.union(self._traces, self.absent)
            self._runner.everywhere("removing what is not used any more", lambda: forget_others(directory, kept))
            self._settled.add(-1)

    def _look(self, numbers: Collection[int], traces: Sequence[str]) -> dict[int, Holding]:
        return self._places.look(numbers, [*traces, *self.former])

    def _noted(self, number: int, results: Sequence[Result]) -> None:
        """Take note of what the tasks of a location's round reported."""
        before, doubtful = self._doubtful.get(number, set()), set()
        for result in results:
            match result:
                case Copied():
                    self.shipped += result.bytes
                case Failed(location=-1, error=LogDamaged() as error):
                    if self._runner.scattered and "path" not in error.fields and result.trace not in before:
                        # Its partition may just be on its way to another member. If not, the next round says so again.
                        doubtful.add(result.trace)
                    else:
                        self.damaged.append(error)
                case Failed(error=LogDamaged(), name=name) if name is not None:
                    self._unchanged.discard(result.location)
                    self._places.each([result.location], partial(self._set_aside, trace=result.trace, name=name))
                case Failed() if result.location >= 0:
                    self._unchanged.discard(result.location)
                    self._places.note(result.location, result.error)
                case Failed():
                    self._failures[number] = str(result.error)
        self._doubtful[number] = doubtful

    def _set_aside(self, number: int, trace: str, name: LayerName) -> None:
        self._places.replicas[number].set_aside(trace, name)

    def since(self, trace: str) -> int:
        """Epochs of a trace up to this one may be collapsed: behind the safe point, and behind what can be read."""
        floor = self.floor(trace, self._history)
        return min(floor, self.safe) if self.settings.durable else floor

    def floor(self, trace: str, history: History) -> int:
        """Before this epoch of a history a trace needs not be readable."""
        kept = self._traces[trace]
        # A host's clock that is far ahead (`coordinator.clock`) makes no epoch old.
        now = self._runner.clock()
        floor = self.settings.retention.floor(history, min(now, history[-1].clock) if history else now)
        return floor if kept.reach is None else max(floor, history.last - kept.reach)

    @property
    def live_after(self) -> int:
        """Every epoch from this one on must stay readable: those that may have to be computed again read as of it."""
        last = self._history.last
        return min(self.safe, last - 1) if self.settings.durable else last - 1

    def _tidy(self, number: int, holding: Holding, ranges: Sequence[tuple[int, int]], last: int) -> None:
        """Compact a location by itself, and remove what was replaced before."""
        failpoints.reach("round.before_removal")
        holdings = {number: holding}
        gone = {(each.trace, name) for each in plan_removals(holdings, last, self.live_after) for name in each.names}
        if gone:
            self._places.each([number], lambda each: self._places.remove(each, sorted(gone)))
        compactions = []
        for compact in plan_compactions(holdings, ranges, last):
            if any((compact.trace, name) in gone for name in compact.names):
                continue
            among = tuple(holding.layers[compact.trace])
            since = self.since(compact.trace)
            after, upto, _ = outline(compact.names, compact.low, compact.high, since, trusting(last), among=among)
            merged = Ship(compact.trace, compact.low, compact.high, after, upto, (compact.location,))
            compactions.append(Compaction(self._shipment(merged), (LayersToCompact(compact, among, since, last),)))
        if compactions:
            failpoints.reach("round.before_compaction")
            locations = self.locations
            self._noted(
                number,
                self._runner.tasks(
                    "compacting copies",
                    lambda items: compact_all(items, locations),
                    compactions,
                    self._turn(number),
                    lambda one: one.shipment.ship.low,
                ),
            )
            self._background.request(number)

    # -- status -------------------------------------------------------------------------------------------------------

    def levels(self, traces: Sequence[str]) -> dict[str, int]:
        """Level → the last epoch that these traces have reached on it."""
        last = self._history.last
        found = {"memory": last, "disk": self.disk.synced}
        for number, location in enumerate(self.locations):
            holding = self.holdings.get(number)
            found[location.uri] = -1 if holding is None else reached(holding, traces, last)
        return found
