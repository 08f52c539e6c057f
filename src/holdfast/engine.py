"""A flow in motion: the log, the coordinator, the epoch job, the sinks, durability.

`Flow` records what the user declares; an `Engine` is made of those declarations when the first epoch is asked for, and
made anew when they change. Opening it is recovery: it finds the history, brings back the layers that are missing from
wherever a copy is, and computes again what no copy holds (`recovery.py`). An operator whose state the log does not hold
at all (a new view, or one whose meaning changed) is filled from the history of its sources; all others are left as
they are. A layer that turns out to be damaged later is repaired in the same way, and the epoch run again.

The engine knows no Spark: a `Runner` does the work.
"""

from __future__ import annotations

import os
import socket
import statistics
import time
import warnings
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from holdfast import marks
from holdfast.connectors.kept import KeptChange, KeptRows
from holdfast.connectors.sink import Sink
from holdfast.connectors.source import Offer, Source
from holdfast.coordinator.epochs import Coordinator
from holdfast.coordinator.lineage import Lineage
from holdfast.coordinator.recovery import Replay, plan_recovery
from holdfast.coordinator.replication import reached
from holdfast.delivery import Delivery
from holdfast.durability import Durability, Settings
from holdfast.durability import Kept as KeptTrace
from holdfast.errors import EpochUnavailable, LogDamaged, LogError, StoreError
from holdfast.maintenance import Maintenance, Wanted
from holdfast.operators.kept import Kept
from holdfast.operators.program import KINDS, compile_program, is_native, partition_range
from holdfast.operators.stage import Epoch, Report, decode
from holdfast.plan import nodes
from holdfast.plan.dataflow import Types, build
from holdfast.plan.explain import explain
from holdfast.recovery import Layers, fetch_missing, find_history, local_layers, remove_stale, set_aside, timed
from holdfast.results import Epoch as EpochResult
from holdfast.results import Recovery, Status, TraceStatus
from holdfast.runner import Outcome, Runner, Work
from holdfast.store.directory import LogDirectory
from holdfast.store.lineage import LineageLog
from holdfast.store.location import Location
from holdfast.store.replica import Claim, Replica
from holdfast.trace.rows import Layout

STATE_HISTORY = 8
"""So many epochs of an operator's state can be read as of; views reach back as far as the flow retains."""

_REPAIRS = 10
"""So often one epoch may find a damaged layer before it gives up."""

T = TypeVar("T")


@dataclass(frozen=True)
class Declared:
    """What the user declared, as plain values."""

    name: str
    local: Path
    """The directory of the local layers."""

    locations: tuple[Location, ...]
    """Where the log is kept durably."""

    sources: Mapping[str, Source]
    views: Mapping[str, nodes.Node]
    texts: Mapping[str, str]
    """View → its SQL, for people."""

    sinks: Sequence[tuple[str, Sink]]
    settings: Settings


@dataclass
class Told:
    """What the connectors of this process know already, from an engine before this one."""

    advanced: dict[str, int] = field(default_factory=dict)
    """Source → how many offers it was told were taken."""

    released: dict[str, int] = field(default_factory=dict)
    """Source → how many offers it was told it may forget."""

    delivered: dict[Sink, int] = field(default_factory=dict)
    """Sink → the last epoch that it was given."""


