"""Carries out a replay: lost layers are computed again from the nearest logs that still hold their input.

The plan (`coordinator/recovery_plan.py`) says which operators lost which epochs. They need the change of their inputs
at the epoch. The search for it walks back through the dataflow and ends at each view or kept source whose log has that
change. For the replay the dataflow is built anew with those logs as sources (`CompiledFlow.reading`); an operator that
a rewrite fused with a view is answered from the view's rows (`plan/answering.py`). Operators upstream of these logs are
not run, and sources upstream of them are not read. The input of a source is read again only if no log is on the way.

A log cannot stand in for an operator that is itself to be written. If such a log lies between two lost operators, they
are computed in two replays, each from the logs or sources that lie before it.
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
    """A way to compute some operators: a dataflow in which logs are sources, and a job for it (None: the flow's)."""

    flow: Dataflow
    logs: frozenset[str]
    job: Job | None


class ReplayRun:
    """Carries out replays, and notes in a record what they ran and read."""

    def __init__(self, flow: OpenFlow, again: Again) -> None:
        """``again`` runs a replay, by the flow's own job or another."""
        self._open = flow
        self._compiled = flow.compiled
        self._runner = flow.runner
        self._again = again
        self.former: dict[str, FormerLog] = {}
        """Input whose schema changed → its former log, while the new log is made from it."""

        self._leaves_out = flow.state.settings.strategy.on_loss is OnLoss.LEAVE_OUT
        """Whether the strategy replaces lost epochs by empty ones."""

        self._readings: dict[tuple[frozenset[str], frozenset[str]], _Reading] = {}
        self._names = {log: name for name, log in reversed(flow.compiled.flow.views.items())}

    def carry_out(self, replay: Replay, layers: Layers, recovery: RecoveryRecord) -> None:
        """Write the layers of a replay. ``layers``: the layers that exist before it."""
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
        """Return the replays into which one is divided, each with the sources that it reads."""
        return [part for part, _ in self._parts(replay, layers)]

    def _parts(self, replay: Replay, layers: Layers) -> Iterator[tuple[Replay, _Reading]]:
        """Yield the replay itself, or several if logs lie between operators that are to be written."""
        flow = self._compiled.flow
        filling = replay.first == 0
        # A log gives the change of an epoch only if it is readable as of that epoch and as of the one before.
        first = replay.epoch if filling else replay.epoch - 1
        usable = [
            log
            for log in dict.fromkeys(flow.views.values())
            if log not in replay.write and layers.has_epochs(f"{log}.rows", first, replay.epoch)
        ]
        left = set(replay.write)
        while left:
            # From the end of the dataflow: the last operators, and all others with no log between them and these.
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
        """Yield the input that logs give in place of the operators upstream of them."""
        for log in sorted(replay.sources & reading.logs):
            name = self._names[log]
            recovery.note_read(recovery.logs, name, [replay.epoch], filling=replay.first == 0)
            yield Work(log, self._from_log(replay, name, self._compiled.flow.operators[log].fields), [{}])

    def _from_log(self, replay: Replay, name: str, fields: tuple[Field, ...]) -> LoggedChange | LoggedRows:
        kind = LoggedRows if replay.first == 0 else LoggedChange
        return kind(fields, self._open.log_of(name), replay.epoch, self._runner.partitions)

    def _from_former(self, replay: Replay, name: str, fields: tuple[Field, ...]) -> ConvertedRows:
        """Return the rows of an input whose schema changed, read from its former log."""
        former, compiled = self.former[name], self._compiled
        kept = compiled.kept_as(name, former.version, self._open.state.epochs.chain(), former.fields)
        log = self._open.layers.readable(kept)
        at = min(replay.epoch, former.upto)
        return ConvertedRows(fields, log, at, self._runner.partitions, compiled.fields(name))

    def _work(self, replay: Replay, recovery: RecoveryRecord) -> Iterator[Work]:
        """Yield the input that the epochs of a replay took of its sources."""
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
