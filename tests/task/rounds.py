"""A loop over epochs, once in one task and once with rounds as jobs, without Spark: what tasks of a job hand to each
other is handed on here, in any order."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa

from holdfast.operators.loops.epoch import LargeRound
from holdfast.plan.dataflow import build
from holdfast.task.messages import Message
from holdfast.task.program import compile_program
from holdfast.task.round_state import RoundJobs
from holdfast.task.round_tasks import RoundJob, run_round_stage, run_rounds
from holdfast.task.stage import EpochSpec, TaskReport, run_operator
from holdfast.testing.simulator.round_jobs import run_job
from holdfast.trace.cover import Chain
from holdfast.trace.merge import merge
from operators.loops import Case
from operators.running import END, Rows, layers_in, rows_of, table


class LoopRunner:
    """A loop and its traces in a directory."""

    def __init__(self, case: Case, directory: Path, dice: random.Random, jobs: RoundJobs | None = None) -> None:
        """``jobs``: how rounds are run as jobs; None: not at all."""
        flow = build({"v": case.loop}, {}, lambda _: True)
        self.program = compile_program(flow)
        (own,) = (each.id for each in flow.operators.values() if each.node is case.loop and each.kind == "loop")
        (self.operator,) = (each for each in self.program.operators if each.id == own)
        self.types, self.directory, self.dice = case.types, directory, dice
        self.jobs = None if jobs is None else replace(jobs, scratch=str(directory / "rounds"))
        self.digests: list[str] = []
        self.ran: list[RoundJob] = []
        """The jobs of the last epoch."""

        self.report = TaskReport(1, 0)
        self.given_up = 0
        """How often the one task has given up in the last epoch."""

        self.stage: Callable[..., Iterable[Message]] = run_round_stage
        self.behind: Callable[[], None] = lambda: None
        """Called between the jobs and the task that goes on."""

        self.before_job: Callable[[], None] = lambda: None
        """Called before each job."""

    def epoch(self, changes: Sequence[Rows], first: int | None = None) -> pa.Table:
        """The change of the loop's rows, given those of its inputs. ``first``: of the epochs that it stands for."""
        number = len(self.digests)
        first = number if first is None else first
        epoch = EpochSpec(
            number, first, f"{number:016x}", Chain(-1, tuple(self.digests)), 2, str(self.directory / "traces")
        )
        self.ran, self.given_up = [], 0
        jobs = self.jobs
        while True:
            self.report = TaskReport(1, 0)
            epoch = replace(epoch, round_jobs=jobs)
            try:
                output = self.attempt(epoch, changes)
                break
            except LargeRound as found:
                assert jobs is not None
                self.given_up += 1
                done = run_rounds(self.operator, jobs, found, partial(self.job, epoch, changes))
                jobs = replace(jobs, done={self.operator.id: done})
                self.behind()
        shutil.rmtree(self.directory / "rounds", ignore_errors=True)
        self.digests.append(epoch.digest)
        return output

    def attempt(self, epoch: EpochSpec, changes: Sequence[Rows]) -> pa.Table:
        """The loop's task; its rows arrive in any order."""
        scratch = self.directory / "rounds"
        if self.jobs is not None and not scratch.exists():
            scratch.mkdir(parents=True)
        arrived = {
            channel: [self.operator.spec.prepare(port, table(self.dice.sample(rows, len(rows)), self.types[port]))]
            for port, (channel, rows) in enumerate(zip(self.operator.channels, changes, strict=True))
        }
        return run_operator(self.operator, 0, epoch, arrived, self.report)

    def job(self, epoch: EpochSpec, changes: Sequence[Rows], job: RoundJob) -> list[Message]:
        """One job: all of its tasks, stage by stage; a task may run twice. So may the loop's own, whose other attempt
        may live on beside the job."""
        self.ran.append(job)
        self.before_job()
        if self.dice.random() < 0.3:
            self.report, report = TaskReport(1, 0), self.report
            with suppress(LargeRound):
                self.attempt(epoch, changes)
            self.report = report
        assert epoch.round_jobs is not None
        return run_job(self.program, epoch, job, self.dice, self._attempts, self.stage)

    def _attempts(self, task: Callable[[], list[Message]]) -> list[Message]:
        return [task() for _ in range(self.dice.choice([1, 1, 2]))][-1]

    def merge(self, since: int) -> None:
        """Merge all layers of each trace."""
        chain = Chain(-1, tuple(self.digests))
        for suffix, layout in self.operator.spec.layouts().items():
            directory = self.directory / "traces" / f"{self.operator.id}.{suffix}"
            low, high = 0, END // 2
            some = [name for name in layers_in(directory) if name.low == low]
            merge(directory, layout, some, low, high, since, chain)

    def files(self) -> dict[str, bytes]:
        """All layers, by name."""
        traces = self.directory / "traces"
        return {str(path.relative_to(traces)): path.read_bytes() for path in sorted(traces.glob("*/*"))}


def bag_of(change: pa.Table) -> list[tuple[tuple[object, ...], int]]:
    return sorted(rows_of(change), key=repr)
