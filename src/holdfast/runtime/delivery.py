"""Delivery: each sink gets each epoch of its view, in order, once.

A commit may fail, or the process may die before it: then the sink lacks epochs that are complete. Before the next epoch
each sink is brought up to date from the view's own log, which holds every change that was ever delivered.

An edited view has a new log from some epoch on. At that epoch its sinks get the difference between the new log and the
old one. A sink that lags first gets the epochs that it lacks from the old log (`coordinator/view_versions.py` says why
that is right). A new log is delivered only after the lineage of an epoch has named it as the view's log, so the epoch
of the difference is always known.

The file is long because one class keeps the whole life of a sink in a flow: its opening, its progress, its commits,
retries and catching up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.connectors.row_ids import check_no_ids, with_ids
from holdfast.connectors.sink import LostEpochs, Sink
from holdfast.coordinator.events import CommitBegan, SinkAnswered, SinkStarted
from holdfast.coordinator.instructions import CatchUp, Commit
from holdfast.coordinator.lineage import Lineage, from_lines, to_lines
from holdfast.coordinator.sink_progress import SinkProgress
from holdfast.coordinator.true_history import Seen
from holdfast.coordinator.view_versions import Span, ViewVersion
from holdfast.errors import EpochUnavailable, Fenced, HoldfastError, SinkError
from holdfast.foundation import failpoints
from holdfast.plan.nodes import Field
from holdfast.plan.types import arrow_type
from holdfast.reporting.redaction import cause, logger
from holdfast.runtime.delivery_numbers import STRIDE, DeliveryNumbers, names
from holdfast.runtime.guarded_state import GuardedState
from holdfast.runtime.late_changes import LateChange, attempt_of, change_at, difference_to, known, rows_at
from holdfast.runtime.outcomes import SinkChange
from holdfast.task.log_difference import difference
from holdfast.task.view_log import ViewLog

_LOG = logger("holdfast.sinks")


class Delivery:
    """The sinks of a flow, and the last epoch that each sink has."""

    def __init__(
        self,
        sinks: Sequence[tuple[str, Sink]],
        fields: Callable[[str], tuple[Field, ...]],
        known: dict[Sink, int],
        renumbers: bool = False,
    ) -> None:
        """``fields`` gives the fields of a view. ``known``: the epoch that each sink was given last in this process.
        ``renumbers``: the strategy rolls back, so that after a crash an epoch number may stand for other rows; all
        sinks then get delivery numbers instead of epochs (`runtime/delivery_numbers.py`)."""
        self._sinks = sinks
        self._fields = fields
        self._known = known
        self.progress = SinkProgress([view for view, _ in sinks])
        """What each sink has; it becomes a part of the flow's state (`attach`)."""

        self._names: dict[int, str] = {}
        """Index → name, of the sinks that get delivery numbers: those that cannot tell what they have, or all."""

        self._renumbers = renumbers
        self._opened: dict[int, int] = {}
        """Index → the number that a sink said it has when it was opened, if that is a delivery number."""

        self._deliveries: DeliveryNumbers | None = None
        try:
            for index, ((view, sink), name) in enumerate(zip(sinks, names(sinks), strict=True)):
                check_no_ids(view, fields(view)) if sink.ids else None
                opened = sink.open(view, fields(view))
                # A number too large for an epoch was given under an earlier strategy of the flow.
                numbered = renumbers or (opened is not None and opened >= STRIDE)
                if opened is None or numbered:
                    self._names[index] = name
                if opened is not None and numbered:
                    self._opened[index] = opened
                    opened = None if opened >= 0 else -1
                    self.progress.opened(opened)
                else:
                    self.progress.opened(known.get(sink) if opened is None else opened)
        except BaseException:
            with suppress(Exception):
                self.close()
            raise

    def seen(self) -> list[tuple[Seen, list[Lineage]]]:
        """Return the last epoch that each sink has seen, and the lineages that were written with it. Sinks that have
        nothing, or that only this process has written to, are left out."""
        found = []
        for index, ((view, sink), epoch) in enumerate(zip(self._sinks, self.progress.epochs, strict=True)):
            says = index in self._opened and not self._renumbers
            if (epoch is None and not says) or (epoch is not None and epoch < 0):
                continue
            try:
                lineages = from_lines(sink.lineage())
            except ValueError as error:
                raise SinkError(f"sink of view '{view}': its lineage is damaged: {error}", view=view) from None
            if lineages:
                if sink.keeps_lineage:
                    self.progress.given(index, lineages)
                found.append((Seen(f"sink of view '{view}'", lineages[-1].epoch, lineages[-1].digest), lineages))
        return found

    def remember(self, deliveries: Callable[[Sequence[str]], DeliveryNumbers], last: int) -> None:
        """Find out, for the sinks that cannot tell what they have, which are new to their views and which must be given
        epochs again. ``deliveries`` gives the delivery numbers that were written down for sinks of these names.
        ``last``: the last epoch of the history."""
        self._deliveries = deliveries(list(self._names.values()))
        for index, name in self._names.items():
            if (number := self._opened.get(index, -1)) >= 0:
                self.progress.started(index, min(last, self._deliveries.numbers.epoch_of(number)))
            elif self.progress.epochs[index] is None and self._deliveries.is_new(name):
                self.progress.is_new(index)
            elif self.progress.epochs[index] is None and self._deliveries.again is not None:
                self.progress.started(index, self._deliveries.again - 1)

    def attach(
        self, kept: Callable[[str, ViewVersion], ViewLog], guard: GuardedState, declared: Mapping[str, ViewVersion]
    ) -> None:
        """Connect the sinks with the flow's state. ``kept`` gives the log of a version of a view; ``declared``: the
        current version of each view. Raise `SinkError` if a sink has more epochs than the history, or other columns."""
        self._kept = kept
        self._guard = guard
        self._state = guard.state
        self._versions = guard.state.versions
        self._history = guard.state.history
        self._declared = declared
        for (view, _), has in zip(self._sinks, self.progress.epochs, strict=True):
            if has is not None and has > self._history.last:
                raise SinkError(
                    f"sink of view '{view}': it has epoch {has}, and the log ends with epoch {self._history.last}; "
                    "give it the log that it belongs to, or start it anew in an empty place",
                    view=view,
                    epoch=has,
                )
        self.check_types(declared)

    def check_types(self, declared: Mapping[str, ViewVersion]) -> None:
        """Raise `SinkError` if the columns of a view's ``declared`` version do not fit what its sinks have."""
        for (view, _), has in zip(self._sinks, self.progress.epochs, strict=True):
            if view in declared:
                self._check_types(view, has, declared[view])

    def _check_types(self, view: str, has: int | None, now: ViewVersion) -> None:
        """Raise `SinkError` if the columns that a sink has, or is still to be given, do not fit those of ``now``."""
        past = self._versions.of(view)
        if not past or (has is not None and has < 0):
            return
        for span in past[self._versions.at(view, self._history.last if has is None else has) :]:
            if not span.version.fits(now):
                had, has_now = (", ".join(each.types) for each in (span.version, now))
                if had == has_now:  # the types are the same, but names moved from one column to another
                    had, has_now = span.version.columns, now.columns
                raise SinkError(
                    f"sink of view '{view}': the view's columns were of types ({had}), and now are ({has_now}): the "
                    "sink has rows of the old ones, which cannot be taken back in the new; give the view another name, "
                    "or the sink another place (flow.unsink lets go of this one), for the new form",
                    view=view,
                    expected=list(span.version.types),
                    found=list(now.types),
                )

    def lost(self) -> dict[int, int]:
        """Return, for each sink that lost content, the first epoch of what it lost."""
        found = {index: [lost.first for lost in sink.lost()] for index, (_, sink) in enumerate(self._sinks)}
        return {index: min(epochs) for index, epochs in found.items() if epochs}

    def check_former(self) -> None:
        """Raise `LogDamaged` unless the former logs, from which sinks still need a difference, can be read."""
        for version, log in self._state.edits.former().items():
            self._kept(log.view, version).check(log.view, log.upto)

    def carry_out(self, instruction: Commit | CatchUp, changes: Callable[[str, int], SinkChange]) -> None:
        """Give a sink the change of the epoch that just completed, or everything that it lacks up to an epoch, read
        from the view's logs. ``changes`` gives the change of a view in the completed epoch, for the sink of an
        index."""
        match instruction:
            case Commit(sink=index, epoch=epoch):
                view, _ = self._sinks[index]
                change = changes(view, index)
                if change.parts and self._number(index, epoch) != epoch:
                    self._catch_up(index, epoch)  # tasks did not know the number under which the sink gets it
                    return
                self._commit(index, self._history[epoch], change.rows, change.parts)
            case CatchUp(sink=index, upto=upto):
                self._catch_up(index, upto)

    def drop_parts(self, attempt: str, only: Collection[int] | None = None) -> None:
        """Have sinks remove the parts of an attempt that are not needed any more. ``only``: the indexes of the sinks;
        None: all. An error becomes a log record."""
        for index, (view, sink) in enumerate(self._sinks):
            if type(sink).part_writer is Sink.part_writer or (only is not None and index not in only):
                continue
            try:
                sink.drop_parts(attempt)
            except Exception as error:
                _LOG.warning(
                    "sink of view '%s': parts that are not needed any more could not be removed: %s",
                    view,
                    error,
                    extra={"view": view, "error": str(error)},
                )

    def note_part_errors(self, errors: Mapping[int, str]) -> None:
        """Log that tasks could not write parts, and that the rows passed through the driver instead."""
        for index, why in errors.items():
            view, _ = self._sinks[index]
            _LOG.warning(
                "sink of view '%s': a task could not write its part of the change, so its rows passed through the "
                "driver: %s",
                view,
                why,
                extra={"view": view, "error": why},
            )

    def catch_up(self, last: int) -> None:
        """Give each sink the epochs up to ``last`` that it never got, and restore those that it had and lost."""
        for index in range(len(self._sinks)):
            self._restore(index)
            self._catch_up(index, last)
        if self._deliveries is not None and self._all_have_all():
            self._deliveries.gave_again()

    @property
    def is_maintained(self) -> bool:
        """Whether any sink does maintenance beside epochs."""
        return any(type(sink).maintain is not Sink.maintain for _, sink in self._sinks)

    def maintain(self) -> None:
        """Have each sink maintain its files. An error becomes a log record."""
        for view, sink in self._sinks:
            try:
                sink.maintain()
            except Exception as error:
                # No data is lost; the next pass tries again.
                _LOG.warning(
                    "sink of view '%s': it could not look after its files: %s",
                    view,
                    error,
                    extra={"view": view, "error": str(error)},
                )

    def _restore(self, index: int) -> None:
        view, sink = self._sinks[index]
        for lost in sink.lost():
            try:
                epochs = range(max(lost.first, lost.start), lost.last + 1)
                changes = [self._content_change(index, lost, epoch) for epoch in epochs]
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
            self._calling(index, lost.last, partial(sink.restore, lost, pa.concat_tables(changes), carried))

    def _content_change(self, index: int, lost: LostEpochs, epoch: int) -> pa.Table:
        """Return the change that a sink was given for an epoch, content(e) - content(e - 1), with ``_epoch``."""
        view, _ = self._sinks[index]
        past = self._versions.of(view)
        now = past[self._versions.at(view, epoch)]
        before = past[self._versions.at(view, max(0, epoch - 1))]
        kept = self._kept(view, now.version)
        if epoch == lost.start and epoch > 0:
            change = kept.snapshot(0, 2**64, epoch).drop_columns(["_epoch"])
        elif before == now:
            change = kept.change_at(epoch)
        else:
            change = difference(kept, epoch, self._kept(view, before.version), epoch - 1)
        named = self._named(index, change, epoch)
        return named.append_column("_epoch", pa.array(np.full(named.num_rows, epoch, dtype=np.int64)))

    def _catch_up(self, index: int, last: int) -> None:
        view, _ = self._sinks[index]
        past = self._versions.of(view)
        if not past:
            return  # the next epoch will say which version the view has
        has = self.progress.epochs[index]
        if has is None:
            # This sink cannot tell what it has. The last epoch may or may not have reached it, so it gets that epoch
            # again. A sink that is as new as its view has nothing.
            new = len(past) == 1 and past[0].first == last
            if new and past[-1].version != self._declared[view]:
                # It may have that epoch, so the next one, which edits the view, must be the difference to it.
                epoch, change = self._start(view, past)
                self._commit_late(index, self._history[epoch], change)
                return
            has = -1 if new else self._state.surely_has(last)
            self._guard.tell(SinkStarted(index, has))
        if has < 0 and past[-1].version != self._declared[view]:
            return  # the next epoch edits the view: do not give an empty sink rows that it would have to take back
        while has < last:
            step = self._next(view, has, last)
            if step is None:
                return
            epoch, change = step
            self._commit_late(index, self._history[epoch], change)
            has = epoch

    def _next(self, view: str, has: int, last: int) -> tuple[int, LateChange] | None:
        """Return the next epoch up to ``last`` that a sink needs after ``has``, and its change; None if it needs
        none."""
        past = self._versions.of(view)
        if has < 0:
            return self._start(view, past)
        now = past[self._versions.at(view, has)]
        after = past[self._versions.at(view, has) + 1 :]
        kept = self._kept(view, now.version)
        try:
            if has < self._history.first:
                # The epochs after `has` were folded into the base: their single changes are not known any more.
                raise EpochUnavailable(f"the lineage of epoch {has + 1} was folded", epoch=has + 1)
            if now.last is None or has < now.last:
                return has + 1, change_at(kept, has + 1)
            if not after or after[0].first > last:
                return None
            span = after[0]
            new = self._kept(view, span.version)
            first = new.first_readable(span.first)
            if span.last is not None and first > span.last:
                # No epoch of that version can be read any more: go on with the latest version.
                span, new = past[-1], self._kept(view, past[-1].version)
                first = new.first_readable(span.first)
            return first, difference_to(new, first, kept, now.last)
        except EpochUnavailable as error:
            # Compaction has passed the sink's epoch. That does no harm if the view has not changed since.
            if now.last is None and (quiet := kept.quiet_after(has, last)) is not None:
                return max(quiet[0], self._history.first), known(quiet[1])
            raise SinkError(
                f"sink of view '{view}': it has epoch {has}, and the view's changes after that were compacted; "
                "start it anew in an empty place, or retain more epochs",
                view=view,
                epoch=has,
            ) from error

    def _start(self, view: str, past: Sequence[Span]) -> tuple[int, LateChange]:
        """Return the first epoch and change for an empty sink: those of epoch 0, or, if the log does not reach back
        that far, all rows as of the earliest readable epoch."""
        kept = self._kept(view, past[-1].version)
        if len(past) == 1 and self._history.base is None:
            try:
                return 0, change_at(kept, 0)
            except EpochUnavailable:
                pass  # a new sink of an old view starts with the rows as of the earliest readable epoch
        first = kept.first_readable(max(self._history.first, 0 if len(past) == 1 else past[-1].first))
        return first, rows_at(kept, first)

    def _commit_late(self, index: int, lineage: Lineage, change: LateChange) -> None:
        """Commit a change that is read from the view's log: a large one in pieces, if the sink takes parts."""
        view, sink = self._sinks[index]
        fields = self._fields(view)
        writer = None if sink.ids or not change.is_large else sink.part_writer(view, fields)
        if writer is None:
            self._commit(index, lineage, change.whole())
            return
        attempt = attempt_of(lineage.digest)
        number = self._number(index, lineage.epoch)
        columns = [field.name for field in fields]
        try:
            try:
                parts = change.write(writer, number, attempt, columns)
            except HoldfastError:
                raise
            except Exception as error:
                self.note_part_errors({index: f"{type(error).__name__}: {error}"})
                parts = None
            self._commit(index, lineage, _no_rows(fields) if parts else change.whole(), parts or ())
        finally:
            self.drop_parts(attempt, [index])

    def _commit(self, index: int, lineage: Lineage, change: pa.Table, parts: Sequence[Any] = ()) -> None:
        _, sink = self._sinks[index]
        epoch = lineage.epoch
        records: int | None = None
        if not (self.progress.is_doubtful(index) and self._was_taken(index, lineage)):
            if sink.keeps_lineage:
                self._calling(index, epoch, lambda: sink.release_lineage(self._state.copies.flushed))
            carried = self._state.uncommitted(epoch, self.progress.held[index])
            if lineage.views is not None and not carried:
                # A sink must record that it passed an edit, even if the edit changed no rows.
                carried = to_lines([lineage])
            failpoints.reach("sink.before_commit")
            self._guard.tell(CommitBegan(index))
            number = self._number(index, epoch)
            named = self._named(index, change, epoch)
            if parts:
                self._trying(index, lineage, lambda: sink.commit_parts(number, parts, named, carried))
            else:
                self._trying(index, lineage, lambda: sink.commit(number, named, carried))
            failpoints.reach("sink.after_commit")
            records = carried.count(b"\n") if sink.keeps_lineage else None
        self._guard.tell(SinkAnswered(index, epoch, records))
        self._known[sink] = epoch
        if self._deliveries is not None and index in self._names:
            self._deliveries.given(self._names[index])

    def _number(self, index: int, epoch: int) -> int:
        """Return the number under which a sink gets an epoch. A sink with delivery numbers must never get one number
        for two epochs."""
        return self._deliveries.numbers.of(epoch) if self._deliveries is not None and index in self._names else epoch

    def _was_taken(self, index: int, lineage: Lineage) -> bool:
        """Ask a sink whether a commit that raised has succeeded nevertheless, before the commit is tried again. Raise
        `Fenced` if the sink has the epoch from another driver."""
        view, sink = self._sinks[index]
        number = self._number(index, lineage.epoch)
        found: list[int | None] = []
        self._calling(index, lineage.epoch, lambda: found.append(sink.taken()))
        if found[0] is None or found[0] < number:
            return False
        given: list[Lineage] = []
        self._calling(index, lineage.epoch, lambda: given.extend(from_lines(sink.lineage())))
        if found[0] > number or any(each.epoch == lineage.epoch and each.digest != lineage.digest for each in given):
            raise Fenced(
                f"sink of view '{view}': it has epoch {lineage.epoch} already, from another driver",
                view=view,
                epoch=lineage.epoch,
            )
        return True

    def _named(self, index: int, change: pa.Table, epoch: int) -> pa.Table:
        """Return the change in the sink's form: with the user's column names, and with row ids if the sink wants
        them."""
        view, sink = self._sinks[index]
        named = change.rename_columns([*(field.name for field in self._fields(view)), "_diff"])
        named = named.replace_schema_metadata({b"holdfast.epoch": str(epoch).encode()})
        return with_ids(view, epoch, named) if sink.ids else named

    def _trying(self, index: int, lineage: Lineage, commit: Callable[[], None]) -> None:
        """Make a commit, and try again as often as the sink's ``retries`` allow."""
        _, sink = self._sinks[index]
        epoch = lineage.epoch
        for attempt in range(sink.retries + 1):
            try:
                return self._calling(index, epoch, commit)
            except SinkError as error:
                if attempt == sink.retries:
                    tried = f" It was tried {attempt + 1} times." if attempt else ""
                    raise SinkError(
                        f"{error}.{tried} Epoch {epoch} is complete, and nothing is lost: the sink is given it again, "
                        "before all that follows, at the next step",
                        **error.fields,
                    ) from error
                pause = min(sink.retry_pause * 2**attempt, 60.0)
                _LOG.warning("%s; tried again in %.1f s", error, pause, extra={"epoch": epoch, "attempt": attempt + 1})
                time.sleep(pause)
                if self._was_taken(index, lineage):
                    return None
        return None

    def _calling(self, index: int, epoch: int, work: Callable[[], None]) -> None:
        """Call a sink. An exception of the sink becomes a `SinkError` that names the view and the epoch."""
        view, _ = self._sinks[index]
        try:
            work()
        except HoldfastError:
            raise
        except Exception as error:
            raise SinkError(f"sink of view '{view}': epoch {epoch}: {error}", view=view, epoch=epoch) from cause(error)

    def _all_have_all(self) -> bool:
        return all(self.progress.has_all(index, self._history.last) for index in self._names)

    def close(self) -> None:
        """Close every sink, even if closing another one raises; then raise the error."""
        with ExitStack() as closing:
            if self._deliveries is not None and self._names and self._all_have_all():
                closing.callback(self._deliveries.close, self._history.last)
            for (view, sink), _ in reversed(list(zip(self._sinks, self.progress.epochs, strict=False))):
                closing.callback(_close, view, sink)


def _no_rows(fields: Sequence[Field]) -> pa.Table:
    columns = [pa.field(field.name, arrow_type(field.type)) for field in fields]
    return pa.schema([*columns, pa.field("_diff", pa.int64())]).empty_table()


def _close(view: str, sink: Sink) -> None:
    """Close a sink. An exception of the sink becomes a `SinkError` that names the view."""
    try:
        sink.close()
    except HoldfastError:
        raise
    except Exception as error:
        raise SinkError(
            f"sink of view '{view}': it cannot be closed: {type(error).__name__}: {error}", view=view
        ) from cause(error)
