"""Runs the approximate epochs of a flow that goes on without lost members (`coordinator/approximate_branch.py` says
what these epochs mean). They run on a branch of the flow, which is made, listed and removed like any other
(`runtime/branches.py`). On each member that is left, the branch has a directory of layers, which begins with hard links
of the exact layers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from holdfast.connectors.source import Offer
from holdfast.coordinator import events
from holdfast.coordinator.approximate_branch import ApproximateBranch
from holdfast.coordinator.instructions import HandOver
from holdfast.coordinator.lineage import Lineage
from holdfast.errors import LogDamaged, MemberUnreachable
from holdfast.foundation import failpoints
from holdfast.results.flow_results import Approximation
from holdfast.results.query_results import Coverage
from holdfast.runtime.branches import Branches
from holdfast.runtime.merging import MergeRequest, Merging
from holdfast.runtime.open_flow import OpenFlow
from holdfast.runtime.outcomes import crowded
from holdfast.runtime.recovery.scattered_log import ScatteredViewLog
from holdfast.runtime.runner import Job, Outcome, Work
from holdfast.runtime.statistics import Census
from holdfast.task.program import partition_range
from holdfast.task.stage import EpochSpec
from holdfast.task.view_log import ViewLog
from holdfast.trace.name import LayerName

_ATTEMPTS = 10
"""How often one piece of work may meet a loss before it gives up."""

T = TypeVar("T")


class BranchRun:
    """Runs and reads the approximate epochs of an open flow, from a loss to the repair."""

    def __init__(self, flow: OpenFlow, branch: ApproximateBranch, census: Census, branches: Branches) -> None:
        self._flow = flow
        self._compiled = flow.compiled
        self._runner = flow.runner
        self.branch = branch
        views = flow.compiled.declared.views
        self._census = census.rows(dict.fromkeys(flow.compiled.flow.views[view] for view in views))
        self._branches = branches
        self.record = branches.named_after_loss(branch.history, branch.term)
        """The record of the branch, by which it is listed."""

        self.directory = branches.traces_of(self.record)
        self.maintenance = Merging(flow.runner, lambda: (branch.epochs.chain(), branch.last - 1))

    # -- members ------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Make the branch from every member's layers as of the last exact epoch."""
        self._branches.begin(self.record, self.branch.history, lambda link: self.insist(link))
        failpoints.reach("branch.begun")

    def look(self) -> None:
        """Look which members are left."""
        before = self._runner.owners()
        self._runner.refresh()
        self._settle(before)

    def stay(self) -> None:
        """Give every partition that is left to the member that has its layers of the branch: an unfinished repair may
        have moved it."""
        self._settle(self._runner.owners())

    def _settle(self, before: tuple[str, ...]) -> None:
        """Tell the state which members are left, and carry out the moves that follow. ``before``: the owner of the
        exact layers of each partition."""
        event = events.MembersLost(before, self._runner.owners(), self._runner.members())
        for instruction in self._flow.guard.tell(event):
            if isinstance(instruction, HandOver):
                self._runner.hand_over(instruction.moves)

    def insist(self, work: Callable[[], T]) -> T:
        """Do ``work`` and return its result. When it meets a loss, leave the lost partitions out and do it again. Raise
        the error if no further partition can be left out, or none is left."""
        for attempt in range(_ATTEMPTS):
            try:
                return work()
            except (LogDamaged, MemberUnreachable) as damage:
                if not self._leave_out(damage, attempt) or not self.branch.left:
                    raise
        return work()

    def _leave_out(self, damage: LogDamaged | MemberUnreachable, attempt: int) -> bool:
        """Find out which partitions are lost. Return whether to try again."""
        if isinstance(damage, MemberUnreachable):
            if attempt:
                time.sleep(0.2 * attempt if self._runner.threads else 0.0)
            self.look()
            return True
        self._flow.durability.check_claims()  # layers that a new leader has taken away are not damaged
        before = self.branch.lost
        self._flow.guard.tell(events.RangeDamaged(*_extent(damage)))
        return self.branch.lost != before

    # -- epochs -------------------------------------------------------------------------------------------------------

    def run(
        self, offers: dict[str, Offer], clock: int, job: Job, work: Sequence[Work], subject: str
    ) -> tuple[Lineage, Outcome]:
        """Run an epoch. It becomes part of the branch only with `complete`."""

        def attempt() -> tuple[Lineage, Outcome]:
            lineage = self._flow.guard.begin_on_branch(offers, clock, self._runner.draw())
            try:
                return lineage, job.run(self._epoch(lineage), work, subject)
            except BaseException:
                self.abandon(lineage)
                raise

        return self.insist(attempt)

    def _epoch(self, lineage: Lineage) -> EpochSpec:
        return EpochSpec(
            number=lineage.epoch,
            first=lineage.epoch,
            digest=lineage.digest,
            chain=self.branch.epochs.chain(),
            partitions=self._runner.partitions,
            traces=str(self.directory),
            clock=lineage.clock,
            before=self.branch.history[-1].clock,
            seed=lineage.seed,
            run=dict.fromkeys(self._compiled.flow.operators, self.branch.left),
        )

    def abandon(self, lineage: Lineage) -> None:
        """Declare that an epoch does not count. (Its layers are never read, and are removed with the branch.)"""
        self._flow.guard.tell(events.BranchEpochFailed(lineage))

    def complete(self, lineage: Lineage, outcome: Outcome) -> None:
        """Make an epoch count, and ask for merges of traces with many layers."""
        self._flow.guard.tell(events.BranchEpochRan(lineage))
        if many := crowded(
            outcome, lineage.epoch, self._compiled.trace_names, self.maintenance.tolerated, self._compiled.only_written
        ):
            copies, now = self._flow.state.copies, self._runner.clock()
            self.maintenance.request(
                [
                    MergeRequest(self.directory / trace, layout, copies.floor(trace, self.branch.history, now))
                    for trace, layout in self._compiled.layouts.items()
                    if trace in many
                ]
            )

    # -- reading ------------------------------------------------------------------------------------------------------

    def log_of(self, name: str) -> ViewLog:
        """Return the log of a collection, in the partitions that are left."""
        kept = self._compiled.kept(name, self.branch.epochs.chain())
        kept = replace(kept, directory=str(self.directory / Path(kept.directory).name))
        return ScatteredViewLog.of(kept, self._runner, self.branch.lost)

    def said(self) -> Approximation:
        """Return which partitions and members are lost, and how much is left."""
        branch = self.branch
        rows = _split(self._census, branch.left)
        size = _split(self._copied(), branch.left)
        return Approximation(
            branch.since,
            Coverage(len(branch.left), self._runner.partitions, *rows, *size),
            tuple(sorted(branch.lost)),
            tuple(sorted(branch.members)),
            tuple(sorted(self._compiled.flow.sources)),
            tuple(self._compiled.declared.views),
        )

    def _copied(self) -> list[int] | None:
        """Return the bytes of the views' copies by partition, in the location that has most; None if they are not
        complete as of the last exact epoch, or were made with another number of partitions."""
        copies = self._flow.state.copies
        if copies.safe < self.branch.since - 1 or not copies.holdings:
            return None
        views = {f"{self._compiled.flow.views[view]}.rows" for view in self._compiled.declared.views}
        ranges = [partition_range(number, self._runner.partitions) for number in range(self._runner.partitions)]
        best: list[int] | None = None
        for holding in list(copies.holdings.values()):
            sizes = dict.fromkeys(ranges, 0)
            for trace in views:
                for name, size in holding.layers.get(trace, {}).items():
                    if (name.low, name.high) not in sizes:
                        return None
                    sizes[name.low, name.high] += size
            found = list(sizes.values())
            best = found if best is None or sum(found) > sum(best) else best
        return best

    # -- closing ------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End merging and remove the branch."""
        self.maintenance.close()
        self._branches.end(self.record)


def _split(counts: Sequence[int] | None, left: frozenset[int]) -> tuple[int | None, int | None]:
    """Return the sum over the partitions that are left, and the sum over all; (None, None) if not known."""
    if counts is None:
        return None, None
    return sum(count for number, count in enumerate(counts) if number in left), sum(counts)


def _extent(damage: LogDamaged) -> tuple[int, int]:
    """Return the range of key hashes that a damaged layer affects; (0, 0) if the error does not say."""
    path, low, high = (damage.fields.get(each) for each in ("path", "low", "high"))
    name = LayerName.parse(Path(path).name) if isinstance(path, str) else None
    if name is not None:
        return name.low, name.high
    return (low, high) if isinstance(low, int) and isinstance(high, int) else (0, 0)
