"""The last epoch that each sink of a flow has, as far as this driver knows.

A sink that raised from a commit may have taken the epoch all the same: it is *doubtful* until it was asked. A sink that
cannot tell what it has (None) is given the last epoch again, which it may have or not.

Pure: a part of `FlowState`. Sinks are identified by their index in the flow's declaration.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.coordinator.lineage import Lineage

HeldLineage = tuple[int, int]
"""The first and the last epoch of the lineage that a sink holds, without a gap."""


class SinkProgress:
    """The last epoch of each sink, and the lineage that it holds."""

    def __init__(self, views: Sequence[str]) -> None:
        """``views``: the view of each sink."""
        self.views = tuple(views)
        self.epochs: list[int | None] = []
        """The last epoch that each sink has; -1: none; None: the sink cannot tell, and this driver has not given it any
        yet."""

        self.held: list[HeldLineage | None] = [None] * len(self.views)
        self._doubtful: set[int] = set()

    def opened(self, epoch: int | None) -> None:
        """Note that the next sink, in the order of declaration, was opened and has this epoch."""
        self.epochs.append(epoch)

    def is_new(self, sink: int) -> None:
        """Note that a sink which cannot tell what it has was never given anything."""
        self.epochs[sink] = -1

    def given(self, sink: int, lineages: Sequence[Lineage]) -> None:
        """Note that a sink holds these records of lineage. Only the last of them that follow each other without a gap
        count."""
        first = last = lineages[-1].epoch
        for lineage in reversed(lineages):
            first = lineage.epoch if lineage.epoch == first - 1 else first
        self.held[sink] = (first, last)

    def started(self, sink: int, epoch: int) -> None:
        """Assume this epoch to be the last one of a sink which cannot tell what it has."""
        self.epochs[sink] = epoch

    def commit_began(self, sink: int) -> None:
        """Note that a sink is being given an epoch: until it answers, it is doubtful."""
        self._doubtful.add(sink)

    def is_doubtful(self, sink: int) -> bool:
        """Whether the last commit to a sink raised, or was not answered: the sink may have taken the epoch."""
        return sink in self._doubtful

    def answered(self, sink: int, epoch: int, carried: int | None) -> None:
        """Note that a sink has an epoch. ``carried``: the number of records of lineage that came with it; None if the
        sink keeps none."""
        self._doubtful.discard(sink)
        self.epochs[sink] = epoch
        if carried is not None:
            first, held = epoch + 1 - carried, self.held[sink]
            grows = held is not None and held[0] <= first <= held[1] + 1
            self.held[sink] = (held[0], epoch) if held is not None and grows else (first, epoch)

    def has_all(self, sink: int, last: int) -> bool:
        """Whether a sink certainly has all epochs up to ``last``."""
        return sink not in self._doubtful and self.epochs[sink] == last
