"""Exact epochs: from the offers to the line in the stash that makes an epoch count. A failed epoch has no effect.

The flow's state (`coordinator/flow_state.py`) decides what follows when an epoch ran, failed or counts; this module
carries it out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.connectors.source import Offer
from holdfast.coordinator import events
from holdfast.coordinator.instructions import CountEpoch, Instruction, RemoveLayers
from holdfast.coordinator.lineage import Lineage
from holdfast.errors import HoldfastError, LogDamaged, LogError, MemberUnreachable
from holdfast.foundation import failpoints
from holdfast.log.begun_epochs import Begun
from holdfast.log.host_paths import host_path
from holdfast.runtime.epoch_spec import epoch_spec
from holdfast.runtime.open_flow import OpenFlow
from holdfast.runtime.outcomes import answers_of, written_by
from holdfast.runtime.recovery.fetch_layers import local_layers
from holdfast.runtime.recovery.recoverer import Recoverer
from holdfast.runtime.runner import Job, Outcome, Work
from holdfast.runtime.statistics import Census
from holdfast.standby.leadership import Leadership


class ExactEpochs:
    """Runs the exact epochs of an open flow, one after the other."""

    def __init__(
        self,
        flow: OpenFlow,
        job: Job,
        begun: Begun,
        lead: Leadership,
        recoverer: Recoverer,
        census: Census,
        asking: Collection[str],
        goes_on_without: Callable[[], bool],
        rewound: Callable[[Lineage], Outcome],
    ) -> None:
        """``asking``: the operators that call functions outside the flow. ``goes_on_without``: called after a loss, it
        looks which members are there and says whether the flow goes on without the lost ones. ``rewound`` writes the
        layers of an epoch that rewinds."""
        self._flow = flow
        self._guard = flow.guard
        self._job = job
        self._begun = begun
        self._lead = lead
        self._recoverer = recoverer
        self._census = census
        self._asking = asking
        self._goes_on_without = goes_on_without
        self._rewound = rewound

    def run(
        self,
        offers: dict[str, Offer],
        clock: int,
        back: bool,
        work: Sequence[Work],
        recorded: Lineage | None = None,
        rewind: Mapping[str, Any] | None = None,
        again: int | None = None,
    ) -> tuple[Lineage, Outcome, list[Instruction]]:
        """Run an epoch and make it count. Return its lineage, what its job reported, and the instructions that follow.
        ``back``: its clock may be before the clock of the last epoch. ``recorded``: an epoch of another line, whose
        seed and answers it takes. ``rewind``: the record of what it undoes. ``again``: the epoch whose input it takes
        again. If it raises before the epoch counts, the epoch has had no effect."""
        known = self._flow.state.branch  # during a repair there is a branch already
        while True:
            seed = self._flow.runner.draw() if recorded is None else recorded.seed
            lineage = self._guard.begin(offers, clock, seed, back, rewind, again)
            try:
                self._begun.add(lineage)
                attempt = partial(self._attempt, lineage, work, recorded)
                outcome = self._recoverer.repairing(attempt, self._gives_up)
                self._lead.demand()
            except BaseException as error:
                self._undo(lineage, error)
                if not isinstance(error, MemberUnreachable) or not self._asking or self._flow.state.branch is not known:
                    raise
                # The answers from outside were kept in a file of the lost member. Another member would get other
                # answers, and one digest must stand for one set of answers. So the epoch begins again with a new
                # digest.
                self._recoverer.recover_from(error)
                continue
            try:
                failpoints.reach("epoch.ran")
                counted = lineage.answered(answers_of(outcome.reports))
            except Exception as error:
                self._undo(lineage, error)
                raise
            return counted, outcome, self._count(counted, outcome)

    def _gives_up(self, error: Exception) -> bool:
        return isinstance(error, MemberUnreachable) and (self._goes_on_without() or bool(self._asking))

    def _attempt(self, lineage: Lineage, work: Sequence[Work], recorded: Lineage | None) -> Outcome:
        if lineage.rewind is not None:
            return self._rewound(lineage)
        compiled = self._flow.compiled
        declared = compiled.declared
        if self._flow.runner.scattered and declared.settings.durable:
            for one in work:
                if not one.source.replayable:
                    self._flow.pushed.hold(one.name, lineage.epoch, one.source.parts(one.offers[0]))
        deliver = frozenset(compiled.flow.views[view] for view, _ in declared.sinks)
        parts = not declared.settings.strategy.waits  # a change that waits until it is safe is read from the log then
        spec = epoch_spec(self._flow, lineage, deliver=deliver, parts=parts)
        if recorded is not None:
            # An operator that the other line does not have asks outside itself.
            asking = frozenset(self._asking) - recorded.answers.keys()
            told = lineage.answered(recorded.answers)
            spec = epoch_spec(self._flow, told, again=True, deliver=deliver, asking=asking, parts=parts)
        try:
            return self._job.run(spec, work, f"{declared.name}: epoch {lineage.epoch}")
        except (LogDamaged, MemberUnreachable):
            self._lead.check()  # layers that a new leader has taken away need no repair
            raise

    def _count(self, lineage: Lineage, outcome: Outcome) -> list[Instruction]:
        """Append the lineage of an epoch, whose layers are written, to the stash. The epoch counts from that line on,
        and has no effect before. The rest of this method only updates memory: if it is interrupted, the log knows that
        the epoch counts, but this engine does not, and must be closed."""
        for instruction in self._guard.tell(events.EpochRan(lineage)):
            assert isinstance(instruction, CountEpoch)
            try:
                self._flow.lineage.append(instruction.lineage, lambda line: self._guard.tell(events.EpochWritten(line)))
            except LogError as error:
                self._undo(lineage, error)
                raise
        self._flow.intake.take(lineage)
        self._census.add(outcome.reports)
        following = self._guard.tell(events.EpochCounted(lineage, written_by(outcome)))
        self._note_begun(lineage)
        return following

    def _note_begun(self, lineage: Lineage) -> None:
        """Add the epoch's answers to the list of begun epochs, or shorten the list to the epochs that no location has
        yet."""
        with suppress(LogError):  # the stash has the lineage
            unsafe = self._flow.state.history.since(self._flow.state.copies.flushed)
            if self._begun.grown(len(unsafe)):
                self._begun.shorten(unsafe)
            elif lineage.answers:
                self._begun.add(lineage)

    def _undo(self, lineage: Lineage, error: BaseException) -> None:
        """Remove what a failed epoch has written. If its layers cannot be removed, say so in ``error``."""
        following = self._guard.tell(events.EpochFailed(lineage))
        with suppress(LogError):  # the disk may be full; removing the layers, below, is enough
            self._begun.abandon(lineage)
        self._flow.delivery.drop_parts(lineage.digest)
        try:
            self._remove(following)
        except Exception as trouble:
            if isinstance(error, HoldfastError):
                error.fields["complete"] = None
            error.add_note(
                f"holdfast: the layers of epoch {lineage.epoch}, which failed, could not be removed ({trouble}): if "
                "the flow is closed before its next epoch, and opened again, that one may count"
            )

    def remove_undone(self) -> None:
        """Remove the layers of failed epochs that could not be removed at once."""
        self._remove(self._flow.state.remaining())

    def _remove(self, remaining: Sequence[Instruction]) -> None:
        for instruction in remaining:
            assert isinstance(instruction, RemoveLayers)
            self._remove_layers(instruction.digest)
            self._guard.tell(events.LayersRemoved(instruction.digest))

    def _remove_layers(self, digest: str) -> None:
        if self._flow.runner.membership_change == "lost":
            return  # they are removed when it is known which members are left
        compiled = self._flow.compiled
        with suppress(MemberUnreachable):  # the layers of a member that cannot be reached are never read
            self._flow.runner.everywhere(
                "removing layers", partial(_remove_layers, compiled.directory, list(compiled.layouts), digest)
            )


def _remove_layers(directory: Path, traces: Sequence[str], digest: str) -> None:
    for trace in traces:
        for name in local_layers(host_path(directory) / trace):
            if name.digest == digest:
                (host_path(directory) / trace / name.text()).unlink(missing_ok=True)
