"""A flow constructed again on its log goes on where it was; state is found by meaning."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.connectors.changelog import lineage_of

SPEND = "SELECT user, sum(amount) AS total FROM orders GROUP BY user"


def _open(spark: SparkSession, tmp_path: Path, **views: str) -> tuple[hf.Flow, Any]:
    flow = hf.Flow("shop", log=tmp_path / "log", spark=spark)
    orders = flow.input("orders", "id long, user string, amount double")
    for name, sql in views.items():
        flow.view(name, sql)
    return flow, orders


def _layers(tmp_path: Path) -> dict[str, set[str]]:
    root = tmp_path / "log" / "traces"
    return {trace.name: set(os.listdir(trace)) for trace in root.iterdir()}


def test_a_flow_goes_on_where_it_was(spark: SparkSession, tmp_path: Path) -> None:
    flow, orders = _open(spark, tmp_path, spend=SPEND)
    with flow:
        orders.insert([(1, "ada", 20.0), (2, "bob", 5.0)])
        assert flow.step().epoch == 0
    flow, orders = _open(spark, tmp_path, spend=SPEND)
    with flow:
        assert flow.step().idle
        orders.delete([(2, "bob", 5.0)])
        orders.insert([(3, "ada", 1.0)])
        assert flow.step().epoch == 1
        assert flow.read("spend").collect() == [("ada", 21.0)]
        assert sorted(flow.read("spend", at=0).collect()) == [("ada", 20.0), ("bob", 5.0)]


def test_a_view_added_later_is_filled_and_the_others_keep_their_state(spark: SparkSession, tmp_path: Path) -> None:
    flow, orders = _open(spark, tmp_path, spend=SPEND)
    with flow:
        orders.insert([(1, "ada", 20.0), (2, "bob", 5.0), (3, "bob", 15.0)])
        flow.step()
        before = _layers(tmp_path)
        flow.view("top", "SELECT * FROM spend ORDER BY user LIMIT 1")
        flow.view("n", "SELECT total, count(*) AS n FROM spend GROUP BY total")
        assert flow.read("top").collect() == [("ada", 20.0)]
        assert flow.read("n").collect() == [(20.0, 2)]
        after = _layers(tmp_path)
        assert all(after[trace] == layers for trace, layers in before.items()), "what was kept is not touched"
        orders.insert([(4, "ada", 1.0)])
        flow.step()
        assert sorted(flow.read("n").collect()) == [(20.0, 1), (21.0, 1)]
    flow, _ = _open(spark, tmp_path, n="SELECT total, count(*) AS n FROM (" + SPEND + ") GROUP BY total")
    with flow:
        assert sorted(flow.read("n").collect()) == [(20.0, 1), (21.0, 1)]


def test_a_renamed_view_is_the_same_state(spark: SparkSession, tmp_path: Path) -> None:
    flow, orders = _open(spark, tmp_path, spend=SPEND)
    with flow:
        orders.insert([(1, "ada", 20.0)])
        flow.step()
        before = set(_layers(tmp_path))
    flow, _ = _open(spark, tmp_path, renamed="SELECT user AS who, sum(amount) AS much FROM orders GROUP BY user")
    with flow:
        assert flow.read("renamed").columns == ["who", "much"]
        assert flow.read("renamed").collect() == [("ada", 20.0)]
    assert set(_layers(tmp_path)) == before


def test_what_an_epoch_left_half_written_is_never_read(spark: SparkSession, tmp_path: Path) -> None:
    flow, orders = _open(spark, tmp_path, spend=SPEND)
    with flow:
        orders.insert([(1, "ada", 20.0)])
        flow.step()
        orders.insert([(2, "ada", 5.0)])
        flow.step()
    log = tmp_path / "log"
    lines = (log / "lineage" / "log.jsonl").read_bytes().splitlines(keepends=True)
    (log / "lineage" / "log.jsonl").write_bytes(lines[0] + lines[1][:40])  # died in the middle of completing epoch 1,
    for copy in [*log.glob("lineage/00*.jsonl"), *log.glob("layers/*/000000000001-*")]:
        copy.unlink()  # of which nothing was durable,
    next(log.glob("traces/*.acc/000000000001-*")).unlink()  # nor all of it written
    flow, orders = _open(spark, tmp_path, spend=SPEND)
    with flow:
        assert flow.read("spend").collect() == [("ada", 20.0)]
        orders.insert([(3, "ada", 7.0)])
        assert flow.step().epoch == 1
        assert flow.read("spend").collect() == [("ada", 27.0)]


def test_the_changelog_has_each_epoch_once_with_its_lineage(spark: SparkSession, tmp_path: Path) -> None:
    flow, orders = _open(spark, tmp_path, spend=SPEND)
    flow.sink("spend", hf.changelog(str(tmp_path / "out")))
    with flow:
        for number in range(3):
            orders.insert([(number, "ada", 1.0)])
            flow.step()
    files = sorted((tmp_path / "out").glob("*.parquet"))
    assert len(files) == 3
    files[-1].unlink()  # as if the process had died before the last commit
    (tmp_path / "out" / "_progress" / "000000000002.json").unlink()
    flow, _ = _open(spark, tmp_path, spend=SPEND)
    flow.sink("spend", hf.changelog(str(tmp_path / "out")))
    with flow:
        flow.step()
    files = sorted((tmp_path / "out").glob("*.parquet"))
    assert [pq.read_table(file).column("_epoch").to_pylist() for file in files] == [[0], [1, 1], [2, 2]]
    assert json.loads(lineage_of(tmp_path / "out", 1).splitlines()[-1])["epoch"] == 1
    total = spark.read.parquet(str(tmp_path / "out")).selectExpr("sum(total * _diff)").collect()[0][0]
    assert total == 3.0


def test_sources_of_every_kind_are_read_together(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame([(0, "zero"), (1, "one"), (2, "two")], "key long, name string")
    with hf.Flow("mixed", log=tmp_path / "log", spark=spark) as flow:
        flow.source("numbers", hf.rate(100, keys=3, epochs=4))
        flow.source("names", hf.table(frame))
        flow.view(
            "named", "SELECT name, count(*) AS n FROM numbers JOIN names ON numbers.key = names.key GROUP BY name"
        )
        flow.view("loud", "SELECT upper(name) AS name, n FROM named WHERE n % 1 = 0")
        assert flow.run(until="idle") == 4
        assert sum(row.n for row in flow.read("named").collect()) == 400
        assert sorted(row.name for row in flow.read("loud").collect()) == ["ONE", "TWO", "ZERO"]
        assert sum(row.n for row in flow.read("named", at=1).collect()) == 200


def test_a_sink_that_is_new_to_an_old_view_starts_with_its_rows(spark: SparkSession, tmp_path: Path) -> None:
    flow, orders = _open(spark, tmp_path, spend=SPEND)
    with flow:
        for number in range(3):
            orders.insert([(number, "ada", 1.0)])
            flow.step()
        flow.view("late", "SELECT user, total * 2 AS twice FROM spend")
        flow.sink("late", hf.changelog(str(tmp_path / "late")))
        assert flow.changes("late").collect() == [("ada", 6.0, 2, 1)]
        orders.insert([(9, "ada", 1.0)])
        flow.step()
    found = spark.read.parquet(str(tmp_path / "late")).collect()
    assert sorted(found, key=lambda row: (row._epoch, row._diff)) == [
        ("ada", 6.0, 2, 1),
        ("ada", 6.0, 3, -1),
        ("ada", 8.0, 3, 1),
    ]


def test_a_function_that_is_a_sink_gets_each_epoch_once_in_one_process(spark: SparkSession, tmp_path: Path) -> None:
    got: list[int] = []
    flow, orders = _open(spark, tmp_path, spend=SPEND)
    flow.sink("spend", hf.foreach(lambda epoch, change: got.append(epoch)))
    with flow:
        orders.insert([(1, "ada", 1.0)])
        flow.step()
        flow.view("late", "SELECT user FROM spend")
        orders.insert([(2, "ada", 1.0)])
        flow.step()
    assert got == [0, 1]
