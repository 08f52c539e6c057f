"""All of TPC-H as views of one flow: after every refresh each view equals Spark's batch answer of the same SQL.

The tables are those of scale 0.01. The refreshes insert and delete orders with their lineitems, as the specification's
refresh functions do, and update rows of the other tables, so that every query's result changes at least once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession
from workloads import tpch

import holdfast as hf
from holdfast.testing import assert_same_rows

REFRESHES = 2


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tpch")
    tpch.generate(directory, 0.01)
    return directory


class Tables:
    """The rows that each table should have now, and the changes to them, told to the flow at once."""

    def __init__(self, flow: hf.Flow, rows: dict[str, pa.Table]) -> None:
        self._inputs = {name: flow.input(name, schema) for name, schema in tpch.SCHEMAS.items()}
        self.rows = {name: table.slice(0, 0) for name, table in rows.items()}
        for name, table in rows.items():
            self.insert(name, table)

    def insert(self, name: str, rows: pa.Table) -> None:
        self._inputs[name].insert(rows)
        self.rows[name] = pa.concat_tables([self.rows[name], rows])

    def delete(self, name: str, rows: pa.Table) -> None:
        """Rows are told apart by their first column, and by the second of partsupp and the fourth of lineitem."""
        self._inputs[name].delete(rows)
        self.rows[name] = self.rows[name].filter(pa.array(~np.isin(_key(name, self.rows[name]), _key(name, rows))))

    def update(self, name: str, count: int, seed: int, **columns: Any) -> None:
        """Give some rows, chosen by ``seed``, new values: column → function of its old ones."""
        chosen = np.random.default_rng(seed).choice(self.rows[name].num_rows, count, replace=False)
        old = new = self.rows[name].take(chosen)
        for column, function in columns.items():
            place, kind = new.column_names.index(column), new.schema.field(column).type
            new = new.set_column(place, column, function(old.column(column)).cast(kind))
        self._inputs[name].update(old, new)
        rest = np.setdiff1d(np.arange(self.rows[name].num_rows), chosen)
        self.rows[name] = pa.concat_tables([self.rows[name].take(rest), new])


def _key(name: str, rows: pa.Table) -> np.ndarray:
    second = {"partsupp": 1, "lineitem": 3}.get(name)
    first = rows.column(0).to_numpy() * 2**20
    return first if second is None else first + rows.column(second).to_numpy()


def _turned(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The values of a column, each in the place of the next."""
    return column.take(np.roll(np.arange(len(column)), 1))


def _another_nation(column: pa.ChunkedArray) -> pa.Array:
    return pa.array((column.to_numpy() + 1) % 25)


def _more(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.add(column, pa.scalar(100, pa.int32()))


def _always(value: str) -> Callable[[pa.ChunkedArray], pa.Array]:
    return lambda column: pa.array([value] * len(column))


def refresh(tables: Tables, orders: tpch.Refreshes, number: int) -> None:
    """The changes of one epoch."""
    for name in orders.TABLES:
        tables.delete(name, orders.deleted(name, number))
        tables.insert(name, orders.inserted(name, number))
    if number == 0:
        tables.update("customer", 60, 1, c_nationkey=_another_nation, c_acctbal=_more, c_mktsegment=_turned)
        tables.update("supplier", 15, 2, s_nationkey=_another_nation, s_comment=_turned)
        tables.update("part", 120, 3, p_type=_turned, p_name=_turned)
        # Of so few parts none is what the 17th query asks for.
        tables.update("part", 8, 8, p_brand=_always("Brand#23"), p_container=_always("MED BOX"))
    if number == 1:
        tables.update("part", 2000, 4, p_size=_turned, p_container=_turned)
        tables.update("lineitem", 3000, 5, l_quantity=_more, l_extendedprice=_turned)
        tables.update("nation", 25, 6, n_name=_turned)
        tables.update("region", 2, 7, r_name=_turned)


def in_spark(spark: SparkSession, rows: dict[str, pa.Table]) -> Iterator[tuple[str, pa.Table]]:
    for name, table in rows.items():
        spark.createDataFrame(table).createOrReplaceTempView(name)
    for name, sql in tpch.queries().items():
        yield name, spark.sql(sql).toArrow()


def test_every_view_equals_batch_after_every_refresh(spark: SparkSession, generated: Path, tmp_path: Path) -> None:
    orders = tpch.Refreshes(generated, REFRESHES, share=0.01)
    changing = {name: orders.initial(name) for name in orders.TABLES}
    own = spark.newSession()
    own.conf.set("spark.sql.shuffle.partitions", "1")
    with hf.Flow("tpch", log=tmp_path / "log", spark=spark, strategy="volatile") as flow:
        rows = {name: changing.get(name) or tpch.read_table(generated, name) for name in tpch.SCHEMAS}
        tables = Tables(flow, rows)
        for name, sql in tpch.queries().items():
            flow.view(name, sql)
        changed = set()
        for number in range(-1, REFRESHES):
            if number >= 0:
                refresh(tables, orders, number)
            epoch = flow.step()
            changed |= {name for name, count in epoch.changed.items() if count and number >= 0}
            for name, expected in in_spark(own, tables.rows):
                assert_same_rows(flow.read(name), expected, f"{name} after refresh {number}")
        assert changed == set(tpch.queries()), "a query that no refresh changes tests nothing"
