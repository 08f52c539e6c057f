"""Views that are edited while a flow has sinks: what the next epoch must say of them, and what must be kept until then.

Once an epoch has changed what a view is, what it was cannot be computed again; so the rows as they were are made safe
first, and kept until every sink was brought away from them (`coordinator/view_versions.py` says what a version is).

Pure: a part of `FlowState`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.coordinator.history import History
from holdfast.coordinator.retention import Retention
from holdfast.coordinator.sink_progress import SinkProgress
from holdfast.coordinator.view_versions import ViewVersion, ViewVersions
from holdfast.plan.dataflow import Dataflow


@dataclass(frozen=True)
class FormerLog:
    """A log that a view had before it was edited, and that a sink must still be brought away from."""

    since: int
    """What a sink has: changes after this epoch are needed."""

    upto: int
    """The last epoch as of which it is needed."""

    view: str


class ViewEdits:
    """What an open flow's views are by declaration, beside what the history says they were."""

    def __init__(
        self,
        history: History,
        versions: ViewVersions,
        declared: Mapping[str, ViewVersion],
        sinks: SinkProgress,
        retention: Retention,
        surely_has: Callable[[int], int],
    ) -> None:
        """``surely_has``: the last epoch → the one that a sink which cannot tell has for certain."""
        self._history = history
        self._versions = versions
        self._declared = dict(declared)
        self._sinks = sinks
        self._retention = retention
        self._surely_has = surely_has

    def later(self, flow: Dataflow) -> set[str]:
        """The operators that came with a view's edit, after the first epoch."""
        present = [(view, past[-1]) for view in flow.views if (past := self._versions.of(view))]
        if not present:
            return set()
        # A view that no epoch says it is what it is declared to be was edited just now, maybe by a driver before.
        old = {flow.views[view] for view, span in present if span.first <= 0 and span.version.log == flow.views[view]}
        return set(flow.operators) - old - flow.ancestors(old)

    @property
    def is_unsaid(self) -> bool:
        """Whether the history does not say yet what is declared."""
        return self._versions.present() != self._declared

    def said(self) -> dict[str, Any] | None:
        """What the next epoch must say of how the flow's collections are kept; None if that is known already."""
        if self._versions.changed >= 0 and not self.is_unsaid:
            return None
        return {name: version.to_json() for name, version in self._declared.items()}

    def is_awaited(self) -> bool:
        """Whether a sink waits for the epoch at which its view changed."""
        present = self._versions.present()
        return any(present.get(view) != self._declared[view] for view in self._sinks.views)

    def is_edited(self) -> bool:
        """Whether a view that there was is another one now, and no epoch says so yet."""
        present = self._versions.present()
        return any(present.get(view, version) != version for view, version in self._declared.items())

    def former(self) -> dict[ViewVersion, FormerLog]:
        """The logs that views had before and that sinks must still be brought away from; those that the next epoch
        will replace among them, and those that an edit which was taken back has made live again."""
        last = self._history.last
        found: dict[ViewVersion, FormerLog] = {}
        for view, has in zip(self._sinks.views, self._sinks.epochs, strict=True):
            past = self._versions.of(view)
            if not past or (has is not None and has < 0):
                continue
            needs = max(0, self._surely_has(last)) if has is None else has
            for span in past[self._versions.at(view, needs) :]:
                if span.last is not None or span.version != self._declared[view]:
                    upto = last if span.last is None else span.last
                    log = FormerLog(min(max(needs, span.first), upto), upto, view)
                    if (other := found.get(span.version)) is not None:
                        last_view = view if upto >= other.upto else other.view
                        log = FormerLog(min(log.since, other.since), max(upto, other.upto), last_view)
                    found[span.version] = log
        return found

    def former_traces(self) -> dict[str, FormerLog]:
        """The traces of these logs."""
        return {version.trace: log for version, log in self.former().items()}

    def behind(self, views: Collection[str], lost: Mapping[int, int]) -> int | None:
        """The least epoch from which on a sink needs the present log of one of these views; None if none does.
        ``lost``: sink → the first epoch of what it had and lost."""
        found = []
        for sink, (view, has) in enumerate(zip(self._sinks.views, self._sinks.epochs, strict=True)):
            past = self._versions.of(view)
            # One that cannot tell what it has will be given the last epochs again.
            needs = self._surely_has(self._history.last) if has is None else has
            if view in views and needs >= 0 and past and past[-1].version == self._declared[view]:
                needs = max(0, min(needs, lost[sink] - 1) if sink in lost else needs)
                # What was before is in another log. (A view's first version is taken to have been there always.)
                found.append(needs if len(past) == 1 else max(needs, past[-1].first))
        return min(found, default=None)

    def spared(self, safe: int) -> frozenset[str] | None:
        """The logs that views had before, as far back as the flow retains: what changed since can still be told, and a
        view that is dropped and comes back (a program, or a notebook, that declares step by step) finds its sinks. None
        while a trace that the flow has no more may be needed otherwise. The epoch after the last change must be safe:
        a sink that cannot tell what it has is given the last epoch again."""
        if self._retention.epochs is None and self._retention.seconds is None:
            return None
        if not 0 <= self._versions.changed < safe or self.is_unsaid or self.former():
            return None
        floor = self._retention.floor(self._history, self._history[-1].clock) if self._history else -1
        return frozenset(
            span.version.trace
            for view in self._versions.views
            for span in self._versions.of(view)
            if span.last is not None and span.last >= floor
        )
