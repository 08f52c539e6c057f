"""A flow in motion: the log directory, the coordinator, the epoch job, the sinks.

`Flow` records what the user declares; an `Engine` is made of those declarations when the first epoch is asked for, and
made anew when they change. What it needs to go on from is in the log: the lineage of the epochs so far, and the layers,
found by operator fingerprint. An operator whose state the log does not hold (a new view, or one whose meaning changed)
is filled from the history of its sources, once, before the next epoch; all others are left as they are.
"""

from __future__ import annotations

import secrets
import statistics
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from holdfast.connectors.kept import KeptChange, KeptRows
from holdfast.connectors.sink import Sink
from holdfast.connectors.source import Offer, Source
from holdfast.coordinator.epochs import Coordinator
from holdfast.coordinator.lineage import Lineage
from holdfast.delivery import Delivery
from holdfast.errors import EpochUnavailable, LogDamaged
from holdfast.operators.kept import Kept
from holdfast.operators.program import KINDS, Compiled, compile_program, is_native
from holdfast.operators.stage import Epoch, Report, decode
from holdfast.plan import nodes
from holdfast.plan.dataflow import Dataflow, build
from holdfast.plan.explain import explain
from holdfast.results import Epoch as EpochResult
from holdfast.results import Status, TraceStatus
from holdfast.spark.analysis import Analyst
from holdfast.spark.epoch import EpochJob, Outcome, Work
from holdfast.spark.maintenance import Maintenance, Upkeep
from holdfast.spark.read import changes_frame, read_frame
from holdfast.store.directory import LogDirectory
from holdfast.store.lineage import LineageLog
from holdfast.trace.cover import covered
from holdfast.trace.layer import list_layers
from holdfast.trace.name import LayerName

STATE_HISTORY = 8
"""So many epochs of an operator's state can be read as of; views reach back as far as the flow retains."""


@dataclass(frozen=True)
class Declared:
    """What the user declared, as plain values."""

    name: str
    log: Path
    sources: Mapping[str, Source]
    views: Mapping[str, nodes.Node]
    texts: Mapping[str, str]
    """View → its SQL, for people."""

    sinks: Sequence[tuple[str, Sink]]
    retain: int | None
    """How many epochs back views can be read; None: all."""


@dataclass
class Told:
    """What the connectors of this process know already, from an engine before this one."""

    advanced: dict[str, int] = field(default_factory=dict)
    """Source → how many offers it was told were taken."""

    delivered: dict[Sink, int] = field(default_factory=dict)
    """Sink → the last epoch that it was given."""