class Engine:
    """Runs a declared flow."""

    def __init__(
        self, declared: Declared, views: Mapping[str, nodes.Node], types: Types, runner: Runner, told: Told
    ) -> None:
        """``views`` are the declared ones, typed."""
        self.declared = declared
        self.stopping = False
        self._opening = True
        self._told = told
        self._runner = runner
        self._partitions = self.partitions = runner.partitions
        self._latencies: deque[float] = deque(maxlen=100)
        kept = {
            name: nodes.Source(name, source.fields)
            for name, source in declared.sources.items()
            if source.retracts or not source.replayable
        }
        self._flow = build(views, kept, types, is_native)
        self._program = compile_program(self._flow, types)
        self._layouts: dict[str, tuple[str, Layout]] = {
            f"{operator.id}.{suffix}": (operator.id, layout)
            for operator in self._program.operators
            for suffix, layout in KINDS[operator.kind].layouts(operator.spec).items()
        }
        self._job = runner.job(self._flow, self._program, types)
        self.recovery = Recovery()
        self._directory = LogDirectory.open(declared.local, declared.name, create=True, exclusive=True)
        try:
            self._open()
        except BaseException:
            self._directory.close()
            raise

    # -- opening --------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        recovery = self.recovery
        self._delivery = Delivery(self.declared.sinks, self._view_fields, self._told.delivered)
        directories = [self._directory.traces / trace for trace in self._layouts]
        with timed(recovery, "lineage"):
            replicas = self._replicas()
            claim = self._claim(replicas)
            history = find_history(
                self._directory.lineage / "log.jsonl", replicas, self._delivery.seen(), directories, recovery
            )
            if not history and recovery.unreachable:
                # It may hold all that there ever was: to begin anew would be to forget it.
                raise StoreError(next(iter(recovery.unreachable.values())))
        marks.reach("recovery.found_history")
        self._lineage = LineageLog(self._directory.lineage / "log.jsonl", history)
        history = self._lineage.history
        self._coordinator = Coordinator(history, claim.term)
        remove_stale([path for path in self._directory.traces.iterdir() if path.is_dir()], history)
        self._offers: dict[str, list[tuple[int, Offer]]] = {}
        for lineage in history:
            self._remember(lineage)
        self._durability = Durability(
            self._runner,
            self.declared.locations,
            self.declared.settings,
            self._kept_traces(),
            self._directory.traces,
            history,
            self._coordinator.chain,
            claim,
        )
        self._maintenance = Maintenance(
            self._runner,
            lambda: (self._coordinator.chain(), self._durability.live_after, self._durability.flushed),
        )
        self._delivery.attach(self._kept, history, self._durability.uncommitted)
        for name, offers in self._offers.items():
            if name in self.declared.sources:
                for _, offer in offers[self._told.advanced.get(name, 0) :]:
                    self._advance(name, offer)
        self._write_collections(replicas)
        self._recover(recovery)
        self._durability.request()

    def _replicas(self) -> dict[str, Replica]:
        """The log locations that can be used."""
        if not self.declared.settings.durable:
            return {}
        found = {}
        for location in self.declared.locations:
            replica = Replica(location)
            try:
                replica.open(self.declared.name)
                found[location.uri] = replica
            except StoreError as error:
                self.recovery.unreachable[location.uri] = str(error)
        if not found:
            raise StoreError(next(iter(self.recovery.unreachable.values())))
        for uri, why in self.recovery.unreachable.items():
            warnings.warn(f"holdfast: log location {uri} cannot be used now, and will be tried again: {why}", stacklevel=1)
        return found

    def _claim(self, replicas: Mapping[str, Replica]) -> Claim:
        """Claim the log, before its history is read: a driver before this one that still runs will notice."""
        terms = [claim.term for replica in replicas.values() for claim in replica.claims()]
        claim = Claim(max(terms, default=0) + 1, f"{self._runner.draw():016x}")
        said = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.time()}
        for replica in replicas.values():
            replica.claim(claim, said)
        return claim

    def _kept_traces(self) -> dict[str, KeptTrace]:
        kinds = {operator.id: operator.kind for operator in self._program.operators}
        retention = self.declared.settings.retention
        everything = retention.epochs is None and retention.seconds is None
        return {
            trace: KeptTrace(layout, None if everything or kinds[operator] == "log" else STATE_HISTORY)
            for trace, (operator, layout) in self._layouts.items()
        }

    def _write_collections(self, replicas: Mapping[str, Replica]) -> None:
        collections = {
            name: {
                "kind": "view" if name in self.declared.views else "source",
                "sql": self.declared.texts.get(name, ""),
                "fields": [[field.name, field.type] for field in self._kept(name).fields],
                "fingerprint": mark,
                "key": list(self._kept(name).spec.key),
            }
            for name, mark in self._flow.views.items()
        }
        self._directory.write_collections(collections)
        for replica in replicas.values():
            try:
                replica.write_collections(collections)
            except StoreError as error:
                self.recovery.unreachable[replica.location.uri] = str(error)

    # -- recovery -------------------------------------------------------------------------------------------------

    def _recover(self, recovery: Recovery) -> None:
        """Bring every live trace to the last epoch. Whatever is damaged on the way is set aside, and done without."""
        self.recovery = recovery
        self._opening = True
        self._repairing(lambda: self._recover_once(recovery))
        self._opening = False
        if self.declared.settings.durable and self.last >= 0:
            self._durability.look()

    def _recover_once(self, recovery: Recovery) -> None:
        if self.last < 0:
            return
        traces = list(self._layouts)
        ranges = [partition_range(partition, self._partitions) for partition in range(self._partitions)]

        def look() -> Layers:
            self._durability.look()
            return Layers(traces, self._directory.traces, self.last, self._durability.holdings)

        with timed(recovery, "look"):
            layers = Layers(traces, self._directory.traces, self.last, {})
            whole = all(layers.reach(trace, 0, 2**64) >= self.last for trace in traces)
        if not whole and self.declared.settings.durable:
            with timed(recovery, "fetch"):
                layers = fetch_missing(self._runner, look, traces, ranges, self.declared.locations, recovery)
        recovery.layers_reused = sum(map(len, layers.local.values())) - recovery.layers_fetched
        plan = self._plan(layers, ranges)
        with timed(recovery, "replay"):
            for replay in plan:
                marks.reach("recovery.before_replay")
                self._run_again(replay)
                if replay.first == replay.epoch:
                    recovery.epochs = sorted({*recovery.epochs, replay.epoch})
                else:
                    recovery.filled = replay.epoch
                for operator, where in replay.write.items():
                    recovery.partitions[operator] = sorted({*recovery.partitions.get(operator, ()), *where})

    def _plan(self, layers: Layers, ranges: Sequence[tuple[int, int]]) -> list[Replay]:
        of: dict[str, list[str]] = {}
        for trace, (operator, _) in self._layouts.items():
            of.setdefault(operator, []).append(trace)
        covers = {
            (operator, partition): min(layers.reach(trace, low, high) for trace in traces)
            for operator, traces in of.items()
            for partition, (low, high) in enumerate(ranges)
        }
        lost = {operator for (operator, _), upto in covers.items() if upto < self.last}
        if not lost:
            return []
        self._check_input(covers)
        views = {name for name, mark in self._flow.views.items() if mark in lost}
        behind = self._delivery.behind(views)
        return plan_recovery(
            self._flow,
            covers,
            self._partitions,
            self.last,
            self.last if behind is None else min(behind, self.last),
            lambda operator, partition, epoch: all(
                layers.readable(trace, *ranges[partition], epoch, covers[operator, partition])
                for trace in of[operator]
            ),
        )

    def _check_input(self, covers: Mapping[tuple[str, int], int]) -> None:
        """Rows that were pushed by code are in the log and nowhere else: what no copy of it holds is gone."""
        for name, source in self.declared.sources.items():
            mark = self._flow.views.get(name)
            if source.replayable or mark is None or name not in self._offers:
                continue
            upto = min(covers[mark, partition] for partition in range(self._partitions))
            lost = [epoch for epoch, _ in self._offers[name] if epoch > upto]
            if lost:
                raise LogDamaged(
                    f"log {self.declared.local}: the rows pushed to input '{name}' in epochs {lost[0]} to {lost[-1]} are "
                    "not complete, and there is no copy to take them from",
                    name=name,
                    first=lost[0],
                    last=lost[-1],
                )

    def _run_again(self, replay: Replay) -> None:
        lineage = self._lineage.history[replay.epoch]
        single = replay.first == replay.epoch
        work = []
        for name in sorted(replay.sources):
            source = self.declared.sources[name]
            offers = [offer for epoch, offer in self._offers.get(name, ()) if replay.first <= epoch <= replay.epoch]
            if not offers:
                continue
            if source.replayable:
                work.append(Work(name, source, offers))
            else:
                part = KeptChange if single else KeptRows
                work.append(
                    Work(name, part(source.fields, self._kept(name), replay.epoch, self._partitions), [{}])
                )
        what = f"epoch {replay.epoch} again" if single else f"filling views as of epoch {replay.epoch}"
        epoch = self._epoch(lineage, first=replay.first, again=True, run=replay.run, write=replay.write)
        self._job.run(epoch, work, f"{self.declared.name}: {what}")

    def _repairing(self, work: Callable[[], T]) -> T:
        """Do ``work``; when it meets a layer that is damaged or gone, recover, and do it again."""
        for _ in range(_REPAIRS):
            try:
                return work()
            except LogDamaged as error:
                damage = error
            if not self._opening:
                self.recovery = Recovery(epoch=self.last)
            self._mend(damage)
        return work()

    def _mend(self, error: LogDamaged) -> None:
        """Set a damaged layer aside and recover without it; raise the error again if that changes nothing."""
        for _ in range(_REPAIRS):
            aside = self._set_aside(error)
            before = self.recovery.work
            try:
                self._recover_once(self.recovery)
            except LogDamaged as another:
                if not aside and str(another) == str(error):
                    raise
                error = another
                continue
            if aside or self.recovery.work != before:
                return
            raise error
        raise error

    def _set_aside(self, error: LogDamaged) -> bool:
        """Take a damaged layer out of use; False if the error does not name one. A layer that is gone needs no
        taking away: then what to do is the same."""
        path = error.fields.get("path")
        if not isinstance(path, str) or Path(path).parent.parent != self._directory.traces:
            return False
        set_aside(Path(path), self._directory.path)
        self.recovery.damaged.append(str(error))
        return True

    def _repair_found(self) -> None:
        """Repair what background work found damaged."""
        found = [*self._maintenance.damaged, *self._durability.damaged]
        if found:
            self._maintenance.damaged.clear()
            self._durability.damaged.clear()
            recovery = Recovery(epoch=self.last)
            self.recovery = recovery
            for error in found:
                self._set_aside(error)
            self._recover(recovery)

    @property
    def last(self) -> int:
        return self._coordinator.last

    @property
    def history(self) -> Sequence[Lineage]:
        """The lineage of all complete epochs."""
        return self._lineage.history

    @property
    def safe(self) -> int:
        """The safe point."""
        return self._durability.safe

    def is_held(self, location: int) -> bool:
        """Whether a log location holds everything, as far as the last look at it told."""
        holding = self._durability.holdings.get(location)
        return holding is not None and reached(holding, list(self._layouts), self.last) == self.last

    # -- epochs ---------------------------------------------------------------------------------------------------

    def step(self) -> EpochResult:
        """Run one epoch, if anything waits. The very first runs in any case: a view over nothing has a result too."""
        if self._durability.fenced is not None:
            raise self._durability.fenced
        self._repair_found()
        self._repairing(lambda: self._delivery.catch_up(self.last))
        self._release()
        while True:
            started = time.perf_counter()
            offers = {
                name: offer for name, source in self.declared.sources.items() if (offer := source.poll()) is not None
            }
            if not offers and self.last >= 0:
                return EpochResult(None)
            waited = self._durability.wait_for_room(lambda: self.stopping, self._say_waiting)
            if waited and self.stopping:
                return EpochResult(None)
            lineage = self._coordinator.begin(offers, self._runner.clock(), self._runner.draw())
            try:
                outcome = self._repairing(partial(self._run, lineage))
            except BaseException as error:
                self._coordinator.abandon(lineage)
                self._remove_layers(lineage.digest)
                if isinstance(error, Exception):
                    # A driver that another has taken over from fails at many things; it should say the real reason.
                    self._durability.check_claims()
                    if self._rejected(offers, error):
                        continue
                raise
            break
        marks.reach("epoch.ran")
        lineage = lineage.answered(_answers(outcome.reports))
        self._lineage.append(lineage)
        self._coordinator.complete(lineage)
        self._remember(lineage)
        for name, offer in offers.items():
            self._advance(name, offer)
        marks.reach("epoch.complete")
        written = sum(size for report in outcome.reports for layers in report.written.values() for _, size in layers)
        self._durability.completed(lineage.epoch, written)
        if self.declared.settings.strategy == "synchronous-log":
            self._durability.wait(lineage.epoch)
        self._delivery.commit(lineage, lambda view: _delivered(outcome, self._flow.views[view]))
        seconds = time.perf_counter() - started
        self._latencies.append(seconds)
        self._maintain(outcome)
        return self._result(lineage.epoch, outcome, seconds, waited)

    def _say_waiting(self) -> None:
        size, epochs = self._durability.unsafe
        troubles = [trouble.error for trouble in self._durability.troubles.values()]
        why = f": {troubles[0]}" if troubles else ""
        warnings.warn(
            f"holdfast: flow '{self.declared.name}' waits for storage: {size / 1e6:,.1f} MB of {epochs} epochs are not "
            f"safe yet, more than max_unsafe allows{why}",
            stacklevel=1,
        )

    def _run(self, lineage: Lineage) -> Outcome:
        epoch = self._epoch(lineage, deliver=frozenset(self._flow.views[view] for view, _ in self.declared.sinks))
        work = [Work(name, self.declared.sources[name], [offer]) for name, offer in lineage.offers.items()]
        return self._job.run(epoch, work, f"{self.declared.name}: epoch {lineage.epoch}")

    def _epoch(
        self,
        lineage: Lineage,
        *,
        first: int | None = None,
        again: bool = False,
        deliver: frozenset[str] = frozenset(),
        run: Mapping[str, frozenset[int]] | None = None,
        write: Mapping[str, frozenset[int]] | None = None,
        partitions: int | None = None,
    ) -> Epoch:
        return Epoch(
            number=lineage.epoch,
            first=lineage.epoch if first is None else first,
            digest=lineage.digest,
            chain=self._coordinator.chain(),
            partitions=partitions or self._partitions,
            traces=str(self._directory.traces),
            deliver=deliver,
            clock=lineage.clock,
            seed=lineage.seed,
            lineage=lineage.answered({}).to_json(),
            answers=lineage.answers if again else None,
            run=run,
            write=write,
        )

    def _rejected(self, offers: Mapping[str, Offer], error: Exception) -> bool:
        # Every source is told, whatever the others say.
        return any([self.declared.sources[name].reject(offer, error) for name, offer in offers.items()])

    def _remember(self, lineage: Lineage) -> None:
        for name, offer in lineage.offers.items():
            self._offers.setdefault(name, []).append((lineage.epoch, offer))

    def _advance(self, name: str, offer: Offer) -> None:
        self.declared.sources[name].advance(offer)
        self._told.advanced[name] = self._told.advanced.get(name, 0) + 1

    def _release(self) -> None:
        """Tell the sources what they may forget: the input of epochs up to the safe point."""
        for name, offers in self._offers.items():
            done = self._told.released.get(name, 0)
            while name in self.declared.sources and done < len(offers) and offers[done][0] <= self._durability.safe:
                self.declared.sources[name].release(offers[done][1])
                done += 1
                self._told.released[name] = done

    def _result(self, epoch: int, outcome: Outcome, seconds: float, waited: float) -> EpochResult:
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
        if waited:
            timings["back-pressure"] = waited
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
        epoch = self._epoch(
            lineage, again=True, deliver=frozenset(self._flow.views.values()), write={}, partitions=partitions
        )
        work = []
        for name, offer in lineage.offers.items():
            source = self.declared.sources[name]
            if source.replayable:
                work.append(Work(name, source, [offer]))
            else:
                work.append(Work(name, KeptChange(source.fields, self._kept(name), number, partitions), [{}]))
        outcome = self._job.run(epoch, work, f"{self.declared.name}: epoch {number} again")
        return {view: _delivered(outcome, mark) for view, mark in self._flow.views.items()}

    def wait_safe(self, epoch: int | None, timeout: float | None) -> int:
        """Wait until ``epoch`` (by default the last) is safe. The safe point."""
        wanted = self.last if epoch is None else epoch
        if wanted > self.last:
            raise EpochUnavailable(f"epoch {wanted} is not there yet; the last is {self.last}", epoch=wanted)
        if not self.declared.settings.durable:
            raise LogError(f"flow '{self.declared.name}': with strategy 'volatile' nothing is ever safe")
        if not self._durability.wait(wanted, timeout):
            why = "; ".join(trouble.error for trouble in self._durability.troubles.values())
            why = why or self._durability.failure or "the copies are not finished"
            raise StoreError(
                f"flow '{self.declared.name}': epoch {wanted} is not safe after {timeout:g} s: {why}", epoch=wanted
            )
        return self._durability.safe

    def upkeep(self) -> None:
        """Do in this thread what was asked of the background, for those who drive without threads."""
        self._maintenance.upkeep()
        self._durability.upkeep()

    # -- state ----------------------------------------------------------------------------------------------------

    def _remove_layers(self, digest: str) -> None:
        for trace in self._layouts:
            directory = self._directory.traces / trace
            for name in local_layers(directory):
                if name.digest == digest:
                    (directory / name.text()).unlink(missing_ok=True)

    def _maintain(self, outcome: Outcome) -> None:
        many = {
            trace
            for report in outcome.reports
            for trace, count in report.layers.items()
            if count >= self._maintenance.tolerated
        }
        if many:
            self._maintenance.request(
                [
                    Wanted(self._directory.traces / trace, layout, self._durability.since(trace))
                    for trace, (_, layout) in self._layouts.items()
                    if trace in many
                ]
            )

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

    def readable(self, view: str, at: int | None) -> tuple[Kept, int]:
        """The log of a view, and the epoch as of which it is to be read: by default the last."""
        epoch = self.last if at is None else at
        if epoch > self.last:
            raise EpochUnavailable(
                f"view '{view}': epoch {epoch} is not there yet; the last is {self.last}", view=view, epoch=epoch
            )
        if epoch < 0:
            raise EpochUnavailable(f"view '{view}': epochs start at 0, not at {epoch}", view=view, epoch=epoch)
        self._repairing(lambda: self._kept(view).check(view, epoch))
        return self._kept(view), epoch

    def order(self, view: str) -> tuple[nodes.Order, ...]:
        return nodes.shown_order(self.declared.views[view])

    def explain(self, view: str) -> str:
        return explain(self._flow, view, self._trace_status())

    # -- status ---------------------------------------------------------------------------------------------------

    def _trace_status(self) -> list[TraceStatus]:
        kinds = {operator.id: operator.kind for operator in self._program.operators}
        found = []
        for trace, (operator, _) in self._layouts.items():
            directory = self._directory.traces / trace
            sizes = [entry.stat().st_size for entry in directory.iterdir()] if directory.is_dir() else []
            found.append(TraceStatus(trace, kinds[operator], len(sizes), sum(sizes)))
        return found

    def _durability_status(self) -> dict[str, object]:
        durability = self._durability
        unsafe_bytes, unsafe_epochs = durability.unsafe
        traces = {
            name: [
                trace
                for trace, (operator, _) in self._layouts.items()
                if operator == mark or operator in self._flow.ancestors({mark})
            ]
            for name, mark in self._flow.views.items()
        }
        typical = statistics.median(self._latencies) if self._latencies else 0.0
        return {
            "strategy": self.declared.settings.strategy,
            "safe": durability.safe,
            "lineage": durability.flushed,
            "levels": {name: durability.levels(traces[name]) for name in self.declared.views},
            "locations": [
                {
                    "uri": location.uri,
                    "layers": sum(len(layers) for layers in holding.layers.values()) if holding else 0,
                    "bytes": sum(sum(layers.values()) for layers in holding.layers.values()) if holding else 0,
                    "failure": durability.troubles[number].error if number in durability.troubles else None,
                }
                for number, location in enumerate(self.declared.locations)
                for holding in [durability.holdings.get(number)]
            ],
            "unsafe": {"epochs": unsafe_epochs, "bytes": unsafe_bytes},
            "back_pressure": durability.settings.durable
            and not durability.settings.bound.allows(unsafe_bytes, unsafe_epochs),
            "recovery_seconds": unsafe_epochs * typical,
            "shipped": durability.shipped,
            "failure": durability.failure,
        }

    def status(self) -> Status:
        latencies = sorted(self._latencies)
        return Status(
            flow=self.declared.name,
            log=str(self.declared.local),
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
            durability=self._durability_status(),
        )

    def abandon(self) -> None:
        """Let go of the log as a process that dies does: nothing is finished, only the lock is free."""
        self._lineage.close()
        self._directory.close()

    def close(self) -> None:
        """Stop. What is not durable yet is given one more round."""
        self._maintenance.close()
        self._durability.close()
        self._release()
        self._delivery.close()
        self._lineage.close()
        self._directory.close()


def _answers(reports: Sequence[Report]) -> dict[str, dict[str, str]]:
    """What outside functions answered, by operator; no two tasks asked the same."""
    found: dict[str, dict[str, str]] = {}
    for report in reports:
        for operator, answers in report.answers.items():
            found.setdefault(operator, {}).update(answers)
    return found


def _delivered(outcome: Outcome, mark: str) -> pa.Table:
    """What the tasks delivered of one log's change."""
    return pa.concat_tables([decode(report.outputs[mark]) for report in outcome.reports if mark in report.outputs])
