"""Python functions in Spark's plans, however PySpark was given them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import holdfast as hf
from holdfast.errors import DeclarationError, Unsupported
from holdfast.plan.fingerprint import fingerprint

ROWS = [(1, "ada", 20.0), (2, "bob", 5.0), (3, None, 7.5)]


def rows(frame: DataFrame) -> Counter[Any]:
    return Counter(map(tuple, frame.collect()))


@pytest.fixture
def flow(spark: SparkSession, tmp_path: Path) -> Iterator[hf.Flow]:
    with hf.Flow("functions", log=tmp_path / "log", spark=spark) as flow:
        flow.input("orders", "id long, user string, amount double")
        yield flow


def push(flow: hf.Flow, new: list[Any], old: Any = ()) -> None:
    orders = flow.input("orders", "id long, user string, amount double")
    orders.insert(new)
    orders.delete(list(old))
    flow.step()


def shout(text: str, mark: str = "!") -> str:
    return f"{text}{mark}"


def halved(values: pd.Series) -> pd.Series:
    return values / 2


def tenfold(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
    for batch in batches:
        yield batch * 10


def negated(values: pa.Array) -> pa.Array:
    return pc.negate(values)


def columnar(function: Any) -> Any:
    """As PySpark's decorators make it; they want a session."""
    made: Any = F.arrow_udf if function is negated else F.pandas_udf
    return made(function, "double")


def test_every_kind_of_function_is_kept_and_equals_spark(flow: hf.Flow, spark: SparkSession) -> None:
    factor, shouted = 3, F.udf(shout, "string")

    def columns() -> list[Any]:
        scaled = F.udf(lambda value: value * factor, "double")
        half, ten, less = columnar(halved), columnar(tenfold), columnar(negated)
        pair = F.udf(lambda a, b: (a, f"{a}{b}"), "a: long, b: string")
        return [
            "id",
            shouted("user").alias("shouted"),
            shouted("user", mark=F.lit("?")).alias("asked"),
            half("amount").alias("halved"),
            ten("amount").alias("tenfold"),
            less(half("amount")).alias("negated"),
            scaled("amount").alias("scaled"),
            (scaled(F.col("amount") + 1) + 1).alias("inside"),
            pair("id", "user").alias("pair"),
        ]

    table = flow.table("orders").where(shouted("user") != "bob!").select(*columns())
    flow.view("kept", table)
    push(flow, [*ROWS, (9, "gone", 1.0)])
    push(flow, [(4, "cyd", 1.0)], old=[(9, "gone", 1.0)])
    plain = spark.createDataFrame([*ROWS, (4, "cyd", 1.0)], "id long, user string, amount double")
    expected = rows(plain.where(shouted("user") != "bob!").select(*columns()))
    assert rows(flow.read("kept")) == rows(table) == expected


def test_functions_of_the_session_and_of_the_flow_are_called_in_sql(flow: hf.Flow, spark: SparkSession) -> None:
    spark.udf.register("session_shout", lambda text: f"{text}!", "string")
    spark.udf.register("session_half", columnar(halved))
    flow.udf("thrice", lambda value: value * 3, "double")
    text = "SELECT id, session_shout(user) AS s, session_half(amount) AS h, thrice(amount) AS t FROM orders"
    flow.view("kept", text)
    flow.view("frame", flow.sql(text))
    push(flow, ROWS[:2])
    expected = Counter([(1, "ada!", 10.0, 60.0), (2, "bob!", 2.5, 15.0)])
    assert rows(flow.read("kept")) == rows(flow.read("frame")) == rows(flow.sql(text)) == expected
    assert fingerprint(flow._catalog.views["kept"]) == fingerprint(flow._catalog.views["frame"])
    flow.udf("thrice", lambda value: value * 4, "double")  # views that call it follow
    flow.step()
    expected = Counter([(1, "ada!", 10.0, 80.0), (2, "bob!", 2.5, 20.0)])
    assert rows(flow.read("kept")) == rows(flow.read("frame")) == expected


def test_arguments_given_by_name_reach_the_parameters_of_that_name(flow: hf.Flow, spark: SparkSession) -> None:
    spark.udf.register("session_minus", lambda a, b: a - b, "double")
    flow.udf("flow_minus", lambda a, b: a - b, "double")
    for name in ("session_minus", "flow_minus"):
        columns = f"id, {name}(b => amount, a => double(id)) AS d, {name}(amount, b => 1D) AS e"
        flow.view(name, f"SELECT {columns} FROM orders")
    push(flow, ROWS[:2])
    expected = Counter([(1, -19.0, 19.0), (2, -3.0, 4.0)])
    assert rows(flow.read("session_minus")) == rows(flow.read("flow_minus")) == expected


def test_a_nondeterministic_function_is_asked_once_per_row(flow: hf.Flow) -> None:
    drawn = F.udf(lambda text: f"{text} {random.random()}", "string").asNondeterministic()
    flow.view("kept", flow.table("orders").select("id", drawn("user").alias("d")))
    push(flow, ROWS)
    before = rows(flow.read("kept"))
    push(flow, [(4, "cyd", 1.0)], old=ROWS[:1])
    kept = rows(flow.read("kept"))
    assert len(before & kept) == 2 and len(kept) == 3


def test_lambdas_are_told_apart_and_the_same_one_means_the_same(flow: hf.Flow) -> None:
    def built() -> DataFrame:
        one, two = F.udf(lambda value: value + 1, "long"), F.udf(lambda value: value + 2, "long")
        return flow.table("orders").select(one("id").alias("one"), two("id").alias("two"), one("id").alias("again"))

    flow.view("a", built())
    flow.view("b", built())
    push(flow, ROWS[:1])
    assert rows(flow.read("a")) == Counter([(2, 3, 2)])
    assert fingerprint(flow._catalog.views["a"]) == fingerprint(flow._catalog.views["b"])


def test_functions_that_cannot_be_kept_are_refused_by_name(flow: hf.Flow, spark: SparkSession) -> None:
    orders = flow.table("orders")
    known = spark.sparkContext.broadcast({"ada": 1})
    with pytest.raises(DeclarationError, match="view 'v': function 'find': it uses a broadcast variable"):

        def find(text: str) -> int | None:
            return known.value.get(text)

        flow.view("v", orders.select(F.udf(find, "int")("user").alias("n")))

    def mean(values: pd.Series) -> float:
        return float(values.mean())

    with pytest.raises(Unsupported, match=r"view 'v'.* is not supported"):
        flow.view("v", orders.groupBy("user").agg(columnar(mean)("amount").alias("m")))
    with pytest.raises(DeclarationError, match="a nondeterministic function of columns is not supported"):
        flow.view("v", orders.select(columnar(halved).asNondeterministic()("amount").alias("h")))

    @F.udtf(returnType="n int")  # type: ignore[arg-type]  # as PySpark documents it
    class Twice:
        def eval(self, n: int) -> Iterator[tuple[int]]:
            yield (n,)
            yield (n,)

    spark.udtf.register("twice", Twice)
    with pytest.raises(Unsupported, match=r"line 1, column .*twice"):
        flow.view("v", "SELECT n FROM orders, LATERAL twice(CAST(id AS int))")
