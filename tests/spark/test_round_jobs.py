"""Rounds of loops as Spark jobs: when they are, that views and layers are those of one task, and what they leave.

Bodies, shares and sizes of all kinds are compared without Spark, in `task/test_rounds.py`; workers are killed in
`durability/test_killed_rounds.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from flow.test_loops import BOTH, LABELS, OVER, REACH, Graph, components, reachable
from holdfast.errors import EvaluationError, LoopDiverged
from holdfast.spark import round_jobs
from holdfast.spark.round_jobs import LoopJobs, large_round
from holdfast.task.round_tasks import RoundJob
from holdfast.trace.name import LayerName

CHAIN = "WITH RECURSIVE r(n) AS (SELECT 0L UNION SELECT e.b FROM r JOIN edges e ON e.a = r.n) SELECT n FROM r"


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[RoundJob]]:
    """The jobs of rounds that were run."""
    ran: list[RoundJob] = []
    planned = LoopJobs._rdd

    def noted(self: LoopJobs, job: RoundJob, *rest: Any) -> Any:
        ran.append(job)
        return planned(self, job, *rest)

    monkeypatch.setattr(LoopJobs, "_rdd", noted)
    yield ran


def layers(root: Path) -> set[tuple[Any, ...]]:
    """All local layers, by what they hold: their names without digests, which every flow has of its own."""
    found = set()
    for path in root.rglob("traces/*/*"):
        name = LayerName.parse(path.name)
        assert name is not None
        found.add((path.parent.name, name.low, name.high, name.first, name.last, name.since, name.checksum))
    return found


def declared(flow: hf.Flow) -> None:
    flow.view("both", BOTH)
    flow.view("reached", REACH)
    flow.view("labels", LABELS)
    flow.view("over", OVER)  # a loop over a loop, in a later stage


def test_views_and_layers_are_the_same_whether_rounds_are_jobs_or_not(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: list[RoundJob]
) -> None:
    held = []
    for way in ("task", "jobs"):
        assert not jobs
        monkeypatch.setenv("HOLDFAST_ROUNDS", way)
        graph = Graph(spark, tmp_path / way, declared)
        for number in range(2):
            epoch = graph.step(5)
            assert epoch is not None and (number or epoch.path == ("rounds" if way == "jobs" else "stages"))
            assert graph.rows("reached") == reachable(graph.edges, graph.starts)
            assert graph.rows("labels") == components(graph.edges)
        held.append((graph.rows("over"), layers(tmp_path / way)))
        graph.flow.close()
    assert held[0] == held[1]
    assert len({job.operator for job in jobs}) == 3
    assert not [path for path in tmp_path.rglob("rounds*") if "traces" not in path.parts]


def test_a_loop_leaves_its_task_when_rounds_are_large_and_no_sooner(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: list[RoundJob]
) -> None:
    monkeypatch.setattr(round_jobs, "_JOB", round_jobs._ROW * 20)  # rounds of some dozens of rows are large
    assert 20 < (large_round(2) or 0) < 200
    with hf.Flow("chain", tmp_path / "log", spark, partitions=2) as flow:
        edges = flow.input("edges", "a long, b long")
        flow.view("reached", CHAIN)
        edges.insert([(0, 1), (1, 2)])
        small = flow.step()
        edges.insert([(node, node + 1) for node in range(2, 9)] + [(9, node) for node in range(1000, 1400)])
        large = flow.step()
        edges.delete([(8, 9)])
        again = flow.step()
        assert (small.path, large.path, again.path) == ("stages", "rounds", "rounds")
        assert flow.read("reached").count() == 9
    # The edges arrive, and much later so does who is at their end; the rounds between them are no jobs.
    assert [(job.before, job.first) for job in jobs][:2] == [(-1, 0), (10, 11)]


def test_what_is_wrong_in_a_round_is_told_as_in_one_task(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: list[RoundJob]
) -> None:
    said: dict[str, list[str]] = {}
    for way in ("task", "jobs"):
        monkeypatch.setenv("HOLDFAST_ROUNDS", way)
        with hf.Flow("wrong", tmp_path / way, spark, partitions=2) as flow:
            edges = flow.input("edges", "a long, b long")
            flow.view("divided", CHAIN.replace("e.b", "e.b + 12 DIV (e.b - 7)"))
            flow.view("ever", CHAIN.replace("e.b", "r.n + 1").replace("e.a = r.n", "e.a = 1"), max_rounds=5)
            edges.insert([(0, 0), (2, 3)])
            flow.step()
            for wrong, error in (((0, 7), EvaluationError), ((1, 5), LoopDiverged)):
                edges.insert([wrong])
                with pytest.raises(error) as raised:
                    flow.step()
                said.setdefault(way, []).append(str(raised.value))
                edges.discard()
    assert said["jobs"] == said["task"] and jobs


@pytest.mark.slow
def test_a_chain_of_many_rounds_leaves_no_file_and_nothing_in_the_session(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: list[RoundJob]
) -> None:
    monkeypatch.setenv("HOLDFAST_ROUNDS", "jobs")
    scratch: list[int] = []
    bytes: list[int] = []
    run = LoopJobs._rdd

    def counted(self: LoopJobs, *arguments: Any) -> Any:
        files = [path.stat().st_size for path in (tmp_path / "log" / "rounds").rglob("*.*.*.*")]
        scratch.append(len(files))
        bytes.append(sum(files))
        rdd = run(self, *arguments)
        assert rdd.toDebugString().count(b"\n") < 40
        return rdd

    monkeypatch.setattr(LoopJobs, "_rdd", counted)
    with hf.Flow("chain", tmp_path / "log", spark, partitions=2) as flow:
        edges = flow.input("edges", "a long, b long")
        flow.view("reached", CHAIN, max_rounds=1100)
        edges.insert([(node, node + 1) for node in range(1000)])
        assert flow.step().rounds["reached"] > 1000
        assert flow.read("reached").count() == 1001
        edges.delete([(100, 101)])
        flow.step()
        assert flow.read("reached").count() == 101
    assert len(jobs) > 700 and max(scratch) < 60  # two rounds in each
    early, late = (max(bytes[start : start + 100]) for start in (50, 400))
    assert late < 2 * early, f"what is handed on grows with rounds: {early}, then {late} bytes"
    assert not (tmp_path / "log" / "rounds").exists()
    assert spark.sparkContext._jsc.sc().getPersistentRDDs().isEmpty()
