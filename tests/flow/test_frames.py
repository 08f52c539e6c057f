"""A flow's collections as PySpark DataFrames: what running one reads, and when."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

import holdfast as hf
from holdfast.errors import DeclarationError, EpochUnavailable, HoldfastError, SqlError, UnknownName, Unsupported
from holdfast.plan.fingerprint import fingerprint

ORDERS = [(1, "ada", 20.0), (2, "bob", 5.0), (3, "ada", 7.5)]
USERS = [("ada", "Paris"), ("bob", "Rome")]


def rows(frame: DataFrame) -> Counter[Any]:
    return Counter(map(tuple, frame.collect()))


@pytest.fixture
def flow(spark: SparkSession, tmp_path: Path) -> Iterator[hf.Flow]:
    with declared(spark, tmp_path) as flow:
        yield flow


def declared(spark: SparkSession, tmp_path: Path) -> hf.Flow:
    flow = hf.Flow("shop", log=tmp_path / "log", spark=spark)
    flow.input("orders", "id long, user string, amount double")
    flow.input("users", "user string, city string")
    return flow


def push(flow: hf.Flow, *orders: tuple[Any, ...], users: Any = ()) -> None:
    """One epoch."""
    flow.input("orders", "id long, user string, amount double").insert(list(orders))
    flow.input("users", "user string, city string").insert(list(users))
    flow.step()


# -- when rows are read --------------------------------------------------------------------------------------------


def test_a_table_reads_the_last_epoch_whenever_it_is_run(flow: hf.Flow) -> None:
    orders = flow.table("orders")
    assert isinstance(orders, DataFrame)
    assert orders.columns == ["id", "user", "amount"]
    assert orders.count() == 0 and orders.collect() == []  # before the first epoch
    push(flow, *ORDERS)
    assert rows(orders) == Counter(ORDERS)
    spend = orders.groupBy("user").agg(F.sum("amount").alias("total"))
    assert rows(spend) == Counter({("ada", 27.5): 1, ("bob", 5.0): 1})
    push(flow, (4, "bob", 1.0))
    assert rows(spend) == Counter({("ada", 27.5): 1, ("bob", 6.0): 1})
    assert orders.count() == 4
    assert sorted(orders.toPandas()["id"]) == [1, 2, 3, 4]


def test_every_action_reads_the_last_epoch_again(flow: hf.Flow, spark: SparkSession, tmp_path: Path) -> None:
    push(flow, *ORDERS)
    kept = flow.table("orders").where("id > 0").withColumn("n", F.count("*").over(Window.partitionBy("user")))
    seen = spark.sparkContext.accumulator(0)
    actions = {
        "collect": lambda: len(kept.collect()),
        "count": kept.count,
        "toArrow": lambda: kept.toArrow().num_rows,
        "toPandas": lambda: len(kept.toPandas()),
        "toLocalIterator": lambda: len(list(kept.toLocalIterator())),
        "tail": lambda: len(kept.tail(10)),
        "take": lambda: len(kept.take(10)),
        "rdd": lambda: kept.rdd.map(lambda row: row.id).count(),
        "foreach": lambda: kept.foreach(lambda row: seen.add(1)) or seen.value,
        "toJSON": lambda: kept.toJSON().count(),
        "localCheckpoint": lambda: kept.localCheckpoint().count(),
        "randomSplit": lambda: sum(part.count() for part in kept.randomSplit([1.0, 1.0], 3)),
        "write": lambda: (
            kept.write.mode("overwrite").parquet(str(tmp_path / "out"))
            or spark.read.parquet(str(tmp_path / "out")).count()
        ),
        "isEmpty": lambda: 0 if kept.isEmpty() else len(kept.head(9)),
    }
    assert {name: action() for name, action in actions.items()} == dict.fromkeys(actions, 3)
    push(flow, (4, "bob", 1.0))
    seen.value = 0
    assert {name: action() for name, action in actions.items()} == dict.fromkeys(actions, 4)
    assert "4" in kept._show_string()


def test_what_is_kept_on_purpose_stays(flow: hf.Flow) -> None:
    push(flow, *ORDERS)
    orders = flow.table("orders")
    snapshot, rdd = orders.localCheckpoint(), orders.where("id > 0").rdd.cache()
    assert rdd.count() == 3
    push(flow, (4, "bob", 1.0))
    assert snapshot.count() == rdd.count() == 3
    assert orders.count() == 4


@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_a_query_reads_all_its_tables_as_of_one_epoch(flow: hf.Flow, spark: SparkSession, adaptive: str) -> None:
    flow.view("counted", "SELECT count(*) AS n FROM orders")
    flow.view("highest", "SELECT max(id) AS m FROM orders")
    push(flow, (1, "ada", 1.0))
    orders = flow.table("orders").agg(F.count("*").alias("a"), F.max("id").alias("b"))
    seen = orders.crossJoin(flow.table("counted")).crossJoin(flow.table("highest"))
    enough = threading.Event()

    def go_on() -> None:
        number = 2
        while not enough.is_set():
            push(flow, (number, "ada", 1.0))
            number += 1

    spark.conf.set("spark.sql.adaptive.enabled", adaptive)
    beside = threading.Thread(target=go_on)
    beside.start()
    try:
        found = [tuple(seen.collect()[0]) for _ in range(3)] + [tuple(seen.toPandas().iloc[0]) for _ in range(2)]
    finally:
        enough.set()
        beside.join()
        spark.conf.unset("spark.sql.adaptive.enabled")
    assert all(len(set(row)) == 1 for row in found), found
    assert found == sorted(found) and found[-1] > found[0]


def test_code_that_an_epoch_calls_may_run_a_table(flow: hf.Flow) -> None:
    flow.view("counted", "SELECT count(*) AS n FROM orders")
    counted, found = flow.table("counted"), []

    def look(epoch: int, _: Any) -> None:
        found.append((epoch, counted.collect()[0].n, counted.toPandas()["n"][0], counted.count()))

    flow.sink("counted", hf.foreach(look))
    push(flow, *ORDERS)
    push(flow, (4, "bob", 1.0))
    assert found == [(0, 3, 3, 1), (1, 4, 4, 1)]


def test_a_table_is_planned_once_by_verbs_of_another_dataframe(flow: hf.Flow, spark: SparkSession) -> None:
    push(flow, *ORDERS)
    others = spark.range(10).join(flow.table("orders"), "id")
    flow.table("orders").createOrReplaceTempView("shop_orders")
    assert len(others.collect()) == spark.sql("SELECT * FROM shop_orders").count() == 3
    push(flow, (4, "bob", 1.0))
    assert len(others.collect()) == 3, "Spark has planned it; consistent, and as of the epoch of then"
    assert others.count() == spark.sql("SELECT * FROM shop_orders").count() == 4


def test_a_view_in_order_is_shown_in_order(flow: hf.Flow) -> None:
    flow.view("top", "SELECT id, amount FROM orders ORDER BY amount DESC LIMIT 2")
    push(flow, *ORDERS)
    assert [row.id for row in flow.table("top").collect()] == [1, 3]
    assert [row.id for row in flow.table("top").select("id").collect()] == [1, 3]


# -- what cannot be read ---------------------------------------------------------------------------------------------


def test_a_source_is_read_again_from_what_was_taken_of_it(flow: hf.Flow, spark: SparkSession, tmp_path: Path) -> None:
    files = tmp_path / "visits"
    files.mkdir()
    (files / "1.csv").write_text("1,a\n2,b\n")
    flow.source("visits", hf.files(files, format="csv", schema="id int, page string"))
    flow.source("pages", hf.table(spark.createDataFrame([("a", 1)], "page string, n int")))
    visits = flow.table("visits")
    with pytest.raises(DeclarationError, match=r"source 'visits': no view reads it.*flow.view\('visits_rows'"):
        visits.count()
    flow.view("joined", "SELECT * FROM visits JOIN pages USING (page)")
    assert visits.count() == 0
    flow.step()
    (files / "2.csv").write_text("3,a\n")
    assert rows(visits) == Counter([(1, "a"), (2, "b")])  # no epoch has taken the other file
    flow.step()
    assert rows(visits.select("page", "id").where("id > 1")) == Counter([("b", 2), ("a", 3)])
    assert rows(flow.table("pages")) == Counter([("a", 1)])


def test_rows_that_expire_are_read_from_a_view(flow: hf.Flow, tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    source = hf.files(tmp_path / "files", format="csv", schema="id int, ts timestamp")
    flow.source("seen", source, expires="ts + INTERVAL 1 DAY")
    flow.view("all_seen", "SELECT * FROM seen")
    flow.step()
    with pytest.raises(DeclarationError, match="source 'seen': its rows are not kept"):
        flow.table("seen").collect()
    assert flow.table("all_seen").collect() == []


def test_errors_of_a_table_are_said_in_plain_words(flow: hf.Flow) -> None:
    flow.view("spend", "SELECT user, sum(amount) AS total FROM orders GROUP BY user")
    spend, orders = flow.table("spend"), flow.table("orders")
    flow.view("spend", "SELECT user, count(*) AS n FROM orders GROUP BY user")
    with pytest.raises(DeclarationError, match="table 'spend': it has other columns than when the DataFrame was made"):
        spend.toPandas()
    assert spend.select("user").count() == 0
    flow.drop("spend")
    with pytest.raises(DeclarationError, match="table 'spend': it was dropped"):
        spend.count()
    with pytest.raises(UnknownName, match="table 'order' not found; did you mean 'orders'"):
        flow.table("order")
    with pytest.raises(UnknownName, match="sql, line 1, column 15: table 'order' not found; did you mean 'orders'"):
        flow.sql("SELECT * FROM order")
    with pytest.raises(Unsupported, match="CREATE TABLE AS SELECT"):
        flow.sql("CREATE TABLE t AS SELECT 1")
    with pytest.raises(SqlError, match="syntax error"):
        flow.sql("SELEC 1")
    flow.close()
    for run in (orders.count, orders.collect, orders.show):
        with pytest.raises(DeclarationError, match="flow 'shop' is closed"):
            run()


# -- SQL -------------------------------------------------------------------------------------------------------------


def test_the_same_text_is_shown_now_and_kept_as_a_view(flow: hf.Flow) -> None:
    text = "SELECT city, sum(amount) AS total FROM orders JOIN users USING (user) GROUP BY city"
    frame = flow.sql(text)
    flow.view("kept", text)
    flow.view("also", frame)
    assert fingerprint(flow._catalog.views["kept"]) == fingerprint(flow._catalog.views["also"])
    push(flow, *ORDERS, users=USERS)
    assert rows(frame) == rows(flow.read("kept")) == rows(flow.read("also")) == {("Paris", 27.5): 1, ("Rome", 5.0): 1}
    push(flow, (4, "bob", 1.0))
    assert rows(frame.where("total < 10")) == Counter([("Rome", 6.0)])


def test_names_that_are_not_the_flows_are_the_sessions(flow: hf.Flow, spark: SparkSession) -> None:
    spark.createDataFrame([("ada", 1), ("bob", 2)], "user string, level int").createOrReplaceTempView("levels")
    spark.createDataFrame([(99,)], "id long").createOrReplaceTempView("orders")  # the flow's name comes first
    spark.udf.register("shout", lambda text: f"{text}!", "string")
    spark.sql("CREATE OR REPLACE TEMPORARY FUNCTION doubled(x DOUBLE) RETURNS DOUBLE RETURN x * 2")
    spark.sql("DECLARE OR REPLACE VARIABLE least DOUBLE = 6")
    everybody = "SELECT shout(user) AS u, doubled(amount) AS d, level FROM orders JOIN levels USING (user)"
    try:
        flow.view("kept", f"{everybody} WHERE amount > least")
        spark.sql("SET VAR least = 1000")  # it was 6 when the view was declared
        push(flow, *ORDERS)
        assert rows(flow.read("kept")) == Counter([("ada!", 40.0, 1), ("ada!", 15.0, 1)])
        assert rows(flow.sql(everybody)) == Counter([("ada!", 40.0, 1), ("ada!", 15.0, 1), ("bob!", 10.0, 2)])
        assert not spark.catalog.tableExists("kept"), "nothing of the flow's is left in the session"
        assert flow.sql("SELECT count(*) AS n FROM IDENTIFIER('or' || 'ders')").collect()[0].n == 3
    finally:
        spark.catalog.dropTempView("levels")
        spark.catalog.dropTempView("orders")


def test_a_view_may_be_made_through_temporary_views_of_the_session(flow: hf.Flow, spark: SparkSession) -> None:
    flow.table("orders").createOrReplaceTempView("shop_orders")
    flow.view("spend", spark.sql("SELECT user, sum(amount) AS total FROM shop_orders GROUP BY user"))
    push(flow, *ORDERS)
    assert rows(flow.read("spend")) == Counter([("ada", 27.5), ("bob", 5.0)])


def test_dataframes_of_another_session_can_be_joined(flow: hf.Flow, spark: SparkSession) -> None:
    other = spark.newSession()
    names = other.createDataFrame([(1, "one")], "id long, name string")
    names.createOrReplaceTempView("names")
    joined = flow.table("orders").join(names, "id")
    flow.view("joined", joined)
    flow.view("names_alone", other.sql("SELECT name FROM names"))
    push(flow, *ORDERS)
    assert rows(flow.read("joined")) == rows(joined) == Counter([(1, "ada", 20.0, "one")])
    assert rows(flow.read("names_alone")) == Counter([("one",)])


def test_a_query_over_several_views_can_be_as_of_an_epoch(spark: SparkSession, tmp_path: Path) -> None:
    with hf.Flow("past", log=tmp_path / "log", spark=spark, partitions=1) as flow:
        t = flow.input("t", "k long, x long")
        flow.view("sums", "SELECT k, sum(x) AS x FROM t GROUP BY k").view("most", "SELECT max(x) AS x FROM sums")
        for x in (1, 10, 100):
            t.insert([(1, x), (x, x)])
            flow.step()
        joined = "SELECT s.k, m.x, (SELECT count(*) FROM t) AS n FROM sums s JOIN most m ON s.x = m.x"
        past = flow.sql(joined, at=1)
        assert [tuple(row) for row in past.collect()] == [(1, 12, 4)]
        assert [tuple(row) for row in flow.sql(joined).collect()] == [(1, 112, 6)]
        t.insert([(1, 1000)])
        flow.step()
        assert [tuple(row) for row in past.collect()] == [(1, 12, 4)], "it stays at its epoch"
        with pytest.raises(EpochUnavailable, match="epoch 9 is not there yet; the last is 3"):
            flow.sql(joined, at=9).collect()
        with pytest.raises(HoldfastError):
            flow.view("past", past)
