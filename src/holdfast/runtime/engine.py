"""A flow in motion: one epoch after the other, from offers to sinks.

`Flow` records what the user declares; an `Engine` is made of those declarations when the first epoch is asked for, and
made anew when they change. Opening it finds the history and recovers what is missing (`runtime/recovery/`). An operator
whose state the log does not hold (a new view, or one whose meaning changed) is filled from the history of its sources;
all others are left as they are.

What happens next is decided by the flow's state (`coordinator/flow_state.py`); the engine asks it, and carries out what
it says: exact epochs by `runtime/exact_epochs.py`, epochs without lost members by `runtime/continuing.py`, copies and
merges beside epochs by `runtime/replication.py` and `runtime/merging.py`.

The engine knows no Spark: a `Runner` does the work. The file is long because it is the one place
that puts the parts of an open flow together, and all that `Flow` asks of them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from holdfast.coordinator import events, instructions
from holdfast.coordinator.clock import FlowClock
from holdfast.coordinator.flow_state import FlowState, Mode
from holdfast.coordinator.forecast import Circumstances, Forecast, forecasts
from holdfast.coordinator.history import History
from holdfast.coordinator.instructions import Instruction
from holdfast.coordinator.lineage import Lineage
from holdfast.coordinator.recovery_plan import Replay
from holdfast.coordinator.view_versions import ViewVersion
from holdfast.errors import (
    ClockJumped,
    EpochUnavailable,
    EvaluationError,
    Fenced,
    HoldfastError,
    InputError,
    LogDamaged,
    LogError,
    MemberUnreachable,
    SchemaChanged,
    SchemaError,
    StoreError,
)
from holdfast.foundation import failpoints
from holdfast.foundation.retries import attempts
from holdfast.guarantees.strategy import Survives
from holdfast.log.begun_epochs import FILE, Begun, read_begun
from holdfast.log.branches import BranchRecord
from holdfast.log.clean_end import note_end, take_end
from holdfast.log.host_paths import traces_of
from holdfast.log.linked_layers import hand_over as link_layers_as
from holdfast.log.stash import LineageLog, read_stash
from holdfast.log.working_directory import LogDirectory
from holdfast.plan import nodes
from holdfast.plan.drawing import Drawing
from holdfast.plan.explain import as_text
from holdfast.reporting.redaction import logger
from holdfast.results.flow_results import Approximation, ClockStatus, Epoch, Status
from holdfast.runtime.after_epoch import EpochFollowUp
from holdfast.runtime.background import Background
from holdfast.runtime.branches import Branches
from holdfast.runtime.compiled_flow import log_layout
from holdfast.runtime.continuing import Continuing
from holdfast.runtime.declaration import ConnectorProgress
from holdfast.runtime.delivery import Delivery
from holdfast.runtime.delivery_numbers import DeliveryNumbers, former_names
from holdfast.runtime.description import FlowDescription
from holdfast.runtime.edits import secure_answers, secure_followed, secure_former
from holdfast.runtime.epoch_spec import epoch_spec
from holdfast.runtime.exact_epochs import ExactEpochs
from holdfast.runtime.file_errors import speaking
from holdfast.runtime.folding import Folding
from holdfast.runtime.guarded_state import GuardedState
from holdfast.runtime.intake import Intake
from holdfast.runtime.known_sources import KnownSources
from holdfast.runtime.live_views import LiveViews
from holdfast.runtime.measured_rates import MeasuredRates
from holdfast.runtime.member_layers import MemberLayers
from holdfast.runtime.merging import MergeRequest, Merging
from holdfast.runtime.open_flow import OpenFlow
from holdfast.runtime.opening import Opening, say, this_driver
from holdfast.runtime.outcomes import crowded, delivered, due_of, result_of
from holdfast.runtime.partition_moves import PartitionMoves
from holdfast.runtime.prepared_flow import PreparedFlow
from holdfast.runtime.recovery.find_history import find_history
from holdfast.runtime.recovery.held_input import HeldInput
from holdfast.runtime.recovery.logged_source import LoggedChange, ReadChange
from holdfast.runtime.recovery.record import RecoveryRecord
from holdfast.runtime.recovery.recoverer import Recoverer, timed
from holdfast.runtime.recovery.retaken import is_logged, retaken
from holdfast.runtime.replication import Replication
from holdfast.runtime.rewinding import Rewinding
from holdfast.runtime.runner import Job, Outcome, Work
from holdfast.runtime.snapshots import Snapshots
from holdfast.runtime.statistics import Census, Statistics
from holdfast.runtime.status import status_of
from holdfast.runtime.view_reading import ViewReading, log_as
from holdfast.standby.leadership import Leadership
from holdfast.standby.lease import Lease
from holdfast.task.log_difference import difference
from holdfast.task.program import partition_range
from holdfast.trace.pins import Pin, hold

_LOG = logger("holdfast.epochs")

T = TypeVar("T")

_NOTHING_DONE = (
    "Nothing of the epoch took effect. Take back the rows on which it fails (delete them or discard() what waits; "
    "remove a file), or change the view, and the flow goes on"
)
"""What to do when an expression fails on a row."""

_JOBS, _APART, _WARM = 6, 0.2, 3.0
"""So many jobs over nothing are run to see what one takes, so many seconds apart, since some are beside an epoch; and
so many seconds after the first copies were made, since before that all is cold."""

_REPAIRS = 5
"""So often a rewind is begun again since a member was lost meanwhile."""

_SINK_PAUSE = 30.0
"""Seconds between two passes in which sinks look after what they hold."""

_CLOCK_DRIFT = 60_000_000
"""Microseconds: a smaller change of what the host's clocks differ by is not worth a write."""


