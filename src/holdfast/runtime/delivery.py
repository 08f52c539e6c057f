"""Delivery: each sink gets each epoch of its view, in order, once.

A commit may fail, or the process may die before it: then the sink lacks epochs that are complete. Before the next epoch
each sink is brought up to date from the view's own log, which holds every change that was ever delivered.

A view that was edited has another log from some epoch on. At that epoch its sinks get the difference between the two;
one that lags first gets what it lacks of the old one (`coordinator/view_versions.py` says why that is right). A log is
not delivered from before an epoch has said that it is the view's: so there is always something to take the difference
to.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial

import numpy as np
import pyarrow as pa

from holdfast.connectors.sink import LostEpochs, Sink
from holdfast.coordinator.history import History
from holdfast.coordinator.lineage import Lineage, from_lines, to_lines
from holdfast.coordinator.true_history import Seen
from holdfast.coordinator.view_versions import Span, ViewVersion, ViewVersions
from holdfast.errors import EpochUnavailable, HoldfastError, SinkError
from holdfast.foundation import failpoints
from holdfast.plan.nodes import Field
from holdfast.reporting.redaction import cause, warn
from holdfast.runtime.delivery_numbers import DeliveryNumbers, names
from holdfast.task.log_difference import difference
from holdfast.task.view_log import ViewLog

Held = tuple[int, int]
"""The first and the last epoch of the lineage that a sink holds, without a gap."""


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
        self.epochs: list[int | None] = []
        """The last epoch that each sink has; None for one that cannot tell and was not given any yet."""

        self._held: list[Held | None] = [None] * len(sinks)
        self._doubtful: set[int] = set()
        """Sinks whose last commit raised: they may have taken it."""

        self._names: dict[int, str] = {}
        """Place → the name of a sink that cannot tell."""

        self._deliveries: DeliveryNumbers | None = None
        try:
            for place, ((view, sink), name) in enumerate(zip(sinks, names(sinks), strict=True)):
                opened = sink.open(view, fields(view))
                self.epochs.append(known.get(sink) if opened is None else opened)
                if opened is None:
                    self._names[place] = name
        except BaseException:
            with suppress(Exception):
                self.close()
            raise

    def seen(self) -> list[tuple[Seen, list[Lineage]]]:
        """What the sinks have seen, and the lineage that they were given with it. (One that was given everything by
        this process needs not be asked.)"""
        found = []
        for place, ((view, sink), epoch) in enumerate(zip(self._sinks, self.epochs, strict=True)):
            if epoch is None or epoch < 0:
                continue
            try:
                lineages = from_lines(sink.lineage())
            except ValueError as error:
                raise SinkError(f"sink of view '{view}': its lineage is damaged: {error}", view=view) from None
            if lineages:
                if sink.keeps_lineage:
                    self._held[place] = _unbroken(lineages)
                found.append((Seen(f"sink of view '{view}'", lineages[-1].epoch, lineages[-1].digest), lineages))
        return found

    def remember(self, deliveries: Callable[[Sequence[str]], DeliveryNumbers]) -> None:
        """Find out which of the sinks that cannot tell are new to their views; ``deliveries`` gives what was written
        down of those with these names."""
        self._deliveries = deliveries(list(self._names.values()))
        for place, name in self._names.items():
            if self.epochs[place] is None and self._deliveries.is_new(name):
                self.epochs[place] = -1

    def attach(
        self,
        kept: Callable[[str, ViewVersion], ViewLog],
        forms: ViewVersions,
        declared: Mapping[str, ViewVersion],
        history: History,
        carried: Callable[[int, Held | None], bytes],
        flushed: Callable[[], int] = lambda: -1,
    ) -> None:
        """``kept`` gives the log of a form of a view; ``forms`` are the views' as the history says, ``declared`` what
        they are now; ``history`` is the lineage of all complete epochs, as it grows; ``carried`` is the lineage that a
        commit of an epoch must carry to a sink that holds some already; the lineage up to ``flushed`` is durable."""
        self._kept = kept
        self._forms = forms
        self._declared = declared
        self._history = history
        self._carried = carried
        self._flushed = flushed
        for (view, _), has in zip(self._sinks, self.epochs, strict=True):
            if has is not None and has > history.last:
                raise SinkError(
                    f"sink of view '{view}': it has epoch {has}, and the log ends with epoch {history.last}; "
                    "give it the log that it belongs to, or start it anew in an empty place",
                    view=view,
                    epoch=has,
                )
            self._check_types(view, has, declared[view])

    def _check_types(self, view: str, has: int | None, now: ViewVersion) -> None:
        """A sink has one kind of columns: a view that has others now needs another sink."""
        past = self._forms.of(view)
        if not past or (has is not None and has < 0):
            return
        for span in past[self._forms.at(view, self._history.last if has is None else has) :]:
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
        for (view, sink), has in zip(self._sinks, self.epochs, strict=True):
            past = self._forms.of(view)
            # One that cannot tell what it has will be given the last epoch again.
            needs = self._history.last - 1 if has is None else has
            if view in views and needs >= 0 and past and past[-1].form == self._declared[view]:
                needs = max(0, min([needs, *(lost.first - 1 for lost in sink.lost())]))
                # What was before is in another log. (A view's first form is taken to have been there always.)
                found.append(needs if len(past) == 1 else max(needs, past[-1].first))
        return min(found, default=None)

    def former(self) -> dict[ViewVersion, tuple[int, str]]:
        """The logs that views had before and that sinks must still be brought away from, each with the epoch as of
        which it is needed, and a view; those that the next epoch will replace among them."""
        last = self._history.last
        found: dict[ViewVersion, tuple[int, str]] = {}
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
        """Give each sink the epochs up to ``last`` that it lacks, and those that it had and lost."""
        for place in range(len(self._sinks)):
            self._restore(place)
            self._catch_up(place, last)

    @property
    def is_maintained(self) -> bool:
        """Whether a sink has anything to do beside epochs."""
        return any(type(sink).maintain is not Sink.maintain for _, sink in self._sinks)

    def maintain(self) -> None:
        """Have each sink look after what it holds."""
        for view, sink in self._sinks:
            try:
                sink.maintain()
            except Exception as error:
                # Nothing is lost by that: it is tried again.
                warn(f"holdfast: sink of view '{view}': it could not look after its files: {error}", stacklevel=1)

    def _restore(self, place: int) -> None:
        view, sink = self._sinks[place]
        for lost in sink.lost():
            try:
                epochs = range(max(lost.first, lost.start), lost.last + 1)
                changes = [self._content_change(view, lost, epoch) for epoch in epochs]
            except EpochUnavailable as error:
                raise SinkError(
                    f"sink of view '{view}': {lost.what} is damaged, and the view's log does not reach back to epoch "
                    f"{lost.first} any more; bring the file back from a copy and open the flow again, or remove it if "
                    "its consumer has read it, or start the sink anew in an empty place",
                    view=view,
                    path=lost.what,
                    first=lost.first,
                    last=lost.last,
                ) from error
            carried = to_lines([self._history[lost.last]])
            self._calling(place, lost.last, partial(sink.restore, lost, pa.concat_tables(changes), carried))

    def _content_change(self, view: str, lost: LostEpochs, epoch: int) -> pa.Table:
        """What a sink was given for an epoch, with ``_epoch``: content(e) - content(e - 1)."""
        past = self._forms.of(view)
        now = past[self._forms.at(view, epoch)]
        before = past[self._forms.at(view, max(0, epoch - 1))]
        kept = self._kept(view, now.form)
        if epoch == lost.start and epoch > 0:
            change = kept.snapshot(0, 2**64, epoch).drop_columns(["_epoch"])
        elif before == now:
            change = kept.change_at(epoch)
        else:
            change = difference(kept, epoch, self._kept(view, before.form), epoch - 1)
        named = self._named(view, change, epoch)
        return named.append_column("_epoch", pa.array(np.full(named.num_rows, epoch, dtype=np.int64)))

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
            if has < self._history.first:
                # The epochs after it were folded: nothing says any more what they were.
                raise EpochUnavailable(f"the lineage of epoch {has + 1} was folded", epoch=has + 1)
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
            # Compaction has passed what it has: that does no harm if nothing changed since.
            if now.last is None and (quiet := kept.quiet_after(has, last)) is not None:
                return max(quiet[0], self._history.first), quiet[1]
            raise SinkError(
                f"sink of view '{view}': it has epoch {has}, and the view's changes after that were compacted; "
                "start it anew in an empty place, or retain more epochs",
                view=view,
                epoch=has,
            ) from error

    def _start(self, view: str, past: Sequence[Span]) -> tuple[int, pa.Table]:
        """What a sink gets that has nothing: the changes from the very first on, or the rows as they are."""
        kept = self._kept(view, past[-1].form)
        if len(past) == 1 and self._history.base is None:
            try:
                return 0, kept.change_at(0)
            except EpochUnavailable:
                pass  # new to an old view: it starts with the rows as they were at the earliest epoch that can be read
        first = _readable(kept, max(self._history.first, 0 if len(past) == 1 else past[-1].first))
        return first, kept.snapshot(0, 2**64, first).drop_columns(["_epoch"])

    def _commit(self, place: int, lineage: Lineage, change: pa.Table) -> None:
        view, sink = self._sinks[place]
        epoch = lineage.epoch
        if not self._was_taken(place, epoch):
            if sink.keeps_lineage:
                self._calling(place, epoch, lambda: sink.release_lineage(self._flushed()))
            carried = self._carried(epoch, self._held[place])
            if lineage.views is not None and not carried:
                # A sink must remember that it went through an edit, also if nothing came of it.
                carried = to_lines([lineage])
            failpoints.reach("sink.before_commit")
            self._doubtful.add(place)
            number = self._number(place, epoch)
            self._calling(place, epoch, lambda: sink.commit(number, self._named(view, change, epoch), carried))
            failpoints.reach("sink.after_commit")
            if sink.keeps_lineage:
                self._held[place] = _grown(self._held[place], epoch, carried.count(b"\n"))
        self._doubtful.discard(place)
        self.epochs[place] = self._known[sink] = epoch
        if self._deliveries is not None and place in self._names:
            self._deliveries.given(self._names[place])

    def _number(self, place: int, epoch: int) -> int:
        """The number of an epoch for a sink: one that cannot tell what it has must never see one again for another."""
        return self._deliveries.numbers.of(epoch) if self._deliveries is not None and place in self._names else epoch

    def _has_all(self, place: int) -> bool:
        return place not in self._doubtful and self.epochs[place] == self._history.last

    def _was_taken(self, place: int, epoch: int) -> bool:
        """Whether a commit that raised was made all the same: the sink is asked before it is made again."""
        if place not in self._doubtful:
            return False
        found: list[int | None] = []
        self._calling(place, epoch, lambda: found.append(self._sinks[place][1].taken()))
        return found[0] is not None and found[0] >= epoch

    def _named(self, view: str, change: pa.Table, epoch: int) -> pa.Table:
        named = change.rename_columns([*(field.name for field in self._fields(view)), "_diff"])
        return named.replace_schema_metadata({b"holdfast.epoch": str(epoch).encode()})

    def _calling(self, place: int, epoch: int, work: Callable[[], None]) -> None:
        """Call a sink: whatever it raises becomes an error that names the view and the epoch."""
        view, _ = self._sinks[place]
        try:
            work()
        except HoldfastError:
            raise
        except Exception as error:
            raise SinkError(f"sink of view '{view}': epoch {epoch}: {error}", view=view, epoch=epoch) from cause(error)

    def close(self) -> None:
        """Close every sink, whatever the others do. The errors that they raise come at the end."""
        with ExitStack() as closing:
            if self._deliveries is not None and self._names and all(self._has_all(place) for place in self._names):
                closing.callback(self._deliveries.close, self._history.last)
            for (view, sink), _ in reversed(list(zip(self._sinks, self.epochs, strict=False))):
                closing.callback(_close, view, sink)


def _close(view: str, sink: Sink) -> None:
    """Close a sink; what it raises is an error that names the view."""
    try:
        sink.close()
    except HoldfastError:
        raise
    except Exception as error:
        raise SinkError(
            f"sink of view '{view}': it cannot be closed: {type(error).__name__}: {error}", view=view
        ) from cause(error)


def _unbroken(lineages: Sequence[Lineage]) -> Held:
    """The longest row of epochs without a gap that ends these."""
    first = last = lineages[-1].epoch
    for lineage in reversed(lineages):
        first = lineage.epoch if lineage.epoch == first - 1 else first
    return first, last


def _grown(held: Held | None, epoch: int, carried: int) -> Held:
    """The lineage that a sink holds after a commit that carried so many records, the last one of ``epoch``."""
    first = epoch + 1 - carried
    return (held[0], epoch) if held is not None and held[0] <= first <= held[1] + 1 else (first, epoch)


def _readable(kept: ViewLog, epoch: int) -> int:
    """The first epoch from ``epoch`` on as of which a log can be read."""
    try:
        kept.check("", epoch)
    except EpochUnavailable as error:
        earliest = error.fields.get("earliest")
        if not isinstance(earliest, int):
            raise
        return earliest
    return epoch
