"""Flows with a loop in the simulator: drivers, tasks and members die in the middle of rounds, too."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from amounts import times
from holdfast.task.messages import Message
from holdfast.task.program import Program
from holdfast.task.round_tasks import RoundJob
from holdfast.task.stage import EpochSpec
from holdfast.testing.simulator import runner
from holdfast.testing.simulator.actions import ROUND
from holdfast.testing.simulator.model import LOOP, flow_of
from holdfast.testing.simulator.round_jobs import run_job
from holdfast.testing.simulator.run import SimulatedDriver, Simulation
from holdfast.testing.simulator.runner import TaskDied
from simulator.seeds import check


def with_loops(first: int, count: int) -> list[int]:
    """So many seeds, from one on, whose flows have a loop."""
    return [seed for seed in range(first, first + 8 * count) if LOOP in flow_of(seed)]


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[RoundJob]:
    """The jobs of rounds that were run."""
    ran: list[RoundJob] = []

    def noted(program: Program, epoch: EpochSpec, job: RoundJob, *rest: Any) -> list[Message]:
        ran.append(job)
        return run_job(program, epoch, job, *rest)

    monkeypatch.setattr(runner, "run_job", noted)
    return ran


@pytest.fixture
def deaths(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Who died in rounds, and how often."""
    counted: Counter[str] = Counter()
    reached = Simulation._reached

    def noted(self: Simulation, driver: SimulatedDriver, mark: str) -> None:
        try:
            reached(self, driver, mark)
        except BaseException as error:
            if mark == ROUND:
                counted["task" if isinstance(error, TaskDied) else "driver"] += 1
            raise

    monkeypatch.setattr(Simulation, "_reached", noted)
    return counted


@pytest.mark.parametrize("scattered", [False, True], ids=["one place", "scattered"])
def test_whoever_dies_in_a_round_nothing_is_lost_duplicated_or_wrong(
    scattered: bool, deaths: Counter[str], jobs: list[RoundJob]
) -> None:
    check(with_loops(0, 6), scattered=scattered)
    assert deaths.total() > 4
    assert bool(jobs) != scattered, "rounds are jobs where all executors share a directory"


@pytest.mark.slow
@pytest.mark.parametrize("scattered", [False, True], ids=["one place", "scattered"])
@pytest.mark.parametrize("first", range(32, 32 + 8 * times(500), 400))
def test_whoever_dies_in_a_round_nothing_is_lost_in_many_runs(
    first: int, scattered: bool, deaths: Counter[str], jobs: list[RoundJob]
) -> None:
    check(with_loops(first, 50), scattered=scattered)
    print(f"died in rounds: {deaths['driver']} drivers, {deaths['task']} tasks; {len(jobs)} jobs of rounds")
    assert deaths["driver"] > 10 and deaths["task"] > 10


def test_a_view_that_is_filled_again_in_the_middle_of_a_step_is_read_from_that_epoch_on() -> None:
    """A member dies in a round, with what an edited view was filled with and no copy had yet; the step that finds it
    needs two recoveries."""
    check([2686], scattered=True)
    check([1964], scattered=True, length=8)
