"""A simulated Spark: tasks run one after the other, in any order, some of them twice, some after a failure.

Some epochs run in one task, as small ones do."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from holdfast import marks
from holdfast.errors import HoldfastError
from holdfast.operators.intake import read_parts
from holdfast.operators.program import Program
from holdfast.operators.stage import Epoch, Message, failure, finish, reports_of, run_stage, ticks
from holdfast.operators.whole import run_whole
from holdfast.plan.dataflow import Dataflow, Types
from holdfast.runner import Job, Outcome, R, T, Work
from holdfast.testing.simulator.world import World

_TWICE = 0.1
"""How often Spark runs a task again although it had run: a lost result, a speculative copy."""


class SimulatedRunner:
    """Runs everything in this thread."""

    threads = False
    scattered = False
    news = ""

    def __init__(self, world: World, partitions: int) -> None:
        self._world = world
        self.partitions = partitions

    def job(self, flow: Dataflow, program: Program, types: Types) -> Job:
        return SimulatedJob(program, self._world.random)

    def tasks(
        self,
        what: str,
        function: Callable[[list[T]], list[R]],
        items: Sequence[T],
        slots: int,
        low: Callable[[T], int] | None = None,
    ) -> list[R]:
        results: list[R] = []
        for item in items:
            marks.reach(f"task: {what}")
            results += function([item])
        return results

    def everywhere(self, what: str, function: Callable[[], R]) -> dict[str, R]:
        return {"": function()}

    def owners(self) -> tuple[str, ...]:
        return ("",) * self.partitions

    def refresh(self) -> bool:
        return False

    def thread(self, target: Callable[[], None], name: str) -> Any:
        raise AssertionError("a simulation has no threads")

    def clock(self) -> int:
        return self._world.tick()

    def draw(self) -> int:
        return self._world.random.getrandbits(63)


class SimulatedJob:
    """One epoch after the other, as messages in memory."""

    def __init__(self, program: Program, chance: random.Random) -> None:
        self._program = program
        self._random = chance

    def run(self, epoch: Epoch, work: Sequence[Work], subject: str) -> Outcome:
        items = [(one.name, part) for one in work for offer in one.offers for part in one.source.parts(offer)]
        self._random.shuffle(items)
        if _in_one_task(epoch):
            messages = self._attempts(epoch, partial(self._whole, epoch, items))
            return Outcome(reports_of(messages), 0.0, 0.0)
        half = len(items) // 2
        messages = list(ticks(epoch.partitions))
        for place, share in enumerate((items[:half], items[half:])):
            messages += self._attempts(epoch, partial(self._read, epoch, share, place))
        for stage in range(1, self._program.stages + 1):
            messages = self._stage(epoch, stage, messages)
        return Outcome(reports_of(messages), 0.0, 0.0)

    def warm_up(self, epoch: Epoch, sources: Sequence[str], subject: str) -> None:
        """A simulation is as warm as it gets."""

    def _whole(self, epoch: Epoch, items: Sequence[Any]) -> list[Message]:
        marks.reach("task: epoch")
        return list(run_whole(self._program, epoch, items))

    def _read(self, epoch: Epoch, items: Sequence[Any], place: int) -> list[Message]:
        partition = place % epoch.partitions
        router, report = read_parts(self._program, epoch, items, partition)
        return list(finish(router, report, partition))

    def _stage(self, epoch: Epoch, stage: int, messages: list[Message]) -> list[Message]:
        self._random.shuffle(messages)
        done: list[Message] = []
        order = list(range(epoch.partitions))
        self._random.shuffle(order)
        for partition in order:
            mine = [message for message in messages if message[0] == partition]

            done += self._attempts(epoch, partial(self._task, epoch, stage, partition, mine))
        return done

    def _task(self, epoch: Epoch, stage: int, partition: int, messages: list[Message]) -> list[Message]:
        marks.reach("task: epoch")
        router, report = run_stage(self._program, stage, partition, epoch, messages)
        return list(finish(router, report, partition))

    def _attempts(self, epoch: Epoch, task: Callable[[], list[Message]]) -> list[Message]:
        """Run a task, maybe twice. One that meets an error says so, and the others go on, as in Spark."""
        try:
            if self._random.random() < _TWICE:
                task()
            return task()
        except HoldfastError as error:
            return failure(error, epoch.partitions)


def _in_one_task(epoch: Epoch) -> bool:
    """Some epochs are small; which way one was run must not show in anything, and a replay of it takes the other."""
    return epoch.number % 3 == 1 and epoch.first == epoch.number and epoch.run is None and epoch.write is None
