"""A loop over epochs, once in one task and once with rounds as jobs, without Spark: what tasks of a job hand to each
other is handed on here, in any order."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa

from holdfast.operators.loops.epoch import LargeRound
from holdfast.plan.dataflow import build
from holdfast.task.messages import Message
from holdfast.task.program import compile_program
from holdfast.task.round_state import RoundJobs
from holdfast.task.round_tasks import RoundJob, begin_rounds, run_round_stage, run_rounds
from holdfast.task.stage import EpochSpec, TaskReport, run_operator
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
            arrived = {
                channel: [self.operator.spec.prepare(port, table(rows, self.types[port]))]
                for port, (channel, rows) in enumerate(zip(self.operator.channels, changes, strict=True))
            }
            epoch = replace(epoch, round_jobs=jobs)
            try:
                output = run_operator(self.operator, 0, epoch, arrived, self.report)
                break
            except LargeRound as found:
                assert jobs is not None
                self.given_up += 1
                done = run_rounds(self.operator, jobs, found, partial(self.job, epoch))
                jobs = replace(jobs, done={self.operator.id: done})
                self.behind()
        self.digests.append(epoch.digest)
        return output

    def job(self, epoch: EpochSpec, job: RoundJob) -> list[Message]:
        """One job: all of its tasks, stage by stage; a task may run twice."""
        self.ran.append(job)
        assert epoch.round_jobs is not None
        shares = range(epoch.round_jobs.shares)
        spec = self.operator.spec
        sent = [begin_rounds(self.program, epoch, job, share) for share in shares]
        for round in range(job.first, job.last + 1):
            for stage in range(1, spec.body.stages + 1):  # type: ignore[attr-defined]  # it is a loop
                messages = [message for each in sent for message in each]
                self.dice.shuffle(messages)
                mine = [[message for message in messages if message[0] == share] for share in shares]
                sent = []
                for share in self.dice.sample(shares, len(shares)):
                    for _ in range(self.dice.choice([1, 1, 2])):
                        found = list(self.stage(self.program, epoch, job, round, stage, share, mine[share]))
                    sent.append(iter(found))
        return [message for each in sent for message in each]

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
