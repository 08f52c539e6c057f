"""Reading the views of an open flow, in the caller's turn: as of an epoch, by key, and as changes since an epoch.

A view is read from its log, on whichever members the layers are. If a read meets a lost or damaged layer, the layer is
brought back and the read is repeated; a flow that goes on without lost members reads the partitions that are left.
(Readers in other threads, which do not have the turn, use `runtime/live_views.py`.)
"""

from __future__ import annotations

from functools import partial

import pyarrow as pa

from holdfast.connectors.source import Offer
from holdfast.coordinator.flow_state import FlowState
from holdfast.coordinator.view_versions import ViewVersion
from holdfast.errors import EpochUnavailable, LogDamaged, MemberUnreachable
from holdfast.plan import nodes
from holdfast.results.view_results import Found
from holdfast.runtime.compiled_flow import CompiledFlow
from holdfast.runtime.continuing import Continuing
from holdfast.runtime.file_errors import speaking
from holdfast.runtime.member_layers import MemberLayers
from holdfast.runtime.open_flow import OpenFlow
from holdfast.runtime.recovery.recoverer import Recoverer
from holdfast.runtime.view_changes import EditedChange, LoggedSpan, as_it_was, as_table, changes_since, not_kept
from holdfast.task.key_lookup import Question, find, suited
from holdfast.task.view_log import ViewLog


def log_as(compiled: CompiledFlow, layers: MemberLayers, state: FlowState, view: str, version: ViewVersion) -> ViewLog:
    """Return the log of a view in a present or former version."""
    return layers.readable(compiled.kept_as(view, version, state.epochs.chain()))


class ViewReading:
    """Reads the views of an open flow."""

    def __init__(self, flow: OpenFlow, recoverer: Recoverer, continuing: Continuing) -> None:
        self._flow = flow
        self._state = flow.state
        self._compiled = flow.compiled
        self._recoverer = recoverer
        self._continuing = continuing
        self.declared = flow.compiled.declared

    @speaking
    def readable(self, view: str, at: int | None, recorded: bool = False) -> tuple[ViewLog, int]:
        """Return the log of a view, and the epoch as of which to read it: by default the last. As of an epoch before an
        edit, it is the log of the former version. ``recorded``: as in `ViewVersions.former`. Raise `EpochUnavailable`
        if the view cannot be read as of ``at``."""
        epoch = self._state.last if at is None else at
        if epoch > self._state.last:
            raise EpochUnavailable(
                f"view '{view}': epoch {epoch} is not there yet; the last is {self._state.last}", view=view, epoch=epoch
            )
        if epoch < 0:
            if at is None:
                raise EpochUnavailable(
                    f"view '{view}': no epoch has run yet, so there is nothing to read; flow.step() runs the first",
                    view=view,
                    epoch=epoch,
                )
            raise EpochUnavailable(f"view '{view}': epochs start at 0, not at {epoch}", view=view, epoch=epoch)
        return self._as_it_was(view, epoch, recorded) or (self._checked(view, epoch), epoch)

    def _as_it_was(self, view: str, epoch: int, recorded: bool) -> tuple[ViewLog, int] | None:
        """Return the former log of a view as of an epoch, if the view was edited since; else None."""
        if view not in self.declared.views or self._state.branch is not None:
            return None  # an approximate branch has the present logs only
        now = self._compiled.version(view)
        if (former := self._state.versions.former(view, epoch, self._state.last, now, recorded)) is None:
            return None
        version, at = as_it_was(view, epoch, former, now)
        kept = log_as(self._compiled, self._flow.layers, self._state, view, version)
        try:
            self._recoverer.reading_former(version.trace, at, lambda: kept.check(view, at))
        except (EpochUnavailable, LogDamaged, MemberUnreachable) as error:
            raise not_kept(view, epoch, former[1]) from error
        return kept, at

    @speaking
    def lookup(self, view: str, asked: Question, at: int | None, recorded: bool = False) -> Found:
        """Return the rows that match a question. Damaged layers are repaired first. The caller has the turn."""
        kept, epoch = self.readable(view, at, recorded)
        asked = suited(asked, kept)
        return Found(view, epoch if at is None else at, find(kept, epoch, asked), asked.scan)

    def changes(self, view: str, since: int) -> list[LoggedSpan | EditedChange]:
        """Return the changes of a view after epoch ``since``, up to the last, in order, with the changes that edits
        made."""
        past, now = self._state.versions.of(view), self._compiled.version(view)
        if self._state.branch is None and 0 <= since <= self._state.last and past:
            index = self._state.versions.at(view, since)
            if index < len(past) - 1 or past[-1].version != now:
                log = partial(log_as, self._compiled, self._flow.layers, self._state, view)
                return changes_since(view, since, self._state.last, past, index, log, now)
        # An edit that is declared but not yet recorded by an epoch appears with the epoch that records it.
        kept, _ = self.readable(view, None if since < 0 else since, recorded=True)
        return [LoggedSpan(kept, max(since, -1), self._state.last)]

    @speaking
    def changes_table(self, view: str, since: int) -> pa.Table:
        """Return `changes` as a table with ``_epoch`` and ``_diff``, read in this process. The caller has the turn."""
        return as_table(self.changes(view, since), self._compiled.fields(view))

    def _checked(self, view: str, epoch: int) -> ViewLog:
        """Return the log of a view, once it is certain that it can be read as of an epoch."""
        lost = self._state.may_branch and self._flow.runner.membership_change == "lost"
        if self._state.branch is None and not (lost and self._continuing.goes_on_without()):
            try:
                return self._checked_exactly(view, epoch)
            except MemberUnreachable:
                if self._state.branch is None:
                    raise
        branch = self._continuing.branch
        assert branch is not None
        try:
            branch.stay()
            branch.insist(lambda: branch.log_of(view).check(view, epoch))
        except (LogDamaged, MemberUnreachable):
            self._continuing.repair()
            return self._checked_exactly(view, epoch)
        return branch.log_of(view)

    def _checked_exactly(self, view: str, epoch: int) -> ViewLog:
        self._recoverer.repairing(lambda: self._flow.log_of(view).check(view, epoch), self._continuing.gives_up)
        return self._flow.log_of(view)

    def fields(self, view: str) -> tuple[nodes.Field, ...]:
        """Return the columns of a view, with Spark's types."""
        return self._compiled.fields(view)

    def order(self, view: str) -> tuple[nodes.Order, ...]:
        """Return the order in which to show the rows of a view to people (its ORDER BY); a source has none."""
        return self.declared.views[view].shown_order if view in self.declared.views else ()

    def keeps(self, name: str) -> bool:
        """Whether the flow keeps the rows of a collection: it does for views and for some sources."""
        return name in self._compiled.flow.views

    def taken(self, source: str, at: int) -> list[Offer]:
        """Return the offers that epochs up to ``at`` took of a source, without those that a rewind had undone by
        then."""
        return [offer for _, offer in self._flow.intake.in_effect(source, at, self._state.rewinds)]
