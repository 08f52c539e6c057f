"""The views of an open flow, for readers in other threads: as of a complete epoch, while epochs run.

A reader takes the chain of digests first. The last epoch of the chain is complete, and layers of a running epoch have a
digest that is not in the chain. So no reader sees half an epoch or takes a turn, and no epoch waits for a reader. Rows
are read from the layers that this process can map. If members keep layers of their own, or the flow is approximate,
this process has no such layers: `reads_layers` is then False.
"""

from __future__ import annotations

import pyarrow as pa

from holdfast.coordinator.flow_state import FlowState
from holdfast.errors import EpochUnavailable
from holdfast.results.view_results import Found
from holdfast.runtime.compiled_flow import CompiledFlow
from holdfast.runtime.runner import Runner
from holdfast.runtime.view_changes import LoggedSpan, as_it_was, as_table
from holdfast.task.key_lookup import Question, answer, suited
from holdfast.task.view_log import ViewLog
from holdfast.trace.open_covers import OpenCovers

_IDLE = 30.0
"""Seconds after which an open cover that no reader used is closed."""


class LiveViews:
    """Reads the views of an open flow beside its epochs. All methods may be called from any thread."""

    def __init__(self, compiled: CompiledFlow, state: FlowState, runner: Runner) -> None:
        self._compiled = compiled
        self._state = state
        self._runner = runner
        self._covers = OpenCovers()

    @property
    def reads_layers(self) -> bool:
        """Whether this process can read the exact layers of all partitions."""
        return not self._runner.scattered and self._state.branch is None

    def kept(self, view: str, at: int | None, recorded: bool = False) -> tuple[ViewLog, int]:
        """Return the log of a view, and the epoch as of which to read it: by default the last complete one.
        ``recorded``: as in `ViewVersions.former`. Raise `EpochUnavailable` if there is no such epoch."""
        chain = self._state.epochs.chain()
        last = chain.end
        epoch = last if at is None else at
        if last < 0:
            raise EpochUnavailable(
                f"view '{view}': no epoch has run yet, so there is nothing to read; flow.step() runs the first",
                view=view,
                epoch=epoch,
            )
        if not 0 <= epoch <= last:
            raise EpochUnavailable(
                f"view '{view}': there is no epoch {epoch}; epochs 0 to {last} are complete", view=view, epoch=epoch
            )
        if (epoch < last or recorded) and view in self._compiled.declared.views:
            now = self._compiled.version(view)
            if (former := self._state.versions.former(view, epoch, last, now, recorded)) is not None:
                version, epoch = as_it_was(view, epoch, former, now)
                return self._compiled.kept_as(view, version, chain), epoch
        return self._compiled.kept(view, chain), epoch

    def lookup(self, view: str, asked: Question, at: int | None, recorded: bool = False) -> Found:
        """Return the rows that match a question. Errors of opening or reading a layer are raised."""
        kept, epoch = self.kept(view, at, recorded)
        asked = suited(asked, kept)
        return Found(
            view, epoch if at is None else at, answer(kept, kept.trace(self._covers, epoch), asked), asked.scan
        )

    def changes(self, view: str, after: int, upto: int) -> pa.Table | None:
        """Return the changes of a view with after < epoch ≤ upto, with ``_epoch`` and ``_diff``; None if the view was
        edited since: the caller must then ask the flow itself. Errors of opening or reading a layer are raised."""
        past, now = self._state.versions.of(view), self._compiled.version(view)
        if past and (past[-1].version != now or (0 <= after < past[-1].first)):
            return None
        kept, _ = self.kept(view, upto)
        return as_table([LoggedSpan(kept, after, upto)], kept.fields)

    @property
    def last(self) -> int:
        """The last complete epoch; -1 before the first."""
        return self._state.epochs.last

    def let_go(self) -> None:
        """Close files that readers have not used for a while."""
        self._covers.let_go(_IDLE)
