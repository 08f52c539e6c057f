"""A flow's collections as PySpark DataFrames: what an action on one reads, and when."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import holdfast as hf

SCHEMAS = {"orders": "id long, user string, amount double", "users": "user string, city string"}
ORDERS = [(1, "ada", 20.0), (2, "bob", 5.0), (3, "ada", 7.5)]


def rows(frame: DataFrame) -> Counter[Any]:
    return Counter(map(tuple, frame.collect()))


@pytest.fixture
def flow(spark: Any, tmp_path: Path) -> Iterator[hf.Flow]:
    with hf.Flow("shop", log=tmp_path / "log", spark=spark) as flow:
        flow.input("orders", "id long, user string, amount double")
        flow.input("users", "user string, city string")
        yield flow


def push(flow: hf.Flow, table: str, *new: tuple[Any, ...]) -> None:
    flow.input(table, SCHEMAS[table]).insert(list(new))


def test_a_table_is_a_dataframe_and_reads_the_last_epoch_whenever_it_is_run(flow: hf.Flow) -> None:
    orders = flow.table("orders")
    assert isinstance(orders, DataFrame)
    assert orders.columns == ["id", "user", "amount"]
    assert orders.count() == 0 and orders.collect() == []
    push(flow, "orders", *ORDERS)
    flow.step()
    assert orders.count() == 3
    assert rows(orders) == Counter(ORDERS)
    spend = orders.groupBy("user").agg(F.sum("amount").alias("total"))
    assert rows(spend) == Counter({("ada", 27.5): 1, ("bob", 5.0): 1})
    push(flow, "orders", (4, "bob", 1.0))
    flow.step()
    assert rows(spend) == Counter({("ada", 27.5): 1, ("bob", 6.0): 1})
    assert sorted(orders.toPandas()["id"]) == [1, 2, 3, 4]
    assert len(list(orders.toLocalIterator())) == 4
