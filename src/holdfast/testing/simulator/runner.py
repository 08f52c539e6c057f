"""A simulated Spark: tasks run one after the other, in any order; some run twice, some again after a failure.

Some epochs run in one task, as small ones do; where members have layers of their own, some run in few tasks.
"""

from __future__ import annotations

import os
import pickle
import random
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from holdfast.coordinator.clock import Reading
from holdfast.coordinator.partition_ownership import PartitionOwnership
from holdfast.errors import HoldfastError, MemberUnreachable
from holdfast.foundation import failpoints
from holdfast.log.host_paths import LOCAL, MISPLACED, Misplaced
from holdfast.operators.loop import LoopSpec
from holdfast.operators.loops.epoch import LargeRound
from holdfast.plan.dataflow import Dataflow
from holdfast.runtime.runner import Beside, Job, Outcome, R, T, Work, unreachable
from holdfast.task.messages import Message, TruncatedInput, counted, failure
from holdfast.task.missing_layers import fetch_missing_layers
from holdfast.task.packed_tasks import ROWS, packed, read_and_run, run_packed
from holdfast.task.program import Program, bounds
from holdfast.task.read_sources import read_parts
from holdfast.task.round_tasks import RoundJob, run_rounds
from holdfast.task.single_task import run_single_task
from holdfast.task.sink_parts import ViewWriters
from holdfast.task.stage import EpochSpec, TaskReport, finish, reports_of, run_stage
from holdfast.testing.simulator.round_jobs import remove_scratch, run_job, told_of_jobs
from holdfast.testing.simulator.world import World

_TWICE = 0.1
"""The probability that a task that ran runs again: its result was lost, or there was a speculative copy."""

_PART = 2
"""The number of rows of a change from which on a task writes them for the sink itself."""

_CUT = 0.05
"""The probability that a task's input breaks off, and the task runs again; its work until then stays."""


class TaskDied(BaseException):
    """The process of a task dies here; Spark runs the task again."""


class SimulatedRunner:
    """Runs everything in this thread. If the world has members, each task runs in its member's directory."""

    threads = False
    grace = 0.0

    def __init__(self, world: World, partitions: int) -> None:
        self._world = world
        self.partitions = partitions
        self.scattered = bool(world.members)
        self.ownership = PartitionOwnership(partitions) if self.scattered else None
        self.refresh()

    def job(
        self,
        flow: Dataflow,
        program: Program,
        before: Job | None = None,
        writers: Mapping[str, ViewWriters] = MappingProxyType({}),
    ) -> Job:
        if isinstance(before, SimulatedJob):
            return before
        small = {operator: view.least(_PART) for operator, view in writers.items()}
        return SimulatedJob(program, self._world.random, self, pickle.dumps(small) if small else b"")

    @property
    def membership_change(self) -> str:
        if self.ownership is None:
            return ""
        now = self._world.members.keys()
        if self.ownership.members != now:
            return "lost" if self.ownership.members - now else "joined"
        return "unsettled" if self.ownership.is_provisional else ""

    def refresh(self, settle: bool = False) -> bool:
        return self.ownership is not None and self.ownership.seen(self._world.members, settle)

    def await_members(self, names: Sequence[str]) -> None:
        pass

    def hand_over(self, moves: Mapping[int, str]) -> None:
        assert self.ownership is not None  # only members have partitions
        if not self.ownership.is_known(moves.values()):
            self.refresh()
        self.ownership.hand_over(moves)

    def on(self, member: str, function: Callable[[], R]) -> R:
        """Call ``function`` on a member. Raises `MemberUnreachable` if the member is gone, or goes meanwhile."""
        if not self.scattered:
            return function()
        if member not in self._world.members:
            raise unreachable(f"{MISPLACED}: {member} is gone")
        place = self._world.members[member]
        os.environ[LOCAL] = str(place)
        try:
            result = function()
        except Exception:
            if member in self._world.members:
                raise
        finally:
            del os.environ[LOCAL]
        if member not in self._world.members:
            shutil.rmtree(place, ignore_errors=True)  # files that it wrote after it was gone
            raise unreachable(f"{MISPLACED}: {member} is gone")
        return result

    def owner(self, low: int) -> str:
        return self.owners()[int(np.searchsorted(bounds(self.partitions), np.uint64(low), side="right")) - 1]

    def tasks(
        self,
        what: str,
        function: Callable[[list[T]], list[R]],
        items: Sequence[T],
        slots: int | Beside,
        low: Callable[[T], int] | None = None,
    ) -> list[R]:
        results: list[R] = []
        for item in items:
            failpoints.reach(f"task: {what}")
            owner = self.owner(0 if low is None else low(item))
            results += self.on(owner, partial(function, [item]))
        return results

    def everywhere(self, what: str, function: Callable[[], R]) -> dict[str, R]:
        return {member: self.on(member, function) for member in self._asked()}

    def visit(self, what: str, shares: Mapping[str, list[T]], function: Callable[[list[T]], list[R]]) -> list[R]:
        found: list[R] = []
        for member, share in sorted(shares.items()):
            failpoints.reach(f"task: {what}")
            found += self.on(member, partial(function, share))
        return found

    def _asked(self) -> list[str]:
        return [""] if self.ownership is None else sorted(self.ownership.asked)

    def owners(self) -> tuple[str, ...]:
        return ("",) * self.partitions if self.ownership is None else self.ownership.owners

    def members(self) -> frozenset[str]:
        return frozenset() if self.ownership is None else self.ownership.members

    def thread(self, target: Callable[[], None], name: str) -> Any:
        raise AssertionError("a simulation has no threads")

    def clock(self) -> int:
        return self._world.tick()

    def reading(self) -> Reading:
        return Reading(self.clock(), "", 0)

    def draw(self) -> int:
        return self._world.random.getrandbits(63)

    def another(self, member: str) -> str:
        """Return a member, most often ``member`` itself."""
        if not self.scattered or self._world.random.random() >= self._world.elsewhere:
            return member
        return self._world.random.choice(sorted(self._world.members))


