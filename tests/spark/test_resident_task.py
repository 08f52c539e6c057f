"""Small epochs in the task that stays, on Spark: whatever happens to it, the epoch is run as a job, and is right."""

from __future__ import annotations

import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.errors import NegativeMultiplicity, TasksLost
from holdfast.spark import resident_task
from holdfast.spark.epoch_job import EpochJob
from holdfast.spark.resident_task import ResidentTask, resident_of
from holdfast.testing import assert_same_rows
from holdfast.trace.name import LayerName

VIEW = "SELECT g, count(*) AS n, sum(v) AS s FROM t JOIN u ON t.k = u.k GROUP BY g"


@pytest.fixture
def stays(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[ResidentTask]:
    """A task that stays, new and ready."""
    monkeypatch.setattr(resident_task, "_AGAIN", 0.0)
    task = resident_of(spark.sparkContext)
    assert task is not None
    task.end()
    assert task.wait(30.0)
    yield task
    task.end()


def declared(spark: SparkSession, log: Path, name: str = "small") -> tuple[hf.Flow, hf.Input]:
    flow = hf.Flow(name, log=log, spark=spark)
    t, u = flow.input("t", "k long, v long"), flow.input("u", "k long, g string")
    flow.view("v", VIEW)
    u.insert([(each, "ab"[each % 2]) for each in range(5)])
    t.insert([(each % 5, each) for each in range(100)])
    assert flow.step().path == "stages"  # nothing is known of how large epochs are
    return flow, t


def expected(values: range) -> pa.Table:
    groups: dict[str, list[int]] = {"a": [], "b": []}
    for value in values:
        groups["ab"[value % 5 % 2]].append(value)
    counts, sums = [len(some) for some in groups.values()], [sum(some) for some in groups.values()]
    return pa.table({"g": list(groups), "n": counts, "s": sums})


def push(flow: hf.Flow, t: hf.Input, value: int) -> hf.Epoch:
    t.insert([(value % 5, value)])
    return flow.step()


def test_small_epochs_need_no_job(spark: SparkSession, tmp_path: Path, stays: ResidentTask) -> None:
    flow, t = declared(spark, tmp_path / "log")
    with flow:
        for value in range(100, 105):
            epoch = push(flow, t, value)
            assert (epoch.path, epoch.rows_in, epoch.changed) == ("resident", 1, {"v": 2})
        t.delete([(4, 104)])
        assert flow.step().path == "resident"
        assert_same_rows(flow.read("v"), expected(range(104)))


def test_every_path_writes_the_same_layers(
    spark: SparkSession, tmp_path: Path, stays: ResidentTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = []
    for path in ("stages", "task", "resident"):
        monkeypatch.setenv("HOLDFAST_PATH", path)
        flow, t = declared(spark, tmp_path / path)
        with flow:
            for value in range(100, 103):
                assert push(flow, t, value).path == path
            found = set()
            for file in (tmp_path / path).rglob("traces/*/*.arrow"):
                name = LayerName.parse(file.name)
                assert name is not None
                found.add((file.parent.name, name.first, name.last, name.low, name.high, name.checksum))
        written.append(found)
    assert written[0] and written[0] == written[1] == written[2]


def test_a_wrong_deletion_is_an_error_of_the_epoch_as_ever(
    spark: SparkSession, tmp_path: Path, stays: ResidentTask
) -> None:
    flow, t = declared(spark, tmp_path / "log")
    with flow:
        t.delete([(3, 999)])
        with pytest.raises(NegativeMultiplicity):
            flow.step()
        t.discard()
        assert push(flow, t, 100).path == "resident"
        assert_same_rows(flow.read("v"), expected(range(101)))


def test_the_answer_of_an_interrupted_epoch_is_not_taken_for_that_of_the_next(
    spark: SparkSession, tmp_path: Path, stays: ResidentTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow, t = declared(spark, tmp_path / "log")
    receive = resident_task.receive

    def interrupted(connection: socket.socket) -> Any:
        monkeypatch.setattr(resident_task, "receive", receive)
        raise KeyboardInterrupt

    with flow:
        assert push(flow, t, 100).path == "resident"
        monkeypatch.setattr(resident_task, "receive", interrupted)
        with pytest.raises(KeyboardInterrupt):
            push(flow, t, 101)
        for value in range(102, 105):
            epoch = push(flow, t, value)
            assert_same_rows(flow.read("v"), expected(range(value + 1)))
            assert epoch.rows_in == (2 if value == 102 else 1)


def test_a_directory_that_is_too_deep_for_a_socket_costs_the_task_and_nothing_else(
    spark: SparkSession, tmp_path: Path, stays: ResidentTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    stays.end()
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    monkeypatch.setattr(resident_task.tempfile, "tempdir", str(deep))
    assert not stays.wait(1.0)
    flow, t = declared(spark, tmp_path / "log")
    with flow:
        flow.prepare()
        assert push(flow, t, 100).path == "task"
        assert_same_rows(flow.read("v"), expected(range(101)))


def test_an_epoch_that_one_task_could_not_bear_is_run_in_stages_the_next_time(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EpochJob, "_may_stay", False)
    whole = EpochJob._whole

    def dies(self: EpochJob, items: Any) -> Any:
        monkeypatch.setattr(EpochJob, "_whole", whole)
        return self._spark.sparkContext.parallelize([0], 1).map(lambda _: os.kill(os.getpid(), signal.SIGKILL))

    flow, t = declared(spark, tmp_path / "log")
    with flow:
        assert push(flow, t, 100).path == "task"
        monkeypatch.setattr(EpochJob, "_whole", dies)
        with pytest.raises(TasksLost):
            push(flow, t, 101)
        assert flow.step().path == "stages"
        assert push(flow, t, 102).path == "task"
        assert_same_rows(flow.read("v"), expected(range(103)))


def _worker_of(stays: ResidentTask) -> int:
    """The process that runs the task: the one whose socket is connected to ours."""
    assert stays._connection is not None
    said = stays._connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", said)[0])


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGSTOP])
def test_a_task_that_dies_or_hangs_costs_a_job(
    spark: SparkSession, tmp_path: Path, stays: ResidentTask, monkeypatch: pytest.MonkeyPatch, sent: signal.Signals
) -> None:
    monkeypatch.setattr(resident_task, "_PATIENCE", 0.5)
    monkeypatch.setattr(resident_task, "_SLOWER", 0.0)
    flow, t = declared(spark, tmp_path / "log")
    with flow:
        assert push(flow, t, 100).path == "resident"
        worker = _worker_of(stays)
        os.kill(worker, sent)
        try:
            assert push(flow, t, 101).path == "task"
        finally:
            if sent == signal.SIGSTOP:
                os.kill(worker, signal.SIGCONT)
        monkeypatch.setattr(resident_task, "_PATIENCE", 30.0)
        assert stays.wait(30.0)  # another one is started
        assert push(flow, t, 102).path == "resident"
        assert_same_rows(flow.read("v"), expected(range(103)))


def test_a_task_that_dies_in_the_middle_of_an_epoch_costs_a_job(
    spark: SparkSession, tmp_path: Path, stays: ResidentTask
) -> None:
    """It is killed while a user's function runs, after some of the epoch's layers were written or before."""
    fatal, file = str(tmp_path / "fatal"), str(tmp_path / "died")

    def deadly(v: int) -> int:
        if os.path.exists(fatal):
            os.rename(fatal, file)
            os.kill(os.getpid(), signal.SIGKILL)
        return v

    with hf.Flow("deadly", log=tmp_path / "log", spark=spark) as flow:
        t = flow.input("t", "k long, v long")
        flow.udf("deadly", deadly, returns="long")
        flow.view("early", "SELECT k, count(*) AS n FROM t GROUP BY k")
        flow.view("late", "SELECT n, sum(deadly(k)) AS s FROM early GROUP BY n")
        t.insert([(each, each) for each in range(10)])
        flow.step()
        assert push(flow, t, 3).path == "resident"
        Path(fatal).touch()
        assert push(flow, t, 4).path == "task"
        assert Path(file).exists()
        found = {tuple(row) for row in flow.read("late").collect()}
        assert found == {(1, sum(range(10)) - 7), (2, 7)}


def test_flows_share_the_task_and_one_that_finds_it_busy_runs_a_job(
    spark: SparkSession, tmp_path: Path, stays: ResidentTask
) -> None:
    flows = [declared(spark, tmp_path / name, name) for name in ("one", "other")]
    paths: list[str] = []

    def steps(flow: hf.Flow, t: hf.Input) -> None:
        for value in range(100, 110):
            paths.append(push(flow, t, value).path)

    threads = [threading.Thread(target=steps, args=each) for each in flows]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(paths) == 20 and set(paths) <= {"resident", "task"} and paths.count("resident") >= 2
    for flow, _ in flows:
        assert_same_rows(flow.read("v"), expected(range(110)))
        flow.close()
    with stays._turn:  # somebody else's epoch
        flow, t = declared(spark, tmp_path / "third", "third")
        assert push(flow, t, 100).path == "task"
        flow.close()


def test_other_jobs_of_the_session_are_not_held_up(spark: SparkSession, stays: ResidentTask) -> None:
    count = spark.sparkContext.parallelize(range(100), 8).map(lambda each: each + 1).sum()
    assert count == 5050


def test_a_session_without_a_slot_for_it_has_none() -> None:
    class Context:
        master = "local[2]"
        defaultParallelism = 2
        applicationId = "none"

        def __init__(self, **told: str) -> None:
            self._told = told

        def getConf(self) -> Any:
            return {"spark.holdfast.resident": self._told["resident"]} if self._told else {}

    assert not resident_task._has_room(Context())  # type: ignore[arg-type]  # a session as users start them
    assert resident_task._has_room(Context(resident="true"))  # type: ignore[arg-type]
    Context.master = "local[16]"
    assert resident_task._has_room(Context())  # type: ignore[arg-type]
    assert not resident_task._has_room(Context(resident="false"))  # type: ignore[arg-type]
    Context.master = "spark://host:7077"
    assert not resident_task._has_room(Context(resident="true"))  # type: ignore[arg-type]


def test_its_job_ends_when_the_task_is_let_go(spark: SparkSession, stays: ResidentTask) -> None:
    tracker = spark.sparkContext.statusTracker()
    assert len(tracker.getActiveJobsIds()) == 1
    stays.end()
    deadline = time.monotonic() + 20.0
    while tracker.getActiveJobsIds() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert tracker.getActiveJobsIds() == []
