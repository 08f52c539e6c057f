"""The large rounds of a loop as Spark jobs, whose tasks each have a share of the loop's hashes.

A loop runs in one task, like any operator without a key, until its next round is expected to be large
(`operators/loops/epoch.py`). Then that task writes its state for each share, and the epoch's job ends with
`LargeRound`. `LoopJobs` runs rounds as jobs (`task/round_tasks.py`) until they are small again, or none is left. Then
the epoch's job runs again, from the loop's stage on: its task takes over the state of the shares, runs the rounds that
are left, and writes the loop's layers. So the long tail of small rounds, which most loops have, costs no jobs, and a
loop may switch between task and jobs as often as its rounds change size.

Between two jobs nothing but files is handed on, so plans and Spark's lineage are those of one job, however many rounds
there are. If a job fails, for whatever reason, that is no error of the epoch: one task runs the loop without jobs, and
reports the error, if there is one.

**When a round is large.** With *n* rows handed to operators and *c* cores, one task needs ``_ROW`` · n seconds of
processor time, and a job (``_ROW`` + ``_EXCHANGED``) · n / c + ``_JOB``. `large_round` is where the two are equal
(`benchmarks/rounds_as_jobs.py` measures the three).
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark import RDD, SparkContext

from holdfast.errors import HoldfastError
from holdfast.operators.loop import LoopSpec
from holdfast.operators.loops.epoch import LargeRound
from holdfast.operators.loops.shares import MOST
from holdfast.reporting.redaction import logger
from holdfast.spark.epoch_property import current_epoch
from holdfast.spark.epoch_tasks import own_partition
from holdfast.spark.quiet_errors import quietly
from holdfast.task.messages import Message, failure
from holdfast.task.program import Compiled, Program
from holdfast.task.round_state import RoundJobs
from holdfast.task.round_tasks import RoundJob, begin_rounds, run_round_stage, run_rounds
from holdfast.task.stage import EpochSpec
from holdfast.trace.inner_loops import keep_memory

_ONLY = "HOLDFAST_ROUNDS"
"""Environment variable, for tests: with ``jobs`` every round runs as a job, with ``task`` none does."""

_ROW, _EXCHANGED, _JOB = 0.5e-6, 0.33e-6, 0.25
"""Seconds per row in a round (without the layers, which one task writes), per row that is exchanged where rounds are
jobs, and per job."""

_TOGETHER = 2
"""Rounds in one job. Processor time per round besides its rows: 210 ms with one round, 170 with two, 160 with four
(three stages, two cores). But work that a job does after the last round is wasted."""

_KEPT = 1 << 28
"""Free bytes that a worker keeps from one task to the next: it allocates columns of the same sizes in every round."""

_REASON = re.compile(r"^: (?:[\w.]+: )?(.+)$", re.MULTILINE)
"""Spark's message in an error that py4j raises."""

_LOG = logger("holdfast.epochs")


def large_round(cores: int) -> int | None:
    """Return the rows from which on a round is a job; None if no round is."""
    only = os.environ.get(_ONLY)
    if only is not None:
        return 0 if only == "jobs" else None
    gain = _ROW - (_ROW + _EXCHANGED) / cores
    return None if gain <= 0 else int(_JOB / gain)


def told_of_jobs(context: SparkContext, epoch: EpochSpec) -> EpochSpec:
    """Return the epoch with the way in which its loops' rounds may run as jobs."""
    cores = min(context.defaultParallelism, MOST)
    large = large_round(cores)
    if large is None or epoch.undo is not None:
        return epoch
    scratch = Path(epoch.traces).parent / "rounds" / epoch.digest
    return replace(epoch, round_jobs=RoundJobs(large, cores, _TOGETHER, str(scratch)))


def alone(epoch: EpochSpec) -> EpochSpec:
    """Return the epoch for a single task, which only reports that a round is too large."""
    return epoch if epoch.round_jobs is None else replace(epoch, round_jobs=replace(epoch.round_jobs, scratch=""))


