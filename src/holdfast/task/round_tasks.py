"""The tasks of a job that runs rounds of a loop: each task has a share of the loop's hashes.

    begin ─ exchange ─ stage 1 ─ exchange ─ … ─ last stage, end of the round, begin ─ exchange ─ stage 1 ─ … ─ driver

The messages are those of an epoch's stages (`task/messages.py`), with a channel for each port in the loop's body and
for each variable; a share takes the place of a partition. Between two tasks of a share its state is in files
(`round_state.py`): a task reads its stage's state as of the end of the round before, and writes the state as of the end
of this round. All files are named by round, stage and share, so a task may run twice, or again after later ones. What
rounds compute is defined in `operators/loops/epoch.py`.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from holdfast.operators.loop import LoopSpec
from holdfast.operators.loops.body import Body, Target
from holdfast.operators.loops.epoch import LargeRound, LoopEpoch, Rounds, expected_rows
from holdfast.operators.loops.shares import Share
from holdfast.task.messages import FAILED, RESULT, Message, arrived, counted, decode, encode
from holdfast.task.program import Compiled, Program, partition_range
from holdfast.task.round_state import RoundJobs, RoundsDone, StateFiles, file_name
from holdfast.task.stage import EpochSpec, context_of, named, opened

_SURE = 2
"""If the next round is expected to have this many times the rows that make it a job, one job runs it and the round
after it."""


@dataclass(frozen=True)
class RoundJob:
    """Rounds ``first`` to ``last`` of a loop, as one job. ``before``: the last round that ran before them. ``state``:
    the name of the state from which the job continues."""

    operator: str
    before: int
    first: int
    last: int
    state: str


@dataclass(frozen=True)
class RoundReport:
    """A task's work in one round, for the driver."""

    round: int
    handed: int
    """Rows that the task handed to operators."""

    following: int | None
    """The next round with work for this stage and share. None: there is no such round."""

    pending: int
    """The number of rows with which the ``following`` round begins."""

    files: frozenset[str]
    """The names of the files that the task's state needs."""


def begin_rounds(program: Program, epoch: EpochSpec, job: RoundJob, share: int) -> Iterator[Message]:
    """Run the first task of a share: yield the messages that begin the job's first round."""
    task = _Task(program, epoch, job, share)
    task.absorb(0, job.before, job.first - 1)
    return counted(task.begin(job.first), task.jobs.shares)


def run_round_stage(
    program: Program, epoch: EpochSpec, job: RoundJob, round: int, stage: int, share: int, messages: Iterable[Message]
) -> Iterator[Message]:
    """Run a stage's operators over the messages that arrived. In the last stage of a round the task also begins the
    job's next round, if there is one."""
    task = _Task(program, epoch, job, share, stage)
    found = arrived(messages, task.jobs.shares)
    if any(channel == FAILED for _, (channel, _) in found):
        return iter(found)
    done = task.run(round, stage, found)
    is_last = round == job.last and stage == task.body.stages
    return iter(list(done)) if is_last else counted(done, task.jobs.shares)


def run_rounds(
    operator: Compiled, jobs: RoundJobs, found: LargeRound, run: Callable[[RoundJob], Sequence[Message]]
) -> RoundsDone:
    """On the driver: run rounds as jobs with ``run``, from the round that was found too large on, until the next round
    is small or no round is left. Return how far the rounds have come. Raises the user's error."""
    assert isinstance(operator.spec, LoopSpec)
    limits = operator.spec.limits
    rounds, following, pending = found.rounds, found.following, found.pending
    while True:
        # The second round of a job is most likely as large as the first, if the first is well above the limit. If the
        # user limits rows, each round is checked before it begins, so a job has one round.
        is_sure = limits.rows is None and expected_rows(pending, rounds) >= _SURE * jobs.large
        last = min(following + (jobs.together if is_sure else 1) - 1, max(following, limits.last))
        job = RoundJob(operator.id, rounds.last, following, last, found.state)
        reports = _reports(run(job))
        rounds, after, pending = _progress(job, rounds, pending, reports)
        _remove_others(jobs, job, reports)
        if after is None or not limits.shared(after, pending, expected_rows(pending, rounds), jobs.large):
            return RoundsDone(rounds, found.state)
        following = after


def _reports(messages: Sequence[Message]) -> list[RoundReport]:
    for _, (channel, buffer) in messages:
        if channel == FAILED:
            raise pickle.loads(buffer)
    return [pickle.loads(buffer) for _, (channel, buffer) in messages if channel == RESULT]


