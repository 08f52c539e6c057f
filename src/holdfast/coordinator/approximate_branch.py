"""Going on with what is left: the state of a flow whose members were lost with their layers (``on_loss="continue"``).

When a member is lost with layers of its own and the flow is to continue, the exact history stops where it is, at its
last complete epoch L, and nothing of it is touched: its lineage, its layers, their copies, the sinks. From then on
epochs are *approximate*, and live on a **branch**, which is made and removed as every branch of the flow is
(`runtime/branches.py`): its root is L; its history is the exact one and what follows, under digests of its own; its
layers are in a directory of their own on each member, which begins with the exact layers as of L, linked. What sets it
apart: it lacks what was lost, so nothing of it is copied or committed to a sink, and its epochs after L are in this
process's memory alone. Whoever opens the log later removes it.

**What they mean.** An epoch of the branch runs every operator in the partitions that are left, and in no other. What a
lost partition held is missing from the views that are read. What it had contributed to operators behind it stays there
as it was when it was lost, and what it would have contributed since is missing. So a view whose operators all have one
key holds exactly the rows of the keys whose partitions are left; one behind an exchange (a total of totals) mixes what
is up to date with what is as old as the loss. Every input that an operator sees is a collection that was there once, in
each partition of its producer: no row is retracted that was not there.

A further loss makes the lost partitions more; the epoch at hand begins again, as another one, under another digest. So
does an epoch that meets a damaged layer of the branch: its partition is left out, too.

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
        """``history``: the complete epochs, all exact. ``homes``: which member had which partition, before the loss.
        ``ranges``: the key hashes of each partition."""
        self.history = history.copy()
        self.since = history.last + 1
        """The first approximate epoch."""

        self.lost: frozenset[int] = frozenset()
        """The partitions that are left out."""

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
        """These members are there, and have these partitions now: what has to be moved so that every partition that is
        left is where its layers of the branch are."""
        gone = frozenset(number for number, home in enumerate(self.homes) if home not in members)
        self.members |= {self.homes[number] for number in gone}
        self.lost |= gone
        moves = {number: home for number, home in enumerate(self.homes) if home != owners[number]}
        return {number: home for number, home in moves.items() if number not in self.lost}

    def damaged(self, low: int, high: int) -> bool:
        """A layer of the branch that holds these key hashes is damaged: its partitions are left out; whether any is."""
        hit = {each for each in self.left if self._ranges[each][0] < high and low < self._ranges[each][1]}
        self.lost |= hit
        return bool(hit)

    def complete(self, lineage: Lineage) -> None:
        """An approximate epoch counts."""
        self.epochs.complete(lineage)
        self.history.append(lineage)
