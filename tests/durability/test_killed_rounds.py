"""Real processes, killed in the middle of a loop's rounds: a task's worker, or the driver and all that is its.

What was delivered is what the views hold over all input, each row once.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from durability import loops_app
from durability.loops_app import DELIVERED, declare
from durability.test_killed_processes import Process, Row, changelog, finished
from holdfast.errors import TasksLost

NODES = 14


class Batches:
    """Files of edges that come and go, and what the views hold over all that were written."""

    def __init__(self, root: Path, seed: int) -> None:
        self._directory = root / "batches"
        self._directory.mkdir(parents=True)
        self._dice = random.Random(seed)
        self._edges: Counter[tuple[int, int]] = Counter()
        self.written = 0

    def write(self) -> list[list[int]]:
        """A batch, as it was written. The chain from node 0 comes first; what breaks it is mended by the next."""
        dice = self._dice
        chain = Counter((node, node + 1) for node in range(NODES - 1)) - self._edges
        come = chain + Counter((dice.randrange(NODES), dice.randrange(NODES)) for _ in range(2))
        gone = Counter(edge for edge in self._edges.elements() if dice.random() < 0.15)
        self._edges += come
        self._edges -= gone
        rows = [[a, b, 0, copies] for (a, b), copies in come.items()] + [[a, b, 0, -n] for (a, b), n in gone.items()]
        (self._directory / f"{self.written:06d}.json").write_text(json.dumps(rows))
        self.written += 1
        return rows

    def meant(self) -> dict[str, Counter[Row]]:
        reached, labels = {0}, {a: a for a, _ in self._edges}
        while more := {b for a, b in self._edges if a in reached} - reached:
            reached |= more
        before: dict[int, int] = {}
        while before != labels:
            before = dict(labels)
            for a, b in self._edges:
                labels[b] = min(labels.get(b, labels[a]), labels[a])
        return {"reached": Counter((node,) for node in reached), "labels": Counter(labels.items())}


def doom(root: Path, rows: int, who: str) -> None:
    (root / "killed").unlink(missing_ok=True)
    (root / "kill").write_text(f"{rows} {who}")


def check(root: Path, held: dict[str, Counter[Row]], batches: Batches) -> None:
    assert held == batches.meant()
    for view in DELIVERED:
        assert changelog(root / view).rows == held[view]


def kill_workers(spark: SparkSession, root: Path, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kill a worker in the middle of a round, so many times, on each of the ways in which an epoch may run: one in four
    with all rounds as jobs, which a loss leaves to the one task."""
    batches, dice = Batches(root, count), random.Random(count)
    with hf.Flow("killed", root / "log", spark, partitions=2) as flow:
        pushed = flow.input("batches", "id long, user long, amount long")
        declare(flow, root)

        def push() -> None:
            rows = batches.write()
            pushed.insert([tuple(row) for *row, diff in rows for _ in range(diff)])
            pushed.delete([tuple(row) for *row, diff in rows for _ in range(-diff)])

        push()
        flow.step()
        for kill in range(count):
            monkeypatch.setenv("HOLDFAST_PATH", ("resident", "task", "stages", "stages")[kill % 4])
            monkeypatch.setenv("HOLDFAST_ROUNDS", "jobs" if kill % 4 == 3 else "task")
            doom(root, dice.randrange(1, 9), "worker")
            while not (root / "killed").exists():
                push()
                with suppress(TasksLost):  # the worker died, and a local session has no second attempt
                    flow.step()
            flow.run(until="idle")
            held = {view: Counter(tuple(row) for row in flow.read(view).collect()) for view in DELIVERED}
            check(root, held, batches)


def test_a_worker_that_is_killed_in_a_round_costs_nothing_but_time(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill_workers(spark, tmp_path, 4, monkeypatch)


@pytest.mark.slow
def test_sixteen_workers_that_are_killed_in_rounds_cost_nothing_but_time(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill_workers(spark, tmp_path, 16, monkeypatch)


@pytest.mark.slow
def test_a_driver_that_is_killed_in_rounds_again_and_again_delivers_everything_once(tmp_path: Path) -> None:
    root, dice = tmp_path / "flow", random.Random(15)
    batches = Batches(root, 15)
    processes: list[Process] = []

    def started(*arguments: str, **environment: str) -> Process:
        app = Path(loops_app.__file__)
        modules = os.pathsep.join([str(Path(hf.__file__).parents[1]), str(app.parents[1])])
        processes.append(Process(root, *arguments, app=app, PYTHONPATH=modules, **environment))
        return processes[-1]

    try:
        for kill in range(15):
            for _ in range(12):
                batches.write()
            doom(root, dice.randrange(1, 30), "driver")
            lines = said(started(HOLDFAST_ROUNDS="jobs" if kill % 3 == 2 else "task"))
            assert (root / "killed").exists() and "idle" not in lines, f"{lines}\n{processes[-1].errors()}"
        held = finished(started("finish"))
        for process in processes:
            process.assert_gone()
    finally:
        for process in processes:
            process.kill()
    check(root, {view: Counter(map(tuple, rows)) for view, rows in held.items()}, batches)


def said(process: Process) -> Sequence[Any]:
    """What a process said before it was killed, or had nothing more to do."""
    lines = []
    while line := process.line():
        lines.append(line)
        if line == "idle":
            break
    process.kill()
    return lines
