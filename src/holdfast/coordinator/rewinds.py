"""Rewinds: which epochs are in effect, and which input must still be taken again.

A rewind is an epoch of its own, *R*. It takes nothing from sources; its layers are the negated changes of the epochs
after ``to``, so the state as of *R* is the state as of ``to``. The history is not cut off, since sinks have seen it.
The epochs ``to`` < e ≤ *R* are *undone*: they stay readable, but nothing is computed from their input any more.

The input of undone epochs is **owed**: before sources are polled for more, each following epoch takes the input of one
undone epoch, in their order, without the items that the rewind was told to skip (``skip`` in its record). The record of
such an epoch names, as ``again``, the epoch that took the input before. Sources are not told a second time.

A rewind may go back to an epoch before another rewind, or to an epoch that another rewind has undone, as to any state
that the flow was in. So an input is identified by its *origin*, the epoch that took it first: input that is in effect
as of ``to`` is not owed, whichever epoch took it.

All of this is computed from the history. A base (`coordinator/folded.py`) never ends between ``to`` and its rewind, nor
after an epoch whose input is owed (`Rewinds.foldable`), so the epochs in a base stay in effect for good.

Pure: a part of `FlowState`. Cost: O(retained epochs) for each rewind, O(rewinds) for each other call; `reachable` costs
O(retained epochs · rewinds) once for each epoch, as long as a rewind is among the retained epochs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from holdfast.coordinator.folded import Folded
from holdfast.coordinator.history import History
from holdfast.coordinator.lineage import Lineage


@dataclass(frozen=True)
class Owed:
    """The input of an undone epoch, which must be taken again."""

    origin: int
    """The epoch that took the input first."""

    epoch: int
    """The undone epoch that took the input last; its record has the offers."""

    rewinds: tuple[int, ...]
    """The rewinds whose ``skip`` applies to the input."""


class Rewinds:
    """The effect of all rewinds of a history, which grows."""

    def __init__(self, history: Iterable[Lineage] = ()) -> None:
        self._targets: dict[int, int] = {}
        """Rewind → the epoch to which it went back; in the order of the epochs."""

        self._origins: dict[int, int] = {}
        """Epoch that took input → the epoch that took that input first."""

        self._retaken: dict[int, Owed] = {}
        """Epoch → the owed input that it took again."""

        self.owed: tuple[Owed, ...] = ()
        """The input that must be taken again, in this order, before any new input."""

        self._reachable: tuple[tuple[int, ...], int | None] | None = None
        """The last answer of `reachable`, and what it was asked: it is the same for all traces."""

        for record in history:
            self.add(record)

    def add(self, record: Lineage) -> None:
        """Take in the record of a complete epoch, or the base with which a history begins."""
        if isinstance(record, Folded):
            self._targets = {epoch: to for epoch, to in self._targets.items() if epoch > record.epoch}
            self._origins = {epoch: origin for epoch, origin in self._origins.items() if epoch > record.epoch}
            self._retaken = {epoch: owed for epoch, owed in self._retaken.items() if epoch > record.epoch}
        elif record.rewind is not None:
            self._rewound(record.epoch, record.rewind["to"])
        elif record.again is not None and not self.owed:
            self._origins[record.epoch] = record.again  # it is safe, and its rewind was folded
        elif record.again is not None:
            assert self.owed[0].epoch == record.again, "input is taken again in its order"
            self._origins[record.epoch] = self.owed[0].origin
            self._retaken[record.epoch] = self.owed[0]
            self.owed = self.owed[1:]
        elif record.offers:
            self._origins[record.epoch] = record.epoch

    def _rewound(self, epoch: int, to: int) -> None:
        before = [each for each in self._origins if self.is_live(each, epoch - 1)]
        kept = {origin for each, origin in self._origins.items() if self.is_live(each, to)}
        undone = [Owed(self._origins[each], each, ()) for each in before]
        self.owed = tuple(
            replace(each, rewinds=(*each.rewinds, epoch)) for each in (*undone, *self.owed) if each.origin not in kept
        )
        self._targets[epoch] = to

    def live(self, at: int) -> list[tuple[int, int]]:
        """The ranges of epochs (first, last) whose input is in effect as of epoch ``at``; the latest range first."""
        found = []
        for epoch, to in reversed(self._targets.items()):
            if epoch <= at:
                found.append((epoch + 1, at))
                at = to
        return [*found, (0, at)]

    def is_live(self, epoch: int, at: int) -> bool:
        """Whether the input of an epoch is in effect as of epoch ``at``."""
        return any(first <= epoch <= last for first, last in self.live(at))

    def target(self, epoch: int) -> int | None:
        """The epoch to which a rewind went back; None if ``epoch`` is not a rewind."""
        return self._targets.get(epoch)

    def since(self, epoch: int) -> dict[int, int]:
        """Rewind → the epoch to which it went back, for the rewinds after ``epoch``."""
        return {each: to for each, to in self._targets.items() if each > epoch}

    def held(self, safe: int) -> int | None:
        """The epoch as of which every trace must stay readable, since rewinds that are not safe may be computed again;
        None if all rewinds are safe."""
        return min(self.since(safe).values(), default=None)

    def needed(self, safe: int) -> int | None:
        """The epoch after which input may still be read again: it is owed, or the epoch that took it again is not safe.
        None if no input may be."""
        unsafe = [owed for epoch, owed in self._retaken.items() if epoch > safe]
        return min((min(each.origin, each.epoch) - 1 for each in (*self.owed, *unsafe)), default=None)

    def reachable(self, floor: int) -> int | None:
        """The epoch after which input may have to be taken again if the flow is rewound to any epoch from ``floor`` on:
        a rewind to an epoch that a former one has undone also undoes epochs before it. None if that is no epoch before
        ``floor``."""
        if floor < 0 or not self._targets or max(self._targets) <= floor:
            return None
        asked = floor, len(self._origins), max(self._targets), max(self._origins, default=-1)
        if self._reachable is None or self._reachable[0] != asked:
            last = max(asked[2:])
            points = [floor, *(epoch for epoch in self._targets if epoch > floor)]
            taken = {each: origin for each, origin in self._in_effect(last).items() if each <= floor}
            kept = [set(self._in_effect(at).values()) for at in points] if taken else []
            found = [each - 1 for each, origin in taken.items() if not all(origin in some for some in kept)]
            self._reachable = asked, min(found, default=None)
        return self._reachable[1]

    def _in_effect(self, at: int) -> dict[int, int]:
        """The epochs whose input is in effect as of epoch ``at``, each with its origin."""
        live = self.live(at)
        return {
            each: origin for each, origin in self._origins.items() if any(first <= each <= last for first, last in live)
        }

    def retaken(self, epoch: int) -> Owed | None:
        """The owed input that ``epoch`` took again; None if it took none again."""
        return self._retaken.get(epoch)

    def foldable(self, upto: int, safe: int) -> int:
        """The last epoch, at most ``upto``, up to which the history may be folded."""
        needed = self.needed(safe)
        upto = upto if needed is None else min(upto, needed)
        for epoch, to in reversed(self._targets.items()):
            if to < upto <= epoch:
                upto = to
        return upto


def state_clock(history: History, epoch: int) -> int:
    """The clock that the state after an epoch corresponds to: after a rewind, that of the epoch to which it went
    back."""
    record = history[epoch]
    while record.rewind is not None:
        record = history[record.rewind["to"]]
    return record.clock
