"""A worker that is killed whenever it runs a row is a clear error; the flow goes on when it is not any more."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.errors import TasksLost
from holdfast.spark.failure import lost


def test_workers_that_are_killed_again_and_again_are_a_clear_error(spark: SparkSession, tmp_path: Path) -> None:
    poison = str(tmp_path / "poison")
    Path(poison).touch()

    def fatal(k: int) -> int:
        if os.path.exists(poison):
            os.kill(os.getpid(), signal.SIGKILL)
        return k + 1

    with hf.Flow("killed", log=tmp_path / "log", spark=spark, partitions=1) as flow:
        t = flow.input("t", "k long")
        flow.udf("fatal", fatal, returns="long")
        flow.view("v", "SELECT fatal(k) AS k FROM t")
        t.insert([(1,)])
        for _ in range(2):
            with pytest.raises(TasksLost, match="killed: epoch 0: the Python worker that ran a task died") as raised:
                flow.step()
            assert raised.value.fields["complete"] is False
            assert isinstance(raised.value.__cause__, Py4JJavaError)
            assert "\n" not in str(raised.value)
        os.unlink(poison)
        assert flow.step().epoch == 0
        assert [row.k for row in flow.read("v").collect()] == [2]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times, most recent failure: Lost task 0.3 "
            "ExecutorLostFailure (executor 2 exited caused by one of the running tasks)",
            "epoch 3: the executor that ran a task was lost, 4 times in a row",
        ),
        ("Cannot call methods on a stopped SparkContext.", "epoch 3: the Spark session was stopped"),
        ("Answer from Java side is empty", "epoch 3: Spark's JVM does not answer any more"),
    ],
)
def test_what_spark_says_of_tasks_that_died(text: str, said: str) -> None:
    assert str(lost(RuntimeError(text), "epoch 3")).startswith(said)
    assert lost(RuntimeError("something else"), "epoch 3") is None
