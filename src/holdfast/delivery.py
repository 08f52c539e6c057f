"""Delivery: each sink gets each epoch of its view, in order, once.

A commit may fail, or the process may die before it: then the sink lacks epochs that are complete. Before the next epoch
each sink is brought up to date from the view's own log, which holds every change that was ever delivered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from holdfast.connectors.sink import Sink
from holdfast.coordinator.lineage import Lineage
from holdfast.errors import EpochUnavailable, HoldfastError, SinkError
from holdfast.operators.kept import Kept


class Delivery:
    """The sinks of a flow, and which epoch each has."""

    def __init__(
        self,
        sinks: Sequence[tuple[str, Sink]],
        kept: Callable[[str], Kept],
        history: Sequence[Lineage],
        known: dict[Sink, int],
    ) -> None:
        """``kept`` gives a view's log; ``history`` is the lineage of all complete epochs, as it grows; ``known`` says
        which epoch a sink was given last in this process."""
        self._sinks = sinks
        self._kept = kept
        self._history = history
        self._known = known
        self.epochs = [known.get(sink, sink.open(view, kept(view).fields)) for view, sink in sinks]
        """The last epoch that each sink has; None for one that cannot tell and was not given any yet."""

    def commit(self, lineage: Lineage, changes: Callable[[str], pa.Table]) -> None:
        """Give each sink the change of an epoch that has just completed."""
        for place, (view, _) in enumerate(self._sinks):
            self._commit(place, lineage, changes(view))

    def catch_up(self, last: int) -> None:
        """Give each sink the epochs up to ``last`` that it lacks."""
        for place, (view, _) in enumerate(self._sinks):
            has = self.epochs[place]
            if has is None:
                # It cannot tell what it has: the last epoch may have reached it or not, so it gets that one again.
                self.epochs[place] = has = max(-1, last - 1)
            while has < last:
                epoch, change = self._next(view, has)
                self._commit(place, self._history[epoch], change)
                has = epoch

    def _next(self, view: str, has: int) -> tuple[int, pa.Table]:
        """The epoch that a sink needs after ``has``, and its change."""
        kept = self._kept(view)
        try:
            return has + 1, kept.change_at(has + 1)
        except EpochUnavailable as error:
            earliest = error.fields.get("earliest")
            if not isinstance(earliest, int) or has >= 0:
                raise SinkError(
                    f"sink of view '{view}': it has epoch {has}, and the view's changes after that were compacted; "
                    "start it anew in an empty place, or retain more epochs",
                    view=view,
                    epoch=has,
                ) from error
            # New to an old view: it starts with the rows as they were then.
            return earliest, kept.snapshot(0, 2**64, earliest).drop_columns(["_epoch"])

    def _commit(self, place: int, lineage: Lineage, change: pa.Table) -> None:
        view, sink = self._sinks[place]
        names = [field.name for field in self._kept(view).fields]
        try:
            sink.commit(lineage.epoch, change.rename_columns([*names, "_diff"]), lineage.to_json().encode())
        except HoldfastError:
            raise
        except Exception as error:
            raise SinkError(
                f"sink of view '{view}': epoch {lineage.epoch}: {error}", view=view, epoch=lineage.epoch
            ) from error
        self.epochs[place] = self._known[sink] = lineage.epoch

    def close(self) -> None:
        for _, sink in self._sinks:
            sink.close()
