"""What each sink of a flow has, as far as this driver knows.

A sink that raised from a commit may have taken it all the same: it is *doubtful* until it was asked. A sink that cannot
tell what it has (None) is given the last epoch again, since that may have reached it or not.

Pure: a part of `FlowState`. Sinks are known by their index in the flow's declaration.
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
        """The last epoch that each sink has; None for one that cannot tell and was not given any yet; -1: nothing."""

        self.held: list[HeldLineage | None] = [None] * len(self.views)
        self._doubtful: set[int] = set()

    def opened(self, epoch: int | None) -> None:
        """The next sink was opened, and has this epoch."""
        self.epochs.append(epoch)

    def is_new(self, sink: int) -> None:
        """A sink that cannot tell what it has was never given anything."""
        self.epochs[sink] = -1

    def given(self, sink: int, lineages: Sequence[Lineage]) -> None:
        """A sink holds these records of lineage: the longest row of them without a gap that ends the list counts."""
        first = last = lineages[-1].epoch
        for lineage in reversed(lineages):
            first = lineage.epoch if lineage.epoch == first - 1 else first
        self.held[sink] = (first, last)

    def started(self, sink: int, epoch: int) -> None:
        """A sink that could not tell what it has is taken to have this epoch."""
        self.epochs[sink] = epoch

    def commit_began(self, sink: int) -> None:
        """A sink is given an epoch: until it answers, nobody knows whether it has it."""
        self._doubtful.add(sink)

    def is_doubtful(self, sink: int) -> bool:
        """Whether the last commit to a sink raised: the sink may have taken it."""
        return sink in self._doubtful

    def answered(self, sink: int, epoch: int, carried: int | None) -> None:
        """A sink has an epoch. ``carried``: so many records of lineage came with it, if the sink keeps them."""
        self._doubtful.discard(sink)
        self.epochs[sink] = epoch
        if carried is not None:
            first, held = epoch + 1 - carried, self.held[sink]
            grows = held is not None and held[0] <= first <= held[1] + 1
            self.held[sink] = (held[0], epoch) if held is not None and grows else (first, epoch)

    def has_all(self, sink: int, last: int) -> bool:
        """Whether a sink has all epochs up to the last, for certain."""
        return sink not in self._doubtful and self.epochs[sink] == last
