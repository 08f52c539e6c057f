"""What Spark says of a task that failed, as a user gets to see it."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.errors import LogError
from holdfast.spark.failure import lost, not_exchanged, translated
from holdfast.spark.own_jobs import own_jobs

OURS = str(Path(holdfast.__file__).parent / "operators" / "asked.py")


def told(*frames: str, error: str) -> RuntimeError:
    lines = [f'  File "{frame}", line 7, in task\n    something()' for frame in frames]
    return RuntimeError("\n".join(["An exception was thrown from the Python worker:", *lines, error, ""]))


def test_an_error_of_the_file_system_in_a_task_is_an_error_about_the_log() -> None:
    said = "OSError: [Errno 28] No space left on device: '/log/.1.tmp' -> '/log/.asked-1.json'"
    error = translated(
        told("/usr/lib/python3.11/pathlib.py", OURS, "/usr/lib/python3.11/os.py", error=said), "flow: epoch 3"
    )
    assert isinstance(error, LogError)
    assert (error.fields["errno"], error.fields["path"]) == (errno.ENOSPC, "/log/.asked-1.json")
    assert str(error) == "flow: epoch 3: /log/.asked-1.json: the disk is full; make room and try again"


def test_an_error_of_the_file_system_in_a_users_function_stays_the_users() -> None:
    said = "FileNotFoundError: [Errno 2] No such file or directory: '/home/me/cities.csv'"
    assert translated(told(OURS, "/home/me/app.py", error=said), "flow: epoch 3") is None


def test_an_exchange_that_spark_gives_up_says_who_did_not_answer() -> None:
    said = RuntimeError(
        "Job aborted due to stage failure: ShuffleMapStage 52 (partitionBy at epoch.py:201) has failed the maximum "
        "allowable number of times: 4. Most recent failure reason:\n"
        "org.apache.spark.shuffle.FetchFailedException: Failed to connect to /10.77.0.2:46391\n\tat org.apache.spark…"
    )
    error = not_exchanged(said, "flow: epoch 3")
    assert error is not None and error.fields["executors"] == ["10.77.0.2:46391"]
    assert "flow: epoch 3: executors could not get each other's rows, several times; 10.77.0.2:46391" in str(error)
    assert not_exchanged(RuntimeError("Task 2 in stage 17.0 failed 4 times"), "flow") is None


def test_workers_whose_python_lacks_holdfast_are_told_from_workers_that_die() -> None:
    said = RuntimeError(
        "Job aborted due to stage failure: org.apache.spark.SparkException: \nError from python worker:\n  "
        "/usr/bin/python3: Error while finding module specification for 'holdfast.spark.workers' "
        "(ModuleNotFoundError: No module named 'holdfast')\nPYTHONPATH was:\n  /lib/pyspark.zip"
    )
    error = lost(said, "flow: epoch 0")
    assert error is not None and (error.fields["python"], error.fields["module"]) == ("/usr/bin/python3", "holdfast")
    assert f"set PYSPARK_PYTHON={sys.executable} before the Spark session is made" in str(error)


APP = """
import holdfast as hf
from pyspark.sql import SparkSession
flow = hf.Flow("f", "log", SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate())
flow.input("t", schema="a int").insert([(1,)])
flow.view("v", "SELECT count(*) AS n FROM t")
try:
    flow.step()
except hf.TasksLost as error:
    print("TasksLost", error.fields["module"])
"""


@pytest.mark.slow
def test_a_session_whose_workers_run_another_python_says_so(tmp_path: Path) -> None:
    other = Path(sys.base_prefix) / "bin" / "python3"
    if subprocess.run([other, "-c", "import holdfast"], capture_output=True, cwd=tmp_path).returncode == 0:
        pytest.skip("holdfast is installed for the system's Python, too")
    environment = {**os.environ, "PYSPARK_PYTHON": str(other), "PYSPARK_DRIVER_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, "-c", APP], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert "TasksLost holdfast" in done.stdout, done.stderr[-2000:]


def test_an_interrupt_is_not_replaced_by_the_error_of_a_java_that_has_ended() -> None:
    class Ended:
        """A context whose Java ends while a job runs: Ctrl-C reaches both."""

        given = 0

        def setLocalProperties(self, properties: object) -> None:
            self.given += 1
            if self.given > 1:
                raise ConnectionError("Answer from Java side is empty")

        def __getattr__(self, name: str) -> Any:
            return lambda *_: self

        @property
        def _jsc(self) -> Any:
            return self

    ended = Ended()
    with pytest.raises(KeyboardInterrupt), own_jobs(ended, "epoch", "epoch 1"):  # type: ignore[arg-type]  # a stand-in
        raise KeyboardInterrupt
    with pytest.raises(ConnectionError), own_jobs(Ended(), "epoch", "epoch 2"):  # type: ignore[arg-type]  # a stand-in
        pass