class Engine:
    """Runs a declared flow."""

    def __init__(
        self, ready: PreparedFlow, told: ConnectorProgress, lease: Lease | None = None, moves: bool = False
    ) -> None:
        """With a ``lease``, nothing is completed while it is not held. ``moves``: partitions change hands on purpose;
        what goes on beside epochs begins with `moved`, or after the next epoch, which should not be late."""
        declared, runner = ready.declared, ready.runner
        self.declared = declared
        self.partitions = runner.partitions
        self.stopping = False
        """Set from outside: whoever waits for room should stop waiting."""

        self.meanwhile: Callable[[], AbstractContextManager[None]] = nullcontext
        """Entered while an epoch waits for storage: others may use the engine then, or close it."""

        self.closed = False
        self._moves = moves
        self._told = told
        self._runner = runner
        self._latencies: deque[float] = deque(maxlen=100)
        self._statistics = Statistics()
        self._patient = False
        self._due: int | None = 0
        """At what clock an epoch has something to do although nothing arrives; None: never. It is not known of a flow
        that was opened just now: then the first epoch finds out."""

        self._asking = frozenset(operator.id for operator in ready.state.program.operators if operator.spec.asks)
        self._directory = LogDirectory.open(
            declared.local, declared.name, create=True, exclusive=True, lease=lease.url if lease else None
        )
        self._lead = Leadership(self._directory, lease, lambda: self.stopping)
        try:
            self._compiled, self._job = ready.state, ready.job
            self._follower, ready.follower = ready.follower, None
            self._compiled.directory = self._directory.traces
            self._open()
        except BaseException:
            with suppress(Exception):  # the error that stopped it is the one to know
                self._delivery.close()
            self._directory.close()
            raise

    # -- opening --------------------------------------------------------------------------------------------------

    @speaking
    def _open(self) -> None:
        recovery, began = RecoveryRecord(), time.perf_counter()
        compiled, runner = self._compiled, self._runner
        strategy = self.declared.settings.strategy
        self._delivery = Delivery(self.declared.sinks, compiled.fields, self._told.delivered, strategy.rolls_back)
        stash = self._directory.lineage / "log.jsonl"
        survives = self._survives(stash)
        with timed(recovery, "lineage"):
            opening = Opening(self.declared, self._told, recovery, runner.threads)
            replicas = opening.replicas
            self._lead.check()
            claim = opening.claim(runner.draw())
            self._lead.check()
            if runner.scattered:
                compiled.directory = traces_of(self.declared.local, claim.term)
            # Of layers on other hosts only the names are looked at: an epoch that nobody knows of was seen by nobody.
            directories = [] if runner.scattered else [compiled.directory / each for each in compiled.layouts]
            asking = {each: compiled.directory / compiled.traces[each][0] for each in self._asking}
            begun = self._directory.path / FILE
            nowhere = self._directory.path / "lost-with-its-driver"  # a file that is never there
            history, abandoned = find_history(
                nowhere if survives is Survives.NOTHING else stash,
                replicas,
                self._delivery.seen(),
                nowhere if survives is Survives.NOTHING or strategy.skips_begun else begun,
                [] if survives is Survives.NOTHING or strategy.skips_begun else directories,
                asking,
                recovery,
            )
            opening.check_found(history)
            enrolment = opening.enrol(claim, history.last)
        failpoints.reach("recovery.found_history")
        rolled_back = strategy.rolls_back and survives is Survives.NOTHING
        # Before the stash forgets what was abandoned: after a crash between the two, it is found again.
        self._delivery.remember(
            lambda sinks: DeliveryNumbers(
                self._directory.path,
                replicas,
                sinks,
                history,
                claim.term,
                rolled_back,
                abandoned,
                None if self._told.sinks is None else former_names(self.declared.sinks, self._told.sinks),
            ),
            history.last,
        )
        self._told.sinks = tuple(self.declared.sinks)  # by these names they were written down just now
        self._lineage = LineageLog(stash, history, anew=self._lead.leased)
        history = self._lineage.history
        self._rates = MeasuredRates(self._directory, replicas)
        descriptions = FlowDescription(self._directory, replicas)
        descriptions.check_session(self.declared.name, self.declared.session)
        recovery.otherwise = descriptions.otherwise(compiled)
        versions = compiled.versions()
        self._guard = GuardedState(
            FlowState(
                history,
                claim,
                self.declared.settings,
                uris=[location.uri for location in self.declared.locations],
                reaches=compiled.reaches(),
                inputs=compiled.inputs,
                ranges=[partition_range(each, self.partitions) for each in range(self.partitions)],
                enrolment=enrolment,
                sinks=self._delivery.progress,
                declared=versions,
                before=descriptions.before(history),
                ownership=runner.ownership,
                continues=self.declared.on_loss == "continue",
                root=None if self.declared.branch is None else self.declared.branch.root,
            )
        )
        self._state = self._guard.state
        self._clock = FlowClock(
            self.declared.name,
            self.declared.max_clock_jump,
            history[-1].clock if history else None,
            self._directory.read_clock(),
        )
        self._census = Census(self.partitions, history.last)
        if self._follower is not None:
            recovery.followed = self._follower.adopt(compiled.directory)
        self._layers = MemberLayers(runner, compiled, self._directory, history, survives is Survives.LINEAGE)
        self._intake = Intake(self.declared.sources, self._told, history)
        self._durability = Replication(
            runner,
            self.declared.name,
            self.declared.locations,
            self._guard,
            compiled.layouts,
            compiled.directory,
            claim,
            this_driver(),
            descriptions.renew,
        )
        self._lead.attach(self._durability)
        self._maintenance = Merging(runner, lambda: (self._state.epochs.chain(), self._state.copies.live_after))
        self._beside_sinks = Background(runner, "holdfast-sinks", self._delivery.maintain, _SINK_PAUSE)
        # Not in a lane of copying: a slow location would make the others wait.
        self._measuring = Background(runner, "holdfast-rates", self._measure, _SINK_PAUSE)
        self._delivery.attach(partial(log_as, compiled, self._layers, self._state), self._guard, versions)
        known = KnownSources(descriptions.sources(), compiled, history.last)
        known.check(self._intake.taken)
        absent = {each.version.trace: log_layout(each.version) for each in known.absent.values()}
        self._durability.keep_absent(absent, known.absent_traces, {})
        self._intake.catch_up()
        fresh = descriptions.fresh(compiled, history.last) - known.returned - self._drawn_before()
        self._flow = OpenFlow(
            compiled,
            self._guard,
            runner,
            self._directory,
            self._lineage,
            self._intake,
            self._delivery,
            self._durability,
            self._layers,
            self._held_before(),
        )
        self._snapshots = Snapshots(
            self.declared.name,
            self._directory.path,
            self.declared.locations,
            self._guard,
            compiled.layouts,
            lambda: self._directory.read_collections(),
        )
        self._snapshots.load()
        self._branches = Branches(self._flow)
        self._layers.known_branches = self._branches.load()
        self._recoverer = Recoverer(self._flow, self._run_again, fresh, known.returned, recovery)
        self._recover(known)
        if fresh & self._asking and history.last >= 0:
            secure_answers(self.declared.name, self._durability, history.last)
        if known.former:
            secure_followed(self.declared.name, self._durability, history.last, sorted(known.former))
        self._durability.keep_absent(absent, known.absent_traces, self._recoverer.whole(known.absent))
        skipped = [each for each in read_begun(begun) if each.epoch > history.last] if strategy.skips_begun else []
        self._begun = Begun(begun, history.since(self._state.copies.flushed))
        self._folding = Folding(self._flow)
        self.moves = PartitionMoves(self._flow, self._recoverer)
        self.live = LiveViews(compiled, self._state, runner)
        """The views, for readers in other threads."""

        self._continuing = Continuing(
            self._flow,
            self._lead,
            self._recoverer,
            self._census,
            self._branches,
            lambda taken: self._run_exactly(taken),
        )
        self.views = ViewReading(self._flow, self._recoverer, self._continuing)
        """The views, for readers who have their turn."""

        self._rewinding = Rewinding(self._flow, self._job)
        self._epochs = ExactEpochs(
            self._flow,
            self._job,
            self._begun,
            self._lead,
            self._recoverer,
            self._census,
            self._asking,
            self._continuing.goes_on_without,
            self._rewinding.run,
        )
        # Only now: a crash before this leaves an operator that is new as new as it was.
        description = {**compiled.description(), "sources": known.to_json()}
        descriptions.write(description, history.last, self._state.edits.is_unsaid, recovery)
        self._skip(skipped)
        say(self._recoverer.recovery)
        self._told.claim, self._told.history = claim, history
        self._told.fields = {name: tuple(source.fields) for name, source in self.declared.sources.items()}
        self._rates.opened(began, recovery)
        if runner.threads:
            self._durability.after_round = self._measuring.request
        if not self._moves:
            self._durability.request()

    def _survives(self, stash: Path) -> Survives:
        """What of the working directory is used: everything, if the driver before this one closed the flow, or if the
        strategy says so of one that died."""
        closed = take_end(self._directory.path)
        if self.declared.settings.strategy.survives is Survives.EVERYTHING:
            return Survives.EVERYTHING
        records = read_stash(stash)[0]
        if not records or (closed is not None and records[-1].digest == closed):
            return Survives.EVERYTHING
        return self.declared.settings.strategy.survives

    def _skip(self, begun: Sequence[Lineage]) -> None:
        """The driver before this one died in the middle of these epochs: their input is taken, and not looked at."""
        for record in begun:
            offers = {
                name: offer
                for name, offer in record.offers.items()
                if name in self.declared.sources and self.declared.sources[name].replayable
            }
            started = time.perf_counter()
            owed = self._state.rewinds.owed
            again = record.again if owed and owed[0].epoch == record.again else None
            lineage, outcome, following = self._epochs.run(
                offers, max(record.clock, self._now()), True, [], again=again
            )
            self._completed(lineage, outcome, following, started, 0.0)
            self._recoverer.recovery.missing.append(lineage.epoch)

    def _recover(self, known: KnownSources) -> None:
        try:
            with self._recoverer.following(known.former):
                try:
                    self._recoverer.open()
                except HoldfastError:
                    raise
                except Exception as error:  # a file of the past that does not read as it is declared now
                    self._intake.blame(error)
                    raise
        except (InputError, SchemaError) as error:
            for changed in known.changed.values():
                raise SchemaChanged(f"{changed}: {error}", **changed.fields) from error
            raise

    @property
    def last(self) -> int:
        """The last complete epoch, approximate or not; -1 before the first."""
        return self._state.last

    @property
    def history(self) -> History:
        """The lineage of all complete epochs that are exact, as it grows."""
        return self._state.history

    @property
    def approximate(self) -> Approximation | None:
        """What the views are made of, if not of everything."""
        return self._continuing.said

    @property
    def lost(self) -> frozenset[int]:
        """The partitions that are left out of what is read."""
        return self._state.lost

    def repair(self) -> RecoveryRecord | None:
        """Make exact what is approximate; None if nothing was. If it fails, what is done counts, and the next call goes
        on."""
        return self._continuing.repair()

    @property
    def sources(self) -> Collection[str]:
        """The sources that views read."""
        return self._compiled.flow.sources

    @property
    def safe(self) -> int:
        """The safe point."""
        return self._state.copies.safe

    @property
    def recovery(self) -> RecoveryRecord:
        """What opening the flow, or repairing it last, had to do."""
        return self._recoverer.recovery

    @property
    def filled(self) -> int:
        """The last epoch as of which state was filled since the flow was opened, -1 if none was: views that have it may
        not be readable as of epochs before."""
        return self._recoverer.filled

    # -- epochs ---------------------------------------------------------------------------------------------------

    def step(self, patient: bool = False) -> Epoch:
        """Run one epoch, if anything waits, or if it is time for rows to come or go. The very first runs in any case: a
        view over nothing has a result too. ``patient``: as in `Intake.poll`."""
        self._patient = patient
        try:
            if self._state.fenced is not None:
                raise self._state.fenced
            return self._step() if self._lead.check() else Epoch(None)
        except Fenced:
            raise
        except Exception as error:
            if isinstance(error, HoldfastError):
                error.fields.setdefault("complete", False)
            if isinstance(error, EvaluationError) and not error.fields["complete"]:
                error.args = (f"{str(error).removesuffix('.')}. {_NOTHING_DONE}",)
            self._lead.check()  # one that was paused, and leads no more, may fail at anything: that is the reason then
            raise

    @speaking
    def _step(self) -> Epoch:
        if self._state.epochs.is_torn:
            raise LogError(
                f"flow '{self.declared.name}': an epoch was interrupted while it was being counted; close the flow and "
                "open it again: the log says whether it was"
            )
        if self._state.may_branch and self._runner.membership_change == "lost":
            self._go_on_or_inherit()
        if self._state.branch is None:
            try:
                return self._step_exactly()
            except MemberUnreachable:
                if self._state.branch is None:
                    raise
        return self._step_on_branch()

    def _step_exactly(self) -> Epoch:
        """Run an exact epoch, if anything waits. `MemberUnreachable` if the flow goes on without that member."""
        self._settle()
        waited = 0.0
        while True:
            started = time.perf_counter() - waited
            again = self._rewinding.next()
            # A source that no view reads keeps what it has, for the view that will.
            offers = self._intake.poll(self.sources, self._patient) if again is None else again.offers
            if self.last >= 0 and self._state.edits.is_awaited():
                secure_former(self.declared.name, self._delivery, self._durability, self._with_recovery)
            elif again is None and not offers and self.last >= 0 and not self._has_work():
                return Epoch(None)
            if not self._state.copies.has_room:
                with self.meanwhile():
                    waited += self._durability.wait_for_room(
                        lambda: self.stopping or self.closed or self.is_hindered, self._say_waiting
                    )
                if self.stopping or self.closed:
                    return Epoch(None)
                self.unhinder()
                continue  # others had their turn: what waited then may be taken
            try:
                now = self._now()  # which may accept the host's clock, behind or ahead
                if again is None:
                    counted = self._epochs.run(offers, now, self._clock.accepts, self._intake.work(offers))
                else:
                    counted = self._epochs.run(offers, now, self._clock.accepts, again.work, again=again.epoch)
                lineage, outcome, following = counted
            except Exception as error:
                if self._state.branch is not None:
                    raise  # what was offered is taken by an epoch of the branch
                # A driver that another has taken over from fails at many things; it should say the real reason.
                self._lead.check()
                self._durability.check_claims()
                if again is None and not isinstance(error, Fenced) and self._intake.reject(offers, error):
                    continue
                raise
            except (KeyboardInterrupt, SystemExit):
                if again is None:
                    self._intake.reject(offers, InputError(f"flow '{self.declared.name}': the epoch was interrupted"))
                raise
            return self._completed(lineage, outcome, following, started, waited)

    def _settle(self) -> None:
        """Make up for what an epoch before this one has left undone."""
        self._epochs.remove_undone()
        self._intake.settle()
        self._repair_damage()
        self._follow_members()
        self._with_recovery(lambda: self._delivery.catch_up(self._state.deliverable))
        self._release()

    @speaking
    def rewind(self, to: int, reason: str, skip: Mapping[str, Sequence[Any]]) -> Epoch:
        """Run an epoch that undoes those after ``to``. The next ones take their input again, without what is to be
        skipped."""
        return self._exactly(lambda: self._rewind(to, reason, skip))

    def _exactly(self, work: Callable[[], T]) -> T:
        """Do ``work`` on a flow that is exact; if it goes on without a member meanwhile, repair it, and do it again."""
        for is_last in attempts([0.0] * _REPAIRS):
            self.make_exact()
            try:
                return work()
            except MemberUnreachable:
                if is_last or self._state.branch is None:
                    raise
        raise AssertionError("the last attempt returns or raises")

    def _rewind(self, to: int, reason: str, skip: Mapping[str, Sequence[Any]]) -> Epoch:
        started = time.perf_counter()
        if self._state.fenced is not None:
            raise self._state.fenced
        self._lead.check()
        self._settle()
        record = self._with_recovery(lambda: self._rewinding.record(to, reason, skip))
        if self._state.edits.is_awaited():
            secure_former(self.declared.name, self._delivery, self._durability, self._with_recovery)
        waited = self._wait_for_room()
        return self._run_rewind(record, self._now(), self._clock.accepts, None, started, waited)

    def _run_rewind(
        self,
        record: Mapping[str, Any],
        clock: int,
        back: bool,
        recorded: Lineage | None,
        started: float,
        waited: float,
    ) -> Epoch:
        held = "rewind to"  # no snapshot can have that name
        # Merges leave what is to be undone as it is; once the epoch counts, the history says so itself.
        self._guard.tell(events.SnapshotTaken(held, record["to"]))
        try:
            lineage, outcome, following = self._epochs.run({}, clock, back, [], recorded, rewind=record)
        finally:
            self._guard.tell(events.SnapshotRemoved(held))
        result = self._completed(lineage, outcome, following, started, waited)
        self._due = 0  # time has passed since the epoch that views are as of now
        return result

    @speaking
    def run_recorded(self, recorded: Lineage, work: Sequence[Work]) -> Epoch:
        """Run an epoch of another line here, as the next one: with what it took (``work``), its clock, its seed and its
        answers. Tables that only views of this line read are taken with it. If members are lost meanwhile, this line
        does not go on without them: it is to take what the other took."""
        return self._exactly(lambda: self._run_recorded(recorded, work))

    def _run_recorded(self, recorded: Lineage, work: Sequence[Work]) -> Epoch:
        started = time.perf_counter()
        if self._state.fenced is not None:
            raise self._state.fenced
        self._lead.check()
        self._settle()
        if self._state.edits.is_awaited():
            secure_former(self.declared.name, self._delivery, self._durability, self._with_recovery)
        waited = self._wait_for_room()
        if recorded.rewind is not None:
            self._rewinding.check_state(recorded.rewind["to"])
            return self._run_rewind(recorded.rewind, recorded.clock, True, recorded, started, waited)
        own = self._intake.poll([name for name in self.sources if self.declared.sources[name].replayable])
        work = [*self._intake.work(own), *(one for one in work if one.name in self.sources)]
        lineage, outcome, following = self._epochs.run(
            {**own, **recorded.offers}, recorded.clock, True, work, recorded, again=recorded.again
        )
        return self._completed(lineage, outcome, following, started, waited)

    def reads_members(self, recorded: Lineage) -> bool:
        """Whether `recorded_work` reads rows that members keep. It may have to repair this line first then, and so
        needs this line's turn."""
        return self._runner.scattered and any(
            name in self.declared.sources and self._is_read_from_log(name, recorded) for name in recorded.offers
        )

    def _is_read_from_log(self, name: str, recorded: Lineage) -> bool:
        """Whether what an epoch took of a source is read from the log, and not from the source again."""
        # What was taken again was taken first before: the source may have been told to forget it.
        again = recorded.again is not None and is_logged(self._flow, name)
        return again or not self.declared.sources[name].replayable

    @contextmanager
    def recorded_work(self, recorded: Lineage, partitions: int) -> Iterator[list[Work]]:
        """What an epoch of this line took, for another line to take it: sources by their offers, rows that code pushed
        from their log, whose layers stay meanwhile. In the caller's turn, where it `reads_members`."""
        work, reading = [], [True]
        for name, offer in recorded.offers.items():
            source = self.declared.sources.get(name)
            if source is not None and not self._is_read_from_log(name, recorded):
                work.append(Work(name, source, [offer]))
            elif source is not None:
                fields, epoch = tuple(source.fields), recorded.epoch
                if self._runner.scattered:
                    # The other line has its partitions on other members, and could not bring back what is lost here.
                    change = self._exactly(partial(self._with_recovery, partial(self._change_of, name, epoch)))
                    work.append(Work(name, ReadChange(fields, change), [{}]))
                    continue
                log = self._flow.log_of(name)
                hold(log.directory, Pin(epoch - 1, log.chain.end), lambda: bool(reading))
                work.append(Work(name, LoggedChange(fields, log, epoch, partitions), [{}]))
        try:
            yield work
        finally:
            reading.clear()

    def _change_of(self, name: str, epoch: int) -> pa.Table:
        """What an epoch changed in a source whose rows are kept."""
        return self._flow.log_of(name).change_at(epoch)

    def _follow_members(self) -> None:
        """If members came or went, have partitions kept by those that are there now."""
        for instruction in self._guard.tell(events.MembershipChanged(self._runner.membership_change)):
            match instruction:
                case instructions.HurryRounds():
                    self._durability.hurry()
                case instructions.Refresh(settle=settle):
                    self._recoverer.adopt(settle)

    def rest(self) -> None:
        """End what goes on beside epochs, after one more round of copies: the engine is to be closed soon, and whoever
        closes it need not wait for storage then. From any thread; epochs go on."""
        self._durability.rest()
        # After the round, which may take long where others work, too: without merges epochs would get slower meanwhile.
        self._maintenance.close()

    def resume(self) -> None:
        """After `rest`: the engine is not closed after all."""
        self._durability.resume()
        self._maintenance.resume()

    @speaking
    def drain(self, member: str, ahead: int = 0) -> RecoveryRecord:
        """Have others keep what a member keeps; what had to be done for it. ``ahead``: so many layers were fetched for
        it before."""
        self.moves.heirs(member)  # raises if nobody can inherit
        self.repair()
        self._settle()
        self.moves.leave(member, ahead)
        return self._recoverer.recovery

    def _step_on_branch(self) -> Epoch:
        """Run an approximate epoch, if anything waits; an exact one, after a repair, if nothing is left to go on
        with."""
        branch = self._continuing.branch
        assert branch is not None
        try:
            branch.stay()
            if self._runner.membership_change == "lost":
                branch.look()
            if branch.branch.left and not self._state.rewinds.owed:  # what is owed is taken by exact epochs
                return self._run_on_branch()
        except (LogDamaged, MemberUnreachable):
            self._lead.check()
        # Nothing is left to go on with, or what is wrong is not for want of a member.
        self.make_exact()
        return self._step()

    def make_exact(self) -> None:
        """Make exact what is approximate; if another member is lost meanwhile, go on with those that are left."""
        for is_last in attempts([0.0] * _REPAIRS):
            try:
                self.repair()
                return
            except MemberUnreachable:
                if is_last:
                    raise

    def _run_on_branch(self) -> Epoch:
        branch = self._continuing.branch
        assert branch is not None
        self._intake.settle()
        while True:
            started = time.perf_counter()
            offers = self._intake.poll(self.sources, self._patient)
            if not offers and not self._is_time():
                return Epoch(None, approximate=branch.said())
            self._continuing.warn_unsafe()
            work = self._intake.work(offers)
            for one in work:
                if not one.source.replayable:
                    self._flow.pushed.hold(one.name, self.last + 1, one.source.parts(one.offers[0]))
            subject = f"{self.declared.name}: epoch {self.last + 1}, approximate"
            try:
                lineage, outcome = branch.run(offers, self._now(), self._job, work, subject)
            except (LogDamaged, MemberUnreachable):
                raise
            except Exception as error:
                self._lead.check()
                if self._intake.reject(offers, error):
                    continue
                raise
            break
        try:
            failpoints.reach("branch.ran")
            self._lead.demand()
        except BaseException:
            branch.abandon(lineage)
            raise
        branch.complete(lineage, outcome)
        self._due = due_of(outcome)
        after = EpochFollowUp(self.declared.name, lineage.epoch)
        with after.doing("telling the sources"):
            self._intake.advance(lineage.epoch, offers)
        failpoints.reach("branch.complete")
        result = replace(self._result(lineage.epoch, outcome, started), approximate=branch.said())
        after.check()
        return result

    def _run_exactly(self, taken: Lineage) -> None:
        """Run an epoch of the branch again: with what it took, at the clock that it had."""
        started = time.perf_counter()
        if self._state.edits.is_awaited():
            secure_former(self.declared.name, self._delivery, self._durability, self._with_recovery)
        waited = self._wait_for_room()
        work = []
        for name, offer in taken.offers.items():
            source = self.declared.sources[name]
            if source.replayable:
                work.append(Work(name, source, [offer]))
            else:
                work.append(Work(name, self._flow.pushed.source(name, [taken.epoch], tuple(source.fields)), [{}]))
        lineage, outcome, following = self._epochs.run(taken.offers, taken.clock, self._clock.accepts, work)
        self._completed(lineage, outcome, following, started, waited)

    def _has_work(self) -> bool:
        """Whether an epoch has something to do although nothing arrives."""
        return self._is_time() or self._state.edits.is_edited()

    def _is_time(self) -> bool:
        """Whether rows come or go by now because time has passed."""
        return self._is_timed and self._due is not None and self._due <= self._runner.clock()

    @property
    def _is_timed(self) -> bool:
        return any(operator.timed for operator in self._compiled.program.operators)

    def accept_clock(self) -> None:
        """Take the host's clock for the next epoch as it is, ahead or behind."""
        self._clock.accept()

    def _now(self) -> int:
        """The clock of the next epoch. Raises `ClockJumped`, where anything depends on the time."""
        before, reading = self._clock.known, self._runner.reading()
        try:
            now = self._clock.read(reading)
        except ClockJumped as error:
            if self._is_timed or self.declared.settings.retention.seconds is not None:
                raise
            _LOG.warning(
                "%s. Nothing here depends on the time yet, and so it goes on", error, extra={"flow": self.declared.name}
            )
            self._clock.accept()
            now = self._clock.read(reading)
        known = self._clock.known
        assert known is not None  # it was read
        if known[0] and (before is None or before[0] != known[0] or abs(before[1] - known[1]) > _CLOCK_DRIFT):
            with suppress(LogError, OSError):  # without it the next process has less to compare with
                self._directory.write_clock(*known)
        return now

    def _completed(
        self, lineage: Lineage, outcome: Outcome, following: Sequence[Instruction], started: float, waited: float
    ) -> Epoch:
        """An epoch counts: what remains to be done. Whatever fails now, and is raised, says that it counts."""
        self._due = due_of(outcome)
        after = EpochFollowUp(self.declared.name, lineage.epoch)
        self._clock.completed(lineage.clock)
        self._follow(following, outcome, after)
        result = self._result(lineage.epoch, outcome, started, waited)
        if self._state.mode is not Mode.APPROXIMATE:
            with after.doing("looking after layers"):
                self._acknowledge()
                self._maintain(outcome)
        with after.doing("folding the history"):
            self._folding.maybe()
        self.live.let_go()
        after.check()
        return result

    def _result(self, epoch: int, outcome: Outcome, started: float, waited: float = 0.0) -> Epoch:
        """Take note of what an epoch did."""
        seconds = time.perf_counter() - started
        self._latencies.append(seconds)
        self._rates.ran(self._latencies)
        self._statistics.add(outcome.reports)
        logs = {view: self._compiled.flow.views[view] for view in self.declared.views}
        return result_of(epoch, outcome, logs, seconds, waited)

    def _follow(self, following: Sequence[Instruction], outcome: Outcome, after: EpochFollowUp) -> None:
        """The epoch counts: now it may be seen."""
        deliveries: list[instructions.Commit | instructions.CatchUp] = []
        for instruction in following:
            if isinstance(instruction, instructions.AdvanceSources):
                with after.doing("telling the sources"):
                    self._intake.advance(instruction.lineage.epoch, instruction.lineage.offers)
        failpoints.reach("epoch.complete")
        for instruction in following:
            match instruction:
                case instructions.RequestCopies():
                    with after.doing("asking for copies"):
                        self._durability.request()
                case instructions.AwaitSafe(epoch=epoch):
                    with after.doing("waiting for copies"):
                        try:
                            self._await_safe(epoch)
                        except MemberUnreachable:
                            if self._state.branch is None:
                                raise
                            return  # the flow goes on without that member: sinks get it at the repair
                    if not after.well:
                        return  # nothing is to be seen of it before it is safe; sinks get it before the next epoch
                case instructions.Commit() | instructions.CatchUp():
                    deliveries.append(instruction)
        with after.doing("delivering to sinks"):
            try:
                for each in deliveries:
                    # Where a view was edited this reads logs, which may be damaged; what a sink has it is not given
                    # again.
                    self._with_recovery(partial(self._delivery.carry_out, each, partial(self._change, outcome)))
            except MemberUnreachable:
                if self._state.branch is None:
                    raise
                # The flow goes on without that member: sinks get it at the repair.

    def _await_safe(self, epoch: int) -> None:
        """Wait until an epoch is safe. What is damaged or lost is brought back meanwhile: it could not be copied else.
        `MemberUnreachable` if the flow goes on without it instead."""
        while not self._durability.wait(epoch, stopping=lambda: self.is_hindered):
            self.unhinder()

    def _wait_for_room(self) -> float:
        """Wait while more is unsafe than the flow allows, bringing back what stands in the way. The seconds."""
        waited = 0.0
        while not self._state.copies.has_room and not self.stopping:
            waited += self._durability.wait_for_room(lambda: self.stopping or self.is_hindered, self._say_waiting)
            self.unhinder()
        return waited

    @property
    def is_hindered(self) -> bool:
        """Whether layers that are not copied yet are damaged, or may be lost with a member: then nothing becomes safe,
        however long one waits."""
        lost = self._runner.scattered and self._state.branch is None and self._runner.membership_change == "lost"
        return lost or bool(self._durability.damaged)

    def unhinder(self) -> None:
        """Bring back what `is_hindered` told of. In the caller's turn. `MemberUnreachable` if the flow goes on without
        it instead."""
        self._repair_damage()
        if not self.is_hindered:
            return
        if not self._state.may_branch:
            self._follow_members()
        elif self._go_on_or_inherit():
            raise MemberUnreachable(f"flow '{self.declared.name}' goes on without what it lost")

    def _go_on_or_inherit(self) -> bool:
        """Members were lost, and the flow may go on without them: whether it does. Else what they had is inherited."""
        before = self._runner.owners()
        if self._continuing.goes_on_without():
            return True
        # Those that were lost are back, or all are lost.
        self._recoverer.adopted(self._runner.owners() != before)
        return False

    def _repair_damage(self) -> None:
        if found := [*self._maintenance.damaged, *self._durability.damaged]:
            self._maintenance.damaged.clear()
            self._durability.damaged.clear()
            self._recoverer.repair(found)

    def _change(self, outcome: Outcome, view: str) -> pa.Table:
        return delivered(outcome, self._compiled.flow.views[view])

    def _with_recovery(self, work: Callable[[], T]) -> T:
        """Do ``work`` on the exact history. What it meets that is lost is brought back, and it is done again."""
        return self._recoverer.repairing(work, self._continuing.gives_up)

    def _say_waiting(self) -> None:
        size, epochs = self._state.copies.unsafe
        troubles = [trouble.error for trouble in list(self._durability.troubles.values())]
        why = f": {troubles[0]}" if troubles else ""
        _LOG.warning(
            "flow '%s' waits for storage: %s MB of %d epochs are not safe yet, more than max_unsafe allows%s",
            self.declared.name,
            f"{size / 1e6:,.1f}",
            epochs,
            why,
            extra={"flow": self.declared.name, "unsafe_bytes": size, "unsafe_epochs": epochs},
        )

    def _run_again(self, replay: Replay, work: Sequence[Work], job: Job | None) -> set[str]:
        """Compute something again; who did it."""
        single = replay.first == replay.epoch
        what = f"epoch {replay.epoch} again" if single else f"filling views as of epoch {replay.epoch}"
        epoch = epoch_spec(
            self._flow,
            self.history[replay.epoch],
            first=replay.first,
            again=True,
            run=replay.run,
            write=replay.write,
            asking=replay.asking,
            undo=replay.undo,
        )
        outcome = (job or self._job).run(epoch, work, f"{self.declared.name}: {what}")
        return {report.member for report in outcome.reports if report.written}

    def replay(self, number: int, partitions: int) -> dict[str, pa.Table]:
        """Compute a past epoch again, from its lineage and the traces as of the epoch before; nothing is written.
        View → its change (``c0…``, ``_diff``): what it was then, bit for bit (invariant 1)."""
        lineage = self.history[number]
        views = self._compiled.flow.views
        if lineage.rewind is not None:
            logs = {view: self._flow.log_of(view) for view in views}
            return {view: difference(log, lineage.rewind["to"], log, number - 1) for view, log in logs.items()}
        owed = self._state.rewinds.retaken(number)
        if self._runner.scattered:
            partitions = self.partitions  # others would need layers of several members
        deliver = frozenset(views.values())
        epoch = epoch_spec(self._flow, lineage, again=True, deliver=deliver, write={}, partitions=partitions)
        work = []
        for name, offer in lineage.offers.items():
            source = self.declared.sources[name]
            if owed is not None:
                work.append(retaken(self._flow, name, owed, offer, partitions))
            elif source.replayable:
                work.append(Work(name, source, [offer]))
            else:
                work.append(Work(name, LoggedChange(source.fields, self._flow.log_of(name), number, partitions), [{}]))
        outcome = self._job.run(epoch, work, f"{self.declared.name}: epoch {number} again")
        return {view: delivered(outcome, operator_id) for view, operator_id in views.items()}

    def _release(self) -> None:
        """Tell the sources what they may forget."""
        upto = self._state.release().upto
        self._flow.pushed.release(upto)
        self._intake.release(upto)

    # -- beside epochs --------------------------------------------------------------------------------------------

    def _acknowledge(self) -> None:
        """Look whether any state is left, if it is time; if not, the input behind it is needed no more."""
        if self._state.settings.strategy.acknowledges(self.last) and self._layers.is_empty(self._state.epochs.chain()):
            self._guard.tell(events.StateGone(self.last))
            self._durability.request()

    def _maintain(self, outcome: Outcome) -> None:
        for instruction in self._guard.tell(events.TasksRan(self._layers.ran(outcome.reports))):
            assert isinstance(instruction, instructions.HandOver)
            before = self._runner.owners()
            self._runner.hand_over(instruction.moves)  # those that ran it may be gone by now
            self._recoverer.adopted(self._runner.owners() != before)
        if self._delivery.is_maintained:
            self._beside_sinks.request()
        if many := crowded(outcome, self._maintenance.tolerated):
            copies, now = self._state.copies, self._runner.clock()
            self._maintenance.request(
                [
                    MergeRequest(
                        self._compiled.directory / trace,
                        layout,
                        copies.since(trace, now),
                        copies.floor(trace, self.history, now),
                    )
                    for trace, layout in self._compiled.layouts.items()
                    if trace in many
                ]
            )

    @speaking
    def upkeep(self) -> None:
        """Do in this thread what was asked of the background, for those who drive without threads."""
        if self._continuing.branch is not None:
            self._continuing.branch.maintenance.upkeep()
        self._maintenance.upkeep()
        self._beside_sinks.now()
        self._durability.upkeep()

    def wait_safe(self, epoch: int | None, timeout: float | None, may_help: Callable[[], bool] = lambda: False) -> int:
        """Wait until ``epoch`` (by default the last) is safe, or the engine was closed by another thread, or
        `is_hindered` while ``may_help`` says that the caller may do something about it. The safe point."""
        wanted = self.last if epoch is None else epoch
        if (said := self.approximate) is not None and self.safe < wanted <= self.last:
            raise EpochUnavailable(
                f"flow '{self.declared.name}': epoch {wanted} does not become safe before flow.repair(): the flow is "
                f"{said}",
                epoch=wanted,
            )
        if wanted > self.last:
            raise EpochUnavailable(f"epoch {wanted} is not there yet; the last is {self.last}", epoch=wanted)
        if not self.declared.settings.durable:
            raise LogError(
                f"flow '{self.declared.name}': with strategy {self.declared.settings.strategy} nothing is ever safe"
            )
        began = time.monotonic()

        def stopping() -> bool:
            return self.closed or (self.is_hindered and may_help())

        if self._durability.wait(wanted, timeout, stopping) or stopping():
            return self.safe
        if timeout is not None and time.monotonic() - began >= timeout:
            why = self._durability.why_not()
            raise StoreError(
                f"flow '{self.declared.name}': epoch {wanted} is not safe after {timeout:.3g} s: {why}", epoch=wanted
            )
        return self.safe

    def make_safe(self) -> None:
        """Wait until the last epoch is safe, repairing what stands in the way; for those who drive without threads."""
        self._await_safe(self.last)

    def is_held(self, location: int) -> bool:
        """Whether a log location holds everything, as far as the last look at it told."""
        return self._durability.is_whole(location)

    # -- views ----------------------------------------------------------------------------------------------------

    def explain(self, view: str) -> str:
        """The dataflow of a view, as text."""
        return as_text(self.drawing(), view)

    def drawing(self) -> Drawing:
        """The whole dataflow, with what each operator keeps and did."""
        measured = self._statistics.measured(self._compiled.traces, self._layers.local(rows=True))
        return self._compiled.drawn(measured)

    def _drawn_before(self) -> set[str]:
        """The operators that the history knows from its first epoch on, and whose values were drawn, or are made of
        such. They are not new, also if every description of what the flow kept is lost: filled in one go they would
        draw other values, and ask again."""
        flow, versions = self._compiled.flow, self._state.versions
        kept = {
            span.version.log
            for view in self.declared.views
            for span in versions.of(view)[-1:]
            if span.first <= self.history.first and span.version.log == flow.views[view]
        }
        return (kept | flow.ancestors(kept)) & self._compiled.drawing

    def check_sinks(self, views: Mapping[str, nodes.Node]) -> None:
        """Raise `SinkError` if views are to have columns that sinks cannot be given."""
        self._delivery.check_types(
            {
                name: ViewVersion(name, tuple(field.type for field in node.fields), (), node.columns)
                for name, node in views.items()
            }
        )

    def hand_over(self, trunk: Engine) -> Callable[[], object]:
        """What hands the traces of this line that the other one does not have over to it, once that is closed. Both
        have taken the same, epoch by epoch: so what this line computed of it is what the other one would have."""
        digests = {
            (record.epoch, record.digest): digest
            for record in self.history
            if (digest := trunk.history.digest(record.epoch)) is not None
        }
        new = self._compiled.layouts.keys() - trunk._compiled.layouts.keys()
        link = partial(link_layers_as, self._compiled.directory, trunk._compiled.directory, sorted(new), digests)
        hand_over = partial(self._runner.everywhere, "handing layers over", link)
        return lambda: self._exactly(partial(self._with_recovery, hand_over))

    @speaking
    def make_branch(self, name: str, at: int | datetime | None) -> BranchRecord:
        """Make a branch, or find the one that there is (`Branches.make`). Of a flow that goes on without lost members:
        when it is repaired, since a branch begins with all that was there."""
        if (known := self._branches.find(name, at)) is not None:
            return known
        return self._exactly(lambda: self._with_recovery(lambda: self._branches.make(name, at)))

    @speaking
    def remove_branch(self, name: str) -> None:
        """Remove a branch and all that it alone has."""
        self._branches.remove(name)

    @property
    def branches(self) -> Branches:
        """The logs that begin with layers of this one."""
        return self._branches

    @property
    def snapshots(self) -> Snapshots:
        """The epochs that have names."""
        return self._snapshots

    @speaking
    def status(self) -> Status:
        """How the flow stands."""
        host = self._runner.clock()
        status = status_of(
            self._compiled,
            self.last,
            self.partitions,
            self._latencies,
            self._delivery,
            self._maintenance,
            self._durability,
            self._layers.local(rows=False),
            self._layers.status(),
            self.approximate,
            self._statistics.filtered,
        )
        last = self.history[-1].clock if self.history else None
        clock = ClockStatus(last, host, self._clock.ahead(host) / 1e6)
        return replace(status, clock=clock, owed=len(self._state.rewinds.owed), crash_now=self._forecasts())

    def _measure(self) -> None:
        """Keep the rates by which a crash is forecast, after a round of copying."""
        if not self.closed:
            target = self._directory.path / "probe"
            self._rates.look(self.declared.locations, self._durability.holdings, target, self._circumstances())
            if self._rates.rates.replay is None and (took := self._empty_job()) is not None:
                self._rates.jobs(took)
                self._rates.look(self.declared.locations, self._durability.holdings, target, self._circumstances())

    def _held_before(self) -> HeldInput:
        """What the engine before this one held of pushed rows, if they were of this history and have these columns."""
        told, sources, digests = self._told, self.declared.sources, self._state.history.digests()
        same = {name for name, source in sources.items() if told.fields.get(name) == tuple(source.fields)}
        told.pushed.keep(
            lambda name, epoch: name in same and told.history.digest(epoch) == digests.get(epoch, "not there")
        )
        return told.pushed

    def _empty_job(self) -> float | None:
        """The seconds of a job with the stages of an epoch that does nothing: the least of a few, once the process is
        warm. None of a flow that is closed before, and where a job fails: after the next round it is measured again."""
        took: list[float] = []
        for _ in range(_JOBS):
            if self._measuring.ends_within(_APART if took else _WARM):
                return None
            began = time.perf_counter()
            try:
                self._runner.tasks("measuring", list, range(self.partitions), self.partitions)
            except Exception as error:  # the session has ended, or a member was lost: epochs say so
                _LOG.debug("flow '%s': what a job takes was not measured: %s", self.declared.name, error)
                return None
            took.append(time.perf_counter() - began)
        return min(took) * (self._compiled.program.stages + 1)

    def _forecasts(self) -> tuple[Forecast, ...]:
        """What each loss would cost now."""
        if self.history.last < 0:
            return ()
        locations = self.declared.locations
        return forecasts(
            self._rates.rates,
            {locations[number].uri: holding for number, holding in self._durability.holdings.items()},
            list(self._compiled.layouts),
            self.history.last,
            self._circumstances(),
            [location.uri for location in locations if location.local() == self._directory.path],
        )

    def _circumstances(self) -> Circumstances:
        """What decides how much a loss takes along."""
        keeps: dict[str, list[tuple[int, int]]] = {}
        for partition, owner in enumerate(self._runner.owners() if self._runner.scattered else ()):
            keeps.setdefault(owner, []).append(partition_range(partition, self.partitions))
        stays = self._state.settings.strategy.survives is Survives.EVERYTHING
        return Circumstances(stays, self._lead.timeout, self._runner.grace, keeps)

    # -- the end --------------------------------------------------------------------------------------------------

    def abandon(self) -> None:
        """Let go of the log as a process that dies does: nothing is finished, only the lock is free."""
        self._beside_sinks.stop()
        self._measuring.stop()
        self._lineage.close()
        self._begun.close()
        self._directory.close()

    @property
    def torn(self) -> bool:
        """Whether this engine does not know what counts: it must be closed, and another opened."""
        return self._state.epochs.is_torn

    @speaking
    def close(self, reopens: bool = False) -> None:
        """Stop. What is approximate is repaired first; if that fails, the log ends where it is exact: whoever opens it
        takes from the sources again what came after that, and only rows that code pushed since are lost. What is not
        durable yet is given one more round, unless the log is opened again at once (``reopens``). Whatever fails, the
        log is let go of."""
        try:
            self.repair()
        finally:
            self._let_go(reopens)

    def _note_end(self) -> None:
        """The flow was closed, and did not die: the next driver may use all that is here."""
        knows = not self._state.epochs.is_torn and self._state.fenced is None
        if knows and self._state.settings.strategy.survives is not Survives.EVERYTHING and self.history:
            note_end(self._directory.path, self.history[-1].digest)

    def _deliver_held(self) -> None:
        """Give sinks what was held until it was safe, as far as it is now."""
        if self._state.fenced is None and self._state.settings.strategy.waits:
            self._with_recovery(lambda: self._delivery.catch_up(self._state.deliverable))

    def _let_go(self, reopens: bool) -> None:
        self.closed = True
        with ExitStack() as closing:  # last in, first out, whatever the others raise; the lock is released in any case
            closing.callback(self.abandon)
            closing.callback(self._note_end)
            closing.callback(self._delivery.close)
            closing.callback(self._release)
            if self._state.epochs.is_torn:
                closing.callback(self._durability.abandon)
            else:
                closing.callback(self._deliver_held)
                closing.callback(self._durability.abandon if reopens else self._durability.close)
                closing.callback(self._epochs.remove_undone)
            closing.callback(self._beside_sinks.close)
            closing.callback(self._rates.keep)
            closing.callback(self._measuring.close)
            closing.callback(self._maintenance.close)
            closing.callback(self._continuing.close)
