"""PySpark takes a connection that breaks off for the end of the input: a task must not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark import RDD
from pyspark.sql import SparkSession

from holdfast.operators.linear_step import is_native
from holdfast.plan.dataflow import build
from holdfast.spark.epoch_property import tell
from holdfast.spark.epoch_tasks import stage_task
from holdfast.task.messages import Message, counted
from holdfast.task.program import compile_program
from holdfast.task.read_sources import read_parts
from holdfast.task.stage import finish
from holdfast.testing.simulator.model import plans
from operators.test_whole import FLOW, PARTITIONS, epoch_of, files, items


def _after_the_jvm(rdd: RDD[Any]) -> RDD[Any]:
    """The same, but what follows runs in another Python worker, with the JVM between them."""
    return RDD(rdd._jrdd.coalesce(1), rdd.ctx, rdd._jrdd_deserializer)


def test_a_task_whose_input_breaks_off_in_spark_writes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    program = compile_program(build(plans(FLOW), {}, is_native))
    epoch = replace(epoch_of(tmp_path, 0), senders=1)
    router, report = read_parts(program, epoch, items(0), 0)
    mine = [each for each in counted(finish(router, report, 0), PARTITIONS) if each[0] == 0]
    large = b"." * 10_000_000  # more than any buffer on the way: the part before it has arrived when it breaks off

    def messages(breaks: bool) -> RDD[Message]:
        def all_of_them(_: Iterator[int]) -> Iterator[Message]:
            for place, message in enumerate(mine):
                if breaks and place == len(mine) - 1:
                    yield 0, (999, large)
                    raise ValueError("the other side fails")
                yield message

        return _after_the_jvm(spark.sparkContext.parallelize([0], 1).mapPartitions(all_of_them))

    tell(spark.sparkContext, epoch)
    task = stage_task(spark.sparkContext.broadcast(program), 1, None)
    with pytest.raises(Exception, match="the other side fails"):
        messages(True).mapPartitionsWithIndex(task).collect()
    assert files(tmp_path) == {}
    messages(False).mapPartitionsWithIndex(task).collect()
    assert files(tmp_path)
