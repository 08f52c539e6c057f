"""A flow in motion: one epoch after the other, from offers to sinks.

`Flow` records what the user declares; an `Engine` is made of those declarations when the first epoch is asked for, and
made anew when they change. Opening it finds the history and recovers what is missing (`runtime/recovery/`). An operator
whose state the log does not hold (a new view, or one whose meaning changed) is filled from the history of its sources;
all others are left as they are. Durability and merging go on beside it, in the background (`runtime/replication.py`,
`runtime/merging.py`). When members are lost with their layers, what they had is brought back at once; a flow that is to
continue without has an engine of its own kind (`runtime/continuing.py`).

The engine knows no Spark: a `Runner` does the work.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from holdfast.connectors.source import Offer
from holdfast.coordinator.clock import FlowClock
from holdfast.coordinator.copy_plan import reached
from holdfast.coordinator.epochs import Coordinator
from holdfast.coordinator.history import History
from holdfast.coordinator.lineage import Lineage
from holdfast.coordinator.recovery_plan import Replay
from holdfast.coordinator.view_versions import ViewVersions
from holdfast.errors import (
    ClockJumped,
    EpochUnavailable,
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
from holdfast.log.begun_epochs import FILE, Begun
from holdfast.log.host_paths import host_path, traces_of
from holdfast.log.stash import LineageLog
from holdfast.log.working_directory import LogDirectory
from holdfast.plan import nodes
from holdfast.plan.drawing import Drawing, drawing
from holdfast.plan.explain import as_text
from holdfast.reporting.redaction import warn
from holdfast.results.flow_results import Approximation, Epoch, Recovery, Status
from holdfast.runtime.after_epoch import EpochFollowUp
from holdfast.runtime.background import Background
from holdfast.runtime.declaration import ConnectorProgress
from holdfast.runtime.delivery import Delivery
from holdfast.runtime.delivery_numbers import DeliveryNumbers
from holdfast.runtime.description import FlowDescription
from holdfast.runtime.edits import Edits
from holdfast.runtime.file_errors import speaking
from holdfast.runtime.folding import Folding
from holdfast.runtime.intake import Intake
from holdfast.runtime.known_sources import KnownSources
from holdfast.runtime.merging import MergeRequest, Merging
from holdfast.runtime.opening import Opening, say
from holdfast.runtime.outcomes import answers_of, crowded, delivered, due_of, result_of, written_by
from holdfast.runtime.partition_owners import PartitionOwners
from holdfast.runtime.prepared_flow import PreparedFlow
from holdfast.runtime.recovery.fetch_layers import local_layers
from holdfast.runtime.recovery.find_history import find_history
from holdfast.runtime.recovery.held_input import HeldInput
from holdfast.runtime.recovery.logged_source import LoggedChange
from holdfast.runtime.recovery.recoverer import Recoverer, timed
from holdfast.runtime.replication import Replication
from holdfast.runtime.runner import Job, Outcome, Work
from holdfast.runtime.statistics import Census, Statistics
from holdfast.runtime.status import status_of
from holdfast.runtime.view_changes import EditedChange, LoggedSpan, changes_since
from holdfast.standby.leadership import Leadership
from holdfast.standby.lease import Lease
from holdfast.task.stage import EpochSpec
from holdfast.task.view_log import ViewLog

T = TypeVar("T")

_SINK_PAUSE = 30.0
"""Seconds between two passes in which sinks look after what they hold."""

_CLOCK_DRIFT = 60_000_000
"""Microseconds: a smaller change of what the host's clocks differ by is not worth a write."""


