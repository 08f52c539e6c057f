"""Delivery: each sink gets each epoch of its view, in order, once.

A commit may fail, or the process may die before it: then the sink lacks epochs that are complete. Before the next epoch
each sink is brought up to date from the view's own log, which holds every change that was ever delivered.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

import pyarrow as pa

from holdfast import marks
from holdfast.connectors.sink import Sink
from holdfast.coordinator.history import Seen
from holdfast.coordinator.lineage import Lineage, from_lines
from holdfast.errors import EpochUnavailable, HoldfastError, SinkError
from holdfast.operators.kept import Kept
from holdfast.plan.nodes import Field


class Delivery:
    """The sinks of a flow, and which epoch each has."""

    def __init__(
        self,
        sinks: Sequence[tuple[str, Sink]],
        fields: Callable[[str], tuple[Field, ...]],
        known: dict[Sink, int],
    ) -> None:
        """``fields`` gives a view's; ``known`` says which epoch a sink was given last in this process."""
        self._sinks = sinks
        self._fields = fields
        self._known = known
        self.epochs = [known.get(sink, sink.open(view, fields(view))) for view, sink in sinks]
        """The last epoch that each sink has; None for one that cannot tell and was not given any yet."""

    def seen(self) -> list[tuple[Seen, list[Lineage]]]:
        """What the sinks have seen, and the lineage that they were given with it. (One that was given everything by
        this process needs not be asked.)"""
        found = []
        for (view, sink), epoch in zip(self._sinks, self.epochs, strict=True):
            if epoch is None or epoch < 0:
                continue
            try:
                lineages = from_lines(sink.lineage())
            except ValueError as error:
                raise SinkError(f"sink of view '{view}': its lineage is damaged: {error}", view=view) from None
            if lineages:
                found.append((Seen(f"sink of view '{view}'", lineages[-1].epoch, lineages[-1].digest), lineages))
        return found

    def attach(self, kept: Callable[[str], Kept], history: Sequence[Lineage], carried: Callable[[int], bytes]) -> None:
        """``kept`` gives a view's log; ``history`` is the lineage of all complete epochs, as it grows; ``carried`` is
        the lineage that a commit of an epoch must carry."""
        self._kept = kept
        self._history = history
        self._carried = carried
        for (view, _), has in zip(self._sinks, self.epochs, strict=True):
            if has is not None and has >= len(history):
                raise SinkError(
                    f"sink of view '{view}': it has epoch {has}, and the log ends with epoch {len(history) - 1}; "
                    "give it the log that it belongs to, or start it anew in an empty place",
                    view=view,
                    epoch=has,
                )

    def behind(self, views: Container[str]) -> int | None:
        """The least epoch that a sink of one of these views has; None if none has any."""
        pairs = zip(self._sinks, self.epochs, strict=True)
        return min((has for (view, _), has in pairs if view in views and has is not None and has >= 0), default=None)

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
        names = [field.name for field in self._fields(view)]
        marks.reach("sink.before_commit")
        try:
            sink.commit(lineage.epoch, change.rename_columns([*names, "_diff"]), self._carried(lineage.epoch))
        except HoldfastError:
            raise
        except Exception as error:
            raise SinkError(
                f"sink of view '{view}': epoch {lineage.epoch}: {error}", view=view, epoch=lineage.epoch
            ) from error
        marks.reach("sink.after_commit")
        self.epochs[place] = self._known[sink] = lineage.epoch

    def close(self) -> None:
        for _, sink in self._sinks:
            sink.close()
