"""Continuing without lost partitions: the state of a flow whose members were lost with their layers
(``on_loss="continue"``).

When a member is lost with layers of its own and the flow is to continue, the exact history stops at its last complete
epoch L. Nothing of it is changed: not its lineage, its layers, their copies, or the sinks. From then on epochs are
*approximate*, and live on a **branch**, which is made and removed like every branch of the flow
(`runtime/branches.py`): its root is L; its history is the exact history and the approximate epochs, under digests of
its own; its layers are in a separate directory on each member, which begins with links to the exact layers as of L. It
differs from other branches in this: lost partitions are missing, so nothing of it is copied or committed to a sink, and
its history after L is in this process's memory alone. The next driver that opens the log removes it.

**What approximate epochs mean.** An epoch of the branch runs every operator in the partitions that are left, and in no
other partition. Rows of a lost partition are missing from the views that are read. What a lost partition had
contributed to later operators stays there as it was at the loss; what it would have contributed since is missing. So a
view whose operators all have one key holds exactly the rows of the keys whose partitions are left; a view behind an
exchange (a total of totals) mixes current contributions with contributions as old as the loss. In each partition of a
producer, the input that an operator sees is a state that really existed: no row is retracted that was not there.

A further loss adds lost partitions, and the current epoch begins again, under another digest. The same happens if an
epoch meets a damaged layer of the branch: then its partition is left out, too.

Pure: a part of `FlowState`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from holdfast.coordinator.epochs import EpochSequence
from holdfast.coordinator.history import History
from holdfast.coordinator.lineage import Lineage


class ApproximateBranch:
    """The approximate epochs of an open flow, from a loss to the repair."""

    def __init__(self, history: History, term: int, homes: Sequence[str], ranges: Sequence[tuple[int, int]]) -> None:
        """``history``: the complete epochs, all exact. ``homes``: the owner of each partition before the loss.
        ``ranges``: the key hashes of each partition."""
        self.history = history.copy()
        self.since = history.last + 1
        """The first approximate epoch."""

        self.lost: frozenset[int] = frozenset()
        """The lost partitions, which are left out."""

        self.members: frozenset[str] = frozenset()
        """The members that were lost."""

        self.homes = tuple(homes)
        self.term = term
        self.epochs = EpochSequence(self.history, term)
        self._ranges = list(ranges)

    @property
    def last(self) -> int:
        return self.history.last

    @property
    def left(self) -> frozenset[int]:
        """The partitions that are not lost."""
        return frozenset(range(len(self.homes))) - self.lost

    def seen(self, members: Collection[str], owners: Sequence[str]) -> dict[int, str]:
        """Take in the members that are there and the current owners of the partitions. Returns the moves (partition →
        member) after which every partition that is left is with the member that has its layers of the branch."""
        gone = frozenset(number for number, home in enumerate(self.homes) if home not in members)
        self.members |= {self.homes[number] for number in gone}
        self.lost |= gone
        moves = {number: home for number, home in enumerate(self.homes) if home != owners[number]}
        return {number: home for number, home in moves.items() if number not in self.lost}

    def damaged(self, low: int, high: int) -> bool:
        """Leave out the partitions of a damaged layer of the branch, which holds these key hashes. Returns whether any
        partition was left out."""
        hit = {each for each in self.left if self._ranges[each][0] < high and low < self._ranges[each][1]}
        self.lost |= hit
        return bool(hit)

    def complete(self, lineage: Lineage) -> None:
        """Note that an approximate epoch counts."""
        self.epochs.complete(lineage)
        self.history.append(lineage)
