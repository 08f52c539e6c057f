"""Rounds of a loop as jobs, in one process: the layers are those of one task, byte for byte and by name.

What tasks hand to each other comes in any order, and some tasks run twice (`rounds.py`). On Spark:
`spark/test_round_jobs.py`.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import LoopDiverged
from holdfast.operators.loops.epoch import LargeRound
from holdfast.task.messages import Message, TruncatedInput
from holdfast.task.round_state import RoundJobs
from holdfast.task.round_tasks import RoundJob
from holdfast.task.stage import EpochSpec
from holdfast.trace.hashing import weak_bits
from operators.loops import LOOPS, Bag, Case, components, diverging, reach, walks
from operators.running import Rows, added
from operators.test_loop import change
from operators.test_loop_bodies import change_of, drawn_changes, drawn_loop
from task.rounds import LoopRunner, bag_of

ALWAYS = RoundJobs(0, 2)


def compare(case: Case, root: Path, seed: str, jobs: RoundJobs, epochs: int) -> None:
    """Run random epochs both ways, and compare all files after each."""
    dice = random.Random(seed)
    one, many = (LoopRunner(case, root / way, random.Random(seed), told) for way, told in (("1", None), ("2", jobs)))
    inputs = [(each.name, len(each.fields)) for each in case.loop.inputs]
    there: list[Bag] = [Counter() for _ in inputs]
    nodes, ran = dice.choice([3, 5, 8]), 0
    for _ in range(epochs):
        changes = [change(*each, bag, dice, nodes) for each, bag in zip(inputs, there, strict=True)]
        there = [added(bag, other) for bag, other in zip(there, changes, strict=True)]
        rows = [[*each.items()] for each in changes]
        merges = _merges_beside(many, dice.choice([None, dice.randrange(4)]), dice.randrange(-1, len(one.digests) or 1))
        found = bag_of(many.epoch(rows))
        if merges:
            one.merge(merges.pop())
        assert found == bag_of(one.epoch(rows))
        assert many.files() == one.files()
        # Rows of two senders that cancel have a key looked at again, in a round that is passed over otherwise.
        assert many.report.rounds.get("v", 0) >= one.report.rounds.get("v", 0)
        ran += len(many.ran)
        if dice.random() < 0.4:
            since = dice.randrange(-1, len(one.digests))
            one.merge(since)
            many.merge(since)
    assert ran or jobs.large, "small rounds are no jobs where only large ones are to be"


def _merges_beside(runner: LoopRunner, job: int | None, since: int) -> list[int]:
    """Have a job of the next epoch find all layers merged that the jobs before it found as they were; up to which
    epoch they were collapsed, if that has happened."""
    merged: list[int] = []

    def merge() -> None:
        if len(runner.ran) - 1 == job and runner.digests:
            runner.merge(since)
            merged.append(since)

    runner.before_job = merge
    return merged


@pytest.mark.parametrize(("name", "bits"), list(zip(LOOPS, cycle([64, 2]), strict=False)))
def test_layers_are_the_same_files_whether_rounds_are_jobs_or_not(name: str, bits: int, tmp_path: Path) -> None:
    jobs = RoundJobs(0, 2, together=3) if bits == 64 else RoundJobs(0, 3)
    with weak_bits(bits):
        compare(LOOPS[name](), tmp_path, f"{name} {bits}", jobs, epochs=3)


@pytest.mark.slow
@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize("seed", range(20))
def test_layers_are_the_same_files_over_many_epochs(name: str, seed: int, tmp_path: Path) -> None:
    dice = random.Random(f"{name} {seed}")
    jobs = RoundJobs(dice.choice([0, 2, 8]), dice.choice([2, 3, 8]), dice.choice([1, 2, 5]))
    with weak_bits(dice.choice([64, 2])):
        compare(LOOPS[name](), tmp_path, f"{name} {seed}", jobs, epochs=8)


def compare_bodies(seed: int, root: Path, nested: bool) -> None:
    """As `compare`, with a body that is drawn, and rounds that are jobs or not as their size has it."""
    dice = random.Random(f"rounds {nested} {seed}")
    case, *_ = drawn_loop(dice, nested)
    jobs = RoundJobs(dice.choice([0, 0, 2, 6]), dice.choice([2, 3, 7]), dice.choice([1, 2, 4]))
    with weak_bits(dice.choice([64, 2])):
        one = LoopRunner(case, root / "one", random.Random(1))
        many = LoopRunner(case, root / "many", random.Random(seed), jobs)
        there: dict[str, Bag] = {"starts": Counter(), "edges": Counter()}
        for epoch in range(4):
            changes = drawn_changes(dice, there)
            there = {name: added(rows, changes[name]) for name, rows in there.items()}
            rows = [[*change_of(node, there, changes, epoch == 0).items()] for node in case.loop.inputs]
            assert bag_of(many.epoch(rows)) == bag_of(one.epoch(rows))
            assert many.files() == one.files()


@pytest.mark.parametrize("nested", [False, True], ids=["flat", "nested"])
@pytest.mark.parametrize("seed", range(2))
def test_layers_of_any_body_are_the_same_files(seed: int, nested: bool, tmp_path: Path) -> None:
    compare_bodies(seed, tmp_path, nested)


@pytest.mark.slow
@pytest.mark.parametrize("nested", [False, True], ids=["flat", "nested"])
@pytest.mark.parametrize("seed", range(2, 502))
def test_layers_of_many_bodies_are_the_same_files(seed: int, nested: bool, tmp_path: Path) -> None:
    compare_bodies(seed, tmp_path, nested)


CHAIN: list[Rows] = [[((0,), 1)], [((node, node + 1), 1) for node in range(60)]]
FAN: Rows = [((30, 100 + node), 1) for node in range(50)] + [((100 + node, 200 + node), 1) for node in range(50)]
"""Behind node 30 of the chain two rounds are large."""


@pytest.mark.parametrize("name", ["reach", "closure", "components", "labels", "parity"])
@pytest.mark.parametrize("job", range(1, 5))
def test_a_history_that_a_merge_beside_the_rounds_leaves_nothing_of_was_there_all_the_same(
    name: str, job: int, tmp_path: Path
) -> None:
    case = LOOPS[name]()
    one, many = both(case, tmp_path, RoundJobs(0, 3))
    dice = random.Random(f"{name} {job}")
    fill = [[*change(each.name, len(each.fields), Counter(), dice, 8).items()] for each in case.loop.inputs]
    fill = [[(row, abs(diff)) for row, diff in rows] for rows in fill]
    for rows in (fill, [[(row, -diff) for row, diff in rows] for rows in fill], fill):
        last = rows is fill and many.digests
        merges = _merges_beside(many, job if last else None, len(many.digests) - 1)
        found = bag_of(many.epoch(rows))
        if merges:
            one.merge(merges.pop())
        assert found == bag_of(one.epoch(rows))
        assert many.files() == one.files()


def both(case: Case, root: Path, jobs: RoundJobs) -> tuple[LoopRunner, LoopRunner]:
    return (LoopRunner(case, root / way, random.Random(3), told) for way, told in (("1", None), ("2", jobs)))


def test_a_loop_changes_sides_as_often_as_its_rounds_do(tmp_path: Path) -> None:
    one, many = both(reach(), tmp_path, RoundJobs(40, 3))
    changes = [CHAIN[0], [*CHAIN[1], *FAN]]
    assert bag_of(many.epoch(changes)) == bag_of(one.epoch(changes))
    assert many.files() == one.files()
    assert [job.first for job in many.ran] == [0, 32, 33] and many.given_up == 2  # the edges arrive, and then the fan
    assert many.report.rounds == one.report.rounds


def test_an_epoch_that_stands_for_a_history_is_the_same(tmp_path: Path) -> None:
    one, many = both(reach(), tmp_path, ALWAYS)
    for each in (one, many):
        each.digests = ["0" * 16, "1" * 16]  # two epochs that are not there any more
        each.epoch(CHAIN, first=0)
        each.epoch([[], [((7, 8), -1)]])
    assert many.files() == one.files() and many.ran


def test_a_long_loop_keeps_few_files_on_its_way_and_none_of_it_grows_with_rounds(tmp_path: Path) -> None:
    many = LoopRunner(reach(), tmp_path, random.Random(3), ALWAYS)
    counts: list[int] = []
    many.before_job = lambda: counts.append(len(list((tmp_path / "rounds").glob("*/*"))))
    many.epoch(CHAIN)
    assert len(counts) == 62 and max(counts) < 40


def test_another_attempt_of_the_loops_task_changes_no_file_that_jobs_go_on_with(tmp_path: Path) -> None:
    """Its rows came in another order, and inputs are cut by place: shares of two attempts are not one whole."""
    one, many = both(reach(), tmp_path, ALWAYS)
    run = many.job

    def beside(epoch: EpochSpec, changes: Sequence[Rows], job: RoundJob) -> list[Message]:
        before = {path: path.read_bytes() for path in (tmp_path / "2" / "rounds").glob("*/*")}
        with pytest.raises(LargeRound) as raised:
            many.attempt(epoch, changes)
        assert raised.value.state != job.state
        assert {path: path.read_bytes() for path in before} == before
        return run(epoch, changes, job)

    many.job = beside  # type: ignore[method-assign]
    assert bag_of(many.epoch([CHAIN[0], CHAIN[1][:5]])) == bag_of(one.epoch([CHAIN[0], CHAIN[1][:5]]))
    assert many.files() == one.files() and many.ran


def test_a_limit_of_rows_holds_for_the_round_and_not_for_each_share(tmp_path: Path) -> None:
    starts: Rows = [((0,), 1)]
    edges: Rows = [((0, node), 1) for node in range(1, 17)]
    case, said = walks(), []
    for limit in (10, 16):
        limited = replace(case, loop=replace(case.loop, max_rows=limit))
        for runner in both(limited, tmp_path / str(limit), RoundJobs(0, 4, together=3)):
            try:
                said.append(str(len(bag_of(runner.epoch([starts, edges])))))
            except LoopDiverged as error:
                said.append(str(error))
    assert said[0] == said[1] and said[2:] == ["17", "17"]
    assert "the loop adds 16 rows in round 2" in said[0]


def test_a_loop_that_goes_on_for_ever_is_told_as_in_one_task(tmp_path: Path) -> None:
    said = []
    for runner in both(diverging(), tmp_path, RoundJobs(0, 3, together=4)):
        runner.epoch([[((7,), 1)]])
        with pytest.raises(LoopDiverged) as raised:
            runner.epoch([[((node,), 1) for node in range(5)]])
        said.append((str(raised.value), raised.value.fields))
        assert bag_of(runner.epoch([[((8,), 1)]])) == [((8,), 1)]
    assert said[0] == said[1] and len(said[0][1]["rows"]) == 3


def test_a_task_whose_input_broke_off_writes_nothing(tmp_path: Path) -> None:
    many = LoopRunner(reach(), tmp_path, random.Random(3), ALWAYS)
    stage = many.stage

    def cut_off(*arguments: Any) -> Any:
        *others, messages = arguments
        before = set((tmp_path / "rounds").glob("*/*"))
        with pytest.raises(TruncatedInput):
            stage(*others, messages[:-1])
        assert set((tmp_path / "rounds").glob("*/*")) == before
        return stage(*others, messages)

    many.stage = cut_off
    many.epoch(CHAIN)
    assert len(many.ran) == 62


@pytest.mark.parametrize("lost", ["*", "*.0.1"])
def test_files_that_went_with_their_host_leave_the_loop_to_one_task(lost: str, tmp_path: Path) -> None:
    one, many = both(components(), tmp_path, ALWAYS)

    def lose() -> None:
        for path in (tmp_path / "2" / "rounds").glob(f"*/{lost}"):
            path.unlink()

    many.behind = lose
    changes: list[Rows] = [[((node, node), 1) for node in range(9)], [((node, node + 1), 1) for node in range(8)]]
    assert bag_of(many.epoch(changes)) == bag_of(one.epoch(changes))
    assert many.files() == one.files() and many.ran


def test_a_disk_that_takes_no_files_leaves_the_loop_to_one_task(tmp_path: Path) -> None:
    one, many = both(reach(), tmp_path, ALWAYS)
    (tmp_path / "2").mkdir()
    (tmp_path / "2" / "rounds").write_text("no directory")
    assert bag_of(many.epoch(CHAIN)) == bag_of(one.epoch(CHAIN))
    assert many.files() == one.files() and not many.ran
