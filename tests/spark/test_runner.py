"""Who hears of Spark's executors for a flow: the runner that it has now, and none that it had."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.spark.listener import ExecutorLost, listener_of
from holdfast.spark.runner import SparkRunner


@pytest.fixture
def cancelled(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The job groups that were cancelled. Runners listen as on a cluster whose members keep layers of their own."""
    context, groups, make = spark.sparkContext, list[str](), SparkRunner.__init__

    def make_listening(self: SparkRunner, *given: Any, **named: Any) -> None:
        make(self, *given, **named)
        self._listener = listener_of(context)
        self._listener.add(self._hear)

    monkeypatch.setattr(SparkRunner, "__init__", make_listening)
    monkeypatch.setattr(context, "cancelJobGroup", lambda group, reason=None: groups.append(group))
    return groups


def test_an_executor_that_is_lost_is_heard_of_once_however_often_the_flow_was_opened_anew(
    spark: SparkSession, tmp_path: Path, cancelled: list[str]
) -> None:
    context = spark.sparkContext
    before = len(listener_of(context)._all)
    with hf.Flow("shop", log=tmp_path / "log", spark=spark, partitions=2) as flow:
        orders = flow.input("orders", "user string, amount long")
        flow.view("spend", "SELECT user, sum(amount) AS total FROM orders GROUP BY user")
        orders.insert([("ada", 1)])
        flow.step()
        for partitions in (3, 2):
            flow.rescale(partitions)
        flow.view("users", "SELECT user FROM orders")
        assert len(listener_of(context)._all) == before, "what was declared has no runner yet"
        flow.step()
        listener_of(context)._tell(ExecutorLost("7", "its worker was stopped"))
        assert len(cancelled) == 1, "a runner that the flow had before cancelled epochs, too"
    listener_of(context)._tell(ExecutorLost("8", "its worker was stopped"))
    assert len(cancelled) == 1, "the runner of a closed flow cancels epochs of others"
    assert len(listener_of(context)._all) == before
