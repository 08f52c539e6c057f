"""A flow that runs in the background, and what Ctrl-C does to one that runs in front."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.errors import DeclarationError


def _flow(spark: SparkSession, tmp_path: Path) -> tuple[hf.Flow, hf.Input]:
    flow = hf.Flow("beside", log=tmp_path / "log", spark=spark, partitions=1)
    t = flow.input("t", "k long")
    return flow.view("n", "SELECT count(*) AS n FROM t"), t


def test_a_flow_runs_in_the_background_until_it_is_stopped(spark: SparkSession, tmp_path: Path) -> None:
    flow, t = _flow(spark, tmp_path)
    with pytest.raises(DeclarationError, match=r"nothing runs in the background; flow.start\(\) first"):
        flow.await_idle()
    seen: list[int | None] = []
    flow.start(interval=0.01, on_epoch=lambda epoch: seen.append(epoch.epoch))
    assert flow.active
    with pytest.raises(DeclarationError, match="it runs in the background already"):
        flow.start()
    for number in range(3):
        t.insert([(number,)])
        assert flow.await_idle(60)
        assert flow.read("n").first() == (number + 1,)
    flow.stop()
    assert flow.await_termination(60) and not flow.active
    assert len(seen) >= 3 and seen == list(range(len(seen)))
    t.insert([(9,)])
    flow.start(interval=0.01)
    assert flow.await_idle(60) and flow.read("n").first() == (4,)
    flow.close()
    assert flow.await_termination(60)


def test_an_error_in_the_background_is_raised_to_whoever_waits(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    flow, t = _flow(spark, tmp_path)
    t.delete([(1,)])
    flow.start(interval=0.01)
    with pytest.raises(hf.NegativeMultiplicity):
        flow.await_idle(60)
    assert not flow.active and "flow 'beside' stopped running" in caplog.text
    t.discard()
    t.insert([(1,)])
    assert flow.start(interval=0.01).await_idle(60)
    assert flow.read("n").first() == (1,)
    flow.close()


def _interrupt(after: float, times: int) -> None:
    def send() -> None:
        for _ in range(times):
            time.sleep(after)
            os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=send).start()


def test_the_first_interrupt_ends_a_run_after_the_epoch_and_the_second_at_once(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    flow, t = _flow(spark, tmp_path)
    t.insert([(1,)])
    flow.open()
    before = signal.getsignal(signal.SIGINT)
    _interrupt(1.0, 1)
    assert flow.run(interval=0.05) == 1
    assert "stopping after this epoch; Ctrl-C again stops at once" in capfd.readouterr().err
    assert signal.getsignal(signal.SIGINT) is before
    t.insert([(2,)])
    _interrupt(0.7, 2)
    with pytest.raises(KeyboardInterrupt):
        flow.run(interval=0.05, on_epoch=lambda epoch: time.sleep(5))
    assert flow.read("n").first() == (2,)  # usable all the same
    flow.close()


@pytest.mark.slow
def test_a_session_starts_and_tells_of_failures_without_a_word_of_spark_on_standard_error(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/bad.json").write_text('{"k": 1}\n{"k": "one"}\n')
    program = f"""
import holdfast as hf
flow = hf.Flow("quiet", log={str(tmp_path / "log")!r})
t = flow.input("t", "k long")
flow.view("v", "SELECT k FROM t")
t.insert([(1,)])
flow.step()
print(flow.read("v").collect())
t.delete([(7,)])
def said(what):
    try:
        what()
    except hf.HoldfastError as error:
        print(type(error).__name__)
said(flow.step)
t.discard()
flow.source("files", hf.files({str(tmp_path / "in")!r}, format="json", schema="k long"))
flow.view("f", "SELECT k FROM files")
said(flow.step)
flow.drop("f")
flow.udf("inverse", lambda k: 1 // (k - 2), "long")
flow.view("u", "SELECT inverse(k) AS i FROM t")
t.insert([(2,)])
said(flow.step)
flow.close()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.split("\n") == ["[Row(k=1)]", "NegativeMultiplicity", "BadFile", "EvaluationError", ""]
    assert done.stderr == ""


def test_a_flow_whose_session_was_stopped_says_so_and_goes_on_when_it_is_declared_again(tmp_path: Path) -> None:
    program = f"""
import time
import holdfast as hf
from pyspark.sql import SparkSession

def declared():
    flow = hf.Flow("stopped", log={str(tmp_path / "log")!r}, partitions=1)
    return flow, flow.input("t", "id long"), flow.view("v", "SELECT count(*) AS n FROM t")

flow, t, _ = declared()
t.insert([(1,)])
flow.step()
deadline = time.monotonic() + 60
while flow.step().path != "resident" and time.monotonic() < deadline:
    t.insert([(1,)])
    t.delete([(1,)])
SparkSession.getActiveSession().stop()
t.insert([(2,)])
for call in (flow.step, lambda: flow.read("v"), lambda: flow.view("w", "SELECT id FROM t")):
    try:
        call()
    except hf.TasksLost as error:
        print(error)
flow.close()
flow, t, _ = declared()
t.insert([(2,)])
flow.step()
print(flow.read("v").collect())
flow.close()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    *said, rows = done.stdout.splitlines()
    assert rows == "[Row(n=2)]"
    assert len(said) == 3 and all(each.startswith("flow 'stopped': its Spark session was stopped.") for each in said)
    assert "ERROR" not in done.stderr, "the task that stays has ended before the session"


def test_a_thread_that_steps_a_flow_has_the_properties_for_its_own_jobs_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    context = spark.sparkContext
    names = ("spark.scheduler.pool", "spark.jobGroup.id", "spark.job.description", "holdfast.epoch")
    for name in names:  # the tests before may have left some
        context.setLocalProperty(name, None)
    context.setJobGroup("mine", "my own jobs")
    try:
        with hf.Flow("polite", log=tmp_path / "log", spark=spark, partitions=2) as flow:
            t = flow.input("t", "id long")
            flow.view("v", "SELECT count(*) AS n, date_format(date_from_unix_date(id), 'y') AS y FROM t GROUP BY y")
            t.insert([(1,)])
            flow.step()
            assert [context.getLocalProperty(name) for name in names] == [None, "mine", "my own jobs", None]
            assert context.statusTracker().getJobIdsForGroup("holdfast-epochs"), "the epoch's jobs have their own"
            assert not context.statusTracker().getJobIdsForGroup("mine")
            assert [row.n for row in flow.read("v").collect()] == [1]
        assert [context.getLocalProperty(name) for name in names] == [None, "mine", "my own jobs", None]
    finally:
        for name in names:
            context.setLocalProperty(name, None)
