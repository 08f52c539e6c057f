"""Rewinds: which epochs are in effect, and which input is still to be taken again.

A rewind is an epoch of its own, *R*. It takes nothing from sources; its layers are the negated changes of the epochs
after ``to``, so the state as of *R* is the state as of ``to``. The history is not cut: sinks have seen it. The epochs
``to`` < e ≤ *R* are *undone*: they stay readable, and nothing that is computed from input reads what they took.

The input of undone epochs is **owed**: each following epoch takes what one of them took, in their order, without what
the rewind was told to skip (``skip`` in its record), before sources are asked for more. Its record names, as ``again``,
the epoch that took the input before. Sources are not told a second time.

A rewind may go back to before another one, or into the epochs that one has undone: that is the same as any state the
flow was in. So an input is known by its *origin*, the epoch that took it first: what is in effect as of ``to`` is not
owed, whoever took it.

Everything here is computed from the history. A base (`coordinator/folded.py`) never lies between ``to`` and its rewind,
nor after an epoch whose input is owed (`Rewinds.foldable`), so what is in a base is in effect for good.

Pure: a part of `FlowState`. Cost: O(retained epochs) for each rewind, O(rewinds) for each question.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from holdfast.coordinator.folded import Folded
from holdfast.coordinator.history import History
from holdfast.coordinator.lineage import Lineage


@dataclass(frozen=True)
class Owed:
    """Input that is to be taken again."""

    origin: int
    """The epoch that took it first."""

    epoch: int
    """The epoch that took it last, and was undone: its record says what it took."""

    rewinds: tuple[int, ...]
    """The rewinds whose ``skip`` holds for it."""


class Rewinds:
    """What the rewinds of a history come to, as it grows."""

    def __init__(self, history: Iterable[Lineage] = ()) -> None:
        self._targets: dict[int, int] = {}
        """Rewind → the epoch to which it went back; in the order of the epochs."""

        self._origins: dict[int, int] = {}
        """Epoch that took something → the epoch that took it first."""

        self._retaken: dict[int, Owed] = {}
        """Epoch → what was owed, and was taken again in it."""

        self.owed: tuple[Owed, ...] = ()
        """The input that is to be taken again, in this order, before anything else."""

        for record in history:
            self.add(record)

    def add(self, record: Lineage) -> None:
        """An epoch is complete, or a history begins with a base."""
        if isinstance(record, Folded):
            self._targets = {epoch: to for epoch, to in self._targets.items() if epoch > record.epoch}
            self._origins = {epoch: origin for epoch, origin in self._origins.items() if epoch > record.epoch}
            self._retaken = {epoch: owed for epoch, owed in self._retaken.items() if epoch > record.epoch}
        elif record.rewind is not None:
            self._rewound(record.epoch, record.rewind["to"])
        elif record.again is not None and not self.owed:
            self._origins[record.epoch] = record.again  # it is safe, and the rewind behind it was folded
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
        """The stretches of epochs, (first, last), whose input is in effect as of epoch ``at``; the latest first."""
        found = []
        for epoch, to in reversed(self._targets.items()):
            if epoch <= at:
                found.append((epoch + 1, at))
                at = to
        return [*found, (0, at)]

    def is_live(self, epoch: int, at: int) -> bool:
        """Whether what an epoch took is in effect as of epoch ``at``."""
        return any(first <= epoch <= last for first, last in self.live(at))

    def target(self, epoch: int) -> int | None:
        """The epoch to which a rewind went back; None if the epoch is no rewind."""
        return self._targets.get(epoch)

    def since(self, epoch: int) -> dict[int, int]:
        """The rewinds after an epoch, each with the epoch to which it went back."""
        return {each: to for each, to in self._targets.items() if each > epoch}

    def held(self, safe: int) -> int | None:
        """Every trace must be readable as of this epoch: rewinds that are not safe may be computed again."""
        return min(self.since(safe).values(), default=None)

    def needed(self, safe: int) -> int | None:
        """What was taken after this epoch may be read again: it is owed, or the epoch that took it again is not safe.
        None: nothing may."""
        unsafe = [owed for epoch, owed in self._retaken.items() if epoch > safe]
        return min((min(each.origin, each.epoch) - 1 for each in (*self.owed, *unsafe)), default=None)

    def retaken(self, epoch: int) -> Owed | None:
        """What was owed, and was taken again in an epoch; None if that took nothing again."""
        return self._retaken.get(epoch)

    def foldable(self, upto: int, safe: int) -> int:
        """The last epoch up to ``upto`` up to which the history may be folded."""
        needed = self.needed(safe)
        upto = upto if needed is None else min(upto, needed)
        for epoch, to in reversed(self._targets.items()):
            if to < upto <= epoch:
                upto = to
        return upto


def state_clock(history: History, epoch: int) -> int:
    """The clock as of which the state is after an epoch: after a rewind, that of the epoch to which it went back."""
    record = history[epoch]
    while record.rewind is not None:
        record = history[record.rewind["to"]]
    return record.clock
