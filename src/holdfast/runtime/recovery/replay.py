"""Carrying out a replay: computing lost layers again from the nearest thing that any log still holds.

The plan (`coordinator/recovery_plan.py`) says which operators lost which epochs. What they need is the change of their
inputs at the epoch, and wherever a view or a kept source on the way back has a log that can give it, the walk ends
there: for the replay the dataflow is built anew with those logs as sources (`CompiledFlow.reading`); what a rewrite
fused with a view is answered from its rows (`plan/answering.py`). Operators behind them are not run, and sources that
lie behind them are not read. Only where no log is on the way is the input of a source read again.

A log cannot stand in for an operator that is itself to be written. If one lies between two lost operators, the two are
computed apart: the lower one from the log, the upper one from what is before it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from holdfast.coordinator.recovery_plan import Replay, demand, sources_of
from holdfast.guarantees.strategy import OnLoss
from holdfast.plan.dataflow import Dataflow
from holdfast.plan.nodes import Field
from holdfast.runtime.open_flow import OpenFlow
from holdfast.runtime.recovery.fetch_layers import Layers
from holdfast.runtime.recovery.logged_source import ConvertedRows, LoggedChange, LoggedRows
from holdfast.runtime.recovery.record import RecoveryRecord
from holdfast.runtime.recovery.retaken import retaken
from holdfast.runtime.runner import Job, Work
from holdfast.runtime.schema_changes import FormerLog

Again = Callable[[Replay, Sequence[Work], Job | None], set[str]]


@dataclass(frozen=True)
class _Reading:
    """A way to compute some operators: a dataflow, in which logs are sources, and a job for it (None: the flow's)."""

    flow: Dataflow
    logs: frozenset[str]
    job: Job | None


class ReplayRun:
    """Carries out replays, and takes note of what they ran and read."""

    def __init__(self, flow: OpenFlow, again: Again) -> None:
        """``again`` runs a replay, by the flow's own job or another."""
        self._open = flow
        self._compiled = flow.compiled
        self._runner = flow.runner
        self._again = again
        self.former: dict[str, FormerLog] = {}
        """Input → its log of before its schema changed, while its new one is made of that."""

        self._leaves_out = flow.state.settings.strategy.on_loss is OnLoss.LEAVE_OUT
        """Whether what was lost is replaced by nothing."""

        self._readings: dict[tuple[frozenset[str], frozenset[str]], _Reading] = {}
        self._names = {log: name for name, log in reversed(flow.compiled.flow.views.items())}

    def carry_out(self, replay: Replay, layers: Layers, recovery: RecoveryRecord) -> None:
        """Write what the replay is to write; ``layers`` are those that there are."""
        if replay.undo is not None:
            by = self._again(replay, [], None)
            recovery.members = sorted({*recovery.members, *by} - {""})
            recovery.note(replay.first, replay.epoch, replay.write, replay.run)
            return
        for part, reading in self._parts(replay, layers):
            if self._leaves_out:
                recovery.missing = sorted({*recovery.missing, *range(part.first, part.epoch + 1)})
                work = []
            else:
                work = [*self._work(part, recovery), *self._logs(part, reading, recovery)]
            by = self._again(part, work, reading.job)
            recovery.members = sorted({*recovery.members, *by} - {""})
            recovery.note(part.first, part.epoch, part.write, part.run)

    def parts(self, replay: Replay, layers: Layers) -> list[Replay]:
        """The replays that are run for one, each with the sources that it reads."""
        return [part for part, _ in self._parts(replay, layers)]

    def _parts(self, replay: Replay, layers: Layers) -> Iterator[tuple[Replay, _Reading]]:
        """The replay, or several if logs lie between operators that are to be written."""
        flow = self._compiled.flow
        filling = replay.first == 0
        # What an epoch changed can be told from what was before only if neither was collapsed into the other.
        first = replay.epoch if filling else replay.epoch - 1
        usable = [
            log
            for log in dict.fromkeys(flow.views.values())
            if log not in replay.write and layers.has_epochs(f"{log}.rows", first, replay.epoch)
        ]
        left = set(replay.write)
        while left:
            # From below: what is last in the dataflow, and whatever comes with it since no log is between.
            below = left - {each for each in left if any(each in flow.ancestors({other}) for other in left - {each})}
            logs = [log for log in usable if not {log, *flow.ancestors({log})} & below]
            reading = self._reading(below, logs)
            part = left & reading.flow.operators.keys()
            yield self._narrowed(replay, part, reading), reading
            left -= part

    def _reading(self, operators: Collection[str], logs: Collection[str]) -> _Reading:
        key = frozenset(operators), frozenset(logs)
        if key not in self._readings:
            self._readings[key] = self._read_from(operators, logs)
        return self._readings[key]

    def _read_from(self, operators: Collection[str], logs: Collection[str]) -> _Reading:
        if logs:
            flow, program = self._compiled.reading(operators, logs)
            if read := flow.sources.keys() & set(logs):
                return _Reading(flow, frozenset(read), self._runner.job(flow, program))
        return _Reading(self._compiled.flow, frozenset(), None)

    def _narrowed(self, replay: Replay, operators: Collection[str], reading: _Reading) -> Replay:
        write = {operator: where for operator, where in replay.write.items() if operator in operators}
        run = demand(reading.flow, write, self._runner.partitions)
        return replace(replay, write=write, run=run, sources=sources_of(reading.flow, run))

    def _logs(self, replay: Replay, reading: _Reading, recovery: RecoveryRecord) -> Iterator[Work]:
        """What logs give instead of the operators behind them."""
        for log in sorted(replay.sources & reading.logs):
            name = self._names[log]
            recovery.note_read(recovery.logs, name, [replay.epoch], filling=replay.first == 0)
            yield Work(log, self._from_log(replay, name, self._compiled.flow.operators[log].fields), [{}])

    def _from_log(self, replay: Replay, name: str, fields: tuple[Field, ...]) -> LoggedChange | LoggedRows:
        kind = LoggedRows if replay.first == 0 else LoggedChange
        return kind(fields, self._open.log_of(name), replay.epoch, self._runner.partitions)

    def _from_former(self, replay: Replay, name: str, fields: tuple[Field, ...]) -> ConvertedRows:
        """The rows of an input whose schema changed, from the log that it had."""
        former, compiled = self.former[name], self._compiled
        kept = compiled.kept_as(name, former.version, self._open.state.epochs.chain(), former.fields)
        log = self._open.layers.readable(kept)
        at = min(replay.epoch, former.upto)
        return ConvertedRows(fields, log, at, self._runner.partitions, compiled.fields(name))

    def _work(self, replay: Replay, recovery: RecoveryRecord) -> Iterator[Work]:
        """What the epochs of a replay took of its sources."""
        filling = replay.first == 0
        for name in sorted(replay.sources & self._compiled.declared.sources.keys()):
            source = self._compiled.declared.sources[name]
            rewinds = self._open.state.rewinds
            live = self._open.intake.in_effect(name, replay.epoch, rewinds)
            taken = [each for each in live if replay.first <= each[0]]
            epochs, offers = [epoch for epoch, _ in taken], [offer for _, offer in taken]
            if not offers:
                continue
            if name in self.former and filling:
                recovery.note_read(recovery.logs, name, [replay.epoch], filling)
                yield Work(name, self._from_former(replay, name, tuple(source.fields)), [{}])
            elif not filling and (owed := rewinds.retaken(replay.epoch)) is not None:
                yield retaken(self._open, name, owed, offers[0], self._runner.partitions)
                recovery.note_read(recovery.sources, name, epochs, filling)
            elif source.replayable:
                recovery.note_read(recovery.sources, name, epochs, filling)
                yield Work(name, source, offers)
            elif all((name, epoch) in self._open.pushed for epoch in epochs):
                recovery.note_read(recovery.sources, name, epochs, filling)
                yield Work(name, self._open.pushed.source(name, epochs, tuple(source.fields)), [{}])
            else:
                recovery.note_read(recovery.logs, name, [replay.epoch], filling)
                yield Work(name, self._from_log(replay, name, tuple(source.fields)), [{}])
