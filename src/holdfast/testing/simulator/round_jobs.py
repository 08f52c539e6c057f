"""Rounds of a loop as simulated Spark jobs (`spark/round_jobs.py`): the tasks of a job run one after the other, in any
order, and their messages arrive in any order."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

from holdfast.operators.loop import LoopSpec
from holdfast.task.messages import Message
from holdfast.task.program import Program
from holdfast.task.round_state import RoundJobs
from holdfast.task.round_tasks import RoundJob, begin_rounds, run_round_stage
from holdfast.task.stage import EpochSpec

Attempts: TypeAlias = Callable[[Callable[[], list[Message]]], list[Message]]
"""Run a task, maybe several times, and return its messages."""

StageTask: TypeAlias = Callable[[Program, EpochSpec, RoundJob, int, int, int, Iterable[Message]], Iterable[Message]]
"""The signature of `run_round_stage`."""


def told_of_jobs(epoch: EpochSpec) -> EpochSpec:
    """Return the epoch with rounds of its loops as jobs, drawn by its digest. A third of all epochs has none."""
    dice = random.Random(epoch.digest)
    if epoch.undo is not None or dice.random() < 1 / 3:
        return epoch
    scratch = Path(epoch.traces).parent / "rounds" / epoch.digest
    scratch.mkdir(parents=True, exist_ok=True)
    large, shares, together = dice.choice([0, 2, 6]), dice.choice([2, 3]), dice.choice([1, 2])
    return replace(epoch, round_jobs=RoundJobs(large, shares, together, str(scratch)))


def remove_scratch(epoch: EpochSpec) -> None:
    """Remove the files of an epoch's rounds."""
    if epoch.round_jobs is not None:
        shutil.rmtree(epoch.round_jobs.scratch)


def run_job(
    program: Program,
    epoch: EpochSpec,
    job: RoundJob,
    dice: random.Random,
    attempts: Attempts,
    stage_task: StageTask = run_round_stage,
) -> list[Message]:
    """Run all tasks of one job, stage by stage. Return the messages of the last ones, for the driver."""
    (operator,) = (each for each in program.operators if each.id == job.operator)
    assert isinstance(operator.spec, LoopSpec) and epoch.round_jobs is not None
    shares = range(epoch.round_jobs.shares)
    sent: list[Message] = []
    for share in shares:
        sent += attempts(partial(_listed, partial(begin_rounds, program, epoch, job, share)))
    for round in range(job.first, job.last + 1):
        for stage in range(1, operator.spec.body.stages + 1):
            dice.shuffle(sent)
            mine = [[message for message in sent if message[0] == share] for share in shares]
            sent = []
            for share in dice.sample(shares, len(shares)):
                task = partial(stage_task, program, epoch, job, round, stage, share, mine[share])
                sent += attempts(partial(_listed, task))
    return sent


def _listed(task: Callable[[], Iterable[Message]]) -> list[Message]:
    return list(task())