class Engine:
    """Runs a declared flow on Spark."""

    def __init__(self, declared: Declared, spark: SparkSession, analyst: Analyst, partitions: int, told: Told) -> None:
        self.declared = declared
        self._told = told
        self._spark = spark
        self._own = analyst.session
        self._partitions = partitions
        self._latencies: deque[float] = deque(maxlen=100)
        views = {name: analyst.settle(name, node) for name, node in declared.views.items()}
        kept = {
            name: nodes.Source(name, source.fields)
            for name, source in declared.sources.items()
            if source.retracts or not source.replayable
        }
        for node in kept.values():
            analyst.settle(node.name, node)
        self._types = analyst.types
        self._flow = build(views, kept, analyst.types, is_native)
        self._program = compile_program(self._flow, analyst.types)
        self._job = EpochJob(self._own, self._flow, self._program, analyst.types, partitions)
        self._directory = LogDirectory.open(declared.log, declared.name, create=True, exclusive=True)
        try:
            self._open()
        except BaseException:
            self._directory.close()
            raise

    def _open(self) -> None:
        self._lineage = LineageLog(self._directory.path / "lineage" / "log.jsonl")
        history = self._lineage.history
        self._coordinator = Coordinator(history)
        self._offers: dict[str, list[Offer]] = {}
        for lineage in history:
            self._remember(lineage)
        for name, offers in self._offers.items():
            if name in self.declared.sources:
                for offer in offers[self._told.advanced.get(name, 0) :]:
                    self._advance(name, offer)
        self._maintenance = Maintenance(self._spark)
        self._remove_stale(history)
        self._write_collections()
        self._fill()
        self._delivery = Delivery(self.declared.sinks, self._kept, self._lineage.history, self._told.delivered)

    @property
    def last(self) -> int:
        return self._coordinator.last

    # -- epochs ---------------------------------------------------------------------------------------------------

    def step(self) -> EpochResult:
        """Run one epoch, if anything waits. The very first runs in any case: a view over nothing has a result too."""
        self._delivery.catch_up(self.last)
        while True:
            started = time.perf_counter()
            offers = {
                name: offer for name, source in self.declared.sources.items() if (offer := source.poll()) is not None
            }
            if not offers and self.last >= 0:
                return EpochResult(None)
            lineage = self._coordinator.begin(offers, time.time_ns() // 1000, secrets.randbits(63))
            try:
                outcome = self._run(lineage)
            except BaseException as error:
                self._coordinator.abandon(lineage)
                self._remove_layers(lineage.digest)
                if isinstance(error, Exception) and self._rejected(offers, error):
                    continue
                raise
            break
        self._lineage.append(lineage)
        self._coordinator.complete(lineage)
        self._remember(lineage)
        for name, offer in offers.items():
            self._advance(name, offer)
        self._delivery.commit(lineage, lambda view: _delivered(outcome, self._flow.views[view]))
        seconds = time.perf_counter() - started
        self._latencies.append(seconds)
        self._maintain(outcome)
        return self._result(lineage.epoch, outcome, seconds)

    def _run(self, lineage: Lineage) -> Outcome:
        epoch = Epoch(
            number=lineage.epoch,
            first=lineage.epoch,
            digest=lineage.digest,
            chain=self._coordinator.chain(),
            partitions=self._partitions,
            traces=str(self._directory.traces),
            deliver=frozenset(self._flow.views[view] for view, _ in self.declared.sinks),
        )
        work = [Work(name, self.declared.sources[name], [offer]) for name, offer in lineage.offers.items()]
        return self._job.run(epoch, work, f"{self.declared.name}: epoch {lineage.epoch}")

    def _rejected(self, offers: Mapping[str, Offer], error: Exception) -> bool:
        # Every source is told, whatever the others say.
        return any([self.declared.sources[name].reject(offer, error) for name, offer in offers.items()])

    def _remember(self, lineage: Lineage) -> None:
        for name, offer in lineage.offers.items():
            self._offers.setdefault(name, []).append(offer)

    def _advance(self, name: str, offer: Offer) -> None:
        self.declared.sources[name].advance(offer)
        self._told.advanced[name] = self._told.advanced.get(name, 0) + 1

    def _result(self, epoch: int, outcome: Outcome, seconds: float) -> EpochResult:
        changed = {
            view: sum(report.rows.get(mark, 0) for report in outcome.reports) for view, mark in self._flow.views.items()
        }
        slowest: dict[int, Report] = {}
        for report in outcome.reports:
            if report.stage not in slowest or report.ended - report.started > (
                slowest[report.stage].ended - slowest[report.stage].started
            ):
                slowest[report.stage] = report
        timings = {"planning": outcome.planning}
        for report in slowest.values():
            for what, spent in report.seconds.items():
                timings[what] = timings.get(what, 0.0) + spent
        return EpochResult(
            epoch,
            {view: count for view, count in changed.items() if view in self.declared.views},
            sum(report.arrived for report in outcome.reports if report.stage == 0),
            seconds,
            timings,
        )

    def replay(self, number: int, partitions: int) -> dict[str, pa.Table]:
        """Compute a past epoch again, from its lineage and the traces as of the epoch before; nothing is written.
        View → its change (``c0…``, ``_diff``): what it was then, bit for bit (invariant 1)."""
        lineage = self._lineage.history[number]
        program = compile_program(self._flow, self._types, transient=self._flow.operators)
        job = EpochJob(self._own, self._flow, program, self._types, partitions)
        epoch = Epoch(
            number=number,
            first=number,
            digest=lineage.digest,
            chain=self._coordinator.chain(),
            partitions=partitions,
            traces=str(self._directory.traces),
            deliver=frozenset(self._flow.views.values()),
        )
        work = []
        for name, offer in lineage.offers.items():
            source = self.declared.sources[name]
            if source.replayable:
                work.append(Work(name, source, [offer]))
            else:
                work.append(Work(name, KeptChange(source.fields, self._kept(name), number, partitions), [{}]))
        outcome = job.run(epoch, work, f"{self.declared.name}: epoch {number} again")
        return {view: _delivered(outcome, mark) for view, mark in self._flow.views.items()}

    # -- state ----------------------------------------------------------------------------------------------------

    def _fill(self) -> None:
        """Give operators whose state the log does not hold the history of their sources, as one compound epoch."""
        if self.last < 0:
            return
        missing = {one.id for one in self._program.operators if not self._is_complete(one)}
        if not missing:
            return
        lost = [name for name, mark in self._flow.views.items() if mark in missing and name in self.declared.sources]
        if any(name in self._offers for name in lost):
            raise LogDamaged(
                f"log {self.declared.log}: the rows of input {', '.join(map(repr, lost))} are not complete, "
                "and there is no copy to take them from",
                path=str(self.declared.log),
            )
        needed = missing | self._flow.ancestors(missing)
        flow = Dataflow(
            {mark: one for mark, one in self._flow.operators.items() if mark in needed},
            [path for path in self._flow.paths if path.consumer in needed],
            {name: source for name, source in self._flow.sources.items() if name in needed},
        )
        program = compile_program(flow, self._types, transient=set(flow.operators) - missing)
        job = EpochJob(self._own, flow, program, self._types, self._partitions)
        epoch = Epoch(
            number=self.last,
            first=0,
            digest=self._coordinator.head,
            chain=self._coordinator.chain(),
            partitions=self._partitions,
            traces=str(self._directory.traces),
        )
        work = []
        for name in flow.sources:
            source = self.declared.sources[name]
            if name not in self._offers:
                continue
            if source.replayable:
                work.append(Work(name, source, self._offers[name]))
            else:
                work.append(Work(name, KeptRows(source.fields, self._kept(name), self.last, self._partitions), [{}]))
        job.run(epoch, work, f"{self.declared.name}: filling new views as of epoch {self.last}")

    def _is_complete(self, operator: Compiled) -> bool:
        chain = self._coordinator.chain()
        return all(
            covered(self._names(directory), 0, 2**64, chain) >= self.last for directory in self._directories(operator)
        )

    def _directories(self, operator: Compiled) -> list[Path]:
        suffixes = KINDS[operator.kind].layouts(operator.spec)
        return [self._directory.traces / f"{operator.id}.{suffix}" for suffix in suffixes]

    @staticmethod
    def _names(directory: Path) -> list[LayerName]:
        return list_layers(directory) if directory.is_dir() else []

    def _remove_stale(self, history: Sequence[Lineage]) -> None:
        """Remove layers of epochs that never completed: what a crash or an abandoned epoch left behind."""
        for directory in self._directory.traces.iterdir():
            for torn in directory.glob(".*.tmp"):
                torn.unlink(missing_ok=True)
            for name in self._names(directory):
                if name.last >= len(history) or history[name.last].digest != name.digest:
                    (directory / name.text()).unlink(missing_ok=True)

    def _remove_layers(self, digest: str) -> None:
        for operator in self._program.operators:
            for directory in self._directories(operator):
                for name in self._names(directory):
                    if name.digest == digest:
                        (directory / name.text()).unlink(missing_ok=True)

    def _write_collections(self) -> None:
        self._directory.write_collections(
            {
                name: {
                    "kind": "view" if name in self.declared.views else "source",
                    "sql": self.declared.texts.get(name, ""),
                    "fields": [[field.name, field.type] for field in self._kept(name).fields],
                    "fingerprint": mark,
                    "key": list(self._kept(name).spec.key),
                }
                for name, mark in self._flow.views.items()
            }
        )

    def _maintain(self, outcome: Outcome) -> None:
        many = {
            trace
            for report in outcome.reports
            for trace, count in report.layers.items()
            if count >= self._maintenance.tolerated
        }
        if not many:
            return
        upkeep = []
        for operator in self._program.operators:
            for suffix, layout in KINDS[operator.kind].layouts(operator.spec).items():
                if f"{operator.id}.{suffix}" in many:
                    reach = self.declared.retain
                    if reach is not None and operator.kind != "log":
                        reach = min(reach, STATE_HISTORY)
                    since = -1 if reach is None else max(-1, self.last - reach)
                    directory = str(self._directory.traces / f"{operator.id}.{suffix}")
                    upkeep.append(Upkeep(directory, layout, since))
        self._maintenance.request(upkeep, self._coordinator.chain(), self.last, self._partitions)

    # -- views ----------------------------------------------------------------------------------------------------

    def _kept(self, name: str) -> Kept:
        operator = next(one for one in self._program.operators if one.id == self._flow.views[name])
        directory = self._directory.traces / f"{operator.id}.rows"
        fields = self._view_fields(name)
        return Kept(str(directory), operator.spec, fields, self._coordinator.chain())

    def _view_fields(self, name: str) -> tuple[nodes.Field, ...]:
        """The user's names with Spark's types. (Two views of the same meaning share their rows, under other names.)"""
        if name in self.declared.views:
            names = self.declared.views[name].columns
        else:
            names = tuple(field.name for field in self.declared.sources[name].fields)
        kinds = self._flow.operators[self._flow.views[name]].fields
        return tuple(nodes.Field(each, kind.type) for each, kind in zip(names, kinds, strict=True))

    def read(self, view: str, at: int | None) -> DataFrame:
        at = self._known(view, self.last if at is None else at)
        order = nodes.shown_order(self.declared.views[view])
        return read_frame(self._spark, self._kept(view), at, self._partitions, order)

    def changes(self, view: str, since: int) -> DataFrame:
        since = self._known(view, since) if since >= 0 else -1
        return changes_frame(self._spark, self._kept(view), since, self.last, self._partitions)

    def _known(self, view: str, epoch: int) -> int:
        if epoch > self.last:
            raise EpochUnavailable(
                f"view '{view}': epoch {epoch} is not there yet; the last is {self.last}", view=view, epoch=epoch
            )
        if epoch < 0:
            raise EpochUnavailable(f"view '{view}': epochs start at 0, not at {epoch}", view=view, epoch=epoch)
        self._kept(view).check(view, epoch)
        return epoch

    def explain(self, view: str) -> str:
        return explain(self._flow, view, self._trace_status())

    # -- status ---------------------------------------------------------------------------------------------------

    def _trace_status(self) -> list[TraceStatus]:
        found = []
        for operator in self._program.operators:
            for directory in self._directories(operator):
                sizes = [entry.stat().st_size for entry in directory.iterdir()] if directory.is_dir() else []
                found.append(TraceStatus(directory.name, operator.kind, len(sizes), sum(sizes)))
        return found

    def status(self) -> Status:
        latencies = sorted(self._latencies)
        return Status(
            flow=self.declared.name,
            log=str(self.declared.log),
            epoch=self.last,
            views={
                name: {"sql": self.declared.texts.get(name, ""), "operator": self._flow.views[name]}
                for name in self.declared.views
            },
            sources={name: {"waiting": source.waiting()} for name, source in self.declared.sources.items()},
            sinks=[
                {"view": view, "kind": type(sink).__name__, "epoch": self._delivery.epochs[place]}
                for place, (view, sink) in enumerate(self.declared.sinks)
            ],
            traces=self._trace_status(),
            latency={
                "median": statistics.median(latencies) if latencies else 0.0,
                "p99": latencies[int(0.99 * (len(latencies) - 1))] if latencies else 0.0,
            },
            partitions=self._partitions,
            maintenance={
                "merges": self._maintenance.merges,
                "busy": self._maintenance.busy,
                "failure": self._maintenance.failure,
            },
        )

    def close(self) -> None:
        self._maintenance.close()
        self._delivery.close()
        self._lineage.close()
        self._directory.close()


def _delivered(outcome: Outcome, mark: str) -> pa.Table:
    """What the tasks delivered of one log's change."""
    return pa.concat_tables([decode(report.outputs[mark]) for report in outcome.reports if mark in report.outputs])
