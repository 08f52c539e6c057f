"""Going on with what is left: epochs that are approximate, on a branch beside the exact history.

When a member is lost with layers of its own and the flow is to continue, the exact history stops where it is, at its
last complete epoch L, and nothing of it is touched: its lineage, its layers, their copies, the sinks. From then on
epochs are *approximate*, and live on a **branch**:

* their layers are in a directory of their own on each member, which begins with the exact layers as of L, linked;
* their history is the exact one and what follows, under digests of its own, in this process's memory alone;
* nothing of them is copied, committed to a sink, or seen by whoever opens the log later.

**What they mean.** An epoch of the branch runs every operator in the partitions that are left, and in no other. What a
lost partition held is missing from the views that are read. What it had contributed to operators behind it stays there
as it was when it was lost, and what it would have contributed since is missing. So a view whose operators all have one
key holds exactly the rows of the keys whose partitions are left; one behind an exchange (a total of totals) mixes what
is up to date with what is as old as the loss. Every input that an operator sees is a collection that was there once, in
each partition of its producer: no row is retracted that was not there.

A further loss makes the lost partitions more; the epoch at hand begins again, as another one, under another digest. So
does an epoch that meets a damaged layer of the branch: its partition is left out, too.

A repair (`runtime/continuing.py`) brings the exact layers back as of L, and runs what the branch did once more,
exactly; then the branch is removed. Until then a crash of the driver loses the branch, and nothing else: who opens the
log goes on after L.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from holdfast.connectors.source import Offer
from holdfast.coordinator.epochs import Coordinator
from holdfast.coordinator.history import History
from holdfast.coordinator.lineage import Lineage
from holdfast.errors import LogDamaged, MemberUnreachable
from holdfast.foundation import failpoints
from holdfast.log.host_paths import approximate_of, host_path
from holdfast.results.flow_results import Approximation
from holdfast.results.query_results import Coverage
from holdfast.runtime.compiled_flow import CompiledFlow
from holdfast.runtime.merging import MergeRequest, Merging
from holdfast.runtime.outcomes import crowded
from holdfast.runtime.recovery.fetch_layers import local_layers
from holdfast.runtime.recovery.scattered_log import ScatteredViewLog
from holdfast.runtime.replication import Replication
from holdfast.runtime.runner import Job, Outcome, Runner, Work
from holdfast.runtime.statistics import Census
from holdfast.task.program import partition_range
from holdfast.task.stage import EpochSpec
from holdfast.task.view_log import ViewLog
from holdfast.trace.name import LayerName

_ATTEMPTS = 10
"""So often one piece of work may meet a loss before it gives up."""

T = TypeVar("T")


class Branch:
    """The approximate epochs of an open flow, from a loss to the repair."""

    def __init__(
        self,
        runner: Runner,
        state: CompiledFlow,
        durability: Replication,
        census: Census,
        history: History,
        term: int,
        homes: Sequence[str],
    ) -> None:
        """``history``: the complete epochs, all exact. ``homes``: which member had which partition, before the loss.
        The runner has looked who is there since."""
        self._runner = runner
        self._state = state
        self._durability = durability
        self._census = census.rows(dict.fromkeys(state.flow.views[view] for view in state.declared.views))
        self._homes = tuple(homes)
        self.history = history.copy()
        self.since = history.last + 1
        """The first approximate epoch."""

        self.directory = approximate_of(state.directory)
        self.lost: frozenset[int] = frozenset()
        """The partitions that are left out."""

        self._members: frozenset[str] = frozenset()
        self._coordinator = Coordinator(self.history, term)
        self.maintenance = Merging(runner, lambda: (self._coordinator.chain(), self.last - 1))
        self._settle(self._homes)

    @property
    def last(self) -> int:
        return self.history.last

    @property
    def left(self) -> frozenset[int]:
        """The partitions that are not lost."""
        return frozenset(range(self._runner.partitions)) - self.lost

    # -- members ------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Have every member's layers as of the last exact epoch."""
        digests = self.history.digests()
        link = partial(branch_off, self._state.directory, self.directory, digests)
        self.insist(lambda: self._runner.everywhere("going on with what is left", link))
        failpoints.reach("branch.begun")

    def look(self) -> None:
        """See who is left."""
        before = self._runner.owners()
        self._runner.refresh()
        self._settle(before)

    def stay(self) -> None:
        """Have every partition that is left where its layers of the branch are: a repair that was not finished may have
        moved it."""
        self._settle(self._runner.owners())

    def _settle(self, owners: Sequence[str]) -> None:
        """``owners``: who had the exact layers of which partition."""
        there = self._runner.members()
        self._durability.lost |= {number for number, owner in enumerate(owners) if owner not in there}
        gone = frozenset(number for number, home in enumerate(self._homes) if home not in there)
        self._members |= {self._homes[number] for number in gone}
        self.lost |= gone
        owners = self._runner.owners()
        moves = {number: home for number, home in enumerate(self._homes) if home != owners[number]}
        moves = {number: home for number, home in moves.items() if number not in self.lost}
        if moves:
            self._runner.hand_over(moves)

    def insist(self, work: Callable[[], T]) -> T:
        """Do ``work``; when it meets a loss, do it again without what is lost. The error is raised if that cannot
        help, or nothing is left."""
        for attempt in range(_ATTEMPTS):
            try:
                return work()
            except (LogDamaged, MemberUnreachable) as damage:
                if not self._leave_out(damage, attempt) or not self.left:
                    raise
        return work()

    def _leave_out(self, damage: LogDamaged | MemberUnreachable, attempt: int) -> bool:
        """Find out what is lost; whether to try again."""
        if isinstance(damage, MemberUnreachable):
            if attempt:
                time.sleep(0.2 * attempt if self._runner.threads else 0.0)
            self.look()
            return True
        self._durability.check_claims()  # layers that another driver has taken away are not damaged
        count = self._runner.partitions
        low, high = _extent(damage)
        ranges = {number: partition_range(number, count) for number in self.left}
        hit = {number for number, each in ranges.items() if each[0] < high and low < each[1]}
        self.lost |= hit
        return bool(hit)

    # -- epochs -------------------------------------------------------------------------------------------------------

    def run(
        self, offers: dict[str, Offer], clock: int, job: Job, work: Sequence[Work], subject: str
    ) -> tuple[Lineage, Outcome]:
        """Run an epoch to its end; it is not part of the branch until `complete`."""

        def attempt() -> tuple[Lineage, Outcome]:
            lineage = self._coordinator.begin(offers, clock, self._runner.draw())
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
            chain=self._coordinator.chain(),
            partitions=self._runner.partitions,
            traces=str(self.directory),
            clock=lineage.clock,
            before=self.history[-1].clock,
            seed=lineage.seed,
            run=dict.fromkeys(self._state.flow.operators, self.left),
        )

    def abandon(self, lineage: Lineage) -> None:
        """An epoch that was run does not count. (Its layers are never read, and go with the branch.)"""
        self._coordinator.abandon(lineage)

    def complete(self, lineage: Lineage, outcome: Outcome) -> None:
        """The epoch counts."""
        self._coordinator.complete(lineage)
        self.history.append(lineage)
        if many := crowded(outcome, self.maintenance.tolerated):
            self.maintenance.request(
                [
                    MergeRequest(self.directory / trace, layout, self._durability.floor(trace, self.history))
                    for trace, layout in self._state.layouts.items()
                    if trace in many
                ]
            )

    # -- reading ------------------------------------------------------------------------------------------------------

    def kept(self, name: str) -> ViewLog:
        """The log of a collection, in the partitions that are left."""
        kept = self._state.kept(name, self._coordinator.chain())
        kept = replace(kept, directory=str(self.directory / Path(kept.directory).name))
        return ScatteredViewLog.of(kept, self._runner, self.lost)

    def said(self) -> Approximation:
        """What is lost, and what is left."""
        rows = _split(self._census, self.left)
        size = _split(self._copied(), self.left)
        return Approximation(
            self.since,
            Coverage(len(self.left), self._runner.partitions, *rows, *size),
            tuple(sorted(self.lost)),
            tuple(sorted(self._members)),
            tuple(sorted(self._state.flow.sources)),
            tuple(self._state.declared.views),
        )

    def _copied(self) -> list[int] | None:
        """The bytes of the views' copies by partition, in the location that has most; None if they are not complete
        as of the last exact epoch, or were cut otherwise."""
        if self._durability.safe < self.since - 1 or not self._durability.holdings:
            return None
        views = {f"{self._state.flow.views[view]}.rows" for view in self._state.declared.views}
        ranges = [partition_range(number, self._runner.partitions) for number in range(self._runner.partitions)]
        best: list[int] | None = None
        for holding in list(self._durability.holdings.values()):
            sizes = dict.fromkeys(ranges, 0)
            for trace in views:
                for name, size in holding.layers.get(trace, {}).items():
                    if (name.low, name.high) not in sizes:
                        return None
                    sizes[name.low, name.high] += size
            found = list(sizes.values())
            best = found if best is None or sum(found) > sum(best) else best
        return best

    # -- the end ------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Nobody needs the branch any more."""
        self.maintenance.close()
        with suppress(MemberUnreachable):  # one that cannot be reached: what it has is never read
            self._runner.everywhere("removing what was approximate", partial(_remove, self.directory))


