"""The engine of an open flow: it runs one epoch after the other, from offers to sinks.

`Flow` records what the user declares. An `Engine` is made from those declarations when the first epoch is asked for;
when the declarations change, a new engine is made. Opening an engine finds the history and recovers what is missing
(`runtime/recovery/`). An operator whose state the log does not hold (of a new view, or of a view whose meaning changed)
is filled from the history of its sources; the state of all other operators stays as it is.

The flow's state (`coordinator/flow_state.py`) decides what happens next. The engine asks the state and carries out its
instructions: exact epochs by `runtime/exact_epochs.py`, epochs without lost members by `runtime/continuing.py`, copies
and merges beside epochs by `runtime/replication.py` and `runtime/merging.py`.

The engine knows no Spark: a `Runner` does the work. The file is long because this one class puts all parts of an open
flow together and answers everything that `Flow` asks of them.
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
from holdfast.runtime.outcomes import SinkChange, change_for, crowded, delivered, due_of, part_errors, result_of
from holdfast.runtime.partition_moves import PartitionMoves
from holdfast.runtime.prepared_flow import PreparedFlow
from holdfast.runtime.reading_ahead import ReadingAhead
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
"""How the time of an empty job is measured: the number of jobs; the seconds between two of them, because some run
beside an epoch; the seconds to wait after the first copies were made, because the process is cold before that."""

_REPAIRS = 5
"""How often work that needs an exact flow is tried when members are lost in the meantime."""

_SINK_PAUSE = 30.0
"""Seconds between two passes in which sinks maintain their files; also between two measurements of rates."""

_CLOCK_DRIFT = 60_000_000
"""Microseconds. The difference between the host's two clocks is written down again only if it changed by more."""


