"""The epochs of a flow, one after the other: which is next, whether the one that ran counts, and what failed ones left.

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
"""So many digests go to the tasks. Layers of epochs before were checked, or written by this very process."""


class EpochSequence:
    """Hands out epochs, one at a time."""

    def __init__(self, history: History | None = None, term: int = 0) -> None:
        """``history``: the complete epochs of the log, all of them, in order. ``term``: this driver's."""
        self.term = term
        self._chain = Chain(history.last if history is not None else -1, ())
        self._head = history[-1].digest if history else GENESIS
        self._clock = history[-1].clock if history else 0
        self._running: Lineage | None = None
        self.is_torn = False
        """Whether it is not known here if the last epoch counts: only the log knows."""

        self.undone: set[str] = set()
        """The digests of epochs that failed and whose layers are not removed yet."""

    @property
    def last(self) -> int:
        """The last complete epoch; -1 before the first."""
        return self._chain.end

    @property
    def head(self) -> str:
        """The digest of the last complete epoch."""
        return self._head

    def chain(self) -> Chain:
        """How to tell the layers of this history from stale ones, up to the last complete epoch. Any thread may ask: it
        gets the chain before an epoch was complete, or after."""
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
        """The lineage of the next epoch. It is not part of the history until `complete`. ``views``: what the flow
        keeps, if that changes with it. ``rewind``: what it undoes; ``again``: the epoch whose input it takes again.

        Its clock never goes back, whatever the host's does: time that has passed in a view has passed. Unless the user
        wants it to go ``back``, since it never should have been so far ahead: what has gone then stays away, and what
        comes lasts as long as it should."""
        if self._running is not None:
            raise RuntimeError(f"epoch {self._running.epoch} is still running")
        clock = clock if back else max(clock, self._clock)
        self._running = Lineage(
            self.last + 1, self._head, offers, clock, seed, self.term, views=views, rewind=rewind, again=again
        )
        return self._running

    def ran(self, lineage: Lineage) -> None:
        """All layers of the epoch are written, and it is about to be counted. Until `counted` or `abandon` nobody but
        the log knows whether it is."""
        if self._running is None or self._running.digest != lineage.digest:
            raise RuntimeError(f"epoch {lineage.epoch} is not the one that runs")
        self.is_torn = True

    def complete(self, lineage: Lineage) -> None:
        """The epoch's line is in the stash: it is part of the history now."""
        if self._running is None or self._running.digest != lineage.digest:
            raise RuntimeError(f"epoch {lineage.epoch} is not the one that runs")
        self._running = None
        self._head = lineage.digest
        self._clock = lineage.clock
        digests = (*self._chain.digests, lineage.digest)
        forgotten = max(0, len(digests) - WINDOW)
        self._chain = Chain(self._chain.base + forgotten, digests[forgotten:])

    def counted(self) -> None:
        """Everybody in this process knows that the last epoch counts."""
        self.is_torn = False

    def abandon(self, lineage: Lineage) -> None:
        """The epoch failed. What it wrote carries a digest that no history has; its number is free again. Its layers
        are to be removed."""
        if self._running is None or self._running.digest != lineage.digest:
            raise RuntimeError(f"epoch {lineage.epoch} is not the one that runs")
        self._running = None
        self.is_torn = False
        self.undone.add(lineage.digest)

    def removed(self, digest: str) -> None:
        """The layers of a failed epoch are gone."""
        self.undone.discard(digest)