def _split(counts: Sequence[int] | None, left: frozenset[int]) -> tuple[int | None, int | None]:
    """How much of it is left, and all of it."""
    if counts is None:
        return None, None
    return sum(count for number, count in enumerate(counts) if number in left), sum(counts)


def _extent(damage: LogDamaged) -> tuple[int, int]:
    """The hashes that are affected; none if the error does not say."""
    path, low, high = (damage.fields.get(each) for each in ("path", "low", "high"))
    name = LayerName.parse(Path(path).name) if isinstance(path, str) else None
    if name is not None:
        return name.low, name.high
    return (low, high) if isinstance(low, int) and isinstance(high, int) else (0, 0)


def branch_off(exact: Path, branch: Path, digests: Mapping[int, str]) -> None:
    """On a member: begin a branch with the layers of the history of these digests."""
    source, target = host_path(exact), host_path(branch)
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for trace in sorted(source.iterdir()) if source.is_dir() else ():
        if trace.is_dir():
            (target / trace.name).mkdir()
            while not _link_layers(trace, target / trace.name, digests):
                pass  # layers were merged beside us: those that replace them are there now


def _link_layers(source: Path, target: Path, digests: Mapping[int, str]) -> bool:
    """Link what a listing says; whether all of it was still there."""
    for name in local_layers(source):
        if digests.get(name.last) != name.digest:
            continue  # of an epoch that was abandoned
        try:
            _link(source / name.text(), target / name.text())
        except FileExistsError:
            continue
        except FileNotFoundError:
            return False
    return True


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except (FileExistsError, FileNotFoundError):
        raise
    except OSError:
        shutil.copyfile(source, target)  # a file system without links


def _remove(branch: Path) -> None:
    shutil.rmtree(host_path(branch), ignore_errors=True)
