"""Tables and DataFrames that are not the flow's: sources whose rows never change, found again by what they are."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import holdfast as hf
from holdfast.errors import DeclarationError, SqlError, Unsupported

SCHEMA = "id long, user string"
ROWS = [(1, "ada"), (2, "bob"), (3, "ada")]


def rows(frame: DataFrame) -> Counter[Any]:
    return Counter(map(tuple, frame.collect()))


def opened(spark: SparkSession, tmp_path: Path) -> tuple[hf.Flow, hf.Input]:
    flow = hf.Flow("statics", log=tmp_path / "log", spark=spark)
    return flow, flow.input("orders", SCHEMA)


def statics(flow: hf.Flow, view: str) -> list[str]:
    return sorted(flow._catalog.planned[view].statics)


def test_rows_in_the_text_are_views_and_join(spark: SparkSession, tmp_path: Path) -> None:
    flow, orders = opened(spark, tmp_path)
    with flow:
        flow.view("one", "SELECT 1 AS a, 'x' AS b")
        flow.view("listed", "SELECT * FROM VALUES (1, 'a'), (2, NULL), (2, NULL) AS t(n, s)")
        flow.view("none", "SELECT * FROM VALUES (1) AS t(n) WHERE n > 1")
        flow.view("counted", "SELECT count(*) AS n FROM VALUES (1), (2)")
        flow.view("joined", "SELECT id, s FROM orders LEFT JOIN VALUES (1, 'a'), (2, 'b') AS t(n, s) ON id = n")
        flow.view("both", "SELECT id FROM orders UNION ALL SELECT 7 UNION ALL SELECT id FROM range(2)")
        flow.view("chosen", "SELECT id FROM orders WHERE id IN (SELECT n FROM VALUES (1), (3) AS t(n))")
        orders.insert(ROWS)
        flow.step()
        assert rows(flow.read("one")) == Counter([(1, "x")])
        assert rows(flow.read("listed")) == Counter([(1, "a"), (2, None), (2, None)])
        assert rows(flow.read("none")) == Counter()
        assert rows(flow.read("counted")) == Counter([(2,)])
        assert rows(flow.read("joined")) == Counter([(1, "a"), (2, "b"), (3, None)])
        orders.delete(ROWS[:1])
        orders.insert([(2, "cyd")])
        flow.step()
        assert rows(flow.read("one")) == Counter([(1, "x")])
        assert rows(flow.read("joined")) == Counter([(2, "b"), (2, "b"), (3, None)])
        assert rows(flow.read("both")) == Counter([(2,), (2,), (3,), (7,), (0,), (1,)])
        assert rows(flow.read("chosen")) == Counter([(3,)])
        assert "source static row" in flow.explain("one")


def test_tables_files_and_dataframes_are_sources_by_what_they_are(spark: SparkSession, tmp_path: Path) -> None:
    levels = spark.createDataFrame([("ada", 1), ("bob", 2)], "user string, level int")
    levels.write.parquet(str(tmp_path / "levels"))
    levels.createOrReplaceTempView("named_levels")
    flow, orders = opened(spark, tmp_path)
    with flow:
        table = flow.table("orders")
        flow.view("from_rows", table.join(levels, "user"))
        flow.view("from_files", table.join(spark.read.parquet(str(tmp_path / "levels")), "user"))
        flow.view("from_view", "SELECT * FROM orders JOIN named_levels USING (user)")
        flow.view("from_range", table.join(spark.range(1, 3), "id"))
        orders.insert(ROWS)
        flow.step()
        expected = Counter([("ada", 1, 1), ("bob", 2, 2), ("ada", 3, 1)])
        for view in ("from_rows", "from_files", "from_view"):
            assert rows(flow.read(view)) == expected
        assert rows(flow.read("from_range")) == Counter(ROWS[:2])
        (of_rows,), (of_view,) = statics(flow, "from_rows"), statics(flow, "from_view")
        assert of_rows.startswith("static rows ") and of_view.startswith("static named_levels ")
        assert statics(flow, "from_files") == [f"static Parquet file:{tmp_path}/levels"]
        assert statics(flow, "from_range") == ["static range(1, 3, 1)"]
        assert f"source {of_view}(user, level)" in flow.explain("from_view")
        assert of_view in flow.status().to_dict()["sources"]


def test_a_flow_opened_again_finds_them_and_rebuilds_what_changed(spark: SparkSession, tmp_path: Path) -> None:
    def again(level: int) -> tuple[hf.Flow, hf.Input]:
        flow, orders = opened(spark, tmp_path)
        known = spark.createDataFrame([("bob", 2), ("ada", level)], "user string, level int").repartition(level)
        flow.view("joined", flow.table("orders").join(known.localCheckpoint(), "user").select("id", "level"))
        flow.view("listed", "SELECT * FROM VALUES (1), (2) AS t(n)")
        return flow, orders

    flow, orders = again(1)
    with flow:
        orders.insert(ROWS)
        flow.step()
    flow, orders = again(1)
    with flow:
        assert "nothing changes" in str(flow.plan())
        assert flow.step().idle
        orders.insert([(4, "bob")])
        flow.step()
        assert rows(flow.read("joined")) == Counter([(1, 1), (2, 2), (3, 1), (4, 2)])
        assert rows(flow.read("listed")) == Counter([(1,), (2,)])
    flow, orders = again(3)
    with flow:
        assert "rebuilds joined" in str(flow.plan())
        flow.step()
        assert rows(flow.read("joined")) == Counter([(1, 3), (2, 2), (3, 3), (4, 2)])


def test_one_that_several_views_read_is_read_once_and_stays_when_one_goes(spark: SparkSession, tmp_path: Path) -> None:
    flow, orders = opened(spark, tmp_path)
    with flow:
        for name in ("a", "b"):
            flow.view(name, f"SELECT id, n AS {name} FROM orders JOIN VALUES (1, 10) AS t(id, n) USING (id)")
        orders.insert(ROWS)
        flow.step()
        assert statics(flow, "a") == statics(flow, "b")
        flow.drop("a")
        flow.view("c", "SELECT sum(n) AS s FROM VALUES (1, 10) AS t(id, n)")
        flow.step()
        assert rows(flow.read("b")) == Counter([(1, 10)])
        assert rows(flow.read("c")) == Counter([(10,)])
        flow.drop("b").drop("c")
        flow.step()
        flow.view("b", "SELECT id, n AS b FROM orders JOIN VALUES (1, 10) AS t(id, n) USING (id)")
        flow.step()
        assert rows(flow.read("b")) == Counter([(1, 10)])


def test_odd_columns_and_types_of_a_static_table(spark: SparkSession, tmp_path: Path) -> None:
    flow, _ = opened(spark, tmp_path)
    with flow:
        twice = spark.createDataFrame([(1, 2)], "a int, b int").toDF("x", "X")
        flow.view("renamed", twice.toDF("p", "q"))
        flow.step()
        assert rows(flow.read("renamed")) == Counter([(1, 2)])
        with pytest.raises(SqlError, match="view 'long', line 1, column 15: type 'interval year' is not one"):
            flow.view("long", spark.sql("SELECT * FROM VALUES (INTERVAL '1' YEAR) AS t(i)"))
        with pytest.raises(Unsupported, match="a streaming DataFrame is not supported"):
            flow.view("stream", spark.readStream.format("rate").load())


def test_a_table_of_the_catalog_keeps_its_name(spark: SparkSession, tmp_path: Path) -> None:
    def create(level: str) -> None:
        spark.sql("DROP TABLE IF EXISTS held_levels")
        place = f"USING parquet LOCATION '{tmp_path}/{level}'"
        spark.sql(f"CREATE TABLE held_levels {place} AS SELECT 'ada' AS user, {level} AS level")

    create("1")
    try:
        flow, orders = opened(spark, tmp_path)
        with flow:
            flow.view("joined", "SELECT id, level FROM orders JOIN held_levels USING (user)")
            assert statics(flow, "joined") == ["static spark_catalog.default.held_levels"]
            orders.insert(ROWS)
            flow.step()
            assert rows(flow.read("joined")) == Counter([(1, 1), (3, 1)])
            create("2.5")
            with pytest.raises(DeclarationError, match="has other columns than an earlier view found there"):
                flow.view("again", "SELECT id, level FROM orders JOIN held_levels USING (user)")
    finally:
        spark.sql("DROP TABLE IF EXISTS held_levels")