def _progress(
    job: RoundJob, rounds: Rounds, pending: int, reports: Sequence[RoundReport]
) -> tuple[Rounds, int | None, int]:
    """Return how far the rounds have come after a job that began with ``pending`` rows, the next round, and its
    rows."""
    following: int | None = job.first
    for round in range(job.first, job.last + 1):
        mine = [report for report in reports if report.round == round]
        count = rounds.count + (following == round)  # other rounds had no work
        rounds = Rounds(round, count, sum(report.handed for report in mine), pending)
        following = min((report.following for report in mine if report.following is not None), default=None)
        pending = sum(report.pending for report in mine if report.following == following)
    return rounds, following, pending


def _remove_others(jobs: RoundJobs, job: RoundJob, reports: Sequence[RoundReport]) -> None:
    """Remove the files that the rounds after this job do not need."""
    needed = {name for report in reports if report.round == job.last for name in report.files}
    directory = jobs.directory(job.operator)
    for name in os.listdir(directory):
        if name not in needed:
            (directory / name).unlink(missing_ok=True)


class _Task:
    """One task of a share."""

    def __init__(self, program: Program, epoch: EpochSpec, job: RoundJob, share: int, stage: int = 0) -> None:
        (self.operator,) = (each for each in program.operators if each.id == job.operator)
        assert isinstance(self.operator.spec, LoopSpec) and epoch.round_jobs is not None
        self.jobs, self.body, self.job = epoch.round_jobs, self.operator.spec.body, job
        self._number, self._share = epoch.number, Share(share, self.jobs.shares)
        self._targets = _targets(self.body)
        self._files = StateFiles(self.jobs.directory(job.operator), epoch.number)
        with named(self.operator, epoch.number):
            self._epoch = _epoch(self.operator, self.operator.spec, epoch, self._share, stage)

    def absorb(self, stage: int, round: int, after: int) -> None:
        name = file_name(self.job.state, round, stage, self._share.index)
        self._epoch.absorb(stage, self._files.load(name), after)

    def begin(self, round: int) -> list[Message]:
        before = self._epoch.handed
        with named(self.operator, self._number):
            self._epoch.begin(round)
        report = RoundReport(round, self._epoch.handed - before, None, 0, frozenset())
        return [*self._sent(), self._result(report)]

    def run(self, round: int, stage: int, messages: Iterable[Message]) -> list[Message]:
        is_last = stage == self.body.stages
        before = self.job.before if round == self.job.first else round - 1
        kept: list[Message] = []
        for owner, (channel, buffer) in messages:
            if channel != RESULT and self._stage(self._targets[channel]) == stage:
                self._epoch.receive(self._targets[channel], decode(buffer))
            else:
                kept.append((owner, (channel, buffer)))
        self.absorb(stage, before, round)
        if is_last:
            self.absorb(0, before, round)
        with named(self.operator, self._number):
            self._epoch.run_stage(stage, round)
            if is_last:
                self._epoch.end(round)
        files: set[str] = set()
        for each in (stage, 0) if is_last else (stage,):
            name = file_name(self.job.state, round, each, self._share.index)
            files |= self._files.save(name, self._epoch.state(each))
        following = self._epoch.next_round()
        pending = 0 if following is None else self._epoch.pending(following)
        report = RoundReport(round, self._epoch.handed, following, pending, frozenset(files))
        done = [*kept, *self._sent(), self._result(report)]
        return done + self.begin(round + 1) if is_last and round < self.job.last else done

    def _stage(self, target: Target) -> int:
        return self.body.stages if target[0] < 0 else self.body.operators[target[0]].stage

    def _sent(self) -> list[Message]:
        places = {target: channel for channel, target in enumerate(self._targets)}
        return [(owner, (places[target], encode(table))) for owner, target, table in self._epoch.sent()]

    def _result(self, report: RoundReport) -> Message:
        return self._share.index, (RESULT, pickle.dumps(report))


def _targets(body: Body) -> list[Target]:
    """Channel → the port or variable that gets its rows."""
    ports = [(index, port) for index, each in enumerate(body.operators) for port in range(len(each.ports))]
    return [*ports, *((-1, index) for index in range(len(body.keys)))]


def _epoch(operator: Compiled, spec: LoopSpec, epoch: EpochSpec, share: Share, stage: int) -> LoopEpoch:
    """One share of the loop's epoch, with the operators of one stage (stage 0 has none)."""
    suffixes = [
        f"{index}.{suffix}"
        for index, each in enumerate(spec.body.operators)
        if each.stage == stage
        for suffix in each.layouts
    ]
    layouts = spec.layouts()
    low, high = partition_range(0, epoch.partitions)
    traces = {suffix: opened(operator, suffix, layouts[suffix], low, high, epoch) for suffix in suffixes}
    return spec.epoch(traces, context_of(operator, epoch, low, high), share, (stage,))