class Engine:
    """Runs a declared flow."""

    def __init__(self, ready: PreparedFlow, told: ConnectorProgress, lease: Lease | None = None) -> None:
        """With a ``lease``, nothing is completed while it is not held."""
        declared, runner = ready.declared, ready.runner
        self.declared = declared
        self.partitions = runner.partitions
        self.stopping = False
        """Set from outside: whoever waits for room should stop waiting."""

        self.meanwhile: Callable[[], AbstractContextManager[None]] = nullcontext
        """Entered while an epoch waits for storage: others may use the engine then, or close it."""

        self.closed = False
        self._torn = False
        """Whether it is not known here if the last epoch counts: only the log knows."""

        self._undone: set[str] = set()
        """The digests of epochs that failed and whose layers could not be removed yet."""

        self._told = told
        self._runner = runner
        self._latencies: deque[float] = deque(maxlen=100)
        self._statistics = Statistics()
        self._patient = False
        self._due: int | None = 0
        """At what clock an epoch has something to do although nothing arrives; None: never. It is not known of a flow
        that was opened just now: then the first epoch finds out."""

        self._asking = frozenset(
            operator.id for operator in ready.state.program.operators if getattr(operator.spec, "asks", False)
        )
        self._directory = LogDirectory.open(
            declared.local, declared.name, create=True, exclusive=True, lease=lease.url if lease else None
        )
        self._lead = Leadership(self._directory, lease, lambda: self.stopping)
        try:
            self._state, self._job = ready.state, ready.job
            self._state.directory = self._directory.traces
            self._open()
        except BaseException:
            with suppress(Exception):  # the error that stopped it is the one to know
                self._delivery.close()
            self._directory.close()
            raise

    # -- opening --------------------------------------------------------------------------------------------------

    @speaking
    def _open(self) -> None:
        recovery = Recovery()
        self._delivery = Delivery(self.declared.sinks, self._state.fields, self._told.delivered)
        stash = self._directory.lineage / "log.jsonl"
        with timed(recovery, "lineage"):
            opening = Opening(self.declared, self._told, recovery, self._runner.threads)
            replicas = opening.replicas
            self._lead.check()
            claim = opening.claim(self._runner.draw())
            self._lead.check()
            if self._runner.scattered:
                self._state.directory = traces_of(self.declared.local, claim.term)
            # Of layers on other hosts only the names are looked at: an epoch that nobody knows of was seen by nobody.
            directories = (
                [] if self._runner.scattered else [self._state.directory / each for each in self._state.layouts]
            )
            asking = {each: self._state.directory / self._state.traces[each][0] for each in self._asking}
            begun = self._directory.path / FILE
            history = find_history(stash, replicas, self._delivery.seen(), begun, directories, asking, recovery)
            opening.check_found(history)
            enrolment = opening.enrol(claim, history.last)
        failpoints.reach("recovery.found_history")
        self._lineage = LineageLog(stash, history, anew=self._lead.leased)
        self._coordinator = Coordinator(self.history, claim.term)
        self._clock = FlowClock(
            self.declared.name,
            self.declared.max_clock_jump,
            self.history[-1].clock if self.history else None,
            self._directory.read_clock(),
        )
        self._pushed = HeldInput()
        self._census = Census(self.partitions, self._coordinator.last)
        self._homes = PartitionOwners(self._runner, self._state, self._directory, self.history)
        self._intake = Intake(self.declared.sources, self._told, self.history)
        self._durability = Replication(
            self._runner,
            self.declared.locations,
            self.declared.settings,
            self._state.live_traces(),
            self._state.directory,
            self.history,
            self._coordinator.chain,
            claim,
            enrolment,
        )
        self._lead.attach(self._durability)
        self._maintenance = Merging(
            self._runner,
            lambda: (self._coordinator.chain(), self._durability.live_after),
        )
        self._beside_sinks = Background(self._runner, "holdfast-sinks", self._delivery.maintain, _SINK_PAUSE)
        descriptions = FlowDescription(self._directory, replicas)
        descriptions.check_session(self.declared.name, self.declared.session)
        recovery.otherwise = descriptions.otherwise(self._state)
        self._forms = ViewVersions(self.history, descriptions.before(self.history))
        self._delivery.remember(
            lambda sinks: DeliveryNumbers(self._directory.path, replicas, sinks, self.last, claim.term)
        )
        self._delivery.attach(
            lambda view, form: self._homes.readable(self._state.kept_as(view, form, self._coordinator.chain())),
            self._forms,
            self._state.forms(),
            self.history,
            self._durability.uncommitted,
            lambda: self._durability.flushed,
        )
        self._edits = Edits(self._state, self._forms, self._delivery, self._durability)
        known = KnownSources(descriptions.sources(), self._state, self.last)
        known.check(self._intake.taken)
        self._durability.absent = known.absent_traces
        self._durability.is_settled = self._edits.settled
        self._durability.retained = self._edits.retained
        self._intake.catch_up()
        fresh = descriptions.fresh(self._state, self.last) - known.returned
        self._recoverer = Recoverer(
            self._state,
            self._runner,
            self._durability,
            self._delivery,
            self._intake.taken,
            self._kept,
            lambda: self._coordinator.last,
            self._run_again,
            fresh,
            self._edits.later(),
            self._pushed,
            self._homes.take,
            recovery,
        )
        self._recoverer.rested = frozenset(known.returned)
        self._recover(known)
        if fresh & self._asking and self.last >= 0:
            self._edits.secure_answers(self.last)
        self._edits.absent = self._recoverer.kept_for(known.absent)
        self._edits.keep()
        self._begun = Begun(begun, self.history.since(self._durability.flushed))
        self._folding = Folding(
            self._runner,
            self._state.directory,
            self._lineage,
            self._durability,
            self._delivery,
            self._intake,
            self._forms,
        )
        # Only now: a crash before this leaves an operator that is new as new as it was.
        description = {**self._state.description(), "sources": known.to_json()}
        descriptions.write(description, self.last, self._edits.declared, recovery)
        enrolment.describe = descriptions.renew
        say(self._recoverer.recovery)
        self._told.claim, self._told.history = claim, self.history
        self._durability.request()

    def _recover(self, known: KnownSources) -> None:
        try:
            self._recoverer.open()
        except (InputError, SchemaError) as error:
            for changed in known.changed.values():
                raise SchemaChanged(f"{changed}: {error}", **changed.fields) from error
            raise

    @property
    def last(self) -> int:
        """The last complete epoch; -1 before the first."""
        return self._coordinator.last

    @property
    def history(self) -> History:
        """The lineage of all complete epochs that are exact, as it grows."""
        return self._lineage.history

    @property
    def approximate(self) -> Approximation | None:
        """What the views are made of, if not of everything."""
        return None

    @property
    def lost(self) -> frozenset[int]:
        """The partitions that are left out of what is read."""
        return frozenset()

    def repair(self) -> Recovery | None:
        """Make exact what is approximate; None if nothing was."""
        return None

    @property
    def sources(self) -> Collection[str]:
        """The sources that views read."""
        return self._state.flow.sources

    @property
    def safe(self) -> int:
        """The safe point."""
        return self._durability.safe

    @property
    def recovery(self) -> Recovery:
        """What opening the flow, or repairing it last, had to do."""
        return self._recoverer.recovery

    # -- epochs ---------------------------------------------------------------------------------------------------

    def step(self, patient: bool = False) -> Epoch:
        """Run one epoch, if anything waits, or if it is time for rows to come or go. The very first runs in any case: a
        view over nothing has a result too. ``patient``: as in `Intake.poll`."""
        self._patient = patient
        try:
            if self._durability.fenced is not None:
                raise self._durability.fenced
            return self._step() if self._lead.check() else Epoch(None)
        except Fenced:
            raise
        except Exception as error:
            if isinstance(error, HoldfastError):
                error.fields.setdefault("complete", False)
            self._lead.check()  # one that was paused, and leads no more, may fail at anything: that is the reason then
            raise

    @speaking
    def _step(self) -> Epoch:
        if self._torn:
            raise LogError(
                f"flow '{self.declared.name}': an epoch was interrupted while it was being counted; close the flow and "
                "open it again: the log says whether it was"
            )
        self._forget_undone()
        self._intake.settle()
        if found := [*self._maintenance.damaged, *self._durability.damaged]:
            self._maintenance.damaged.clear()
            self._durability.damaged.clear()
            self._recoverer.repair(found)
        self._homes.adopt(self._durability, self._recoverer)
        self._with_recovery(lambda: self._delivery.catch_up(self.last))
        self._release()
        waited = 0.0
        while True:
            started = time.perf_counter() - waited
            # A source that no view reads keeps what it has, for the view that will.
            offers = self._intake.poll(self.sources, self._patient)
            if self.last >= 0 and self._edits.awaited():
                self._edits.secure(self._with_recovery)
            elif not offers and self.last >= 0 and not self._is_time() and not self._edits.edited():
                return Epoch(None)
            if not self._durability.has_room:
                with self.meanwhile():
                    waited += self._durability.wait_for_room(lambda: self.stopping or self.closed, self._say_waiting)
                if self.stopping or self.closed:
                    return Epoch(None)
                continue  # others had their turn: what waited then may be taken
            try:
                lineage, outcome = self._run(offers, self._now(), self._intake.work(offers))
            except Exception as error:
                # A driver that another has taken over from fails at many things; it should say the real reason.
                self._lead.check()
                self._durability.check_claims()
                if not isinstance(error, Fenced) and self._intake.reject(offers, error):
                    continue
                raise
            except (KeyboardInterrupt, SystemExit):
                self._intake.reject(offers, InputError(f"flow '{self.declared.name}': the epoch was interrupted"))
                raise
            return self._completed(lineage, outcome, started, waited)

    def _is_time(self) -> bool:
        """Whether rows come or go by now because time has passed."""
        return self._is_timed and self._due is not None and self._due <= self._runner.clock()

    @property
    def _is_timed(self) -> bool:
        return any(operator.kind == "temporal" for operator in self._state.program.operators)

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
            warn(f"holdfast: {error}. Nothing here depends on the time yet, and so it goes on", stacklevel=1)
            self._clock.accept()
            now = self._clock.read(reading)
        known = self._clock.known
        assert known is not None  # it was read
        if known[0] and (before is None or before[0] != known[0] or abs(before[1] - known[1]) > _CLOCK_DRIFT):
            with suppress(LogError, OSError):  # without it the next process has less to compare with
                self._directory.write_clock(*known)
        return now

    def _completed(
        self, lineage: Lineage, outcome: Outcome, started: float, waited: float, *, again: bool = False
    ) -> Epoch:
        """An epoch counts: what remains to be done. Whatever fails now, and is raised, says that it counts.
        ``again``: sources know already what it took."""
        self._due = due_of(outcome)
        after = EpochFollowUp(self.declared.name, lineage.epoch)
        self._complete(lineage, outcome, again, after)
        result = self._result(lineage.epoch, outcome, started, waited)
        with after.doing("looking after layers"):
            self._maintain(outcome)
        with after.doing("folding the history"):
            self._folding.maybe()
        after.check()
        return result

    def _result(self, epoch: int, outcome: Outcome, started: float, waited: float = 0.0) -> Epoch:
        """Take note of what an epoch did."""
        seconds = time.perf_counter() - started
        self._latencies.append(seconds)
        self._statistics.add(outcome.reports)
        logs = {view: self._state.flow.views[view] for view in self.declared.views}
        return result_of(epoch, outcome, logs, seconds, waited)

    def _count(self, lineage: Lineage, outcome: Outcome) -> None:
        """The epoch's layers are written: from the line in the stash on it counts, and before that nothing of it does.
        What follows here only takes note of that; if it is interrupted, the log knows, and this engine does not.

        Rounds go on meanwhile, and go by the history: the chain has an epoch before the history does, so that none is
        copied whose layers the chain does not know yet."""
        self._torn = True
        try:
            self._lineage.append(lineage, self._coordinator.complete)
        except LogError:
            self._torn = False
            raise
        self._forms.add(lineage)
        self._intake.take(lineage)
        self._census.add(outcome.reports)
        self._torn = False
        self._note_begun(lineage)

    def _complete(self, lineage: Lineage, outcome: Outcome, again: bool, after: EpochFollowUp) -> None:
        """The epoch counts: now it may be seen."""
        self._clock.completed(lineage.clock)
        if not again:
            with after.doing("telling the sources"):
                self._intake.advance(lineage.epoch, lineage.offers)
        failpoints.reach("epoch.complete")
        with after.doing("asking for copies"):
            self._durability.completed(lineage.epoch, written_by(outcome))
        if self.declared.settings.strategy == "synchronous-log":
            with after.doing("waiting for copies"):
                self._durability.wait(lineage.epoch)
            if not after.well:
                return  # nothing is to be seen of it before it is safe; sinks get it before the next epoch
        with after.doing("delivering to sinks"):
            # Where a view was edited this reads logs, which may be damaged; what a sink has it is not given again.
            self._with_recovery(
                lambda: self._delivery.commit(lineage, lambda view: delivered(outcome, self._state.flow.views[view]))
            )
            if self._durability.former:
                self._edits.keep()

    def _note_begun(self, lineage: Lineage) -> None:
        """The epoch's answers are known; what locations have needs no second copy here."""
        with suppress(LogError):  # it is in the stash
            unsafe = self.history.since(self._durability.flushed)
            if self._begun.grown(len(unsafe)):
                self._begun.shorten(unsafe)
            elif lineage.answers:
                self._begun.add(lineage)

    def _with_recovery(self, work: Callable[[], T]) -> T:
        """Do ``work`` on the exact history. What it meets that is lost is brought back, and it is done again."""
        return self._recoverer.repairing(work)

    def _say_waiting(self) -> None:
        size, epochs = self._durability.unsafe
        troubles = [trouble.error for trouble in list(self._durability.troubles.values())]
        why = f": {troubles[0]}" if troubles else ""
        warn(
            f"holdfast: flow '{self.declared.name}' waits for storage: {size / 1e6:,.1f} MB of {epochs} epochs are not "
            f"safe yet, more than max_unsafe allows{why}",
            stacklevel=1,
        )

    def _run(self, offers: dict[str, Offer], clock: int, work: Sequence[Work]) -> tuple[Lineage, Outcome]:
        """Run an exact epoch to its end, and have it count. If it fails, nothing of it does."""
        while True:
            back = self._clock.accepts
            lineage = self._coordinator.begin(offers, clock, self._runner.draw(), self._edits.said(), back)
            try:
                self._begun.add(lineage)
                outcome = self._with_recovery(partial(self._attempt, lineage, work))
                self._lead.demand()
            except BaseException as error:
                self._undo(lineage, error)
                if not isinstance(error, RestartEpoch):
                    raise
                self._recoverer.recover_from(error.loss)
                continue
            try:
                failpoints.reach("epoch.ran")
                counted = lineage.answered(answers_of(outcome.reports))
                self._count(counted, outcome)
            except Exception as error:
                if not self._torn:
                    self._undo(lineage, error)
                raise
            return counted, outcome

    def _undo(self, lineage: Lineage, error: BaseException) -> None:
        """An epoch failed: nothing of it is to count. Its layers must go: if all of them stayed, whoever opens the log
        would take it for one whose driver died before it could say that it was complete."""
        self._coordinator.abandon(lineage)
        self._undone.add(lineage.digest)
        with suppress(LogError):  # a disk that is full: its layers are gone all the same
            self._begun.abandon(lineage)
        try:
            self._forget_undone()
        except Exception as trouble:
            if isinstance(error, HoldfastError):
                error.fields["complete"] = None
            error.add_note(
                f"holdfast: the layers of epoch {lineage.epoch}, which failed, could not be removed ({trouble}): if "
                "the flow is closed before its next epoch, and opened again, that one may count"
            )

    def _forget_undone(self) -> None:
        for digest in sorted(self._undone):
            self._remove_layers(digest)
            self._undone.discard(digest)

    def _attempt(self, lineage: Lineage, work: Sequence[Work]) -> Outcome:
        if self._runner.scattered and self.declared.settings.durable:
            for one in work:
                if not one.source.replayable:
                    self._pushed.hold(one.name, lineage.epoch, one.source.parts(one.offers[0]))
        deliver = frozenset(self._state.flow.views[view] for view, _ in self.declared.sinks)
        epoch = self._epoch(lineage, deliver=deliver)
        try:
            return self._job.run(epoch, work, f"{self.declared.name}: epoch {lineage.epoch}")
        except (LogDamaged, MemberUnreachable) as damage:
            self._lead.check()  # layers that another driver has taken away need no repair
            # What was asked outside is fixed by a file of the member that is gone: others would get other answers, and
            # under this digest there must be one set of them.
            if isinstance(damage, MemberUnreachable) and self._asking:
                raise RestartEpoch(damage) from damage
            raise

    def _run_again(self, replay: Replay, work: Sequence[Work], job: Job | None) -> set[str]:
        """Compute something again; who did it."""
        single = replay.first == replay.epoch
        what = f"epoch {replay.epoch} again" if single else f"filling views as of epoch {replay.epoch}"
        lineage = self.history[replay.epoch]
        epoch = self._epoch(
            lineage, first=replay.first, again=True, run=replay.run, write=replay.write, asking=replay.asking
        )
        outcome = (job or self._job).run(epoch, work, f"{self.declared.name}: {what}")
        return {report.member for report in outcome.reports if report.written}

    def _epoch(
        self,
        lineage: Lineage,
        *,
        first: int | None = None,
        again: bool = False,
        deliver: frozenset[str] = frozenset(),
        run: Mapping[str, frozenset[int]] | None = None,
        write: Mapping[str, frozenset[int]] | None = None,
        asking: frozenset[str] = frozenset(),
        partitions: int | None = None,
    ) -> EpochSpec:
        return EpochSpec(
            number=lineage.epoch,
            first=lineage.epoch if first is None else first,
            digest=lineage.digest,
            chain=self._coordinator.chain(),
            partitions=partitions or self.partitions,
            traces=str(self._state.directory),
            parent=lineage.parent,
            deliver=deliver,
            clock=lineage.clock,
            before=self.history[(first or lineage.epoch) - 1].clock if lineage.epoch else -(2**63),
            seed=lineage.seed,
            answers=lineage.answers if again else None,
            asking=asking,
            run=run,
            write=write,
            copies=self.declared.locations if self._runner.scattered and self.declared.settings.durable else (),
        )

    def replay(self, number: int, partitions: int) -> dict[str, pa.Table]:
        """Compute a past epoch again, from its lineage and the traces as of the epoch before; nothing is written.
        View → its change (``c0…``, ``_diff``): what it was then, bit for bit (invariant 1)."""
        lineage = self.history[number]
        views = self._state.flow.views
        if self._runner.scattered:
            partitions = self.partitions  # others would need layers of several members
        epoch = self._epoch(lineage, again=True, deliver=frozenset(views.values()), write={}, partitions=partitions)
        work = []
        for name, offer in lineage.offers.items():
            source = self.declared.sources[name]
            if source.replayable:
                work.append(Work(name, source, [offer]))
            else:
                work.append(Work(name, LoggedChange(source.fields, self._kept(name), number, partitions), [{}]))
        outcome = self._job.run(epoch, work, f"{self.declared.name}: epoch {number} again")
        return {view: delivered(outcome, mark) for view, mark in views.items()}

    def _release(self) -> None:
        """Tell the sources what they may forget: the input of epochs that are safe, unless another driver took over."""
        self._pushed.release(self._durability.cleared)
        self._intake.release(self._durability.cleared)

    def _remove_layers(self, digest: str) -> None:
        if self._runner.membership_change == "lost":
            return  # whoever is there then removes them when it is known who is
        with suppress(MemberUnreachable):  # one that cannot be reached: what it has is never read
            self._runner.everywhere(
                "removing layers", partial(_remove_layers, self._state.directory, list(self._state.layouts), digest)
            )

    # -- beside epochs --------------------------------------------------------------------------------------------

    def _maintain(self, outcome: Outcome) -> None:
        self._homes.follow(outcome.reports, self._recoverer)
        if self._delivery.is_maintained:
            self._beside_sinks.request()
        if many := crowded(outcome, self._maintenance.tolerated):
            self._maintenance.request(
                [
                    MergeRequest(
                        self._state.directory / trace,
                        layout,
                        self._durability.since(trace),
                        self._durability.floor(trace, self.history),
                    )
                    for trace, layout in self._state.layouts.items()
                    if trace in many
                ]
            )

    @speaking
    def upkeep(self) -> None:
        """Do in this thread what was asked of the background, for those who drive without threads."""
        self._maintenance.upkeep()
        self._beside_sinks.now()
        self._durability.upkeep()

    def wait_safe(self, epoch: int | None, timeout: float | None) -> int:
        """Wait until ``epoch`` (by default the last) is safe, or the engine was closed by another thread. The safe
        point."""
        wanted = self.last if epoch is None else epoch
        if wanted > self.last:
            raise EpochUnavailable(f"epoch {wanted} is not there yet; the last is {self.last}", epoch=wanted)
        if not self.declared.settings.durable:
            raise LogError(f"flow '{self.declared.name}': with strategy 'volatile' nothing is ever safe")
        if not self._durability.wait(wanted, timeout, lambda: self.closed) and not self.closed:
            why = self._durability.why_not()
            raise StoreError(
                f"flow '{self.declared.name}': epoch {wanted} is not safe after {timeout:.3g} s: {why}", epoch=wanted
            )
        return self._durability.safe

    def is_held(self, location: int) -> bool:
        """Whether a log location holds everything, as far as the last look at it told."""
        holding = self._durability.holdings.get(location)
        return (
            holding is not None
            and self._durability.counts(location)
            and reached(holding, list(self._state.layouts), self._coordinator.last) == self._coordinator.last
        )

    # -- views ----------------------------------------------------------------------------------------------------

    def _kept(self, name: str) -> ViewLog:
        return self._homes.readable(self._state.kept(name, self._coordinator.chain()))

    @speaking
    def readable(self, view: str, at: int | None) -> tuple[ViewLog, int]:
        """The log of a view, and the epoch as of which it is to be read: by default the last."""
        epoch = self.last if at is None else at
        if epoch > self.last:
            raise EpochUnavailable(
                f"view '{view}': epoch {epoch} is not there yet; the last is {self.last}", view=view, epoch=epoch
            )
        if epoch < 0:
            raise EpochUnavailable(f"view '{view}': epochs start at 0, not at {epoch}", view=view, epoch=epoch)
        return self._checked(view, epoch), epoch

    def changes(self, view: str, since: int) -> list[LoggedSpan | EditedChange]:
        """What changed in a view after epoch ``since``, up to the last, in order; edits among it."""
        past, now = self._forms.of(view), self._state.forms()[view]
        if self.approximate is None and since >= 0 and since <= self.last and past:
            place = self._forms.at(view, since)
            if place < len(past) - 1 or past[-1].form != now:
                kept = partial(self._state.kept_as, view, chain=self._coordinator.chain())
                return changes_since(
                    view, since, self.last, past, place, lambda form: self._homes.readable(kept(form)), now
                )
        return [LoggedSpan(self.readable(view, None if since < 0 else since)[0], max(since, -1), self.last)]

    def _checked(self, view: str, epoch: int) -> ViewLog:
        """The log of a view, which can be read as of an epoch."""
        self._with_recovery(lambda: self._kept(view).check(view, epoch))
        return self._kept(view)

    def fields(self, view: str) -> tuple[nodes.Field, ...]:
        """The columns of a view, with Spark's types."""
        return self._state.fields(view)

    def order(self, view: str) -> tuple[nodes.Order, ...]:
        """The order in which a person expects to see the rows of a view, or of a source, which has none."""
        return nodes.shown_order(self.declared.views[view]) if view in self.declared.views else ()

    def keeps(self, name: str) -> bool:
        """Whether the rows of a collection are kept: those of a view, and of some sources."""
        return name in self._state.flow.views

    def taken(self, source: str, at: int) -> list[Offer]:
        """What epochs up to this one took of a source."""
        return [offer for epoch, offer in self._intake.taken.get(source, ()) if epoch <= at]

    def explain(self, view: str) -> str:
        """The dataflow of a view, as text."""
        return as_text(self.drawing(), view)

    def drawing(self) -> Drawing:
        """The whole dataflow, with what each operator keeps and did."""
        measured = self._statistics.measured(self._state.traces, self._homes.local(rows=True))
        return drawing(self._state.flow, measured)

    @speaking
    def status(self) -> Status:
        """How the flow stands."""
        host = self._runner.clock()
        status = status_of(
            self._state,
            self.last,
            self.partitions,
            self._latencies,
            self._delivery,
            self._maintenance,
            self._durability,
            self._homes.local(rows=False),
            self._homes.status(),
            self.approximate,
        )
        last = self.history[-1].clock if self.history else None
        return replace(status, clock={"flow": last, "host": host, "ahead": self._clock.ahead(host) / 1e6})

    # -- the end --------------------------------------------------------------------------------------------------

    def abandon(self) -> None:
        """Let go of the log as a process that dies does: nothing is finished, only the lock is free."""
        self._beside_sinks.stop()
        self._lineage.close()
        self._begun.close()
        self._directory.close()

    @property
    def torn(self) -> bool:
        """Whether this engine does not know what counts: it must be closed, and another opened."""
        return self._torn

    @speaking
    def close(self) -> None:
        """Stop. What is not durable yet is given one more round. Whatever fails, the log is let go of."""
        self.closed = True
        with ExitStack() as closing:  # last in, first out, whatever the others raise; the lock is released in any case
            closing.callback(self.abandon)
            closing.callback(self._delivery.close)
            closing.callback(self._release)
            if self._torn:
                closing.callback(self._durability.abandon)
            else:
                closing.callback(self._durability.close)
                closing.callback(self._forget_undone)
            closing.callback(self._beside_sinks.close)
            closing.callback(self._maintenance.close)


class RestartEpoch(Exception):
    """An epoch must begin again, as another one."""

    def __init__(self, loss: MemberUnreachable) -> None:
        super().__init__(str(loss))
        self.loss = loss


def _remove_layers(directory: Path, traces: Sequence[str], digest: str) -> None:
    for trace in traces:
        for name in local_layers(host_path(directory) / trace):
            if name.digest == digest:
                (host_path(directory) / trace / name.text()).unlink(missing_ok=True)
