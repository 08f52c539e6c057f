"""What the test of small epochs on several members runs, in a driver of its own."""

from __future__ import annotations

import time
from typing import Any

import holdfast as hf
from cluster.scenes import session
from holdfast.spark.epoch_job import EPOCHS
from holdfast.spark.listener import Event, JobStarted, TaskEnded, listener_of
from holdfast.task.packed_tasks import READ_BY_ALL
from holdfast.testing import assert_same_rows
from holdfast.testing.cluster import Handle

VIEW = "SELECT u.g, count(*) AS n, sum(t.v) AS s FROM t JOIN u ON t.k = u.k GROUP BY u.g"
TOP = "SELECT * FROM v ORDER BY s DESC, g LIMIT 1"
PARTITIONS = 8


def small_epochs(handle: Handle, executors: int) -> dict[str, Any]:
    """Small epochs, one with a deletion, and a large one. Of each epoch: (its stages, its tasks)."""
    spark = session(handle, executors)
    root = handle.directory / "small"
    flow = hf.Flow("small", log=root / "log", local=root / "work", spark=spark, partitions=PARTITIONS)
    t, u = flow.input("t", "k long, v long"), flow.input("u", "k long, g string")
    flow.view("v", VIEW)
    flow.view("top", TOP)
    heard: list[Event] = []
    listener = listener_of(spark.sparkContext)
    listener.add(heard.append, tasks=True)
    tables: dict[str, list[tuple[Any, ...]]] = {"t": [], "u": [(each, "abc"[each % 3]) for each in range(20)]}
    u.insert(tables["u"])
    found = []

    def step() -> hf.Epoch:
        heard.clear()
        epoch = flow.step()
        time.sleep(0.5)  # Spark reports events a moment later
        jobs = [event for event in heard if isinstance(event, JobStarted) and event.group == EPOCHS]
        stages = {stage for job in jobs for stage in job.stages}
        ended = [event for event in heard if isinstance(event, TaskEnded) and event.stage in stages]
        found.append((len({event.stage for event in ended}), len(ended)))
        expected = {
            name: spark.createDataFrame(rows, schema)
            for (name, rows), schema in zip(tables.items(), ("k long, v long", "k long, g string"), strict=True)
        }
        for name, frame in expected.items():
            frame.createOrReplaceTempView(name)
        spark.sql(VIEW).createOrReplaceTempView("v")
        assert_same_rows(flow.read("v"), spark.sql(VIEW))
        assert_same_rows(flow.read("top"), spark.sql(TOP))
        return epoch

    arrived = []
    for number in range(4):
        rows = [(each % 20, each * number) for each in range(200)]
        t.insert(rows)
        tables["t"] += rows
        if number == 2:
            t.delete(tables["t"][:50])
            tables["t"] = tables["t"][50:]
        arrived.append(step().rows_in)
    many = [(each % 20, 1) for each in range(2 * READ_BY_ALL + 1)]
    t.insert(many)
    tables["t"] += many
    arrived.append(step().rows_in)
    t.insert([(1, 1)])
    tables["t"].append((1, 1))
    arrived.append(step().rows_in)
    listener.remove(heard.append)
    flow.close()
    spark.stop()
    return {"tasks": found, "arrived": arrived}
