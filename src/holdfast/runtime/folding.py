"""Folding the history: epochs before both the safe point and the retention become one record, the base.

So the driver's memory, what it reads at its start, the stash and the segments in the log locations are as large as the
retained epochs, and do not grow for ever (`coordinator/folded.py` says what the base keeps of folded epochs).
`FlowState.foldable` decides when epochs are folded. It waits until there are many, and until their records are as large
as the base that must be written again: folding costs a rewrite of the stash and, later, of one segment in each
location.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from holdfast.coordinator import events
from holdfast.coordinator.folded import Folded
from holdfast.errors import HoldfastError
from holdfast.log.host_paths import host_path
from holdfast.runtime.open_flow import OpenFlow
from holdfast.runtime.recovery.fetch_layers import local_layers


class Folding:
    """Folds the history of an open flow, now and then."""

    def __init__(self, flow: OpenFlow) -> None:
        self._flow = flow
        self._size = len(base.to_json()) if (base := flow.state.history.base) is not None else 0

    def maybe(self) -> bool:
        """Fold the epochs that may be folded, if there are enough. Return whether any were folded. A failure changes
        nothing, and the next call tries again."""
        flow = self._flow
        upto = flow.state.foldable(flow.runner.clock(), self._size)
        if upto is None:
            return False
        # If a member cannot be reached, a disk is full or a directory cannot be listed, nothing has changed.
        with suppress(HoldfastError, OSError):
            base = self._base(upto)
            flow.lineage.fold(base)
            flow.guard.tell(events.HistoryFolded(base))
            self._size = len(base.to_json())
            flow.intake.take(base)
            return True
        return False

    def _base(self, upto: int) -> Folded:
        state = self._flow.state
        record = state.history[upto]
        ends = {epoch for epoch in self._ends().union(state.copies.former.values()) if epoch < upto}
        digests = {epoch: digest for epoch in sorted(ends) if (digest := state.history.digest(epoch)) is not None}
        forms = state.versions.folded(upto)
        taken, told = self._flow.intake.folded(upto, state.rewinds)
        present = {name: past[-1][2] for name, past in forms["spans"].items() if past and past[-1][1] is None}
        return Folded(
            epoch=upto,
            parent="",
            offers={},
            clock=record.clock,
            seed=0,
            term=record.term,
            views=present if forms["changed"] >= 0 else None,
            end=record.digest,
            taken=taken,
            told=told,
            forms=forms,
            ends=digests,
        )

    def _ends(self) -> set[int]:
        """Return the last epochs of all existing layers and segments. (Layers and segments made later end with one of
        these epochs, or with a later one.)"""
        directory = self._flow.compiled.directory
        listed = self._flow.runner.everywhere("listing layers", lambda: _ends_of(directory))
        return {epoch for some in listed.values() for epoch in some} | self._flow.durability.ends()


def _ends_of(directory: Path) -> Sequence[int]:
    own = host_path(directory)
    traces = [path for path in own.iterdir() if path.is_dir()] if own.is_dir() else []
    return sorted({name.last for trace in traces for name in local_layers(trace)})
