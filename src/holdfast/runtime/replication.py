"""Durability, off the critical path: each layer climbs from memory to disk to the log locations, in the background.

What a round at a location has to do, and how far epochs are safe after it, is decided by the flow's state
(`coordinator/copy_rounds.py`); its instructions are carried out (`runtime/round_work.py`), and what came of them is
told to the state. Each location has rounds of its own, side by side with those
of the others (`runtime/replication_lanes.py`); local layers are synced in a lane of their own. Epochs never wait for a
round; while one is slow, epochs pile up, and the next round takes them all at once.
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
        """``layouts``: those of the live traces; ``directory`` holds the local traces. ``claimed_by``: what the claim
        says of this driver. ``describe`` has a location say what the flow keeps."""
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
        """Whether nothing is done in the background."""

        self._one_round = threading.Lock()
        """Held during a round that is not one of the background."""

    @property
    def removing(self) -> Sequence[threading.Lock]:
        """Of each location: held while layers are removed from it."""
        return self._places.removing

    @property
    def state(self) -> FlowState:
        """What is known of all locations."""
        return self._state

    @property
    def is_durable(self) -> bool:
        """Whether anything is copied at all."""
        return self._state.settings.durable

    @property
    def safe(self) -> int:
        """The safe point."""
        return self._state.copies.safe

    @property
    def cleared(self) -> int:
        """Up to here input may be released."""
        return self._state.copies.cleared

    @property
    def holdings(self) -> dict[int, Holding]:
        """Location → what it held when it was last looked at."""
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
        """Whether a round is at work."""
        return self._background.busy

    @property
    def failure(self) -> str | None:
        """Why a round failed last, other than because of its location."""
        return next(iter(list(self._work.failures.values())), None)

    def keep_absent(self, layouts: Mapping[str, Layout], traces: frozenset[str], whole: Mapping[str, int]) -> None:
        """Inputs are not declared now, and may be again: have their logs kept, and made durable as far as they are
        ``whole`` here."""
        self._work.add_layouts(layouts)
        self._guard.tell(events.InputsAbsent(traces, whole))

    # -- what the engine says and asks --------------------------------------------------------------------------------

    def request(self) -> None:
        """Have a round made, if there is anything to make safe now."""
        if self.is_durable and self._state.copies.has_work:
            self._background.request()

    def hurry(self) -> None:
        """Have a round made at once: something waits for it."""
        self._guard.tell(events.SafetyWanted(self._state.history.last))
        if self.is_durable and self.safe < self._state.history.last:
            self._background.hurry()

    def wait_for_room(self, stopping: Callable[[], bool], waiting: Callable[[], None]) -> float:
        """Wait while more is unsafe than the bound allows (back-pressure). The seconds it took."""
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
        """Wait until ``epoch`` is safe; False if it was not within ``timeout`` seconds, or before ``stopping``."""
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
        """Wait until all traces that the flow has no more and a sink needs are safe; False if they were not in time."""
        deadline = time.monotonic() + timeout
        attempts = 0
        self._guard.tell(events.SafetyWanted(self._state.history.last))
        if not self._former_is_safe:
            self.look()  # most often they were made safe when the flow was closed
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
        """Why something is not safe."""
        why = "; ".join(trouble.error for trouble in list(self.troubles.values()))
        return why or self.failure or "the copies are not finished"

    def _advance(self, seconds: float) -> None:
        if self._rests:
            self._last_round()  # an epoch may have to wait for it
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
        """It is known from elsewhere that another driver may lead: nothing more is made durable."""
        self._guard.tell(events.DriverFenced(error))

    def check_claims(self) -> None:
        """Raise `Fenced` if another driver has taken over, as far as the locations that answer say."""
        if self.is_durable:

            def check(location: int) -> None:
                self._guard.tell(self._work.claim_at(location))

            self._places.each(range(len(self.locations)), check)
            self._check_fence()

    def upkeep(self) -> None:
        """One round in this thread, for those who drive without threads."""
        self._background.now()

    def rest(self) -> None:
        """Make one more round, and then none in the background, until `resume`. From any thread; epochs go on."""
        self._rests = True
        self._background.close()
        self._last_round()

    def resume(self) -> None:
        """Make rounds in the background again."""
        self._rests = False
        self._background.resume()

    def abandon(self) -> None:
        """End, and leave everything as it is."""
        self._background.close()

    def close(self) -> None:
        """End; what is not safe yet is given one more round."""
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
        """One round at every location, and of syncing."""
        self._background.each()

    def _round_at(self, location: int) -> None:
        """One round at a location."""
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
            # Nothing is lost: epochs go on, and the next round tries again.
            self._work.failures[number] = f"{type(error).__name__}: {error}".split("\n", 1)[0]

    def _make_durable(self, location: int) -> None:
        """Carry out what a round at a location has to do, until nothing more follows or the location fails."""
        waiting = deque(self._guard.tell(events.RoundDue(location, self._runner.clock())))
        while waiting:
            event = self._work.carry_out(waiting.popleft())
            if isinstance(event, events.LocationFailed) or not self._places.is_able(location):
                self._guard.tell(events.LocationFailed(location))
                return
            if event is not None:
                waiting.extendleft(reversed(self._guard.tell(event)))

    def _sync_round(self) -> None:
        """Sync local layers, if it is time."""
        last = self._state.history.last
        if last < 0 or self._state.fenced is not None or not self.is_durable:
            return
        if self.disk.is_due(last, bool(self.troubles)):
            self._attempt(-1, lambda: self.disk.sync(last))
        if self.disk.synced < last:
            self._background.request(len(self.locations))

    # -- looking at locations -----------------------------------------------------------------------------------------

    def look(self) -> None:
        """See how far everything is durable, without changing anything."""
        if self.is_durable and self._state.history:
            self._guard.tell(events.LocationsSeen(self.peek(self._state.copies.live)))

    def peek(self, traces: Sequence[str]) -> dict[int, Holding]:
        """What the locations hold of traces that may not be the flow's any more."""
        wanted = list(dict.fromkeys([*traces, *self._state.copies.former]))
        return self._places.look(range(len(self.locations)), wanted) if self.is_durable else {}

    def look_again(self, traces: Collection[str]) -> None:
        """Have layers that were set aside count again in their locations if they have their checksums after all."""

        def look(location: int) -> None:
            replica = self._places.replicas[location]
            for trace, name in replica.aside():
                if trace in traces:
                    replica.put_back(trace, name)

        if self.is_durable:
            self._places.each(self._places.able(), look)

    def ends(self) -> set[int]:
        """The last epochs of all layers and segments that locations are known to hold."""
        found = {
            name.last for holding in self.holdings.values() for layers in holding.layers.values() for name in layers
        }
        return found | self._places.ends()

    def counts(self, location: int) -> bool:
        """Whether what a location holds makes epochs safe."""
        return self._state.copies.enrolment.counts(location)

    def is_whole(self, location: int) -> bool:
        """Whether a location holds everything, as far as the last look at it told."""
        holding, last = self.holdings.get(location), self._state.history.last
        if holding is None or not self.counts(location):
            return False
        return reached(holding, self._state.copies.traces, last) == last

    def levels(self, traces: Sequence[str]) -> dict[str, int]:
        """Level → the last epoch that these traces have reached on it."""
        last = self._state.history.last
        found = {"memory": last, "disk": self.disk.synced}
        for number, location in enumerate(self.locations):
            holding = self.holdings.get(number)
            found[location.uri] = -1 if holding is None else reached(holding, traces, last)
        return found
