"""One epoch as one Spark job.

    parts of the offers ─ stage 0 ─ exchange ─ stage 1 ─ exchange ─ … ─ last stage ─ driver

The exchange moves messages ``(partition, (channel, buffer))``; a partition is a range of key hashes. All operators of a
stage run in one task per partition, so a job has as many exchanges as the dataflow has stages, however many operators.

If the last epoch was small, the next one runs as a single task (`task.single_task`), unless its rows must cross through
Spark. If a resident task is free (`resident_task`), it runs that single task, and no job is needed. Where members have
layers of their own, no task can run all partitions; then a small epoch has few tasks, and reads its sources where the
rows are needed (`task.packed_tasks`).

RDDs are built anew each epoch, because an RDD that ran keeps the output of its exchange. The program is broadcast once.

The file is long because the paths of an epoch share the size of the last one, and each falls back on the next.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from copy import copy
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
from pyspark import RDD, cloudpickle
from pyspark.sql import DataFrame, SparkSession

from holdfast.connectors.source import Part
from holdfast.errors import TasksLost
from holdfast.foundation.choices import EpochPath
from holdfast.log.location import Location
from holdfast.operators.loop import LoopSpec
from holdfast.operators.loops.epoch import LargeRound
from holdfast.plan.dataflow import Dataflow
from holdfast.runtime.runner import Outcome, Work, unreachable
from holdfast.spark.crossing import (
    MESSAGE,
    Crossing,
    crossing,
    frame_of_source,
    messages_of,
    send_rows,
    through_spark,
    to_frame,
    wide_rows,
    wide_schema,
)
from holdfast.spark.epoch_property import NOTHING, Private, Told, tell
from holdfast.spark.epoch_tasks import (
    ENOUGH,
    ArrowTask,
    packed_task,
    reading_task,
    source_task,
    stage_task,
    task_of,
    where_it_belongs,
    whole_task,
    wide_source_task,
    wide_stage_task,
)
from holdfast.spark.failing_view import FailingView
from holdfast.spark.failure import lost, not_exchanged, translated
from holdfast.spark.own_jobs import own_jobs
from holdfast.spark.placed_work import PlacedWork, located
from holdfast.spark.prepared_query import Prepared
from holdfast.spark.quiet_errors import quietly
from holdfast.spark.resident_task import TOO_MANY, program_key, resident_of
from holdfast.spark.round_jobs import LoopJobs, alone, make_scratch, remove_scratch, told_of_jobs
from holdfast.task.messages import Message
from holdfast.task.packed_tasks import MOST_READERS, READ_BY_ALL, packed
from holdfast.task.program import Program, bounds
from holdfast.task.single_task import SMALL, TooManyRows, weight
from holdfast.task.sink_parts import ViewWriters
from holdfast.task.stage import EpochSpec, TaskReport, reports_of

EPOCHS = "holdfast-epochs"
"""The job group of epochs, by which they can be cancelled."""

_ITEM = "name string, part binary"
_ONLY = "HOLDFAST_PATH"
"""Environment variable, for tests: the only path for small epochs (``resident``, ``task`` or ``stages``)."""

_AHEAD = "HOLDFAST_READ_AHEAD"
"""Environment variable, for tests and measurements: with ``0``, no input is read ahead."""

_WARMING = 5.0
"""Seconds that a warm-up waits for the resident task."""

Tasks = tuple[tuple[int, ...], ...]
"""Task of a keyed stage → the partitions that it runs."""


def _one_each(partitions: int) -> Tasks:
    return tuple((partition,) for partition in range(partitions))


def _usual(epoch: EpochSpec) -> bool:
    """Whether an epoch is run for the first time: it is no replay, which writes selected layers only."""
    return epoch.first == epoch.number and epoch.run is None and epoch.write is None


class EpochJob:
    """Runs the epochs of a compiled dataflow."""

    def __init__(
        self,
        spark: SparkSession,
        flow: Dataflow,
        program: Program,
        partitions: int,
        placement: PlacedWork | None = None,
        heals: bool = True,
        copies: tuple[Location, ...] = (),
        writers: Mapping[str, ViewWriters] = MappingProxyType({}),
    ) -> None:
        """``placement``: where members have directories of their own, it runs each partition's tasks on the partition's
        owner. ``heals``: whether the flow can recover from a lost member by itself; the error says so. ``copies``: the
        locations from which a task on another member fetches layers. ``writers``: the writers of sinks."""
        self._heals = heals
        self._writers = cloudpickle.dumps(dict(writers)) if writers else b""
        private = Private(() if placement is None else copies, self._writers)
        self._private: Told = spark.sparkContext.broadcast(private) if private != NOTHING else None
        self._spark = spark
        self._placement = placement
        self._flow = flow
        self._program = program
        self._partitions = partitions
        self._broadcast = spark.sparkContext.broadcast(program)
        self._crossings: dict[int, Prepared] = {}
        for stage in range(1, program.stages + 1):
            cross = crossing(flow, program, [operator.id for operator in program.at(stage)])
            if cross is not None:
                self._crossings[stage] = self._prepared(
                    cross, stage, wide_stage_task(self._broadcast, stage, cross, self._private)
                )
        self._reading: dict[tuple[str, ...], Prepared | None] = {}
        self._blame = FailingView(flow, program)
        self._crosses = any(path.catalyst for path in flow.paths)
        self._loops = LoopJobs(spark.sparkContext, program, self._broadcast)
        self._exchanged: dict[int, RDD[Message]] = {}
        """Stage → the exchanged RDD that it reads, in the present epoch."""

        self._size: int | None = None
        """The size of the last epoch (`weight`); None before the first."""

        self._resident = resident_of(spark.sparkContext) if self._may_be_together else None
        self._key = program_key()

    def over(self, partitions: int, placement: PlacedWork | None) -> EpochJob:
        """Return the same job for another number of partitions. Everything else is shared: the program and its
        broadcast, the planned crossings, the size of the last epoch. So the next epoch is not slower."""
        other = copy(self)
        other._partitions, other._placement = partitions, placement
        return other

    def _prepared(self, cross: Crossing, stage: int, task: ArrowTask) -> Prepared:
        schema = wide_schema(cross)

        def build(frame: DataFrame) -> DataFrame:
            return through_spark(frame.mapInArrow(task, schema), cross, self._broadcast, stage)

        return Prepared(self._spark, build)

    def run(self, epoch: EpochSpec, work: Sequence[Work], subject: str) -> Outcome:
        """Run an epoch to its end. If a row or a user's function fails, raises that error, and nothing of the epoch
        counts."""
        started = time.perf_counter()
        self._blame.sources = frozenset(one.name for one in work)
        messages: list[Message] | None = None
        path: EpochPath = "stages"
        if self._placement is None and any(isinstance(each.spec, LoopSpec) for each in self._program.operators):
            epoch = told_of_jobs(self._spark.sparkContext, epoch)
        items = self._small_items(epoch, work)
        if items is not None:
            messages = self._stayed(alone(epoch), items)
            path, planned = "resident", started
        if messages is None and items is not None and self._allowed("task", SMALL):
            with self._announced(subject):
                self._tell(alone(epoch))
                path, planned = "task", time.perf_counter()
                try:
                    messages = self._collected(self._whole(items), subject)
                except TasksLost:
                    self._size = None  # it may have been too much for one task; the next attempt uses several
                    raise
        if messages is None or messages == [ENOUGH]:
            with self._announced(subject):
                told, found = self._packed(epoch), None
                readers = self._readers(told, work)
                if readers is not None:
                    planned, found = self._read_by_all(told, readers, subject)
                if found is not None:
                    reports = found
                else:
                    told = epoch if readers is not None else told
                    rdd, senders = self.plan(work, epoch.partitions, told.tasks)
                    planned = time.perf_counter()
                    path, reports = self._in_stages(told, rdd, senders, subject)
        else:
            reports = reports_of(messages)
        first = [report for report in reports if report.stage == 0]
        self._size = weight(sum(report.arrived for report in first), sum(report.sent for report in first))
        return Outcome(reports, planned - started, time.perf_counter() - started, path)

    def _in_stages(
        self, epoch: EpochSpec, rdd: RDD[Message], senders: int, subject: str
    ) -> tuple[EpochPath, tuple[TaskReport, ...]]:
        """Run the stages. If a loop's next round is too large for its task, run rounds as jobs, and then the stages
        again from the loop's stage on: what was exchanged before that stage still exists."""
        path: EpochPath = "stages"
        given = epoch
        make_scratch(given)
        try:
            while True:
                self._tell(epoch, senders)
                try:
                    return path, reports_of(self._collected(rdd, subject))
                except LargeRound as found:
                    epoch = self._loops.run(epoch, found, lambda told: self._tell(told, senders))
                    path = "stages" if epoch.round_jobs is None else "rounds"
                    stage = next(each.stage for each in self._program.operators if each.id == found.operator)
                    tasks = epoch.tasks or _one_each(epoch.partitions)
                    rdd = self._from(stage, self._exchanged[stage], tasks, self._owners())
        finally:
            self._exchanged.clear()
            remove_scratch(given)

    def _small_items(self, epoch: EpochSpec, work: Sequence[Work]) -> list[tuple[str, bytes]] | None:
        """Return the parts to read, if the epoch may run as a single task; else None. The epoch is assumed to be as
        large as the last one. Replays always run in stages: they are rare, and write only selected layers."""
        small = self._may_stay or self._allowed("task", SMALL)
        if not _usual(epoch) or not self._may_be_together or not small:
            return None
        return self._items(work)

    def _allowed(self, path: str, limit: int) -> bool:
        """Whether an epoch of the last one's size may take this path."""
        return os.environ.get(_ONLY, path) == path and self._size is not None and self._size <= limit

    @property
    def _may_stay(self) -> bool:
        # A resident task that was given up may still be running, and must not write other answers of outside functions.
        stays = self._resident is not None and not any(each.spec.asks for each in self._program.operators)
        return stays and self._resident is not None and self._allowed("resident", self._resident.limit)

    def _stayed(self, epoch: EpochSpec, items: list[tuple[str, bytes]]) -> list[Message] | None:
        """Return the resident task's messages, or [`ENOUGH`] if there are too many rows; None if a job is needed."""
        if self._resident is None or not self._may_stay:
            return None
        writers = self._writers if epoch.parts else b""
        told = replace(epoch, owners=(), copies=(), senders=0, writers=writers)
        found = self._resident.ask(self._key, lambda: cloudpickle.dumps(self._program), told, items)
        return [ENOUGH] if found is TOO_MANY else found  # type: ignore[return-value]  # TOO_MANY is the one TooMany

    @property
    def reads_ahead(self) -> bool:
        """Whether a resident task can read the next epoch's input now. It never calls users' functions ahead."""
        if self._resident is None or not self._may_stay or self._program.calls_users:
            return False
        return os.environ.get(_AHEAD, "") != "0" and self._resident.is_alone(self._key)

    def read_ahead(self, work: Sequence[Work], partitions: int) -> None:
        items = self._items(work)
        if self._resident is not None and (items or not work):
            self._resident.read_ahead(self._key, partitions, items or [])

    @property
    def _may_be_together(self) -> bool:
        return self._placement is None and not self._crosses

    def _items(self, work: Sequence[Work]) -> list[tuple[str, bytes]] | None:
        """Return the parts that an epoch reads, pickled; None if one of its sources can be read by Spark only."""
        parts = self._parts(work)
        return None if parts is None else [(name, cloudpickle.dumps(part)) for name, part in parts]

    def _parts(self, work: Sequence[Work]) -> list[tuple[str, Part]] | None:
        """Return the parts that an epoch reads; None if one of its sources can be read by Spark only."""
        parts: list[tuple[str, Part]] = []
        for one in work:
            for offer in one.offers:
                if one.source.frame(self._spark, offer) is not None:
                    return None
                parts += [(one.name, part) for part in one.source.parts(offer)]
        return parts

    def _whole(self, items: list[tuple[str, bytes]]) -> RDD[Message]:
        return self._spark.sparkContext.parallelize([items], 1).mapPartitions(
            whole_task(self._broadcast, self._private)
        )

    def warm_up(self, epoch: EpochSpec, sources: Sequence[str], subject: str) -> None:
        """Run an epoch without rows, as if these sources had input, so that its crossings are planned and its code is
        loaded."""
        with self._announced(subject):
            # A crossing is planned per set of sources that have input. Likely sets are all sources, and each source
            # alone.
            likely = {tuple(sorted(sources)), *((name,) for name in sources)}
            for names in [(), *(some for some in sorted(likely) if self._reader(some) is not None)]:
                owners = self._owners()
                read = self._read(self._specs([], [], owners), names)
                self._tell(epoch, read.getNumPartitions())
                reports_of(self._collected(self._after(read, _one_each(epoch.partitions), owners), subject))
                self._exchanged.clear()
            if self._may_be_together:
                reports_of(self._collected(self._whole([]), subject))
        if self._may_be_together:
            if self._resident is not None and self._resident.wait(_WARMING):
                self._stayed(epoch, [])
            if self._size is None:
                self._size = 0  # the first epoch is tried as a small one; if it is large after all, little is lost

    def _collected(self, rdd: RDD[Message], subject: str) -> list[Message]:
        losses = self._placement.losses if self._placement is not None else 0
        try:
            with quietly():
                messages: list[Message] = rdd.collect()
            return messages
        except Exception as error:
            known = translated(error, subject, self._blame.views)
            if known is not None:
                raise known from None
            if self._placement is not None and self._placement.is_cause(error, losses, self._heals):
                raise unreachable(error) from error
            if (apart := not_exchanged(error, subject)) is not None:
                raise apart from error
            if (gone := lost(error, subject)) is not None:
                raise gone from error
            raise

    def _announced(self, subject: str) -> AbstractContextManager[None]:
        """Mark the jobs that the block starts as an epoch's."""
        return own_jobs(self._spark.sparkContext, "epoch", subject, EPOCHS)

    def _tell(self, epoch: EpochSpec, senders: int = 0) -> None:
        tell(self._spark.sparkContext, replace(epoch, owners=self._owners(), senders=senders))

    def _owners(self) -> tuple[str, ...]:
        return self._placement.owners() if self._placement is not None else ()

    def plan(self, work: Sequence[Work], partitions: int | None = None, tasks: Tasks = ()) -> tuple[RDD[Message], int]:
        """Return the job's RDD, and the number of tasks that read the sources."""
        owners = self._owners()
        read = self._source_stage(work, owners)
        return self._after(read, tasks or _one_each(partitions or self._partitions), owners), read.getNumPartitions()

    def _after(self, rdd: RDD[Message], tasks: Tasks, owners: tuple[str, ...]) -> RDD[Message]:
        """The stages after stage 0."""
        if not self._program.stages:
            return rdd
        return self._from(1, rdd.partitionBy(len(tasks), task_of(tasks)), tasks, owners)

    def _from(self, first: int, exchanged: RDD[Message], tasks: Tasks, owners: tuple[str, ...]) -> RDD[Message]:
        """The stages from ``first`` on, over the messages exchanged before it."""
        for stage in range(first, self._program.stages + 1):
            self._exchanged[stage] = exchanged
            last = stage == self._program.stages
            if stage in self._crossings:
                rdd = messages_of(self._crossings[stage].over(to_frame(self._spark, exchanged)))
            else:
                run = packed_task if len(tasks) < sum(map(len, tasks)) else stage_task
                rdd = exchanged.mapPartitionsWithIndex(run(self._broadcast, stage, self._private))
            if self._placement is None:
                exchanged = exchanged if last else rdd.partitionBy(len(tasks), task_of(tasks))
                continue
            homes = [owners[mine[0]] for mine in tasks]
            if last:
                return self._placement.pinned(rdd, homes)
            exchanged = self._placement.exchanged(rdd, homes, len(tasks), task_of(tasks))
        return rdd

    def _packed(self, epoch: EpochSpec) -> EpochSpec:
        """Return the epoch with the partitions of each task, if it may have fewer tasks than partitions. Replays always
        have a task for each partition: they need selected partitions only."""
        if self._placement is None or self._crosses or self._size is None or not _usual(epoch):
            return epoch
        tasks = packed(self._owners(), self._size)
        return replace(epoch, tasks=tasks) if len(tasks) < epoch.partitions else epoch

    def _readers(self, epoch: EpochSpec, work: Sequence[Work]) -> RDD[bytes] | None:
        """Return the parts to read, all of them for each task of the first keyed stage; None if these tasks should not
        read the sources themselves."""
        small = self._size is not None and self._size <= READ_BY_ALL and len(epoch.tasks) <= MOST_READERS
        if self._placement is None or not epoch.tasks or not small or self._program.calls_users:
            return None
        parts = self._parts(work)
        if (
            parts is None
            or not all(one.source.origin for one in work)
            or any(hasattr(part, "low") for _, part in parts)
        ):
            return None  # Spark reads them, a user's code does, or each is on the member that keeps it
        items = cloudpickle.dumps([(name, cloudpickle.dumps(part)) for name, part in parts])
        owners = self._owners()
        places = self._placement.places([owners[mine[0]] for mine in epoch.tasks])
        return located(self._spark.sparkContext, [(items, each) for each in places])

    def _read_by_all(
        self, epoch: EpochSpec, readers: RDD[bytes], subject: str
    ) -> tuple[float, tuple[TaskReport, ...] | None]:
        """Run an epoch without a stage of readers. Return the time at which its job was ready, and the reports; None
        instead of these, if there are too many rows."""
        rdd = readers.mapPartitionsWithIndex(reading_task(self._broadcast, self._private))
        if self._program.stages > 1:
            moved = rdd.partitionBy(len(epoch.tasks), task_of(epoch.tasks))
            rdd = self._from(2, moved, epoch.tasks, self._owners())
        self._tell(epoch)
        planned = time.perf_counter()
        try:
            return planned, reports_of(self._collected(rdd, subject))
        except TooManyRows:
            return planned, None
        except TasksLost:
            self._size = None  # it may have been too much for so few tasks; the next attempt uses more
            raise
        finally:
            self._exchanged.clear()

    def _source_stage(self, work: Sequence[Work], owners: tuple[str, ...]) -> RDD[Message]:
        items: list[tuple[str, bytes]] = []
        rdds: list[RDD[Message]] = []
        kept: list[int | None] = []
        for one in work:
            for offer in one.offers:
                frame = one.source.frame(self._spark, offer)
                if frame is None:
                    parts = one.source.parts(offer)
                    items += [(one.name, cloudpickle.dumps(part)) for part in parts]
                    kept += [getattr(part, "low", None) for part in parts]
                else:
                    rdds += self._frame_source(one, frame)
        rdds.append(self._read(self._specs(items, kept, owners), tuple(sorted({name for name, _ in items}))))
        return rdds[0] if len(rdds) == 1 else self._spark.sparkContext.union(rdds)

    def _read(self, specs: RDD[tuple[str, bytes]], names: tuple[str, ...]) -> RDD[Message]:
        """Parts of these sources, read by tasks."""
        reading = self._reader(names)
        if reading is None:
            return specs.mapPartitionsWithIndex(source_task(self._broadcast))
        frame = self._spark.createDataFrame(specs, _ITEM, verifySchema=False)
        return messages_of(reading.over(frame))

    def _specs(
        self, items: list[tuple[str, bytes]], kept: Sequence[int | None], owners: tuple[str, ...]
    ) -> RDD[tuple[str, bytes]]:
        """The parts to read, one item each. Parts of the flow's own log are read on the member that keeps them."""
        context = self._spark.sparkContext
        if self._placement is None or all(low is None for low in kept):
            return context.parallelize(items, max(1, min(len(items), 4 * context.defaultParallelism)))
        placed = []
        for item, low in zip(items, kept, strict=True):
            owner = "" if low is None else owners[np.searchsorted(bounds(len(owners)), np.uint64(low), "right") - 1]
            placed.append((cloudpickle.dumps((owner, item)), self._placement.host(owner) if owner else ""))
        return located(context, placed).map(where_it_belongs)

    def _reader(self, names: tuple[str, ...]) -> Prepared | None:
        """The prepared crossing of stage 0 if tasks read these sources; None if nothing crosses."""
        if names not in self._reading:
            cross = crossing(self._flow, self._program, names)
            self._reading[names] = (
                None if cross is None else self._prepared(cross, 0, wide_source_task(self._broadcast, cross))
            )
        return self._reading[names]

    def _frame_source(self, work: Work, frame: Any) -> Iterator[RDD[Message]]:
        wide = frame_of_source(frame, work.source.fields, work.source.retracts)
        cross = crossing(self._flow, self._program, [work.name])
        if cross is not None and not cross.plain:
            ready = wide.mapInArrow(wide_rows(work.name, self._broadcast, cross), wide_schema(cross))
            yield messages_of(through_spark(ready, cross, self._broadcast, 0))
            return
        if cross is not None:
            yield messages_of(through_spark(wide, cross, self._broadcast, 0))
        if any(not route.catalyst for route in self._program.routes.get(work.name, ())):
            yield messages_of(wide.mapInArrow(send_rows(work.name, self._broadcast), MESSAGE))
