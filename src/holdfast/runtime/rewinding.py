"""Rewinding an open flow: whether it is possible, the epoch that does it, and the input that is taken again after it.

`coordinator/rewinds.py` says what a rewind is. Its epoch is run in two parts. An operator whose traces tell all changes
since the target epoch negates them: no rows are exchanged. Any other operator (its state reaches back a few epochs
only, or its view was declared later) is computed as of the target epoch from the nearest logs, as a new view is
(`runtime/recovery/replay.py`), and writes the difference to its present state. Both kinds write one layer of the same
epoch.

Three things cannot be computed again, and must still be there: the log of an input whose rows are nowhere else, values
that an operator has drawn or remembers, and input that a source was told to forget. If any of these is missing, nothing
is done, and the error names the earliest epoch to which a rewind is possible. What only the local layers tell counts as
missing once the log's locations have collapsed it: it would be lost with the host.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from holdfast.connectors.input import Input, KeyedInput
from holdfast.connectors.pushed_rows import to_arrow
from holdfast.connectors.source import Offer, Source
from holdfast.coordinator.lineage import Lineage
from holdfast.coordinator.recovery_plan import Replay, demand, sources_of
from holdfast.coordinator.rewinds import Owed, Rewinds
from holdfast.errors import DeclarationError, EpochUnavailable, InputError, UnknownName
from holdfast.foundation import failpoints
from holdfast.foundation.nearest_name import did_you_mean
from holdfast.runtime.epoch_spec import epoch_spec
from holdfast.runtime.open_flow import OpenFlow
from holdfast.runtime.recovery.fetch_layers import Layers
from holdfast.runtime.recovery.record import RecoveryRecord
from holdfast.runtime.recovery.replay import ReplayRun
from holdfast.runtime.recovery.retaken import encoded_rows, is_logged, offers_again, retaken, row_texts
from holdfast.runtime.runner import Job, Outcome, Work
from holdfast.task.stage import TaskReport
from holdfast.trace.name import ALL


@dataclass(frozen=True)
class Again:
    """Input that is taken again: the epoch that took it before, and its offers and work without skipped input."""

    epoch: int
    offers: dict[str, Offer]
    work: list[Work]


class Rewinding:
    """Rewinds an open flow."""

    def __init__(self, flow: OpenFlow, job: Job) -> None:
        self._flow = flow
        self._compiled = flow.compiled
        self._declared = flow.compiled.declared
        self._job = job

    # -- whether a rewind is possible ---------------------------------------------------------------------------------

    def record(self, to: int, reason: str, skip: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
        """Check a rewind and return the record of it for the lineage. Raise `EpochUnavailable` if the flow cannot go
        back to ``to``, and other errors if ``to`` or ``skip`` is wrong. ``skip``: source → rows or names to leave
        out."""
        history = self._flow.state.history
        if history.last < 0:
            raise DeclarationError(f"{self._subject}: there is no epoch yet to go back to", flow=self._declared.name)
        if to > history.last:
            raise EpochUnavailable(
                f"{self._subject}: epoch {to} is not there yet; the last is {history.last}",
                epoch=to,
                latest=history.last,
            )
        if to == history.last:
            raise DeclarationError(
                f"{self._subject}: epoch {to} is the last one, so there is nothing to undo", flow=self._declared.name
            )
        self.check(to)
        said: dict[str, Any] = {"to": to}
        if reason:
            said["reason"] = reason
        if skipped := {name: self._skipped(name, what, self._owed(to)) for name, what in skip.items()}:
            said["skip"] = skipped
        return said

    def check(self, to: int) -> None:
        """Raise `EpochUnavailable` if the flow cannot go back to an epoch, `DeclarationError` if no declared view reads
        a source whose input would be taken again."""
        history = self._flow.state.history
        for owed in self._owed(to):
            for name in history[owed.epoch].offers if owed.epoch > history.first else ():
                if name not in self._compiled.flow.sources or name not in self._declared.sources:
                    raise DeclarationError(
                        f"{self._subject}: epoch {owed.epoch}, which a rewind to epoch {to} undoes, took from source "
                        f"'{name}', and no view that is declared now reads that; declare one first",
                        flow=self._declared.name,
                        name=name,
                    )
        layers = self._lasting()
        if (why := self._why_not(to, layers)) is not None:
            raise self._unavailable(to, why, layers)

    def check_state(self, to: int) -> None:
        """Raise `EpochUnavailable` if the flow's state cannot go back to an epoch. It does not check the input to be
        taken again: this line gets it from another line."""
        layers = self._layers()
        if (why := self._state_missing(to, layers)) is not None:
            raise self._unavailable(to, why, layers)

    def _unavailable(self, to: int, why: str, layers: Layers) -> EpochUnavailable:
        history = self._flow.state.history
        later = range(max(to, history.first) + 1, history.last)
        earliest = next((each for each in later if self._why_not(each, layers) is None), None)
        kept = history.last - max(to, 0)
        can = "no earlier epoch can be gone back to" if earliest is None else f"epoch {earliest} is the earliest"
        return EpochUnavailable(
            f"{self._subject}: it cannot go back to epoch {to} any more: {why}; {can}. retain={kept} (or more) would "
            "have kept it",
            epoch=to,
            earliest=earliest,
        )

    def _why_not(self, to: int, layers: Layers) -> str | None:
        """Return why the flow cannot go back to an epoch; None if it can."""
        return self._state_missing(to, layers) or self._not_read_again(self._owed(to), layers)

    def _state_missing(self, to: int, layers: Layers) -> str | None:
        """Return why the state as of an epoch cannot be restored; None if it can."""
        state = self._flow.state
        if to < state.history.first:
            return "its record is behind what the flow retains"
        _, rest = self._split(to, layers)
        for operator in rest:
            if self._compiled.remembers(operator):
                return f"what view '{self._view(operator)}' had drawn, or remembered, by then was compacted"
        for name, source in self._declared.sources.items():
            log = self._compiled.flow.views.get(name)
            if log in rest and not source.replayable:
                return f"the rows that were pushed to input '{name}' were compacted"
        if not rest:
            return None
        parts = self._replaying([]).parts(self._fill(to, rest), layers)
        for name in sorted({name for part in parts for name in part.sources}):
            read = self._declared.sources.get(name)
            taken = self._flow.intake.in_effect(name, to, state.rewinds)
            if read is not None and read.forgets and any(epoch <= state.copies.safe for epoch, _ in taken):
                return f"what source '{name}' gave was released, and state that reaches back so far is made of it"
        return None

    def _not_read_again(self, owed: Sequence[Owed], layers: Layers) -> str | None:
        """Return why input that is to be taken again cannot be read; None if it can."""
        state = self._flow.state
        for each in owed:
            for name in state.history[each.epoch].offers:
                source = self._declared.sources[name]
                if is_logged(self._flow, name):
                    trace = f"{self._compiled.flow.views[name]}.rows"
                    if not layers.has_changes(trace, 0, ALL, each.epoch - 1, state.history.last):
                        return f"the rows of '{name}' that epoch {each.epoch} took were compacted"
                elif source.forgets and min(each.origin, each.epoch) <= state.copies.safe:
                    return f"what source '{name}' gave in epoch {each.origin} was released"
        return None

    @property
    def _subject(self) -> str:
        return f"flow '{self._declared.name}', rewind"

    def _owed(self, to: int) -> tuple[Owed, ...]:
        """Return the input that the flow would have to take again after a rewind."""
        history = self._flow.state.history
        trial = Rewinds(history)
        trial.add(Lineage(history.last + 1, "", {}, 0, 0, rewind={"to": max(to, history.first)}))
        return trial.owed

    def _view(self, operator: str) -> str:
        flow = self._compiled.flow
        names = [name for name, log in flow.views.items() if operator == log or operator in flow.ancestors({log})]
        return names[0] if names else operator

    # -- skipped input ------------------------------------------------------------------------------------------------

    def _skipped(self, name: str, what: Sequence[Any], owed: Sequence[Owed]) -> dict[str, Any]:
        """Return what to leave out of a source, in the form in which the lineage keeps it. Raise an error if the undone
        epochs did not take it, or if the source cannot skip parts of its input."""
        source = self._declared.sources.get(name)
        if source is None:
            raise UnknownName(
                f"{self._subject}: skip names source '{name}', which there is not"
                f"{did_you_mean(name, self._declared.sources)}",
                name=name,
            )
        took = [each for each in owed if name in self._flow.state.history[each.epoch].offers]
        if isinstance(source, Input):
            return {"rows": encoded_rows(self._rows(name, source, what, took))}
        if isinstance(source, KeyedInput):
            raise DeclarationError(
                f"{self._subject}: input '{name}' has a key: one of its rows takes the place of another, and cannot be "
                "skipped by itself; push the right one instead",
                name=name,
            )
        if is_logged(self._flow, name):
            raise DeclarationError(
                f"{self._subject}: source '{name}' forgets what was taken, so its rows are taken again from the log, "
                "which does not know what files or parts they came from; nothing of it can be skipped",
                name=name,
            )
        offers = [self._flow.state.history[each.epoch].offers[name] for each in took]
        return {"names": self._names(name, source, what, offers)}

    def _names(self, name: str, source: Source, what: Sequence[Any], offers: Sequence[Offer]) -> list[str]:
        known = sorted({each for offer in offers for each in source.names(offer)})
        if offers and not known:
            raise DeclarationError(
                f"{self._subject}: source '{name}' has no names for what it gives, so nothing of it can be skipped",
                name=name,
            )
        found = []
        for one in what:
            text = os.fspath(one) if isinstance(one, str | os.PathLike) else None
            if not isinstance(text, str):
                raise InputError(
                    f"{self._subject}: source '{name}': skip wants names of files, such as 'in/bad.csv', not {one!r}",
                    name=name,
                )
            same = [each for each in known if each in (text, os.path.abspath(text))]
            same = same or [each for each in known if each.endswith(f"/{text}")]
            if len(same) != 1:
                why = "took no such thing" if not same else f"took {len(same)} such: {', '.join(same[:3])}"
                raise UnknownName(
                    f"{self._subject}: source '{name}': skip names {text!r}, and the epochs that are undone {why}"
                    f"{did_you_mean(text, known) if not same else ''}",
                    name=text,
                )
            found.append(same[0])
        return found

    def _rows(self, name: str, source: Input, what: Sequence[Any], took: Sequence[Owed]) -> pa.Table:
        rows = to_arrow(list(what), source.fields, subject=f"{self._subject}: input '{name}', skip")
        log = self._flow.log_of(name)
        there: set[str] = set()
        for each in took:
            there |= set(row_texts(log.change_at(each.epoch).drop_columns(["_diff"])))
        for text, row in zip(row_texts(rows), rows.to_pylist(), strict=True):
            if text not in there:
                raise UnknownName(
                    f"{self._subject}: input '{name}': skip names the row {tuple(row.values())!r}, and the epochs that "
                    "are undone took no such row",
                    name=name,
                )
        return rows.rename_columns([f"c{place}" for place in range(rows.num_columns)])

    # -- the epoch of a rewind ----------------------------------------------------------------------------------------

    def run(self, lineage: Lineage) -> Outcome:
        """Write the layers of the epoch of a rewind."""
        assert lineage.rewind is not None
        to = lineage.rewind["to"]
        layers = self._layers()
        ready, rest = self._split(to, layers)
        where = dict.fromkeys(ready, frozenset(range(self._flow.runner.partitions)))
        subject = f"{self._declared.name}: epoch {lineage.epoch}, back to epoch {to}"
        spec = epoch_spec(self._flow, lineage, undo=to, run=where, write=where)
        outcome = self._job.run(spec, [], subject)
        failpoints.reach("rewind.undone")
        if not rest:
            return outcome
        reports = list(outcome.reports)
        self._replaying(reports, lineage).carry_out(self._fill(to, rest, lineage), layers, RecoveryRecord())
        return Outcome(tuple(reports), outcome.planning, outcome.seconds, outcome.path)

    def _split(self, to: int, layers: Layers) -> tuple[list[str], list[str]]:
        """Return the operators that can negate their changes since an epoch, and those that must be computed."""
        last = self._flow.state.history.last
        ready: list[str] = []
        rest: list[str] = []
        for operator, traces in self._compiled.traces.items():
            whole = all(layers.has_changes(trace, 0, ALL, to, last) for trace in traces)
            (ready if whole else rest).append(operator)
        return ready, rest

    def _fill(self, to: int, operators: Sequence[str], lineage: Lineage | None = None) -> Replay:
        flow, partitions = self._compiled.flow, self._flow.runner.partitions
        write = dict.fromkeys(operators, frozenset(range(partitions)))
        run = demand(flow, write, partitions)
        return Replay(0, to, write, run, sources_of(flow, run), into=lineage)

    def _replaying(self, reports: list[TaskReport], lineage: Lineage | None = None) -> ReplayRun:
        def again(replay: Replay, work: Sequence[Work], job: Job | None) -> set[str]:
            assert lineage is not None
            spec = epoch_spec(
                self._flow, lineage, first=0, again=True, run=replay.run, write=replay.write, undo=replay.epoch
            )
            subject = f"{self._declared.name}: views as of epoch {replay.epoch}"
            reports.extend((job or self._job).run(spec, work, subject).reports)
            return set()

        return ReplayRun(self._flow, again)

    def _layers(self) -> Layers:
        flow = self._flow
        last = flow.state.history.last
        return Layers(flow.runner, list(self._compiled.layouts), self._compiled.directory, last, {}, flow.state.history)

    def _lasting(self) -> Layers:
        """Return the layers without what would be lost with the members. A rewind that needs more is refused: once it
        counts, it must be possible to compute it again, and to take its input again, from the locations alone."""
        settings = self._flow.state.settings
        if not settings.durable:
            return self._layers()
        spare = len(self._declared.locations) - settings.min_replicas
        return self._layers().lasting(self._flow.state.copies.holdings, spare)

    # -- taking input again -------------------------------------------------------------------------------------------

    def next(self) -> Again | None:
        """Return the input that the next epoch takes again; None if no input is owed."""
        owed = self._flow.state.rewinds.owed
        if not owed:
            return None
        history, reads = self._flow.state.history, self._compiled.flow.sources
        epoch = owed[0].epoch
        for name in history[epoch].offers:
            source = self._declared.sources.get(name)
            # Of a source that can be read again, a view that is declared later is given the input.
            if source is None or (name not in reads and not source.replayable):
                raise DeclarationError(
                    f"flow '{self._declared.name}': the input of epoch {epoch}, which a rewind has undone, is taken "
                    f"again next, and source '{name}', which gave some of it, is not declared now; declare it, and a "
                    "view of it",
                    flow=self._declared.name,
                    name=name,
                )
        offers = offers_again(self._flow, owed[0])
        partitions = self._flow.runner.partitions
        read = [(name, offer) for name, offer in offers.items() if name in reads]
        return Again(epoch, offers, [retaken(self._flow, name, owed[0], offer, partitions) for name, offer in read])