class SimulatedJob:
    """Runs epochs, with messages in memory."""

    def __init__(self, program: Program, chance: random.Random, runner: SimulatedRunner, writers: bytes) -> None:
        self._program = program
        self._writers = writers
        self._random = chance
        self._runner = runner

    def run(self, epoch: EpochSpec, work: Sequence[Work], subject: str) -> Outcome:
        items = [(one.name, part) for one in work for offer in one.offers for part in one.source.parts(offer)]
        self._random.shuffle(items)
        epoch = replace(epoch, writers=self._writers if epoch.parts else b"")
        epoch = replace(epoch, owners=self._runner.owners() if self._runner.scattered else ())
        if _in_one_task(epoch):
            return Outcome(reports_of(self._attempts(epoch, partial(self._whole, epoch, items))), 0.0, 0.0)
        if _in_few_tasks(epoch):
            epoch = replace(epoch, tasks=packed(epoch.owners, self._random.choice((0, 4 * ROWS))))
            if self._random.random() < 0.5 and not any(hasattr(part, "low") for _, part in items):
                read = [
                    message
                    for task in range(len(epoch.tasks))
                    for message in self._on_home(epoch, task, partial(self._read_packed, epoch, task, items))
                ]
                return Outcome(self._in_stages(epoch, read, first=2), 0.0, 0.0)
        messages: list[Message] = []
        shares = list(self._shares(items))
        epoch = replace(epoch, senders=len(shares))
        for place, (member, share) in enumerate(shares):
            messages += self._attempts(epoch, partial(self._read, epoch, share, place), partial(str, member))
        return Outcome(self._in_stages(epoch, messages), 0.0, 0.0)

    def _in_stages(self, epoch: EpochSpec, messages: list[Message], first: int = 1) -> tuple[TaskReport, ...]:
        """Run the stages from ``first`` on. Large rounds of loops run as jobs, and then the stages run again from the
        loop's stage on."""
        if not self._runner.scattered and any(isinstance(each.spec, LoopSpec) for each in self._program.operators):
            epoch = told_of_jobs(epoch)
        exchanged = {first: messages}
        try:
            while True:
                for stage in range(first, self._program.stages + 1):
                    exchanged[stage + 1] = self._stage(epoch, stage, exchanged[stage])
                try:
                    return reports_of(exchanged[self._program.stages + 1])
                except LargeRound as found:
                    epoch = self._with_jobs(epoch, found)
                    first = next(each.stage for each in self._program.operators if each.id == found.operator)
        finally:
            remove_scratch(epoch)

    def _with_jobs(self, epoch: EpochSpec, found: LargeRound) -> EpochSpec:
        """Run the rounds of a loop as jobs, from the round that was found too large on. Return the epoch to continue
        with."""
        assert epoch.round_jobs is not None
        jobs = epoch.round_jobs
        (operator,) = (each for each in self._program.operators if each.id == found.operator)

        def run(job: RoundJob) -> list[Message]:
            attempts = partial(self._attempts, replace(epoch, partitions=jobs.shares))
            return run_job(self._program, epoch, job, self._random, attempts)

        done = {**jobs.done, found.operator: run_rounds(operator, jobs, found, run)}
        return replace(epoch, round_jobs=replace(jobs, done=done))

    @property
    def reads_ahead(self) -> bool:
        return False

    def read_ahead(self, work: Sequence[Work], partitions: int) -> None:
        """Do nothing: in a simulation nothing runs beside an epoch."""

    def warm_up(self, epoch: EpochSpec, sources: Sequence[str], subject: str) -> None:
        """Do nothing: a simulation needs no warm-up."""

    def _shares(self, items: Sequence[Any]) -> Iterator[tuple[str, Sequence[Any]]]:
        """Yield (member, items) per task: parts of the flow's own log on the owners, the rest in two tasks anywhere."""
        free = [item for item in items if not hasattr(item[1], "low")]
        half, somewhere = len(free) // 2, self._runner.owner(0)
        yield somewhere, free[:half]
        yield somewhere, free[half:]
        for item in items:
            if hasattr(item[1], "low"):
                # A copy, as a task gets one: it reads the layers of its own member.
                yield self._runner.owner(item[1].low), [(item[0], replace(item[1], kept=copy(item[1].kept)))]

    def _whole(self, epoch: EpochSpec, items: Sequence[Any]) -> list[Message]:
        failpoints.reach("task: epoch")
        return list(run_single_task(self._program, epoch, items))

    def _read(self, epoch: EpochSpec, items: Sequence[Any], place: int) -> list[Message]:
        partition = place % epoch.partitions
        router, report = read_parts(self._program, epoch, items, partition)
        return list(counted(finish(router, report, partition), epoch.partitions))

    def _stage(self, epoch: EpochSpec, stage: int, messages: list[Message]) -> list[Message]:
        self._random.shuffle(messages)
        done: list[Message] = []
        if epoch.tasks:
            for number, some in enumerate(epoch.tasks):
                mine = [message for message in messages if message[0] in some]
                done += self._on_home(epoch, number, partial(self._run_packed, epoch, stage, number, mine))
            return done
        order = list(range(epoch.partitions))
        self._random.shuffle(order)
        for partition in order:
            mine = [message for message in messages if message[0] == partition]

            home = epoch.owners[partition] if epoch.owners else ""
            task = partial(self._task, epoch, stage, partition, mine)
            if self._random.random() < _CUT:
                cut = mine[: self._random.randrange(len(mine))]
                with suppress(TruncatedInput, Misplaced):
                    self._attempts(epoch, partial(self._task, epoch, stage, partition, cut), partial(str, home))
            try:
                done += self._attempts(epoch, task, partial(self._runner.another, home))
            except Misplaced:
                done += self._attempts(epoch, task, partial(str, home))
        return done

    def _on_home(self, epoch: EpochSpec, task: int, work: Callable[[], list[Message]]) -> list[Message]:
        """Run a task of several partitions, most often on the member that has them."""
        home = epoch.owners[epoch.tasks[task][0]]
        try:
            return self._attempts(epoch, work, partial(self._runner.another, home))
        except Misplaced:
            return self._attempts(epoch, work, partial(str, home))

    def _read_packed(self, epoch: EpochSpec, task: int, items: Sequence[Any]) -> list[Message]:
        failpoints.reach("task: epoch")
        return list(read_and_run(self._program, task, epoch, items, pause=0.0))

    def _run_packed(self, epoch: EpochSpec, stage: int, task: int, messages: list[Message]) -> list[Message]:
        failpoints.reach("task: epoch")
        return list(run_packed(self._program, stage, task, epoch, messages, pause=0.0))

    def _task(self, epoch: EpochSpec, stage: int, partition: int, messages: list[Message]) -> list[Message]:
        failpoints.reach("task: epoch")
        fetched = fetch_missing_layers(self._program, stage, partition, epoch, pause=0.0)
        router, report = run_stage(self._program, stage, partition, epoch, messages)
        report.fetched = fetched
        done = finish(router, report, partition)
        return list(done if stage == self._program.stages else counted(done, epoch.partitions))

    def _attempts(
        self, epoch: EpochSpec, task: Callable[[], list[Message]], where: Callable[[], str] = str
    ) -> list[Message]:
        """Run a task, maybe twice, on the members that ``where`` returns. A task that meets an error sends the error,
        and other tasks continue, as in Spark. A task whose member cannot be reached ends the job."""
        try:
            if self._random.random() < _TWICE:
                with suppress(TaskDied):
                    self._runner.on(where(), task)
            try:
                return self._runner.on(where(), task)
            except TaskDied:
                return self._runner.on(where(), task)
        except MemberUnreachable:
            raise
        except (HoldfastError, LargeRound) as error:
            return failure(error, epoch.partitions)


def _in_one_task(epoch: EpochSpec) -> bool:
    """Whether an epoch runs in one task. Results must not depend on it; a replay of such an epoch runs in stages."""
    return _usual(epoch) and not epoch.owners and epoch.number % 3 == 1


def _in_few_tasks(epoch: EpochSpec) -> bool:
    """Whether an epoch of members with layers of their own has fewer tasks than partitions. Results must not depend on
    it either."""
    return _usual(epoch) and bool(epoch.owners) and epoch.number % 3 != 0


def _usual(epoch: EpochSpec) -> bool:
    return epoch.first == epoch.number and epoch.run is None and epoch.write is None