class Engine:
    """Runs a declared flow."""

    def __init__(
        self, ready: PreparedFlow, told: ConnectorProgress, lease: Lease | None = None, moves: bool = False
    ) -> None:
        """With a ``lease``, no epoch is completed while the lease is not held. ``told``: what sources and sinks know
        from earlier engines of this process. ``moves``: partitions change owners on purpose; copying then does not
        begin at once but with `PartitionMoves.moved`, or after the next epoch, so that this epoch is not late."""
        declared, runner = ready.declared, ready.runner
        self.declared = declared
        self.partitions = runner.partitions
        self.stopping = False
        """Set by other threads: a call that waits for storage should stop waiting."""

        self.meanwhile: Callable[[], AbstractContextManager[None]] = nullcontext
        """A context that is entered while an epoch waits for storage: other threads may use or close the engine."""

        self.closed = False
        self._moves = moves
        self._told = told
        self._runner = runner
        self._latencies: deque[float] = deque(maxlen=100)
        self._statistics = Statistics()
        self._patient = self._continues = False
        self._due: int | None = 0
        """The clock, in microseconds, from which an epoch has work even if no input arrives; None: never. For a flow
        that was just opened it is not known; 0 makes the first epoch find out."""

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
            with suppress(Exception):  # the user should see the error that stopped the opening, not this one
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
            # Layers on other hosts are not searched for epochs: an epoch that no log knows was seen by nobody.
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
        # Before the stash forgets the abandoned epochs: after a crash between the two steps they are found again.
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
        self._told.sinks = tuple(self.declared.sinks)  # the delivery numbers were just written under these names
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
        self._ahead = ReadingAhead(self._intake, self._job, self.partitions)
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
        self._maintenance = Merging(
            runner,
            lambda: (self._state.epochs.chain(), self._state.copies.live_after),
            lambda: [Pin(*each) for each in self._state.copies.copying],
        )
        self._beside_sinks = Background(runner, "holdfast-sinks", self._delivery.maintain, _SINK_PAUSE)
        # Not in a replication lane: a slow location would make the other locations wait.
        self._measuring = Background(runner, "holdfast-rates", self._measure, _SINK_PAUSE)
        self._delivery.attach(partial(log_as, compiled, self._layers, self._state), self._guard, versions)
        known = KnownSources(descriptions.sources(), compiled, history.last)
        owed = {name for each in self._state.rewinds.owed for name in self.history[each.epoch].offers}
        known.check(self._intake.taken, owed)
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
        """Reads views for other threads, which do not have the turn."""

        self._continuing = Continuing(
            self._flow,
            self._lead,
            self._recoverer,
            self._census,
            self._branches,
            lambda taken: self._run_exactly(taken),
        )
        self.views = ViewReading(self._flow, self._recoverer, self._continuing)
        """Reads views for the thread that has the turn."""

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
        # Only after recovery: if the driver dies before this line, new operators are still new at the next opening.
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
        """Return what of the working directory is used: everything if the driver before this one closed the flow;
        after a crash, what the strategy says."""
        closed = take_end(self._directory.path)
        if self.declared.settings.strategy.survives is Survives.EVERYTHING:
            return Survives.EVERYTHING
        records = read_stash(stash)[0]
        if not records or (closed is not None and records[-1].digest == closed):
            return Survives.EVERYTHING
        return self.declared.settings.strategy.survives

    def _skip(self, begun: Sequence[Lineage]) -> None:
        """Pass over epochs in the middle of which the driver before this one died: their offers count as taken, and
        the rows are not read."""
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
                except Exception as error:  # an old file may not be readable under the schema declared now
                    self._intake.blame(error)
                    raise
        except (InputError, SchemaError) as error:
            for changed in known.changed.values():
                raise SchemaChanged(f"{changed}: {error}", **changed.fields) from error
            raise

    @property
    def last(self) -> int:
        """The last complete epoch, exact or approximate; -1 before the first."""
        return self._state.last

    @property
    def history(self) -> History:
        """The lineage of all complete exact epochs. The object grows as epochs complete."""
        return self._state.history

    @property
    def approximate(self) -> Approximation | None:
        """What the views are computed from while lost partitions are left out; None if the views are exact."""
        return self._continuing.said

    @property
    def lost(self) -> frozenset[int]:
        """The lost partitions, which reads of views leave out."""
        return self._state.lost

    def repair(self) -> RecoveryRecord | None:
        """Make an approximate flow exact again. Return the record of the repair; None if the flow was exact. If the
        repair fails, the epochs that it ran count, and the next call continues from there."""
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
        """What the last recovery did: that of the opening, or a later repair."""
        return self._recoverer.recovery

    @property
    def filled(self) -> int:
        """The last epoch as of which state was filled since the flow was opened; -1 if none was filled. Views over such
        state may not be readable as of earlier epochs."""
        return self._recoverer.filled

    # -- epochs ---------------------------------------------------------------------------------------------------

    def step(self, patient: bool = False, continues: bool = False) -> Epoch:
        """Run one epoch if input waits, or if rows come or go by now because time has passed. The first epoch of a flow
        always runs: a view over empty input has a result too. ``patient``: as in `Intake.poll`. ``continues``: the
        caller will run another epoch at once, whose input may be read ahead."""
        self._patient, self._continues = patient, continues
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
            self._lead.check()  # a paused driver that lost its lease may fail anywhere: say the real reason
            raise
        finally:
            self._continues = False

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
        """Run an exact epoch if it has work. Raise `MemberUnreachable` if a member was lost and the flow goes on
        without it."""
        self._settle()
        waited = 0.0
        while True:
            started = time.perf_counter() - waited
            again = self._rewinding.next()
            # A source that no view reads is not polled: its rows wait for a view that reads it.
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
                continue  # other calls had their turn meanwhile, and may have taken this input
            try:
                now = self._now()  # before `accepts` is read below, which this call may change
                if again is None:
                    counted = self._epochs.run(offers, now, self._clock.accepts, self._intake.work(offers))
                else:
                    counted = self._epochs.run(offers, now, self._clock.accepts, again.work, again=again.epoch)
                lineage, outcome, following = counted
            except Exception as error:
                if self._state.branch is not None:
                    raise  # an epoch of the branch takes these offers
                # A driver that another driver has replaced fails in many ways; say the real reason.
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
        """Finish what earlier epochs left open: failed layers, sources and sinks to be told, damage, members."""
        self._epochs.remove_undone()
        self._intake.settle()
        self._repair_damage()
        self._follow_members()
        self._with_recovery(lambda: self._delivery.catch_up(self._state.deliverable))
        self._release()

    @speaking
    def rewind(self, to: int, reason: str, skip: Mapping[str, Sequence[Any]]) -> Epoch:
        """Run an epoch that undoes all epochs after ``to``. The epochs after it take the undone input again, without
        the input in ``skip``."""
        return self._exactly(lambda: self._rewind(to, reason, skip))

    def _exactly(self, work: Callable[[], T]) -> T:
        """Do ``work`` on an exact flow. If a member is lost meanwhile and the flow goes on without it, repair the flow
        and do ``work`` again."""
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
        held = "rewind to"  # no snapshot of a user can have this name
        # This snapshot keeps merges from the epochs to be undone; once the rewind counts, the history does.
        self._guard.tell(events.SnapshotTaken(held, record["to"]))
        try:
            lineage, outcome, following = self._epochs.run({}, clock, back, [], recorded, rewind=record)
        finally:
            self._guard.tell(events.SnapshotRemoved(held))
        result = self._completed(lineage, outcome, following, started, waited)
        self._due = 0  # the views went back in time: rows may be due at once
        return result

    @speaking
    def run_recorded(self, recorded: Lineage, work: Sequence[Work]) -> Epoch:
        """Run an epoch of another line (the main line or a branch) as the next epoch of this line: with the input that
        it took (``work``), its clock, its seed and its answers. Sources that only views of this line read are polled
        with it. If members are lost meanwhile, this line is repaired and does not go on without them: it must take
        exactly what the other line took."""
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
        """Whether `recorded_work` reads rows that members keep. It may have to repair this line first, so its caller
        needs this line's turn."""
        return self._runner.scattered and any(
            name in self.declared.sources and self._is_read_from_log(name, recorded) for name in recorded.offers
        )

    def _is_read_from_log(self, name: str, recorded: Lineage) -> bool:
        """Whether the rows that an epoch took of a source are read from the log instead of from the source."""
        # After a rewind, input that is taken again may be released already: the source may have forgotten it.
        again = recorded.again is not None and is_logged(self._flow, name)
        return again or not self.declared.sources[name].replayable

    @contextmanager
    def recorded_work(self, recorded: Lineage, partitions: int) -> Iterator[list[Work]]:
        """Give the input of an epoch of this line, for another line to take it: sources by their offers, pushed rows
        from their log, whose layers are kept until the context ends. The caller needs this line's turn if
        `reads_members`."""
        work, reading = [], [True]
        for name, offer in recorded.offers.items():
            source = self.declared.sources.get(name)
            if source is not None and not self._is_read_from_log(name, recorded):
                work.append(Work(name, source, [offer]))
            elif source is not None:
                fields, epoch = tuple(source.fields), recorded.epoch
                if self._runner.scattered:
                    # Read now: tasks of the other line run on other members, and could not repair a loss in this line.
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
        """Return the change of an epoch to a source whose rows the log keeps."""
        return self._flow.log_of(name).change_at(epoch)

    def _follow_members(self) -> None:
        """If members came or went, give the partitions to the members that are there now."""
        for instruction in self._guard.tell(events.MembershipChanged(self._runner.membership_change)):
            match instruction:
                case instructions.HurryRounds():
                    self._durability.hurry()
                case instructions.Refresh(settle=settle):
                    self._recoverer.adopt(settle)

    def rest(self) -> None:
        """End copying, after one more round, and then merging. Called before a `close` that should not wait for
        storage. Any thread may call it; epochs go on."""
        self._durability.rest()
        # Merging ends only after the round: a round may take long, and without merges epochs would get slower.
        self._maintenance.close()

    def resume(self) -> None:
        """Start copying and merging again after `rest`, because the engine is not closed after all."""
        self._durability.resume()
        self._maintenance.resume()

    @speaking
    def drain(self, member: str, ahead: int = 0) -> RecoveryRecord:
        """Give the partitions of a member to other members. Return the record of the recovery that this took.
        ``ahead``: how many layers were fetched for it beforehand."""
        self.moves.heirs(member)  # raises if no other member can inherit
        self.repair()
        self._settle()
        self.moves.leave(member, ahead)
        return self._recoverer.recovery

    def _step_on_branch(self) -> Epoch:
        """Run an approximate epoch if it has work. If no partition is left, repair the flow and run an exact epoch."""
        branch = self._continuing.branch
        assert branch is not None
        try:
            branch.stay()
            if self._runner.membership_change == "lost":
                branch.look()
            if branch.branch.left and not self._state.rewinds.owed:  # input owed by a rewind needs exact epochs
                return self._run_on_branch()
        except (LogDamaged, MemberUnreachable):
            self._lead.check()
        # No partition is left, or the failure has another cause than a lost member.
        self.make_exact()
        return self._step()

    def make_exact(self) -> None:
        """Repair an approximate flow. If another member is lost meanwhile, repair it with the members that are left."""
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
        """Run an epoch of the approximate branch again as an exact one: with the same offers and the same clock."""
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
        """Whether an epoch has work even if no input arrives."""
        return self._is_time() or self._state.edits.is_edited()

    def _is_time(self) -> bool:
        """Whether rows of a view come or go by now because time has passed."""
        return self._is_timed and self._due is not None and self._due <= self._runner.clock()

    @property
    def _is_timed(self) -> bool:
        return any(operator.timed for operator in self._compiled.program.operators)

    def accept_clock(self) -> None:
        """Accept the host's clock for the next epoch even if it jumped ahead or back."""
        self._clock.accept()

    def _now(self) -> int:
        """Return the clock of the next epoch, in microseconds. Raise `ClockJumped` if the host's clock jumped and a
        view or the retention depends on time."""
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
        assert known is not None  # `FlowClock.read` has set it
        if known[0] and (before is None or before[0] != known[0] or abs(before[1] - known[1]) > _CLOCK_DRIFT):
            with suppress(LogError, OSError):  # without the file the next process only notices fewer clock jumps
                self._directory.write_clock(*known)
        return now

    def _completed(
        self, lineage: Lineage, outcome: Outcome, following: Sequence[Instruction], started: float, waited: float
    ) -> Epoch:
        """Do what follows once an epoch counts, and return its result. An error that is raised from here on says that
        the epoch counts."""
        self._due = due_of(outcome)
        after = EpochFollowUp(self.declared.name, lineage.epoch)
        self._clock.completed(lineage.clock)
        with self._dropping_parts(lineage, outcome):
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
        """Record the statistics of an epoch and return its result."""
        seconds = time.perf_counter() - started
        self._latencies.append(seconds)
        self._rates.ran(self._latencies)
        self._statistics.add(outcome.reports)
        logs = {view: self._compiled.flow.views[view] for view in self.declared.views}
        return result_of(epoch, outcome, logs, seconds, waited)

    def _follow(self, following: Sequence[Instruction], outcome: Outcome, after: EpochFollowUp) -> None:
        """Carry out the instructions that follow from an epoch that counts: sources, copies, sinks."""
        deliveries: list[instructions.Commit | instructions.CatchUp] = []
        for instruction in following:
            if isinstance(instruction, instructions.AdvanceSources):
                with after.doing("telling the sources"):
                    self._intake.advance(instruction.lineage.epoch, instruction.lineage.offers)
        if self._continues and after.well and not self.stopping and not self._state.rewinds.owed:
            self._ahead.begin(self.sources, self._patient)
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
                            return  # the flow goes on without that member; the repair delivers the epoch
                    if not after.well:
                        return  # sinks must not see an unsafe epoch; they get it before the next one
                case instructions.Commit() | instructions.CatchUp():
                    deliveries.append(instruction)
        with after.doing("delivering to sinks"):
            try:
                for each in deliveries:
                    # For an edited view this reads logs, which may be damaged. Doing it again is harmless: a sink is
                    # not given an epoch that it has.
                    self._with_recovery(partial(self._delivery.carry_out, each, partial(self._change, outcome)))
            except MemberUnreachable:
                if self._state.branch is None:
                    raise
                # The flow goes on without that member; the repair delivers the epoch.

    def _await_safe(self, epoch: int) -> None:
        """Wait until an epoch is safe. Damaged or lost layers are brought back meanwhile: otherwise they could not be
        copied. Raise `MemberUnreachable` if the flow goes on without a lost member instead."""
        while not self._durability.wait(epoch, stopping=lambda: self.is_hindered):
            self.unhinder()

    def _wait_for_room(self) -> float:
        """Wait while more is unsafe than `max_unsafe` allows, and repair what hinders copying. Return the seconds."""
        waited = 0.0
        while not self._state.copies.has_room and not self.stopping:
            waited += self._durability.wait_for_room(lambda: self.stopping or self.is_hindered, self._say_waiting)
            self.unhinder()
        return waited

    @property
    def is_hindered(self) -> bool:
        """Whether layers that are not copied yet are damaged, or may be lost with a member. No epoch becomes safe then,
        however long a caller waits."""
        lost = self._runner.scattered and self._state.branch is None and self._runner.membership_change == "lost"
        return lost or bool(self._durability.damaged)

    def unhinder(self) -> None:
        """Bring back the layers because of which the flow `is_hindered`. The caller has the turn. Raise
        `MemberUnreachable` if the flow goes on without them instead."""
        self._repair_damage()
        if not self.is_hindered:
            return
        if not self._state.may_branch:
            self._follow_members()
        elif self._go_on_or_inherit():
            raise MemberUnreachable(f"flow '{self.declared.name}' goes on without what it lost")

    def _go_on_or_inherit(self) -> bool:
        """Decide about lost members when the flow may go on without them. Return whether it does; if not, the members
        that are there inherit the partitions."""
        before = self._runner.owners()
        if self._continuing.goes_on_without():
            return True
        # The lost members are back, or no member is left.
        self._recoverer.adopted(self._runner.owners() != before)
        return False

    def _repair_damage(self) -> None:
        if found := [*self._maintenance.damaged, *self._durability.damaged]:
            self._maintenance.damaged.clear()
            self._durability.damaged.clear()
            self._recoverer.repair(found)

    def _change(self, outcome: Outcome, view: str, sink: int) -> SinkChange:
        return change_for(outcome, self._compiled.operators[self._compiled.flow.views[view]], sink)

    @contextmanager
    def _dropping_parts(self, lineage: Lineage, outcome: Outcome) -> Iterator[None]:
        """Afterwards, have sinks drop what is left of the parts that tasks wrote for them."""
        written = {sink for report in outcome.reports for sink in report.parts.written}
        try:
            yield
        finally:
            if errors := part_errors(outcome):
                self._delivery.note_part_errors(errors)
            if written:
                self._delivery.drop_parts(lineage.digest, written)

    def _with_recovery(self, work: Callable[[], T]) -> T:
        """Do ``work`` on the exact history. If it meets a lost or damaged layer, bring the layer back and do ``work``
        again."""
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
        """Carry out a replay, and return the members that wrote layers."""
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
        return {report.member for report in outcome.reports if report.written or report.quiet}

    def replay(self, number: int, partitions: int) -> dict[str, pa.Table]:
        """Compute a past epoch again, from its lineage and the traces as of the epoch before; nothing is written.
        Return, for each view, its change (``c0…``, ``_diff``): the same as then, bit for bit (invariant 1)."""
        lineage = self.history[number]
        views = self._compiled.flow.views
        if lineage.rewind is not None:
            logs = {view: self._flow.log_of(view) for view in views}
            return {view: difference(log, lineage.rewind["to"], log, number - 1) for view, log in logs.items()}
        owed = self._state.rewinds.retaken(number)
        if self._runner.scattered:
            partitions = self.partitions  # with another number, one task would need layers of several members
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
        return {view: delivered(outcome, self._compiled.operators[each]) for view, each in views.items()}

    def _release(self) -> None:
        """Tell the sources which input they may forget."""
        upto = self._state.release().upto
        self._flow.pushed.release(upto)
        self._intake.release(upto)

    # -- beside epochs --------------------------------------------------------------------------------------------

    def _acknowledge(self) -> None:
        """If the strategy acknowledges at this epoch, look whether any trace still has rows. If none has, the input
        taken so far is no longer needed."""
        if self._state.settings.strategy.acknowledges(self.last) and self._layers.is_empty(self._state.epochs.chain()):
            self._guard.tell(events.StateGone(self.last))
            self._durability.request()

    def _maintain(self, outcome: Outcome) -> None:
        for instruction in self._guard.tell(events.TasksRan(self._layers.ran(outcome.reports))):
            assert isinstance(instruction, instructions.HandOver)
            before = self._runner.owners()
            self._runner.hand_over(instruction.moves)  # members that ran the tasks may be lost by now
            self._recoverer.adopted(self._runner.owners() != before)
        if self._delivery.is_maintained:
            self._beside_sinks.request()
        if many := crowded(
            outcome, self.last, self._compiled.trace_names, self._maintenance.tolerated, self._compiled.only_written
        ):
            copies, now = self._state.copies, self._runner.clock()
            self._maintenance.request(
                [
                    MergeRequest(
                        self._compiled.directory / trace,
                        layout,
                        copies.since(trace, now),
                        copies.floor(trace, self.history, now),
                        trace in self._compiled.only_written,
                    )
                    for trace in sorted(many)
                    for layout in [self._compiled.layouts[trace]]
                ]
            )

    @speaking
    def upkeep(self) -> None:
        """Do in this thread the work that was asked of background threads; for a runner without threads."""
        if self._continuing.branch is not None:
            self._continuing.branch.maintenance.upkeep()
        self._maintenance.upkeep()
        self._beside_sinks.now()
        self._durability.upkeep()

    def wait_safe(self, epoch: int | None, timeout: float | None, may_help: Callable[[], bool] = lambda: False) -> int:
        """Wait until ``epoch`` (by default the last) is safe, or another thread closed the engine, or the flow
        `is_hindered` while ``may_help`` says that the caller can repair it. Return the safe point, which may be before
        ``epoch`` in the last two cases. Raise `EpochUnavailable` if the epoch does not exist yet or cannot become safe
        before a repair, `LogError` if the strategy makes nothing safe, `StoreError` after ``timeout`` seconds."""
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
        """Wait until the last epoch is safe, and repair what hinders copying; for a runner without threads."""
        self._await_safe(self.last)

    def is_held(self, location: int) -> bool:
        """Whether a log location held every layer when it was last listed."""
        return self._durability.is_whole(location)

    # -- views ----------------------------------------------------------------------------------------------------

    def explain(self, view: str) -> str:
        """Return the dataflow of a view, as text."""
        return as_text(self.drawing(), view)

    def drawing(self) -> Drawing:
        """Return the whole dataflow, with the state and the measured work of each operator."""
        measured = self._statistics.measured(self._compiled.traces, self._layers.local(rows=True))
        return self._compiled.drawn(measured)

    def _drawn_before(self) -> set[str]:
        """Return the operators that were there from the first epoch of the history on and whose values were drawn, or
        computed from drawn values. They do not count as new, even if every description of the flow's state is lost:
        a fill in one go would draw other values, and ask outside again."""
        flow, versions = self._compiled.flow, self._state.versions
        kept = {
            span.version.log
            for view in self.declared.views
            for span in versions.of(view)[-1:]
            if span.first <= self.history.first and span.version.log == flow.views[view]
        }
        return (kept | flow.ancestors(kept)) & self._compiled.drawing

    def check_sinks(self, views: Mapping[str, nodes.Node]) -> None:
        """Raise `SinkError` if a view is to have columns that do not fit what its sinks have."""
        self._delivery.check_types(
            {
                name: ViewVersion(name, tuple(field.type for field in node.fields), (), node.columns)
                for name, node in views.items()
            }
        )

    def hand_over(self, trunk: Engine) -> Callable[[], object]:
        """Return a function that hands to ``trunk`` the traces that this line has and ``trunk`` lacks; call it once
        ``trunk`` is closed. Both lines took the same input, epoch by epoch, so these traces are what ``trunk`` would
        have computed."""
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
        """Make a branch, or return the existing one of that name (`Branches.make`). A flow that goes on without lost
        members is repaired first, because a branch begins with complete state."""
        if (known := self._branches.find(name, at)) is not None:
            return known
        return self._exactly(lambda: self._with_recovery(lambda: self._branches.make(name, at)))

    @speaking
    def remove_branch(self, name: str) -> None:
        """Remove a branch and everything that belongs to it alone."""
        self._branches.remove(name)

    @property
    def branches(self) -> Branches:
        """The branches of this flow: logs that begin with layers of its log."""
        return self._branches

    @property
    def snapshots(self) -> Snapshots:
        """The snapshots: epochs that have names."""
        return self._snapshots

    @speaking
    def status(self) -> Status:
        """Return the status of the flow as of now."""
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
        """Measure the rates from which the cost of a crash is forecast. Called after a round of copying."""
        if not self.closed:
            target = self._directory.path / "probe"
            self._rates.look(self.declared.locations, self._durability.holdings, target, self._circumstances())
            if self._rates.rates.replay is None and (took := self._empty_job()) is not None:
                self._rates.jobs(took)
                self._rates.look(self.declared.locations, self._durability.holdings, target, self._circumstances())

    def _held_before(self) -> HeldInput:
        """Return the pushed rows that the engine before this one held, without those of another history or with other
        columns."""
        told, sources, digests = self._told, self.declared.sources, self._state.history.digests()
        same = {name for name, source in sources.items() if told.fields.get(name) == tuple(source.fields)}
        told.pushed.keep(
            lambda name, epoch: name in same and told.history.digest(epoch) == digests.get(epoch, "not there")
        )
        return told.pushed

    def _empty_job(self) -> float | None:
        """Return the seconds of a job that has an epoch's stages and no rows: the least of several jobs, once the
        process is warm. Return None if the flow is closed meanwhile, or if a job fails; the next round measures
        again."""
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
        """Return what each kind of loss would cost now."""
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
        """Return the facts that decide how much is lost with a host, a member or a driver."""
        keeps: dict[str, list[tuple[int, int]]] = {}
        for partition, owner in enumerate(self._runner.owners() if self._runner.scattered else ()):
            keeps.setdefault(owner, []).append(partition_range(partition, self.partitions))
        stays = self._state.settings.strategy.survives is Survives.EVERYTHING
        return Circumstances(stays, self._lead.timeout, self._runner.grace, keeps)

    # -- closing --------------------------------------------------------------------------------------------------

    def abandon(self) -> None:
        """Release the log as a dying process does: nothing is finished, only the lock becomes free."""
        self._beside_sinks.stop()
        self._measuring.stop()
        self._lineage.close()
        self._begun.close()
        self._directory.close()

    @property
    def torn(self) -> bool:
        """Whether this engine was interrupted while it counted an epoch, and so does not know whether the epoch counts.
        It must be closed, and another engine opened."""
        return self._state.epochs.is_torn

    @speaking
    def close(self, reopens: bool = False) -> None:
        """Stop the flow. An approximate flow is repaired first. If the repair fails, the log ends with its last exact
        epoch: the next driver takes later input from the sources again, and only rows that were pushed since are lost.
        Layers that are not durable yet get one more round of copies, unless the log is opened again at once
        (``reopens``). The log is released whatever fails."""
        try:
            self.repair()
        finally:
            self._let_go(reopens)

    def _note_end(self) -> None:
        """Note in the directory that the flow was closed and did not crash: the next driver may use all that is in
        it."""
        knows = not self._state.epochs.is_torn and self._state.fenced is None
        if knows and self._state.settings.strategy.survives is not Survives.EVERYTHING and self.history:
            note_end(self._directory.path, self.history[-1].digest)

    def _deliver_held(self) -> None:
        """Give sinks the epochs that were withheld until they were safe and are safe now."""
        if self._state.fenced is None and self._state.settings.strategy.waits:
            self._with_recovery(lambda: self._delivery.catch_up(self._state.deliverable))

    def _let_go(self, reopens: bool) -> None:
        self.closed = True
        with ExitStack() as closing:  # last in, first out; each runs even if another raises, so the lock is released
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
            closing.callback(self._ahead.drop)
            closing.callback(self._rates.keep)
            closing.callback(self._measuring.close)
            closing.callback(self._maintenance.close)
            closing.callback(self._continuing.close)
