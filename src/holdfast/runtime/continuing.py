"""A flow that goes on with the partitions that are left when members are lost with their layers
(``on_loss="continue"``).

Before a loss, and after its repair, epochs are exact. From the loss to the repair, epochs and reads are those of a
branch (`coordinator/approximate_branch.py` says what they mean); the exact history stands still.

* **Sources** are told that offers were taken, as always, so that they go on to the next offers. They are not told to
  forget anything, because the safe point is that of the exact history. Rows that code pushed are held by the driver
  until an exact epoch has taken them.
* **Sinks** get nothing before the repair: they are given each epoch once, and exactly.
* **Repair**: the exact layers are brought back as of the last exact epoch, as after any loss (`runtime/recovery/`).
  Then each epoch of the branch is run again as an ordinary epoch, with the same number, offers and clock, and another
  seed: values are drawn, and functions outside asked, again. A further loss is repaired at once. If a repair fails in
  the middle, the epochs that it ran count, and the next repair continues from there.

Members without layers of their own lose nothing, and if all members are lost, no partition is left to go on with. In
both cases missing layers are brought back at once, as if the policy were to replay.

`FlowState.mode` says whether the flow is exact, approximate or being repaired; this module carries that out.
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
        """``run_exactly`` runs an epoch of the branch again as an exact one, and makes it count."""
        self._flow = flow
        self._state = flow.state
        self._lead = lead
        self._recoverer = recoverer
        self._census = census
        self._branches = branches
        self._run_exactly = run_exactly
        self.branch: BranchRun | None = None
        self._warned = False
        """Whether the warning about more unsafe epochs than `max_unsafe` allows was logged since the branch began."""

    @property
    def said(self) -> Approximation | None:
        """What the views are computed from while lost partitions are left out; None if the views are exact."""
        return None if self.branch is None else self.branch.said()

    def goes_on_without(self) -> bool:
        """Look, after a loss, which members are there. If some partitions are lost and some are left, begin a branch,
        log a warning and return True; otherwise return False."""
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
        """Whether ``error`` says that a member is lost, and the flow goes on without it."""
        return isinstance(error, MemberUnreachable) and self.goes_on_without()

    def warn_unsafe(self) -> None:
        """Log a warning, once in a branch, if more is unsafe than `max_unsafe` allows. The flow does not wait then: no
        epoch becomes safe before the repair."""
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
        """Bring back lost layers and run the approximate epochs again as exact ones. Return the record of the repair;
        None if the flow was exact. If the repair fails, the epochs that it ran count, and the next call continues from
        there."""
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
        """Remove the branch if there still is one, because it could not be repaired."""
        if self.branch is not None:
            self.branch.close()
