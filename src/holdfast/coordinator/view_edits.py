"""Views that are edited while a flow has sinks: what the lineage of the next epoch must say, and which logs are kept.

When an epoch has replaced a view's version, the rows of the old version cannot be computed again. So they are made safe
before, and kept until every sink was given the difference to the new version (`coordinator/view_versions.py` says what
a version is).

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
    """A log that a view had before it was edited, and that a sink still needs: the sink has rows of it, and was not
    given the difference to the view's present log."""

    since: int
    """The epoch that a sink has: changes after it are needed."""

    upto: int
    """The last epoch as of which it is needed."""

    view: str


class ViewEdits:
    """The declared versions of an open flow's views, compared with the versions in the history."""

    def __init__(
        self,
        history: History,
        versions: ViewVersions,
        declared: Mapping[str, ViewVersion],
        sinks: SinkProgress,
        retention: Retention,
        surely_has: Callable[[int], int],
    ) -> None:
        """``surely_has``: last epoch → the epoch that a sink which cannot tell what it has certainly has."""
        self._history = history
        self._versions = versions
        self._declared = dict(declared)
        self._sinks = sinks
        self._retention = retention
        self._surely_has = surely_has
        self._compared = (-1, False, False)
        """The revision of the history's versions at the last comparison; whether any differed, whether any was
        edited."""

    def later(self, flow: Dataflow) -> set[str]:
        """The operators that an edit of a view added after the first epoch."""
        present = [(view, past[-1]) for view in flow.views if (past := self._versions.of(view))]
        if not present:
            return set()
        # If no epoch names a view's declared version, the view was edited just now, maybe by an earlier driver.
        old = {flow.views[view] for view, span in present if span.first <= 0 and span.version.log == flow.views[view]}
        return set(flow.operators) - old - flow.ancestors(old)

    @property
    def is_unsaid(self) -> bool:
        """Whether the declared versions differ from the last ones in the history."""
        return self._compare()[0]

    def said(self) -> dict[str, Any] | None:
        """The versions of the flow's collections, for the lineage of the next epoch; None if the history has them."""
        if self._versions.changed >= 0 and not self.is_unsaid:
            return None
        return {name: version.to_json() for name, version in self._declared.items()}

    def is_awaited(self) -> bool:
        """Whether a sink waits for the epoch at which its view changed."""
        if not self.is_unsaid:
            return False
        present = self._versions.present()
        return any(present.get(view) != self._declared[view] for view in self._sinks.views)

    def is_edited(self) -> bool:
        """Whether a view of the history has another version now, and no epoch says so yet."""
        return self._compare()[1]

    def _compare(self) -> tuple[bool, bool]:
        """Whether the declared versions differ from those in the history, and whether a view of the history was edited.
        Asked in every epoch, so versions are compared only when the history has others than before."""
        revision, unsaid, edited = self._compared
        if revision != self._versions.revision:
            revision, present = self._versions.revision, self._versions.present()
            unsaid = present != self._declared
            edited = any(present.get(view, version) != version for view, version in self._declared.items())
            self._compared = (revision, unsaid, edited)
        return unsaid, edited

    def former(self) -> dict[ViewVersion, FormerLog]:
        """The former logs of views that sinks still need. Among them are logs that the next epoch will replace, and
        logs that are live again because an edit was taken back."""
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
        """The traces of the logs that `former` returns."""
        return {version.trace: log for version, log in self.former().items()}

    def behind(self, views: Collection[str], lost: Mapping[int, int]) -> int | None:
        """The first epoch from which on any sink needs the present log of one of these views; None if no sink does.
        ``lost``: sink → the first of the epochs that it lost."""
        found = []
        for sink, (view, has) in enumerate(zip(self._sinks.views, self._sinks.epochs, strict=True)):
            past = self._versions.of(view)
            # A sink that cannot tell what it has will be given the last epochs again.
            needs = self._surely_has(self._history.last) if has is None else has
            if view in views and needs >= 0 and past and past[-1].version == self._declared[view]:
                needs = max(0, min(needs, lost[sink] - 1) if sink in lost else needs)
                # Earlier changes are in another log. (A view's first version is assumed to have been there always.)
                found.append(needs if len(past) == 1 else max(needs, past[-1].first))
        return min(found, default=None)

    def spared(self, safe: int) -> frozenset[str] | None:
        """The traces of former logs of views, as far back as the flow retains epochs. They are kept so that changes
        since then can still be read, and so that a view that is dropped and declared again (by a program or notebook
        that declares step by step) can serve its sinks. None as long as other traces that are not live may be needed:
        until the epoch after the last edit is safe, since a sink that cannot tell what it has is given the last epoch
        again."""
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
