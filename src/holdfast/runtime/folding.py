"""Folding the past: what lies behind both the safe point and what the flow retains becomes one record.

So what the driver remembers, what it reads when it starts, the stash and the segments in the log locations are as large
as what is retained, and do not grow with epochs (`coordinator/folded.py` says what is left of those that are folded).

An epoch may be folded when nobody can ask for it any more: it is safe, and no other driver has claimed the log since;
it is behind the retention; and every sink has it.
Folding costs a rewrite of the stash and, later, of one segment in each location: so it waits until many epochs can be
folded at once, and until they are as large as the base that is written again.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from holdfast.coordinator.folded import Folded
from holdfast.coordinator.history import History
from holdfast.coordinator.view_versions import ViewVersions
from holdfast.errors import HoldfastError
from holdfast.log.host_paths import host_path
from holdfast.log.stash import LineageLog
from holdfast.runtime.delivery import Delivery
from holdfast.runtime.intake import Intake
from holdfast.runtime.recovery.fetch_layers import local_layers
from holdfast.runtime.replication import Replication
from holdfast.runtime.runner import Runner

_LINE = 512
"""Bytes: about the size of an epoch's record."""


class Folding:
    """Folds the history of an open flow, now and then."""

    def __init__(
        self,
        runner: Runner,
        directory: Path,
        lineage: LineageLog,
        durability: Replication,
        delivery: Delivery,
        intake: Intake,
        forms: ViewVersions,
    ) -> None:
        """``directory`` holds the local traces."""
        self._runner = runner
        self._directory = directory
        self._lineage = lineage
        self._durability = durability
        self._delivery = delivery
        self._intake = intake
        self._forms = forms
        self._size = len(base.to_json()) if (base := lineage.history.base) is not None else 0

    def maybe(self) -> bool:
        """Fold what may be folded, if it is much; whether it was. A failure changes nothing, and is tried again."""
        history = self._lineage.history
        upto, folded = self._foldable(), history.base.epoch if history.base is not None else -1
        if upto - folded < max(self._durability.settings.fold, self._size // _LINE):
            return False
        # A member that cannot be reached, a disk that is full, a directory that cannot be listed: all is as it was.
        with suppress(HoldfastError, OSError):
            base = self._base(history, upto)
            self._lineage.fold(base)
            self._size = len(base.to_json())
            self._intake.take(base)
            return True
        return False

    def _foldable(self) -> int:
        """The last epoch that nobody can ask for any more; -1 if there is none."""
        durability = self._durability
        settings, history = durability.settings, self._lineage.history
        # A host's clock that is far ahead (`coordinator.clock`) makes no epoch old.
        now = min(self._runner.clock(), history[-1].clock)
        upto = min(settings.retention.floor(history, now), history.last - 1)
        if settings.durable:
            upto = min(upto, durability.cleared)
        given = [epoch for epoch in self._delivery.epochs if epoch is not None]
        return min([upto, *given])

    def _base(self, history: History, upto: int) -> Folded:
        record = history[upto]
        former = {needed for _, needed in self._durability.former.values()}
        ends = {epoch for epoch in self._ends() | former if epoch < upto}
        digests = {epoch: digest for epoch in sorted(ends) if (digest := history.digest(epoch)) is not None}
        forms = self._forms.folded(upto)
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
            taken=self._intake.folded(upto),
            forms=forms,
            ends=digests,
        )

    def _ends(self) -> set[int]:
        """The last epochs of all layers and segments that there are. (Any that come later end with one of these, or
        with a later epoch.)"""
        directory = self._directory
        found = {epoch for some in self._runner.everywhere("listing layers", lambda: _ends_of(directory)).values()
                 for epoch in some}  # fmt: skip
        return found | self._durability.ends()


def _ends_of(directory: Path) -> Sequence[int]:
    own = host_path(directory)
    traces = [path for path in own.iterdir() if path.is_dir()] if own.is_dir() else []
    return sorted({name.last for trace in traces for name in local_layers(trace)})
