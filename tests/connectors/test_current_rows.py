"""Sinks that hold the current rows: a Parquet file that is replaced, and upserts by key; retries, and letting go."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.connectors import snapshot_table
from holdfast.errors import DeclarationError, SinkError, UnknownName
from holdfast.foundation.atomic_files import replace_file

SPEND = "SELECT user, sum(amount) AS total FROM orders GROUP BY user"


def _flow(spark: SparkSession, tmp_path: Path) -> tuple[hf.Flow, hf.Input]:
    flow = hf.Flow("shop", log=tmp_path / "log", spark=spark, partitions=2)
    orders = flow.input("orders", "user string, amount long")
    return flow.view("spend", SPEND).view("rows", "SELECT user, amount FROM orders"), orders


def _table(path: Path) -> list[tuple[Any, ...]]:
    return sorted(duckdb.sql(f"SELECT * FROM '{path}'").fetchall())


def test_a_snapshot_table_has_the_current_rows_for_any_tool(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "out" / "spend.parquet"
    flow, orders = _flow(spark, tmp_path)
    flow.sink("spend", hf.snapshot_table(path)).sink("rows", hf.snapshot_table(tmp_path / "rows.parquet"))
    orders.insert([("ada", 1), ("bob", 2), ("bob", 2)])
    flow.step()
    assert _table(path) == [("ada", 1), ("bob", 4)]
    assert _table(tmp_path / "rows.parquet") == [("ada", 1), ("bob", 2), ("bob", 2)]
    orders.delete([("bob", 2), ("ada", 1)])
    flow.step()
    flow.close()
    assert _table(path) == [("bob", 2)] and [each.name for each in path.parent.iterdir()] == ["spend.parquet"]
    flow, orders = _flow(spark, tmp_path)
    flow.sink("spend", hf.snapshot_table(path))
    orders.insert([("eve", 5)])
    flow.step()
    assert _table(path) == [("bob", 2), ("eve", 5)]
    # Another view, another form of it, or another file at its path is refused.
    flow.unsink("spend")
    flow.sink("rows", hf.snapshot_table(path))
    with pytest.raises(SinkError, match=r"holds the rows of view 'spend'; give each view its own"):
        flow.step()
    flow.unsink("rows")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "mine.parquet")
    flow.sink("rows", hf.snapshot_table(tmp_path / "mine.parquet"))
    with pytest.raises(SinkError, match="is no snapshot of a view; give another path"):
        flow.step()
    flow.unsink("rows")
    flow.step()
    assert _table(path) == [("bob", 2), ("eve", 5)]
    flow.close()


def test_a_change_comes_as_rows_to_set_and_keys_to_remove(spark: SparkSession, tmp_path: Path) -> None:
    store: dict[str, int] = {}

    def apply(epoch: int, rows: pa.Table, keys: pa.Table) -> None:
        for row in rows.to_pylist():
            store[row["user"]] = row["total"]
        for key in keys.to_pylist():
            del store[key["user"]]
        assert keys.column_names == ["user"]

    flow, orders = _flow(spark, tmp_path)
    flow.sink("spend", hf.upserts(apply, key="user"))
    orders.insert([("ada", 1), ("bob", 2)])
    flow.step()
    assert store == {"ada": 1, "bob": 2}
    orders.insert([("ada", 1)])
    orders.delete([("bob", 2)])
    flow.step()
    assert store == {"ada": 2}
    flow.sink("rows", hf.upserts(lambda epoch, rows, keys: None, key="user"))
    orders.insert([("ada", 3), ("ada", 4)])
    with pytest.raises(SinkError, match=r"several rows of the key \('ada',\)"):
        flow.step()
    flow.unsink("rows")
    with pytest.raises(DeclarationError, match="key 'usr' is not a column of it"):
        flow.sink("rows", hf.upserts(apply, key=["usr"])).step()
    flow.unsink("rows").close()


def test_a_sink_is_tried_again_and_the_error_says_what_will_be_delivered_when(
    spark: SparkSession, tmp_path: Path
) -> None:
    calls: list[int] = []
    broken = [2]

    def deliver(epoch: int, change: pa.Table) -> None:
        calls.append(change.num_rows)
        if broken[0]:
            broken[0] -= 1
            raise OSError("the database is away")

    flow, orders = _flow(spark, tmp_path)
    flow.sink("spend", hf.foreach(deliver), retries=2, pause=0.01)
    orders.insert([("ada", 1)])
    flow.step()
    assert calls == [1, 1, 1]
    broken[0] = 3
    orders.insert([("bob", 1)])
    with pytest.raises(
        SinkError, match=r"the database is away.*tried 3 times. Epoch 1 is complete, and nothing is lost"
    ) as it:
        flow.step()
    assert it.value.fields["complete"] is True
    flow.step()
    assert calls[-1] == 1 and len(calls) == 7
    assert json.dumps(flow.status().to_dict())
    flow.close()


def test_a_view_can_be_dropped_when_its_sinks_were_let_go(spark: SparkSession, tmp_path: Path) -> None:
    flow, _ = _flow(spark, tmp_path)
    one, other = hf.snapshot_table(tmp_path / "1.parquet"), hf.changelog(tmp_path / "2")
    flow.sink("spend", one).sink("spend", other)
    flow.unsink("spend", one)
    with pytest.raises(DeclarationError, match=r"a sink still takes its changes; flow.unsink\('spend'\) first"):
        flow.drop("spend")
    flow.unsink("spend").drop("spend")
    with pytest.raises(UnknownName, match="view 'spend': it has no such sink"):
        flow.unsink("spend")
    flow.close()


def test_a_snapshot_table_that_was_replaced_by_a_commit_that_raised_is_not_anothers(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "spend.parquet"
    flow, orders = _flow(spark, tmp_path)
    flow.sink("spend", hf.snapshot_table(path))
    raised: list[int] = []

    def replace_and_raise(*given: Any, **named: Any) -> None:
        replace_file(*given, **named)
        if not raised:
            raised.append(1)
            raise OSError(errno.EIO, "the directory could not be synchronised")

    monkeypatch.setattr(snapshot_table, "replace_file", replace_and_raise)
    orders.insert([("ada", 1)])
    try:
        flow.step()
    except SinkError:
        flow.step()
    orders.insert([("ada", 2)])
    flow.step()
    assert raised and _table(path) == [("ada", 3)]
    flow.close()


def test_a_sink_in_the_place_of_another_is_given_all_rows(spark: SparkSession, tmp_path: Path) -> None:
    """Although it is called as that one was. One that stays is given none twice, although it is called otherwise."""
    first: list[tuple[int, int]] = []
    kept: list[tuple[int, int]] = []
    new: list[tuple[int, int]] = []

    def into(held: list[tuple[int, int]], name: str) -> hf.Sink:
        def take(epoch: int, change: pa.Table) -> None:
            held.append((epoch, sum(row["total"] * row["_diff"] for row in change.to_pylist())))

        take.__qualname__ = name  # functions of one name are one sink
        return hf.foreach(take)

    flow, orders = _flow(spark, tmp_path)
    one, two, three = into(first, "one"), into(kept, "two"), into(new, "three")
    flow.sink("spend", one).sink("spend", two)
    for amount in (1, 10):
        orders.insert([("ada", amount)])
        flow.step()
    flow.unsink("spend", one)
    flow.sink("spend", three)
    orders.insert([("ada", 100)])
    flow.step()
    assert [total for _, total in first] == [1, 10]
    assert [total for _, total in kept] == [1, 10, 100]
    assert sum(total for _, total in new) == 111
    flow.close()


def test_columns_that_take_each_others_names_are_refused_by_sinks(spark: SparkSession, tmp_path: Path) -> None:
    flow, orders = _flow(spark, tmp_path)
    flow.view("pairs", "SELECT amount AS id, amount + 1 AS n FROM orders")
    given: list[pa.Table] = []
    flow.sink("pairs", hf.foreach(lambda epoch, change: given.append(change)))
    orders.insert([("ada", 1)])
    flow.step()
    flow.view("pairs", "SELECT amount + 1 AS n, amount AS id FROM orders")
    orders.insert([("ada", 2)])
    with pytest.raises(SinkError, match=r"\(id bigint, n bigint\), and now are \(n bigint, id bigint\)"):
        flow.step()
    assert len(given) == 1
    flow.unsink("pairs")
    flow.sink("pairs", hf.foreach(lambda epoch, change: given.append(change)))
    flow.step()
    assert sum(table.num_rows for table in given[1:]) == 2, "another sink is given all rows of the view as it is"
    flow.close()
