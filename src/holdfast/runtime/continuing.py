"""The engine of a flow that goes on with what is left when members are lost with their layers (``on_loss="continue"``).

Until then, and after a repair, it is an engine like any other. From a loss to the repair its epochs, and all that is
read, are those of a `Branch` (`runtime/approximation.py` says what they mean); the exact history stands still.

* **Sources** are told that offers were taken, as always, so that the next is the next. They are not told to forget
  anything: the safe point is the exact history's. Rows that code pushed are held until they were in an exact epoch.
* **Sinks** get nothing. What they are given they are given once, and it is right; so they are given it at the repair.
* **Repair**: the exact layers are brought back as of the last exact epoch, as after any loss (`runtime/recovery/`);
  then each epoch of the branch is run again as an ordinary one, with the same number, offers and clock, and another
  seed: what it drew, or asked outside, it draws and asks again. A loss in the meantime is made up for at once. What is
  done counts: if a repair fails in the middle, the next one goes on where it was.

Where members have no layers of their own nothing is lost with them, and where all is lost nothing is left to go on
with: then what is missing is brought back at once, as if the policy were to replay.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from holdfast.coordinator.lineage import Lineage
from holdfast.errors import EpochUnavailable, LogDamaged, MemberUnreachable
from holdfast.foundation import failpoints
from holdfast.reporting.redaction import warn
from holdfast.results.flow_results import Approximation, Epoch, Recovery
from holdfast.runtime.after_epoch import EpochFollowUp
from holdfast.runtime.approximation import Branch
from holdfast.runtime.declaration import ConnectorProgress
from holdfast.runtime.engine import Engine, RestartEpoch
from holdfast.runtime.file_errors import speaking
from holdfast.runtime.outcomes import due_of
from holdfast.runtime.prepared_flow import PreparedFlow
from holdfast.runtime.runner import Outcome, Work
from holdfast.standby.lease import Lease
from holdfast.task.view_log import ViewLog

T = TypeVar("T")


class Branched(BaseException):
    """Members were lost, and the flow goes on without: what was at hand is to be done on the branch. Not an error, and
    for nobody but this engine to catch."""


def engine_of(ready: PreparedFlow, told: ConnectorProgress, lease: Lease | None = None) -> Engine:
    """The engine that a flow's policy asks for."""
    kind = ContinuingEngine if ready.declared.on_loss == "continue" else Engine
    return kind(ready, told, lease)


