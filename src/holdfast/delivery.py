"""Delivery: each sink gets each epoch of its view, in order, once.

A commit may fail, or the process may die before it: then the sink lacks epochs that are complete. Before the next epoch
each sink is brought up to date from the view's own log, which holds every change that was ever delivered.

A view that was edited has another log from some epoch on. At that epoch its sinks get the difference between the two;
one that lags first gets what it lacks of the old one (`coordinator/forms.py` says why that is right). A log is not
delivered from before an epoch has said that it is the view's: so there is always something to take the difference to.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence

import pyarrow as pa

from holdfast import marks
from holdfast.connectors.sink import Sink
from holdfast.coordinator.forms import Form, Forms, Span
from holdfast.coordinator.history import Seen
from holdfast.coordinator.lineage import Lineage, from_lines, to_lines
from holdfast.errors import EpochUnavailable, HoldfastError, SinkError
from holdfast.operators.difference import difference
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

    def attach(
        self,
        kept: Callable[[str, Form], Kept],
        forms: Forms,
        declared: Mapping[str, Form],
        history: Sequence[Lineage],
        carried: Callable[[int], bytes],
    ) -> None:
        """``kept`` gives the log of a form of a view; ``forms`` are the views' as the history says, ``declared`` what
        they are now; ``history`` is the lineage of all complete epochs, as it grows; ``carried`` is the lineage that a
        commit of an epoch must carry."""
        self._kept = kept
        self._forms = forms
        self._declared = declared
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
            self._check_types(view, has, declared[view])

    def _check_types(self, view: str, has: int | None, now: Form) -> None:
        """A sink has one kind of columns: a view that has others now needs another sink."""
        past = self._forms.of(view)
        if not past or (has is not None and has < 0):
            return
        for span in past[self._forms.at(view, len(self._history) - 1 if has is None else has) :]:
            if span.form.types != now.types:
                raise SinkError(
                    f"sink of view '{view}': the view's columns were of types ({', '.join(span.form.types)}), and now "
                    f"are ({', '.join(now.types)}): the sink has rows of the old ones, which cannot be taken back in "
                    "the new; give the view another name, or the sink another place, for the new form",
                    view=view,
                    expected=list(span.form.types),
                    found=list(now.types),
                )

    def behind(self, views: Container[str]) -> int | None:
        """The least epoch from which on a sink needs the present log of one of these views; None if none does."""
        found = []
        for (view, _), has in zip(self._sinks, self.epochs, strict=True):
            past = self._forms.of(view)
            if view in views and has is not None and has >= 0 and past and past[-1].form == self._declared[view]:
                # What was before is in another log. (A view's first form is taken to have been there always.)
                found.append(has if len(past) == 1 else max(has, past[-1].first))
        return min(found, default=None)

    def former(self) -> dict[Form, tuple[int, str]]:
        """The logs that views had before and that sinks must still be brought away from, each with the epoch as of
        which it is needed, and a view; those that the next epoch will replace among them."""
        last = len(self._history) - 1
        found: dict[Form, tuple[int, str]] = {}
        for (view, _), has in zip(self._sinks, self.epochs, strict=True):
            past = self._forms.of(view)
            if not past or (has is not None and has < 0):
                continue
            for span in past[self._forms.at(view, max(0, last - 1) if has is None else has) :]:
                if span.last is not None or span.form != self._declared[view]:
                    upto = last if span.last is None else span.last
                    found[span.form] = max(found.get(span.form, (-1, view)), (upto, view))
        return found

    def check_former(self) -> None:
        """Raise `LogDamaged` unless the logs that sinks must be brought away from can be read."""
        for form, (upto, view) in self.former().items():
            self._kept(view, form).check(view, upto)

    def commit(self, lineage: Lineage, changes: Callable[[str], pa.Table]) -> None:
        """Give each sink the change of an epoch that has just completed."""
        for place, (view, _) in enumerate(self._sinks):
            past = self._forms.of(view)
            # The very first epoch of a view's first form is like any other if the sink has all before it.
            fresh = past[-1].first == lineage.epoch and lineage.epoch > 0
            if fresh or self.epochs[place] != lineage.epoch - 1:
                self._catch_up(place, lineage.epoch)
            else:
                self._commit(place, lineage, changes(view))

    def catch_up(self, last: int) -> None:
        """Give each sink the epochs up to ``last`` that it lacks."""
        for place in range(len(self._sinks)):
            self._catch_up(place, last)

    def _catch_up(self, place: int, last: int) -> None:
        view, _ = self._sinks[place]
        past = self._forms.of(view)
        if not past:
            return  # the next epoch will say what it is
        has = self.epochs[place]
        if has is None:
            # It cannot tell what it has: the last epoch may have reached it or not, so it gets that one again. One that
            # is as new as its view has nothing.
            new = len(past) == 1 and past[0].first == last
            self.epochs[place] = has = -1 if new else max(-1, last - 1)
        if has < 0 and past[-1].form != self._declared[view]:
            return  # it has nothing, and need not be given what the next epoch would take back
        while has < last:
            step = self._next(view, has, last)
            if step is None:
                return
            epoch, change = step
            self._commit(place, self._history[epoch], change)
            has = epoch

    def _next(self, view: str, has: int, last: int) -> tuple[int, pa.Table] | None:
        """The epoch up to ``last`` that a sink needs after ``has``, and its change; None if there is none."""
        past = self._forms.of(view)
        if has < 0:
            return self._start(view, past)
        now = past[self._forms.at(view, has)]
        after = past[self._forms.at(view, has) + 1 :]
        kept = self._kept(view, now.form)
        try:
            if now.last is None or has < now.last:
                return has + 1, kept.change_at(has + 1)
            if not after or after[0].first > last:
                return None
            span = after[0]
            new = self._kept(view, span.form)
            first = _readable(new, span.first)
            if span.last is not None and first > span.last:
                # All of that form is forgotten: it goes by.
                span, new = past[-1], self._kept(view, past[-1].form)
                first = _readable(new, span.first)
            return first, difference(new, first, kept, now.last)
        except EpochUnavailable as error:
            raise SinkError(
                f"sink of view '{view}': it has epoch {has}, and the view's changes after that were compacted; "
                "start it anew in an empty place, or retain more epochs",
                view=view,
                epoch=has,
            ) from error

    def _start(self, view: str, past: Sequence[Span]) -> tuple[int, pa.Table]:
        """What a sink gets that has nothing: the changes from the very first on, or the rows as they are."""
        kept = self._kept(view, past[-1].form)
        if len(past) == 1:
            try:
                return 0, kept.change_at(0)
            except EpochUnavailable:
                pass  # new to an old view: it starts with the rows as they were at the earliest epoch that can be read
        first = _readable(kept, 0 if len(past) == 1 else past[-1].first)
        return first, kept.snapshot(0, 2**64, first).drop_columns(["_epoch"])

    def _commit(self, place: int, lineage: Lineage, change: pa.Table) -> None:
        view, sink = self._sinks[place]
        names = [field.name for field in self._fields(view)]
        carried = self._carried(lineage.epoch)
        if lineage.views is not None and not carried:
            # A sink must remember that it went through an edit, also if nothing came of it.
            carried = to_lines([lineage])
        marks.reach("sink.before_commit")
        try:
            sink.commit(lineage.epoch, change.rename_columns([*names, "_diff"]), carried)
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


def _readable(kept: Kept, epoch: int) -> int:
    """The first epoch from ``epoch`` on as of which a log can be read."""
    try:
        kept.check("", epoch)
    except EpochUnavailable as error:
        earliest = error.fields.get("earliest")
        if not isinstance(earliest, int):
            raise
        return earliest
    return epoch
