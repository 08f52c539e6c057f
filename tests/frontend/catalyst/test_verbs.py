"""PySpark's verbs and SQL: Spark analyses both, so what means the same has the same plan, by fingerprint."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import holdfast as hf
from holdfast.errors import DeclarationError, SqlError, Unsupported
from holdfast.plan.fingerprint import fingerprint

Build = Callable[[DataFrame, DataFrame], DataFrame]

SAME: list[tuple[Build, str]] = [
    (lambda o, u: o.select("id", "amount"), "SELECT id, amount FROM orders"),
    (lambda o, u: o.select("*"), "SELECT * FROM orders"),
    (lambda o, u: o.select("odd name", F.expr("amount * 2 AS d")), "SELECT `odd name`, amount * 2 AS d FROM orders"),
    (lambda o, u: o.select("orders.id", F.upper("user").alias("u")), "SELECT id, upper(user) AS u FROM orders"),
    (lambda o, u: o.selectExpr("id + 1 AS x", "user"), "SELECT id + 1 AS x, user FROM orders"),
    (lambda o, u: o.where("amount > 3"), "SELECT * FROM orders WHERE amount > 3"),
    (lambda o, u: o.filter(o.amount > 3).where("id = 1"), "SELECT * FROM orders WHERE amount > 3 AND id = 1"),
    (lambda o, u: o.withColumn("x", o["amount"] + 1), "SELECT *, amount + 1 AS x FROM orders"),
    (lambda o, u: o.withColumnRenamed("user", "who").select("who"), "SELECT user AS who FROM orders"),
    (lambda o, u: o.withColumnRenamed("nobody", "who"), "SELECT * FROM orders"),
    (lambda o, u: o.drop("user", "nothing", "odd name"), "SELECT id, amount FROM orders"),
    (lambda o, u: o.drop(o.user, "odd name"), "SELECT id, amount FROM orders"),
    (lambda o, u: u.toDF("a", "b", "c").select("b"), "SELECT name AS b FROM users"),
    (
        lambda o, u: o.select("id", F.explode(F.split("user", " ")).alias("w")),
        "SELECT id, explode(split(user, ' ')) AS w FROM orders",
    ),
    (lambda o, u: u.drop_duplicates(), "SELECT DISTINCT * FROM users"),
    (
        lambda o, u: u.select("id", "age").unionByName(u.select("age", "id")),
        "SELECT id, age FROM users UNION ALL SELECT id, age FROM users",
    ),
    (
        lambda o, u: o.transform(lambda table, least: table.where(f"id > {least}"), least=3),
        "SELECT * FROM orders WHERE id > 3",
    ),
    (lambda o, u: o.na.fill({"user": "x"}).select("user"), "SELECT coalesce(user, 'x') AS user FROM orders"),
    (lambda o, u: o.orderBy("amount"), "SELECT * FROM orders"),
    (
        lambda o, u: o.groupBy("user").agg(F.sum("amount").alias("total")),
        "SELECT user, sum(amount) AS total FROM orders GROUP BY user",
    ),
    (
        lambda o, u: o.groupBy("user").agg({"amount": "sum", "*": "count"}),
        "SELECT user, sum(amount), count(*) AS `count(1)` FROM orders GROUP BY user",
    ),
    (
        lambda o, u: o.groupBy(F.upper("user").alias("u")).count(),
        "SELECT upper(user) AS u, count(*) AS count FROM orders GROUP BY 1",
    ),
    (lambda o, u: o.groupBy("user").sum("amount", "id"), "SELECT user, sum(amount), sum(id) FROM orders GROUP BY user"),
    (
        lambda o, u: o.groupBy("user").agg(F.count_if(o.id > 1).alias("n"), F.sum_distinct("amount").alias("s")),
        "SELECT user, count_if(id > 1) AS n, sum(DISTINCT amount) AS s FROM orders GROUP BY user",
    ),
    (
        lambda o, u: o.rollup("user", "id").agg(F.count("*").alias("n"), F.grouping("user").alias("g")),
        "SELECT user, id, count(*) AS n, grouping(user) AS g FROM orders GROUP BY ROLLUP (user, id)",
    ),
    (lambda o, u: o.cube("user").count(), "SELECT user, count(*) AS count FROM orders GROUP BY CUBE (user)"),
    (lambda o, u: o.groupBy().count(), "SELECT count(*) AS count FROM orders"),
    (
        lambda o, u: o.agg(F.sum("amount").alias("s"), F.max(o.id).alias("m")),
        "SELECT sum(amount) AS s, max(id) AS m FROM orders",
    ),
    (
        lambda o, u: o.groupBy("user").count().where("count > 2"),
        "SELECT user, count(*) AS count FROM orders GROUP BY user HAVING count > 2",
    ),
    (lambda o, u: o.select("user").distinct(), "SELECT DISTINCT user FROM orders"),
    (lambda o, u: o.select("id").union(u.select("id")), "SELECT id FROM orders UNION ALL SELECT id FROM users"),
    (lambda o, u: o.select("id").intersect(u.select("id")), "SELECT id FROM orders INTERSECT SELECT id FROM users"),
    (
        lambda o, u: o.select("id").intersectAll(u.select("id")),
        "SELECT id FROM orders INTERSECT ALL SELECT id FROM users",
    ),
    (lambda o, u: o.select("id").subtract(u.select("id")), "SELECT id FROM orders MINUS SELECT id FROM users"),
    (lambda o, u: o.select("id").exceptAll(u.select("id")), "SELECT id FROM orders EXCEPT ALL SELECT id FROM users"),
    (lambda o, u: o.orderBy("amount").limit(3), "SELECT * FROM orders ORDER BY amount LIMIT 3"),
    (
        lambda o, u: o.sort(F.desc("amount"), "id").limit(3),
        "SELECT * FROM orders ORDER BY amount DESC, id LIMIT 3",
    ),
    (
        lambda o, u: o.orderBy("user", "id", ascending=[True, False]).limit(1),
        "SELECT * FROM orders ORDER BY user, id DESC LIMIT 1",
    ),
    (lambda o, u: o.orderBy("amount").offset(2).limit(3), "SELECT * FROM orders ORDER BY amount LIMIT 3 OFFSET 2"),
    (lambda o, u: o.limit(3), "SELECT * FROM orders LIMIT 3"),
    (lambda o, u: o.join(u, "id"), "SELECT * FROM orders JOIN users USING (id)"),
    (lambda o, u: o.join(u, "id", "left"), "SELECT * FROM orders LEFT JOIN users USING (id)"),
    (lambda o, u: o.join(u, "id", "rightouter"), "SELECT * FROM orders RIGHT JOIN users USING (id)"),
    (lambda o, u: o.join(u, "id", "full_outer"), "SELECT * FROM orders FULL JOIN users USING (id)"),
    (lambda o, u: o.join(u, "id", "left_semi"), "SELECT * FROM orders LEFT SEMI JOIN users USING (id)"),
    (
        lambda o, u: o.join(u, o.id.eqNullSafe(u.id), "anti"),
        "SELECT * FROM orders o LEFT ANTI JOIN users u ON o.id <=> u.id",
    ),
    (
        lambda o, u: o.join(u, o.id < u.id).select(o.id, "age"),
        "SELECT o.id, age FROM orders o JOIN users u ON o.id < u.id",
    ),
    (lambda o, u: o.crossJoin(u).select("user", "name"), "SELECT user, name FROM orders CROSS JOIN users"),
    (
        lambda o, u: o.alias("o").join(u.alias("u"), F.expr("o.id = u.id AND o.amount > u.age")).select("o.id"),
        "SELECT o.id FROM orders o JOIN users u ON o.id = u.id AND o.amount > u.age",
    ),
    (
        lambda o, u: o.where("id > 1").join(o.groupBy("user").count(), "user").select("count", "id"),
        "SELECT count, id FROM (SELECT * FROM orders WHERE id > 1) a "
        "JOIN (SELECT user, count(*) AS count FROM orders GROUP BY user) b USING (user)",
    ),
]


@pytest.fixture(scope="module")
def flow(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[hf.Flow]:
    flow = hf.Flow("verbs", log=tmp_path_factory.mktemp("verbs") / "log", spark=spark)
    flow.input("orders", "id long, user string, amount double, `odd name` int")
    flow.input("users", "id long, name string, age int")
    yield flow


@pytest.mark.parametrize(("build", "sql"), SAME, ids=[sql for _, sql in SAME])
def test_verbs_and_sql_give_the_same_plan(flow: hf.Flow, build: Build, sql: str) -> None:
    frame = build(flow.table("orders"), flow.table("users"))
    flow.view("verbs", frame)
    flow.view("sql", sql)
    flow.view("frame", flow.sql(sql))
    verbs, text, again = (flow._catalog.views[name] for name in ("verbs", "sql", "frame"))
    assert text == again
    assert list(verbs.columns) == frame.columns == list(text.columns)
    assert fingerprint(verbs) == fingerprint(text)


@pytest.mark.parametrize(
    ("build", "kind", "message"),
    [
        (lambda o, u: o.join(u, o.id == u.id), SqlError, "two output columns are called 'id'"),
        (lambda o, u: o.offset(3), Unsupported, "OFFSET without LIMIT"),
        (lambda o, u: o.sample(0.5), Unsupported, "Sample"),
        (lambda o, u: o.select(F.shuffle(F.array("id")).alias("s")), Unsupported, "shuffle"),
        (lambda o, u: o.select(F.monotonically_increasing_id().alias("n")), Unsupported, "onotonically"),
        (lambda o, u: o.mapInPandas(lambda batches: batches, "id long"), Unsupported, "mapInPandas"),
        (lambda o, u: o.mapInArrow(lambda batches: batches, "id long"), Unsupported, "mapInArrow"),
        (lambda o, u: o.groupBy("user").applyInPandas(lambda df: df, "id long"), Unsupported, "applyInPandas"),
        (lambda o, u: o.groupBy("user").applyInArrow(lambda df: df, "id long"), Unsupported, "applyInArrow"),
        (
            lambda o, u: o.groupBy("id").cogroup(u.groupBy("id")).applyInPandas(lambda a, b: a, "id long"),
            Unsupported,
            "cogroup().applyInPandas",
        ),
        (lambda o, u: 3, DeclarationError, "must be SQL or a PySpark DataFrame"),
    ],
)
def test_what_cannot_be_kept_is_refused_by_name(
    flow: hf.Flow, build: Build, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=".*".join(message.split("."))) as found:
        flow.view("refused", build(flow.table("orders"), flow.table("users")))
    assert "view 'refused'" in str(found.value)
    assert "py4j" not in str(found.value)


def test_a_table_of_another_flow_is_refused(flow: hf.Flow, spark: SparkSession, tmp_path: Any) -> None:
    other = hf.Flow("other", log=tmp_path / "log", spark=spark)
    other.input("orders", "id long")
    with pytest.raises(Unsupported, match="a DataFrame of another flow"):
        flow.view("refused", other.table("orders"))


def test_a_dataframe_that_was_made_in_another_time_zone_is_refused(flow: hf.Flow, spark: SparkSession) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    frame = flow.table("orders")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        with pytest.raises(DeclarationError, match=r"view 'refused': its DataFrame is of a session with .*Asia/Tokyo"):
            flow.view("refused", frame)
    finally:
        spark.conf.set("spark.sql.session.timeZone", before or "UTC")
