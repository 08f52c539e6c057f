"""The views of an open flow, for readers in other threads: as of a complete epoch, while epochs run.

A reader takes the chain of digests first: the epoch with which it ends is complete, and layers of an epoch that runs
have a digest that is not in it. So nobody sees half of an epoch, nobody takes a turn, and no epoch waits. Rows are read
from the layers that this process can map; where members keep layers of their own, or while the flow is approximate,
there are none here, and `reads_layers` says so.
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
"""Seconds after which a cover that nobody asked for is let go."""


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

    def kept(self, view: str, at: int | None) -> tuple[ViewLog, int]:
        """The log of a view, and the epoch as of which it is to be read: by default the last that is complete."""
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
        if epoch < last and view in self._compiled.declared.views:
            now = self._compiled.versions()[view]
            if (former := self._state.versions.former(view, epoch, last, now)) is not None:
                version, epoch = as_it_was(view, epoch, former, now)
                return self._compiled.kept_as(view, version, chain), epoch
        return self._compiled.kept(view, chain), epoch

    def lookup(self, view: str, asked: Question, at: int | None) -> Found:
        """The rows that are asked for. Raises what opening or reading a layer does."""
        kept, epoch = self.kept(view, at)
        asked = suited(asked, kept)
        return Found(
            view, epoch if at is None else at, answer(kept, kept.trace(self._covers, epoch), asked), asked.scan
        )

    def changes(self, view: str, after: int, upto: int) -> pa.Table | None:
        """What changed in a view with after < epoch ≤ upto, with ``_epoch`` and ``_diff``; None if it was edited or
        dropped since: then the flow itself must say. Raises what opening or reading a layer does."""
        past, now = self._state.versions.of(view), self._compiled.versions().get(view)
        if now is None or (past and (past[-1].version != now or (0 <= after < past[-1].first))):
            return None
        kept, _ = self.kept(view, upto)
        return as_table([LoggedSpan(kept, after, upto)], kept.fields)

    @property
    def last(self) -> int:
        """The last complete epoch; -1 before the first."""
        return self._state.epochs.last

    def let_go(self) -> None:
        """Let go of files that readers needed, and need no more."""
        self._covers.let_go(_IDLE)
