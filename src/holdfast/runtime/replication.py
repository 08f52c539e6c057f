"""Replication, off the critical path: background rounds bring each layer from memory to disk and to the log locations.

The flow's state (`coordinator/copy_rounds.py`) decides what a round at a location has to do, and how far epochs are
safe after it. Its instructions are carried out by `runtime/round_work.py`, and the results are told to the state. Each
location has rounds of its own, side by side with those of the other locations (`runtime/replication_lanes.py`); local
layers are synced in a separate lane. Epochs never wait for a round: while a round is slow, epochs pile up, and the next
round copies them all at once.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path

from holdfast.coordinator import events
from holdfast.coordinator.claim import Claim
from holdfast.coordinator.copy_plan import Holding, reached
from holdfast.coordinator.flow_state import FlowState
from holdfast.errors import Fenced, HoldfastError, LogDamaged
from holdfast.log.location import Location
from holdfast.log.replica import Replica
from holdfast.runtime.guarded_state import GuardedState
from holdfast.runtime.local_sync import LocalSync
from holdfast.runtime.locations import Locations
from holdfast.runtime.replication_lanes import Lanes
from holdfast.runtime.round_work import RoundWork
from holdfast.runtime.runner import Runner
from holdfast.trace.rows import Layout

_ATTEMPTS = 3


class Replication:
    """The rounds of one open flow."""

    def __init__(
        self,
        runner: Runner,
        flow: str,
        locations: Sequence[Location],
        guard: GuardedState,
        layouts: Mapping[str, Layout],
        directory: Path,
        claim: Claim,
        claimed_by: Mapping[str, object],
        describe: Callable[[Replica], None],
    ) -> None:
        """``layouts``: the layouts of the live traces. ``directory`` holds the local traces. ``claimed_by``: what the
        claim says of this driver. ``describe`` writes the description of the flow's state to a location."""
        self._runner = runner
        self._guard = guard
        self._state = guard.state
        self._places = Locations(locations, self._state.history, runner.threads)
        self.locations = self._places.all
        self.troubles = self._places.troubles
        self._work = RoundWork(
            runner,
            flow,
            self._state,
            self._places,
            layouts,
            directory,
            claim,
            claimed_by,
            describe,
            lambda location: self._background.request(location),
        )
        self._changed = threading.Condition()
        self._background = Lanes(
            runner,
            "holdfast-durability",
            [*(partial(self._round_at, location) for location in range(len(locations))), self._sync_round],
            self._state.settings.strategy.pause,
        )
        self.after_round: Callable[[], None] = lambda: None
        """Called after each round, in its thread."""

        self.disk = LocalSync(runner, list(layouts), directory)
        self.rounds = 0
        self._rests = False
        """Whether `rest` was called: background rounds have ended."""

        self._one_round = threading.Lock()
        """Held during a round that a caller makes after the background rounds have ended."""

    @property
    def removing(self) -> Sequence[threading.Lock]:
        """For each location, a lock that is held while layers are removed from it."""
        return self._places.removing

    @property
    def state(self) -> FlowState:
        """The flow's state, which knows what each location holds."""
        return self._state

    @property
    def is_durable(self) -> bool:
        """Whether the strategy copies anything to locations."""
        return self._state.settings.durable

    @property
    def safe(self) -> int:
        """The safe point."""
        return self._state.copies.safe

    @property
    def cleared(self) -> int:
        """The last epoch whose input may be released."""
        return self._state.copies.cleared

    @property
    def holdings(self) -> dict[int, Holding]:
        """Location → what it held when it was last listed."""
        return self._state.copies.holdings

    @property
    def shipped(self) -> int:
        """Bytes sent to locations."""
        return self._work.shipped

    @property
    def damaged(self) -> list[LogDamaged]:
        """Local layers that a round found damaged, for the engine to repair."""
        return self._work.damaged

    @property
    def busy(self) -> bool:
        """Whether a round is running."""
        return self._background.busy

    @property
    def failure(self) -> str | None:
        """Why a round failed last, for another reason than its location; None if none did."""
        return next(iter(list(self._work.failures.values())), None)

    def keep_absent(self, layouts: Mapping[str, Layout], traces: frozenset[str], whole: Mapping[str, int]) -> None:
        """Keep the logs of inputs that are not declared now but may be declared again. A log that is ``whole`` in the
        working directory (trace → last epoch) is also made durable."""
        self._work.add_layouts(layouts)
        self._guard.tell(events.InputsAbsent(traces, whole))

    # -- requests of the engine ---------------------------------------------------------------------------------------

    def request(self) -> None:
        """Ask for a round at each location, if there is anything to copy."""
        if self.is_durable and self._state.copies.has_work:
            self._background.request()

    def hurry(self) -> None:
        """Ask for a round at once, because a caller waits for the last epoch to become safe."""
        self._guard.tell(events.SafetyWanted(self._state.history.last))
        if self.is_durable and self.safe < self._state.history.last:
            self._background.hurry()

    def wait_for_room(self, stopping: Callable[[], bool], waiting: Callable[[], None]) -> float:
        """Wait while more is unsafe than `max_unsafe` allows (back-pressure), and return the seconds. ``waiting`` is
        called once if there is a wait. Raise `Fenced` if another driver has taken over."""
        started = time.perf_counter()
        told = False
        while not self._state.copies.has_room and not stopping():
            self._check_fence()
            if not told:
                waiting()
                told = True
            self._guard.tell(events.SafetyWanted(self._state.history.last))
            self._advance(0.2)
        return time.perf_counter() - started if told else 0.0

    def wait(self, epoch: int, timeout: float | None = None, stopping: Callable[[], bool] = lambda: False) -> bool:
        """Wait until ``epoch`` is safe. Return False if it is not safe within ``timeout`` seconds, or when ``stopping``
        says so. Raise `Fenced` if another driver has taken over."""
        deadline = None if timeout is None else time.monotonic() + timeout
        self._guard.tell(events.SafetyWanted(epoch))
        while self.safe < epoch:
            self._check_fence()
            left = None if deadline is None else deadline - time.monotonic()
            if stopping() or (left is not None and left <= 0):
                return False
            self._advance(0.2 if left is None else min(0.2, left))
        return True

    def wait_former(self, timeout: float) -> bool:
        """Wait until the former logs that a sink still needs are safe. Return False if they are not in time."""
        deadline = time.monotonic() + timeout
        attempts = 0
        self._guard.tell(events.SafetyWanted(self._state.history.last))
        if not self._former_is_safe:
            self.look()  # usually they became safe when the flow was closed
        while not self._former_is_safe:
            self._check_fence()
            attempts += 1
            if time.monotonic() > deadline or (attempts > _ATTEMPTS and not self._runner.threads):
                return False
            self._advance(0.2)
        return True

    @property
    def _former_is_safe(self) -> bool:
        return not self.is_durable or self._state.copies.former.keys() <= self._state.copies.former_safe

    def why_not(self) -> str:
        """Return, as text for users, why an epoch is not safe yet."""
        why = "; ".join(trouble.error for trouble in list(self.troubles.values()))
        return why or self.failure or "the copies are not finished"

    def _advance(self, seconds: float) -> None:
        if self._rests:
            self._last_round()  # no background round comes, so the waiting epoch makes one itself
            return
        self._background.request()
        self._background.hurry([number for number in range(len(self.locations)) if number not in self.troubles])
        if not self._runner.threads:
            self._background.now()
            return
        with self._changed:
            self._changed.wait(seconds)

    def _check_fence(self) -> None:
        if self._state.fenced is not None:
            raise self._state.fenced

    def fence(self, error: Fenced) -> None:
        """Stop making epochs durable, because another driver may lead (the lease says so)."""
        self._guard.tell(events.DriverFenced(error))

    def check_claims(self) -> None:
        """Raise `Fenced` if a location that answers has a claim of a newer driver."""
        if self.is_durable:

            def check(location: int) -> None:
                self._guard.tell(self._work.claim_at(location))

            self._places.each(range(len(self.locations)), check)
            self._check_fence()

    def upkeep(self) -> None:
        """Make one round in this thread; for a runner without threads."""
        self._background.now()

    def rest(self) -> None:
        """End background rounds and make one last round in this thread. Any thread may call it; epochs go on. `resume`
        starts background rounds again."""
        self._rests = True
        self._background.close()
        self._last_round()

    def resume(self) -> None:
        """Start background rounds again after `rest`."""
        self._rests = False
        self._background.resume()

    def abandon(self) -> None:
        """End background rounds, without a last round."""
        self._background.close()

    def close(self) -> None:
        """End background rounds, and make one last round if an epoch is not safe yet."""
        self._background.close()
        self._last_round()

    def _last_round(self) -> None:
        with self._one_round:
            self._make_last_round()

    def _make_last_round(self) -> None:
        if self.is_durable and self._state.fenced is None and self.safe < self._state.history.last:
            self._guard.tell(events.SafetyWanted(self._state.history.last))
            self._places.try_again()
            self._round()

    # -- a round ------------------------------------------------------------------------------------------------------

    def _round(self) -> None:
        """Make one round at every location, and sync local layers."""
        self._background.each()

    def _round_at(self, location: int) -> None:
        """Make one round at a location, if the location can be tried now."""
        if self._state.history.last < 0 or self._state.fenced is not None:
            return
        if self._places.is_able(location):
            self._attempt(location, lambda: self._make_durable(location))
            self.rounds += 1
        following = self._guard.tell(events.RoundEnded(location, location in self.troubles))
        with self._changed:
            self._changed.notify_all()
        for each in following:
            self._work.carry_out(each)
        self.after_round()

    def _attempt(self, number: int, work: Callable[[], None]) -> None:
        try:
            work()
            self._work.failures.pop(number, None)
        except HoldfastError as error:
            self._work.failures[number] = str(error)
        except Exception as error:
            # No data is lost: epochs go on, and the next round tries again.
            self._work.failures[number] = f"{type(error).__name__}: {error}".split("\n", 1)[0]

    def _make_durable(self, location: int) -> None:
        """Carry out the instructions of a round at a location, until none follows or the location fails."""
        waiting = deque(self._guard.tell(events.RoundDue(location, self._runner.clock())))
        while waiting:
            event = self._work.carry_out(waiting.popleft())
            if isinstance(event, events.LocationFailed) or not self._places.is_able(location):
                self._guard.tell(events.LocationFailed(location))
                return
            if event is not None:
                waiting.extendleft(reversed(self._guard.tell(event)))

    def _sync_round(self) -> None:
        """Sync local layers to disk, if it is time."""
        last = self._state.history.last
        if last < 0 or self._state.fenced is not None or not self.is_durable:
            return
        if self.disk.is_due(last, bool(self.troubles)):
            self._attempt(-1, lambda: self.disk.sync(last))
        if self.disk.synced < last:
            self._background.request(len(self.locations))

    # -- looking at locations -----------------------------------------------------------------------------------------

    def look(self) -> None:
        """List the live traces in all locations and update the safe point; nothing is written."""
        if self.is_durable and self._state.history:
            self._guard.tell(events.LocationsSeen(self.peek(self._state.copies.live)))

    def peek(self, traces: Sequence[str]) -> dict[int, Holding]:
        """Return what the locations hold of these traces and of former logs; the flow's state does not change."""
        wanted = list(dict.fromkeys([*traces, *self._state.copies.former]))
        return self._places.look(range(len(self.locations)), wanted) if self.is_durable else {}

    def look_again(self, traces: Collection[str]) -> None:
        """Put layers that were set aside in locations back into use if their checksums turn out to be right."""

        def look(location: int) -> None:
            replica = self._places.replicas[location]
            for trace, name in replica.aside():
                if trace in traces:
                    replica.put_back(trace, name)

        if self.is_durable:
            self._places.each(self._places.able(), look)

    def ends(self) -> set[int]:
        """Return the last epochs of all layers and lineage segments that the locations are known to hold."""
        found = {
            name.last for holding in self.holdings.values() for layers in holding.layers.values() for name in layers
        }
        return found | self._places.ends()

    def counts(self, location: int) -> bool:
        """Whether a location counts for the safe point."""
        return self._state.copies.enrolment.counts(location)

    def is_whole(self, location: int) -> bool:
        """Whether a location held every layer when it was last listed."""
        holding, last = self.holdings.get(location), self._state.history.last
        if holding is None or not self.counts(location):
            return False
        return reached(holding, self._state.copies.traces, last) == last

    def levels(self, traces: Sequence[str]) -> dict[str, int]:
        """Return, for each persistence level, the last epoch that these traces have reached on it."""
        last = self._state.history.last
        found = {"memory": last, "disk": self.disk.synced}
        for number, location in enumerate(self.locations):
            holding = self.holdings.get(number)
            found[location.uri] = -1 if holding is None else reached(holding, traces, last)
        return found
