"""A view of few rows is read without a Spark job, and is what a job would read."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.spark import local_rows

PLAIN = """
    id long, yes boolean, tiny tinyint, small smallint, f float, d double, price decimal(20,3), s string, raw binary,
    day date, at timestamp, here timestamp_ntz
"""
NAN, ZONE = float("nan"), dt.timezone(dt.timedelta(hours=-7))
ROWS = [
    (1, True, 1, 300, 1.5, NAN, Decimal("1.234"), "ü", b"\0", dt.date(1900, 1, 1), dt.datetime(2024, 1, 1, tzinfo=ZONE),
     dt.datetime(2024, 1, 1)),
    (2, *[None] * 11),
    (3, False, -1, -2, float("-inf"), -0.0, Decimal("-9"), "", b"", dt.date(2024, 5, 5),
     dt.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC), dt.datetime(1, 1, 1)),
    (4, None, None, None, None, 0.5, *[None] * 6),
]  # fmt: skip


@pytest.fixture
def flow(spark: SparkSession, tmp_path: Path) -> hf.Flow:
    flow = hf.Flow("small", log=tmp_path / "log", spark=spark, partitions=3)
    t = flow.input("t", PLAIN)
    flow.view("all", "SELECT * FROM t")
    flow.view("top", "SELECT id, d, s FROM t ORDER BY d DESC NULLS LAST, id LIMIT 3")
    flow.view("nested", "SELECT id, array(s) AS list FROM t")
    t.insert(ROWS)
    flow.step()
    t.delete(ROWS[1:2])
    flow.step()
    return flow


def test_a_view_of_few_rows_is_read_without_a_spark_job(spark: SparkSession, flow: hf.Flow) -> None:
    context = spark.sparkContext
    context.setJobGroup("reading few rows", "")  # of this thread alone: merges may have jobs beside it
    with flow:
        assert [row.id for row in flow.read("top").collect()] == [1, 4, 3]
        assert [row.id for row in flow.read("top", at=0).collect()] == [1, 4, 3]
        assert sorted(row.id for row in flow.read("all").filter("d IS NOT NULL").collect()) == [1, 3, 4]
        assert {(row.id, row._epoch, row._diff) for row in flow.changes("all", since=0).collect()} == {(2, 1, -1)}
        flow.read("top").show()
        assert not context.statusTracker().getJobIdsForGroup("reading few rows")
        assert len(flow.read("nested").collect()) == 3
        assert context.statusTracker().getJobIdsForGroup("reading few rows"), "which a task reads"
    context.setLocalProperty("spark.jobGroup.id", None)


def test_the_driver_and_tasks_read_the_same_rows_and_columns(flow: hf.Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    def read() -> list[str]:
        frames = [flow.read("all"), flow.read("top"), flow.read("all", at=0), flow.changes("all")]
        ordered = [frame if "price" not in frame.columns else frame.orderBy("id", "s") for frame in frames]
        return [f"{frame.schema.json()} {frame.collect()!r}" for frame in ordered]

    with flow:
        few = read()
        monkeypatch.setattr(local_rows, "MOST_ROWS", 1)
        assert read() == few