def make_scratch(epoch: EpochSpec) -> None:
    """Make the directory for the state that an epoch's rounds hand on. Tasks do not make it, because a task that
    outlives its epoch would leave it behind."""
    if epoch.round_jobs is not None:
        with suppress(OSError):  # then no round is a job
            Path(epoch.round_jobs.scratch).mkdir(parents=True, exist_ok=True)


def remove_scratch(epoch: EpochSpec) -> None:
    """Remove the files of an epoch's rounds."""
    if epoch.round_jobs is not None:
        shutil.rmtree(epoch.round_jobs.scratch, ignore_errors=True)
        with suppress(OSError):  # it is not there, or another flow of this directory uses it
            Path(epoch.round_jobs.scratch).parent.rmdir()


class LoopJobs:
    """Runs the large rounds of a program's loops."""

    def __init__(self, context: SparkContext, program: Program, broadcast: Any) -> None:
        self._context, self._program, self._broadcast = context, program, broadcast

    def run(self, epoch: EpochSpec, found: LargeRound, tell: Callable[[EpochSpec], None]) -> EpochSpec:
        """Run a loop's rounds as jobs, from the one that was found too large until they are small. Return the epoch
        with what the loop's task must know of these rounds, or without ``round_jobs`` if the jobs failed. ``tell``:
        sets the epoch for jobs. Raises the user's error."""
        assert epoch.round_jobs is not None
        jobs = epoch.round_jobs
        (operator,) = (each for each in self._program.operators if each.id == found.operator)
        tell(epoch)
        try:
            with quietly():
                done = run_rounds(operator, jobs, found, lambda job: self._rdd(job, operator, jobs.shares).collect())
        except HoldfastError:
            raise
        except Exception as error:  # a task, a host or a file was lost
            text = str(error)
            if "[SPARK_JOB_CANCELLED]" in text:
                raise
            reason = _REASON.search(text)
            _LOG.warning(
                "epoch %d: rounds of a loop failed as Spark jobs, and are run in one task: %s",
                epoch.number,
                reason[1] if reason else text,
                extra={"epoch": epoch.number},
            )
            shutil.rmtree(jobs.directory(found.operator), ignore_errors=True)  # the loop's layers may need the room
            return replace(epoch, round_jobs=None)
        return replace(epoch, round_jobs=replace(jobs, done={**jobs.done, found.operator: done}))

    def _rdd(self, job: RoundJob, operator: Compiled, shares: int) -> RDD[Message]:
        assert isinstance(operator.spec, LoopSpec)
        rdd = self._context.parallelize(range(shares), shares).mapPartitionsWithIndex(_begin_task(self._broadcast, job))
        for round in range(job.first, job.last + 1):
            for stage in range(1, operator.spec.body.stages + 1):
                exchanged = rdd.partitionBy(shares, own_partition)
                rdd = exchanged.mapPartitionsWithIndex(_stage_task(self._broadcast, job, round, stage))
        return rdd


def _begin_task(broadcast: Any, job: RoundJob) -> Callable[[int, Iterable[int]], Iterator[Message]]:
    def task(share: int, _: Iterable[int]) -> Iterator[Message]:
        epoch = current_epoch()
        return _said(epoch, lambda: begin_rounds(broadcast.value, epoch, job, share))

    return task


def _stage_task(
    broadcast: Any, job: RoundJob, round: int, stage: int
) -> Callable[[int, Iterable[Message]], Iterator[Message]]:
    def task(share: int, messages: Iterable[Message]) -> Iterator[Message]:
        epoch = current_epoch()
        return _said(epoch, lambda: run_round_stage(broadcast.value, epoch, job, round, stage, share, messages))

    return task


def _said(epoch: EpochSpec, work: Callable[[], Iterator[Message]]) -> Iterator[Message]:
    """Return the messages of ``work``, or messages with its error."""
    assert epoch.round_jobs is not None
    keep_memory(_KEPT)
    try:
        return work()
    except HoldfastError as error:
        return iter(failure(error, epoch.round_jobs.shares))
