"""DataFrame verbs with PySpark's own Columns give what PySpark gives."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

import holdfast as hf
from holdfast.testing import assert_same_rows

ORDERS = "id long, user string, amount double, day date"
USERS = "name string, country string"
DAYS = [datetime.date(2020, 1, 8), datetime.date(2021, 5, 1), None]
ORDER_ROWS = [(i, "abc"[i % 3], float(i % 5), DAYS[i % 3]) for i in range(12)] + [(99, None, None, None)]
USER_ROWS = [("a", "UK"), ("b", "US"), (None, "??")]


def _pipelines(orders: Any, users: Any) -> dict[str, Any]:
    """The same code over PySpark's DataFrames and over a flow's tables."""
    by_user = Window.partitionBy("user")
    return {
        "chosen": orders.where(F.col("amount") > 1).select("id", (F.col("amount") * 2 + 1).alias("more")),
        "dated": orders.where(F.col("day") == datetime.date(2020, 1, 8)).select("id"),
        "grouped": orders.groupBy("user").agg(F.sum("amount").alias("total"), F.countDistinct("day").alias("days")),
        "joined": orders.join(users, on=F.col("user") == F.col("name")).select("id", "country"),
        "unique": orders.select("user", "day").distinct(),
        "stacked": orders.select("user").union(users.select("name")),
        "first": orders.orderBy(F.col("amount").desc(), F.col("id")).limit(3).select("id"),
        "renamed": orders.withColumn("big", F.col("amount") > 3).withColumnRenamed("user", "who").drop("day"),
        "numbered": orders.withColumn("n", F.row_number().over(by_user.orderBy(F.desc("amount"), "id"))).where(
            "n <= 2"
        ),
        "moving": orders.select(
            "id",
            F.sum("amount").over(by_user.orderBy("id").rowsBetween(-1, Window.currentRow)).alias("sum"),
            F.avg("id").over(by_user).alias("mean"),
            F.lag("amount", 1, 0.5).over(by_user.orderBy(F.col("id").desc_nulls_last())).alias("last"),
            F.first("day", True).over(Window.orderBy("id")).alias("day"),
            F.max("id").over(Window.orderBy("amount").rangeBetween(0, Window.unboundedFollowing)).alias("most"),
            (F.nth_value("id", 2).over(Window.orderBy("id")) + F.ntile(3).over(Window.orderBy("id"))).alias("both"),
        ),
        "counted": orders.filter("amount IS NOT NULL").groupBy("user").count(),
        **_columns(orders),
        **_rows(orders, users),
        **_groups(orders),
    }


def _columns(orders: Any) -> dict[str, Any]:
    """Verbs that change columns."""
    words = orders.withColumns({"big": F.col("amount") > 3, "id": F.col("id") + 1, "tags": F.split("user", "")})
    return {
        "with_columns": words,
        "columns_renamed": orders.withColumnsRenamed({"user": "who", "nobody": "x"}).drop(F.col("day")),
        "to_df": orders.toDF("a", "b", "c", "d").selectExpr("a + 1 AS a", "b"),
        "exploded": words.select("id", F.explode("tags").alias("tag")),
        "exploded_with": words.withColumn("tag", F.explode_outer("tags")).drop("tags"),
        "positions": words.select("id", F.posexplode(F.array("amount", "id")).alias("p", "x")),
        "mapped": orders.select("id", F.explode(F.create_map(F.lit("a"), "amount", F.lit("b"), F.col("id") * 1.5))),
        "higher": words.select(
            F.transform("tags", lambda tag: F.upper(tag)).alias("t"), F.struct("id", "big").alias("s")
        ),
        "transformed": orders.transform(lambda table, least: table.where(F.col("id") >= least), 3).select("id"),
    }


def _rows(orders: Any, users: Any) -> dict[str, Any]:
    """Verbs that choose, combine and fill rows."""
    small = orders.select("id", "user")
    return {
        "one_each": orders.dropDuplicates(["user"]).select("user"),
        "one_each_whole": orders.select("user", "day").drop_duplicates(),
        "by_name": small.unionByName(orders.select("user", "id")),
        "by_name_missing": small.unionByName(users.withColumnRenamed("name", "user"), allowMissingColumns=True),
        "both": small.intersect(orders.where("id > 3").select("id", "user")),
        "minus": orders.select("user")
        .exceptAll(users.select("name"))
        .union(users.select("name").unionAll(users.select("name"))),
        "subtracted": orders.select("user").subtract(users.select("name")),
        "passed": orders.orderBy(F.desc("id")).offset(2).limit(3).select("id"),
        "filled": orders.fillna(0).fillna("none", subset=["user"]),
        "filled_by_name": orders.na.fill({"amount": 7, "user": "?"}),
        "dropped": orders.dropna(),
        "dropped_some": orders.na.drop(thresh=3).select("id"),
        "dropped_all": orders.dropna(how="all", subset=["user", "amount"]).select("id"),
        "replaced": orders.replace({"a": "x"}).replace([1, 2], 9, subset=["amount", "id"]),
        "left": orders.join(users.withColumnRenamed("name", "user"), "user", "left_outer").select("id", "country"),
        "outer": orders.join(users.withColumnRenamed("name", "user"), ["user"], "fullouter").select(
            "user", "id", "country"
        ),
        "semi": orders.join(users, F.col("user") == F.col("name"), "leftsemi"),
        "anti": orders.alias("o").join(users.alias("u"), F.col("o.user").eqNullSafe(F.col("u.name")), "left_anti"),
        "crossed": orders.where("id < 2").crossJoin(users).select("id", "country"),
    }


def _groups(orders: Any) -> dict[str, Any]:
    """Verbs that group."""
    return {
        "dict": orders.groupBy("user").agg({"amount": "sum", "id": "max"}),
        "short": orders.groupBy("user").sum("amount"),
        "averages": orders.groupBy("user").avg("amount", "id"),
        "all": orders.agg(F.min("id").alias("a"), F.max("day").alias("b")),
        "rolled": orders.rollup("user", "day").agg(F.count("*").alias("n"), F.grouping("user").alias("g")),
        "cubed": orders.cube("user").count(),
        "sets": orders.groupingSets([["user"], ["day"], []], "user", "day").agg(F.sum("id").alias("s")),
        "pivoted": orders.groupBy("day")
        .pivot("user", ["a", "b"])
        .agg(F.sum("amount").alias("s"), F.count("id").alias("c")),
    }


def test_verbs_with_columns_equal_pyspark(spark: SparkSession, tmp_path: Path) -> None:
    expected: dict[str, DataFrame] = _pipelines(
        spark.createDataFrame(ORDER_ROWS, ORDERS), spark.createDataFrame(USER_ROWS, USERS)
    )
    with hf.Flow("verbs", log=tmp_path / "log", spark=spark) as flow:
        orders, users = flow.input("orders", ORDERS), flow.input("users", USERS)
        for name, table in _pipelines(flow.table("orders"), flow.table("users")).items():
            flow.view(name, table)
        orders.insert([*ORDER_ROWS, (7, "gone", 1.0, None)])
        users.insert(USER_ROWS)
        flow.step()
        orders.delete([(7, "gone", 1.0, None)])
        flow.step()
        for name, frame in expected.items():
            assert flow.read(name).columns == frame.columns, name
            assert_same_rows(flow.read(name), frame, name)


def test_a_global_count_needs_no_column(spark: SparkSession, tmp_path: Path) -> None:
    with hf.Flow("count", log=tmp_path / "log", spark=spark) as flow:
        orders = flow.input("orders", ORDERS)
        flow.view("n", "SELECT count(*) AS n FROM orders")
        flow.view("some", "SELECT count(*) AS n FROM orders WHERE upper(user) = 'A'")
        flow.view("nested", "SELECT count(*) AS n FROM (SELECT user, upper(user) AS u FROM orders)")
        flow.step()
        assert [flow.read(view).collect() for view in ("n", "some", "nested")] == [[(0,)], [(0,)], [(0,)]]
        orders.insert(ORDER_ROWS)
        flow.step()
        assert [flow.read(view).collect() for view in ("n", "some", "nested")] == [[(13,)], [(4,)], [(13,)]]


def test_a_view_with_an_order_is_read_in_that_order(spark: SparkSession, tmp_path: Path) -> None:
    with hf.Flow("order", log=tmp_path / "log", spark=spark, partitions=3) as flow:
        orders = flow.input("orders", ORDERS)
        flow.view("top", "SELECT user, id AS number FROM orders ORDER BY id DESC LIMIT 5")
        flow.view("hidden", "SELECT user FROM orders ORDER BY id DESC LIMIT 2")
        orders.insert(ORDER_ROWS)
        flow.step()
        assert [row.number for row in flow.read("top").collect()] == [99, 11, 10, 9, 8]
        assert sorted(str(row.user) for row in flow.read("hidden").collect()) == ["None", "c"]
