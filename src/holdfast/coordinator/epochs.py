"""The sequence of a flow's epochs: the next epoch, whether the last one counts, and the layers of failed epochs.

A pure state machine, a part of `FlowState`: events in (an epoch began, ran, completed, was abandoned), facts out (the
next lineage, the chain of digests by which tasks tell true layers from stale ones).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.coordinator.history import History
from holdfast.coordinator.lineage import GENESIS, Lineage
from holdfast.trace.cover import Chain

WINDOW = 256
"""The number of digests that are sent to tasks. Layers of older epochs were checked before, or this process wrote
them."""


class EpochSequence:
    """Hands out epochs, one at a time."""

    def __init__(self, history: History | None = None, term: int = 0) -> None:
        """``history``: all complete epochs of the log, in order. ``term``: the term of this driver."""
        self.term = term
        self._chain = Chain(history.last if history is not None else -1, ())
        self._head = history[-1].digest if history else GENESIS
        self._clock = history[-1].clock if history else 0
        self._running: Lineage | None = None
        self.is_torn = False
        """Whether this process does not know if the last epoch counts: only the log can tell."""

        self.undone: set[str] = set()
        """The digests of failed epochs whose layers are not removed yet."""

    @property
    def last(self) -> int:
        """The last complete epoch; -1 before the first."""
        return self._chain.end

    @property
    def head(self) -> str:
        """The digest of the last complete epoch."""
        return self._head

    def chain(self) -> Chain:
        """The chain of digests that tells the layers of this history from stale ones, up to the last complete epoch.
        Any thread may call this: it gets the chain of before or after an epoch, never one in between."""
        return self._chain

    def begin(
        self,
        offers: dict[str, Any],
        clock: int,
        seed: int,
        views: Mapping[str, Any] | None = None,
        back: bool = False,
        rewind: Mapping[str, Any] | None = None,
        again: int | None = None,
    ) -> Lineage:
        """The lineage of the next epoch. It is not part of the history until `complete`. ``views``: the versions of the
        flow's collections, if they change with this epoch. ``rewind``: the epochs that it undoes; ``again``: the epoch
        whose input it takes again.

        The clock of an epoch is never before that of the last one, whatever the host's clock says: rows that expired
        stay expired. Only if the user wants the clock to go ``back``, because it was ahead by mistake, it does: rows
        that have expired stay away, and new rows last as long as they should."""
        if self._running is not None:
            raise RuntimeError(f"epoch {self._running.epoch} is still running")
        clock = clock if back else max(clock, self._clock)
        self._running = Lineage(
            self.last + 1, self._head, offers, clock, seed, self.term, views=views, rewind=rewind, again=again
        )
        return self._running

    def ran(self, lineage: Lineage) -> None:
        """Note that all layers of the epoch are written, and that its lineage is about to be. Until `counted` or
        `abandon`, only the log can tell whether the epoch counts."""
        if self._running is None or self._running.digest != lineage.digest:
            raise RuntimeError(f"epoch {lineage.epoch} is not the one that runs")
        self.is_torn = True

    def complete(self, lineage: Lineage) -> None:
        """Note that the epoch's lineage is in the stash: the epoch is part of the history now."""
        if self._running is None or self._running.digest != lineage.digest:
            raise RuntimeError(f"epoch {lineage.epoch} is not the one that runs")
        self._running = None
        self._head = lineage.digest
        self._clock = lineage.clock
        digests = (*self._chain.digests, lineage.digest)
        forgotten = max(0, len(digests) - WINDOW)
        self._chain = Chain(self._chain.base + forgotten, digests[forgotten:])

    def counted(self) -> None:
        """Note that all parts of this process were told that the last epoch counts."""
        self.is_torn = False

    def abandon(self, lineage: Lineage) -> None:
        """Note that the epoch failed. Its number is used again by the next epoch; its layers have a digest that no
        history has, and are to be removed."""
        if self._running is None or self._running.digest != lineage.digest:
            raise RuntimeError(f"epoch {lineage.epoch} is not the one that runs")
        self._running = None
        self.is_torn = False
        self.undone.add(lineage.digest)

    def removed(self, digest: str) -> None:
        """Note that the layers of a failed epoch were removed."""
        self.undone.discard(digest)