class ContinuingEngine(Engine):
    """Runs a declared flow, with what is left of it."""

    _branch: Branch | None = None
    _repairing = False
    """Whether what was approximate is being run again."""

    _warned = False
    """Whether the user was told that more is unsafe than was wanted, since the branch began."""

    @property
    def last(self) -> int:
        return super().last if self._branch is None else self._branch.last

    @property
    def approximate(self) -> Approximation | None:
        return None if self._branch is None else self._branch.said()

    @property
    def lost(self) -> frozenset[int]:
        return frozenset() if self._branch is None else self._branch.lost

    # -- a loss -------------------------------------------------------------------------------------------------------

    def _with_recovery(self, work: Callable[[], T]) -> T:
        def or_branch() -> T:
            try:
                return work()
            except MemberUnreachable as loss:
                if self._branches():
                    raise Branched from loss
                raise

        return super()._with_recovery(or_branch)

    def _attempt(self, lineage: Lineage, work: Sequence[Work]) -> Outcome:
        try:
            return super()._attempt(lineage, work)
        except RestartEpoch as anew:
            if self._branches():
                raise Branched from anew
            raise

    def _branches(self) -> bool:
        """Look who is there. If members are gone with partitions of theirs, and not with all, begin a branch."""
        if self._branch is not None or self._repairing or not self._runner.scattered or self.last < 0:
            return False
        before = self._runner.owners()
        self._runner.refresh()
        there = self._runner.members()
        if there >= set(before) or not there & set(before):
            return False
        branch = Branch(
            self._runner, self._state, self._durability, self._census, self.history, self._coordinator.term, before
        )
        try:
            branch.begin()
        except (LogDamaged, MemberUnreachable):
            self._durability.lost = frozenset()
            return False  # those that were left cannot be reached either
        self._branch, self._warned = branch, False
        warn(
            f"holdfast: flow '{self.declared.name}' goes on without what it lost: {branch.said()}; nothing reaches "
            "sinks before flow.repair()",
            stacklevel=1,
        )
        return True

    # -- epochs -------------------------------------------------------------------------------------------------------

    @speaking
    def _step(self) -> Epoch:
        with suppress(Branched):
            if self._branch is None:
                if self._runner.membership_change == "lost":
                    before = self._runner.owners()
                    if self._branches():
                        raise Branched
                    # Those that were lost are back, or all are lost.
                    self._recoverer.adopted(self._runner.owners() != before)
                return super()._step()
        branch = self._branch
        assert branch is not None
        try:
            branch.stay()
            if self._runner.membership_change == "lost":
                branch.look()
            if branch.left:
                return self._step_on(branch)
        except (LogDamaged, MemberUnreachable):
            self._lead.check()
        # Nothing is left to go on with, or what is wrong is not for want of a member.
        self.repair()
        return self._step()

    def _step_on(self, branch: Branch) -> Epoch:
        """Run an approximate epoch, if anything waits."""
        self._intake.settle()
        while True:
            started = time.perf_counter()
            offers = self._intake.poll(self.sources, self._patient)
            if not offers and not self._is_time():
                return Epoch(None, approximate=branch.said())
            self._warn(branch)
            work = self._intake.work(offers)
            for one in work:
                if not one.source.replayable:
                    self._pushed.hold(one.name, branch.last + 1, one.source.parts(one.offers[0]))
            subject = f"{self.declared.name}: epoch {branch.last + 1}, approximate"
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

    def _warn(self, branch: Branch) -> None:
        """Nothing becomes safe before the repair: to wait for that would be to wait for ever."""
        settings, epochs = self.declared.settings, branch.last - self._durability.safe
        if settings.durable and not self._warned and not settings.bound.allows(self._durability.unsafe[0], epochs):
            self._warned = True
            warn(
                f"holdfast: flow '{self.declared.name}': {epochs} epochs are not safe, more than max_unsafe allows; "
                "nothing waits for that, since none becomes safe before flow.repair()",
                stacklevel=1,
            )

    def _complete(self, lineage: Lineage, outcome: Outcome, again: bool, after: EpochFollowUp) -> None:
        with suppress(Branched):  # sinks get it at the repair
            super()._complete(lineage, outcome, again, after)

    def _maintain(self, outcome: Outcome) -> None:
        if self._branch is None or self._repairing:
            super()._maintain(outcome)

    @speaking
    def upkeep(self) -> None:
        if self._branch is not None:
            self._branch.maintenance.upkeep()
        super().upkeep()

    # -- the repair ---------------------------------------------------------------------------------------------------

    def repair(self) -> Recovery | None:
        """Bring back what was lost, and run again, exactly, what was approximate; None if nothing was. If it fails,
        what is done counts, and the next call goes on."""
        branch = self._branch
        if branch is None:
            return None
        if self._durability.fenced is not None:
            raise self._durability.fenced
        self._lead.demand()
        recoverer = self._recoverer
        recoverer.recovery = recovery = Recovery(epoch=self._coordinator.last)
        self._repairing = recoverer.together = True
        # What is copied in the meantime may be elsewhere than it was, and elsewhere than the branch needs it.
        self._durability.lost = frozenset(range(self.partitions))
        try:
            recoverer.rebalance()
            failpoints.reach("repair.recovered")
            self._durability.lost = frozenset()
            recoverer.repairing(lambda: self._delivery.catch_up(self._coordinator.last))
            for taken in branch.history.since(self.history.last):
                failpoints.reach("repair.before_epoch")
                self._run_exactly(taken)
                recovery.repaired.append(taken.epoch)
            self._branch = None
        finally:
            self._repairing = recoverer.together = False
            if self._branch is not None:
                self._durability.lost = frozenset(range(self.partitions))
        self._homes.unsettled = True
        self._durability.request()
        failpoints.reach("repair.done")
        branch.close()
        return recovery

    def _run_exactly(self, taken: Lineage) -> None:
        """Run an epoch of the branch again: with what it took, at the clock that it had."""
        started = time.perf_counter()
        if self._edits.awaited():
            self._edits.secure(self._with_recovery)
        waited = self._durability.wait_for_room(lambda: self.stopping, self._say_waiting)
        work = []
        for name, offer in taken.offers.items():
            source = self.declared.sources[name]
            if source.replayable:
                work.append(Work(name, source, [offer]))
            else:
                work.append(Work(name, self._pushed.source(name, [taken.epoch], tuple(source.fields)), [{}]))
        lineage, outcome = self._run(taken.offers, taken.clock, work)
        self._completed(lineage, outcome, started, waited, again=True)

    # -- views --------------------------------------------------------------------------------------------------------

    def _checked(self, view: str, epoch: int) -> ViewLog:
        with suppress(Branched):
            if self._branch is None and not (self._runner.membership_change == "lost" and self._branches()):
                return super()._checked(view, epoch)
        branch = self._branch
        assert branch is not None
        try:
            branch.stay()
            branch.insist(lambda: branch.kept(view).check(view, epoch))
        except (LogDamaged, MemberUnreachable):
            self.repair()
            return super()._checked(view, epoch)
        return branch.kept(view)

    def wait_safe(self, epoch: int | None, timeout: float | None) -> int:
        wanted = self.last if epoch is None else epoch
        if self._branch is not None and self._durability.safe < wanted <= self.last:
            raise EpochUnavailable(
                f"flow '{self.declared.name}': epoch {wanted} does not become safe before flow.repair(): the flow is "
                f"{self._branch.said()}",
                epoch=wanted,
            )
        return super().wait_safe(epoch, timeout)

    # -- the end ------------------------------------------------------------------------------------------------------

    @speaking
    def close(self) -> None:
        """Stop. What is approximate is repaired first. If that fails, the log ends where it is exact: whoever opens it
        takes from the sources again what came after that; only rows that code pushed since are lost."""
        try:
            self.repair()
        finally:
            try:
                if self._branch is not None:
                    self._branch.close()
            finally:
                super().close()
