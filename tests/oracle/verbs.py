"""PySpark's DataFrame verbs: the same text is run on Holdfast's tables and on Spark's DataFrames.

Whatever stands for ``orders`` has the columns of `INPUT`, so that a verb can be applied to any query.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import Window
from pyspark.sql import functions as F

from .maker import Column, Maker, Query
from .registry import CHANGE, GROUP, SIDE, add_verb

INPUT = (("id", "bigint"), ("user", "string"), ("amount", "double"), ("units", "int"), ("paid", "boolean"))


def adapted(g: Maker) -> Query:
    """The columns of `INPUT`, taken from whatever is below."""
    relation = g.relation()
    picked = [(name, g.pick(relation, kind)) for name, kind in INPUT]
    listed = ", ".join(f"{column.text} AS {name}" for name, column in picked)
    outputs = tuple(Column(name, kind) for name, kind in INPUT)
    return Query(f"SELECT {listed} FROM {relation.text}", outputs)


def _verb(name: str, cost: str, text: str, outputs: str) -> None:
    """``outputs``: the columns of the result, ``name kind``; a kind ``?`` is one that nothing is made of."""

    def run(orders: Any, users: Any) -> Any:
        return eval(text, {"F": F, "Window": Window, "orders": orders, "users": users})

    columns = tuple(
        Column(name, None if kind == "?" else kind) for name, kind in (each.split(" ") for each in outputs.split(", "))
    )
    add_verb(name, cost, text, run, columns)


_verb(
    "select, where", CHANGE, 'orders.where("units > 0").select("id", F.upper("user").alias("u"))', "id bigint, u string"
)
_verb("selectExpr", CHANGE, 'orders.selectExpr("id + 1 AS n", "user")', "n bigint, user string")
_verb(
    "withColumn, drop, withColumnRenamed", CHANGE,
    'orders.select("id", "user").withColumn("n", F.col("id") + 1).drop("id").withColumnRenamed("user", "u")',
    "u string, n bigint",
)  # fmt: skip
_verb("distinct, dropDuplicates", CHANGE, 'orders.select("user", "paid").distinct()', "user string, paid boolean")
_verb("union", CHANGE, 'orders.select("user").union(users.select("name"))', "user string")
_verb("intersect", CHANGE, 'orders.select("user").intersect(users.select("name"))', "user string")
_verb("intersectAll", CHANGE, 'orders.select("user").intersectAll(users.select("name"))', "user string")
_verb("subtract", CHANGE, 'orders.select("user").subtract(users.select("name"))', "user string")
_verb("exceptAll", CHANGE, 'orders.select("user").exceptAll(users.select("name"))', "user string")
_verb(
    "orderBy(…).limit", CHANGE, 'orders.select("id", "user").orderBy(F.col("id").desc(), "user").limit(3)',
    "id bigint, user string",
)  # fmt: skip
_verb(
    "groupBy(…).agg", CHANGE,
    'orders.groupBy("user").agg(F.sum("units").alias("s"), F.count("*").alias("n"), F.max("id").alias("m"))',
    "user string, s bigint, n bigint, m bigint",
)  # fmt: skip
_verb("groupBy(…).count", CHANGE, 'orders.groupBy("user", "paid").count()', "user string, paid boolean, count bigint")
_verb("agg", CHANGE, 'orders.agg(F.avg("amount").alias("a"), F.min("user").alias("u"))', "a ?, u string")
_verb(
    "rollup",
    CHANGE,
    'orders.rollup("user", "paid").agg(F.count("*").alias("n"))',
    "user string, paid boolean, n bigint",
)
_verb(
    "cube", CHANGE, 'orders.cube("user", "paid").agg(F.sum("units").alias("s"))', "user string, paid boolean, s bigint"
)
_verb(
    "pivot", CHANGE, 'orders.groupBy("user").pivot("units", [1, 2]).agg(F.sum("id"))',
    "user string, `1` bigint, `2` bigint",
)  # fmt: skip
for how in ("inner", "left", "right", "full"):
    _verb(
        f"join(…, how='{how}')", CHANGE,
        f'orders.join(users, F.col("user") == F.col("name"), "{how}").select("units", "city")',
        "units int, city string",
    )  # fmt: skip
for how in ("semi", "anti"):
    _verb(
        f"join(…, how='{how}')", CHANGE,
        f'orders.join(users, F.col("user") == F.col("name"), "{how}").select("units", "paid")',
        "units int, paid boolean",
    )  # fmt: skip
_verb("crossJoin", SIDE, 'orders.select("units").crossJoin(users.select("city"))', "units int, city string")
_verb(
    "Window", GROUP,
    'orders.select("id", "user", F.row_number().over(Window.partitionBy("user").orderBy("id")).alias("rn"))',
    "id bigint, user string, rn int",
)  # fmt: skip
