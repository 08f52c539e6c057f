"""A flow that goes on with what is left when members are lost with their layers (``on_loss="continue"``).

Until then, and after a repair, its epochs are exact. From a loss to the repair its epochs, and all that is read, are
those of a branch (`coordinator/approximate_branch.py` says what they mean); the exact history stands still.

* **Sources** are told that offers were taken, as always, so that the next is the next. They are not told to forget
  anything: the safe point is the exact history's. Rows that code pushed are held until they were in an exact epoch.
* **Sinks** get nothing. What they are given they are given once, and it is right; so they are given it at the repair.
* **Repair**: the exact layers are brought back as of the last exact epoch, as after any loss (`runtime/recovery/`);
  then each epoch of the branch is run again as an ordinary one, with the same number, offers and clock, and another
  seed: what it drew, or asked outside, it draws and asks again. A loss in the meantime is made up for at once. What is
  done counts: if a repair fails in the middle, the next one goes on where it was.

Where members have no layers of their own nothing is lost with them, and where all is lost nothing is left to go on
with: then what is missing is brought back at once, as if the policy were to replay.

Whether the flow is exact, approximate or being repaired is `FlowState.mode`; here that is carried out.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.coordinator import events
from holdfast.coordinator.instructions import HandOver
from holdfast.coordinator.lineage import Lineage
from holdfast.errors import LogDamaged, MemberUnreachable
from holdfast.foundation import failpoints
from holdfast.reporting.redaction import logger
from holdfast.results.flow_results import Approximation
from holdfast.runtime.approximation import BranchRun
from holdfast.runtime.branches import Branches
from holdfast.runtime.open_flow import OpenFlow
from holdfast.runtime.recovery.record import RecoveryRecord
from holdfast.runtime.recovery.recoverer import Recoverer
from holdfast.runtime.statistics import Census
from holdfast.standby.leadership import Leadership

_LOG = logger("holdfast.recovery")


class Continuing:
    """Begins and repairs the branch of an open flow."""

    def __init__(
        self,
        flow: OpenFlow,
        lead: Leadership,
        recoverer: Recoverer,
        census: Census,
        branches: Branches,
        run_exactly: Callable[[Lineage], None],
    ) -> None:
        """``run_exactly`` runs an epoch of the branch again, and has it count."""
        self._flow = flow
        self._state = flow.state
        self._lead = lead
        self._recoverer = recoverer
        self._census = census
        self._branches = branches
        self._run_exactly = run_exactly
        self.branch: BranchRun | None = None
        self._warned = False
        """Whether the user was told that more is unsafe than was wanted, since the branch began."""

    @property
    def said(self) -> Approximation | None:
        """What the views are made of, if not of everything."""
        return None if self.branch is None else self.branch.said()

    def goes_on_without(self) -> bool:
        """After a loss: look who is there. If members are gone with partitions of theirs, and not with all, begin a
        branch, and say so."""
        if not self._state.may_branch:
            return False
        runner = self._flow.runner
        before = runner.owners()
        runner.refresh()
        following = self._flow.guard.tell(events.MembersLost(before, runner.owners(), runner.members()))
        if self._state.branch is None:
            return False
        branch = BranchRun(self._flow, self._state.branch, self._census, self._branches)
        for each in following:
            if isinstance(each, HandOver):
                runner.hand_over(each.moves)
        try:
            branch.begin()
        except (LogDamaged, MemberUnreachable):
            self._flow.guard.tell(events.BranchImpossible())
            return False
        self.branch, self._warned = branch, False
        name, said = self._flow.compiled.declared.name, branch.said()
        _LOG.warning(
            "flow '%s' goes on without what it lost: %s; nothing reaches sinks before flow.repair()",
            name,
            said,
            extra={"flow": name, "since": said.since, "partitions": said.lost, "members": said.members},
        )
        return True

    def gives_up(self, error: Exception) -> bool:
        """Whether the flow goes on without what an error says is lost."""
        return isinstance(error, MemberUnreachable) and self.goes_on_without()

    def warn_unsafe(self) -> None:
        """Nothing becomes safe before the repair: to wait for that would be to wait for ever."""
        settings, copies = self._state.settings, self._state.copies
        epochs = self._state.last - copies.safe
        if settings.durable and not self._warned and not settings.bound.allows(copies.unsafe[0], epochs):
            self._warned = True
            name = self._flow.compiled.declared.name
            _LOG.warning(
                "flow '%s': %d epochs are not safe, more than max_unsafe allows; nothing waits for that, since none "
                "becomes safe before flow.repair()",
                name,
                epochs,
                extra={"flow": name, "unsafe_epochs": epochs},
            )

    def repair(self) -> RecoveryRecord | None:
        """Bring back what was lost, and run again, exactly, what was approximate; None if nothing was. If it fails,
        what is done counts, and the next call goes on."""
        branch, state, guard = self.branch, self._state, self._flow.guard
        if branch is None:
            return None
        if state.fenced is not None:
            raise state.fenced
        self._lead.demand()
        exact = False
        with self._recoverer.one_record() as recovery:
            guard.tell(events.RepairBegan())
            try:
                self._recoverer.rebalance()
                failpoints.reach("repair.recovered")
                guard.tell(events.LayersRecovered())
                self._recoverer.repairing(lambda: self._flow.delivery.catch_up(state.epochs.last))
                for taken in branch.branch.history.since(state.history.last):
                    failpoints.reach("repair.before_epoch")
                    self._run_exactly(taken)
                    recovery.repaired.append(taken.epoch)
                exact, self.branch = True, None
            finally:
                guard.tell(events.RepairEnded(exact))
        self._flow.durability.request()
        failpoints.reach("repair.done")
        branch.close()
        return recovery

    def close(self) -> None:
        """Remove the branch, if it could not be repaired."""
        if self.branch is not None:
            self.branch.close()
