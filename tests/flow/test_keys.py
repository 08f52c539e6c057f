"""Collections with a key: pushed, and from files. A later version replaces an earlier one; what is kept follows the
keys; a wrong deletion is an error that says what to do, and the flow goes on."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.errors import DeclarationError, NegativeMultiplicity, SchemaChanged

SUM = "SELECT user, sum(amount) AS total FROM orders GROUP BY user"


def _rows(flow: hf.Flow, view: str) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, flow.read(view).collect()))


def _flow(spark: SparkSession, log: Path) -> tuple[hf.Flow, hf.KeyedInput]:
    flow = hf.Flow("keys", log=log, spark=spark, partitions=2)
    orders = flow.input("orders", "id long, user string, amount long", key="id")
    flow.view("spend", SUM)
    return flow, orders


def test_an_upsert_replaces_the_row_of_its_key_and_delete_keys_removes_it(spark: SparkSession, tmp_path: Path) -> None:
    flow, orders = _flow(spark, tmp_path / "log")
    orders.upsert([(1, "ada", 10), (2, "bob", 5), (1, "ada", 20)])
    flow.step()
    assert _rows(flow, "spend") == [("ada", 20), ("bob", 5)]
    orders.upsert([{"user": "bob", "amount": 7, "id": 1}])
    orders.delete_keys([2])
    orders.upsert(pa.table({"amount": [1], "id": [3], "user": ["eve"]}))
    orders.delete_keys([3])
    orders.upsert([(3, "eve", 2)])
    assert flow.step().changed == {"spend": 4}
    assert _rows(flow, "spend") == [("bob", 7), ("eve", 2)]
    assert sorted(map(tuple, flow.table("orders").collect())) == [(1, "bob", 7), (3, "eve", 2)]
    changed = flow.changes("spend", since=0).orderBy("user", "_diff").collect()
    assert [tuple(row) for row in changed] == [
        ("ada", 20, 1, -1), ("bob", 5, 1, -1), ("bob", 7, 1, 1), ("eve", 2, 1, 1),
    ]  # fmt: skip
    flow.close()

    # Another driver goes on, also without the local layers; a view that comes later has the current rows.
    shutil.rmtree(tmp_path / "log" / "local", ignore_errors=True)
    flow, orders = _flow(spark, tmp_path / "log")
    flow.view("all", "SELECT id, amount FROM orders")
    orders.upsert([(1, "ada", 1)])
    flow.step()
    assert _rows(flow, "spend") == [("ada", 1), ("eve", 2)]
    assert _rows(flow, "all") == [(1, 1), (3, 2)]
    flow.close()


def test_a_wrong_deletion_fails_its_epoch_and_poisons_nothing(spark: SparkSession, tmp_path: Path) -> None:
    flow, orders = _flow(spark, tmp_path / "log")
    orders.upsert([(1, "ada", 10)])
    flow.step()
    orders.delete_keys([7, 8])
    with pytest.raises(NegativeMultiplicity, match="'orders', epoch 1: deleted, and not there: key 7, 8") as caught:
        flow.step()
    assert "discard()" in str(caught.value) and "on_missing='ignore'" in str(caught.value)
    assert sorted(caught.value.fields["keys"]) == [(7,), (8,)]  # type: ignore[call-overload]
    assert orders.discard() == (1, 0, 2)
    orders.delete_keys([7], on_missing="ignore")
    orders.delete_keys([1])
    flow.step()
    assert _rows(flow, "spend") == []
    flow.close()


def test_order_by_decides_whatever_the_order_of_arrival(spark: SparkSession, tmp_path: Path) -> None:
    flow = hf.Flow("late", log=tmp_path / "log", spark=spark, partitions=2)
    t = flow.input("t", "id long, v string, seq long", key="id", order_by="seq")
    flow.view("v", "SELECT id, v FROM t")
    t.upsert([(1, "new", 5), (2, "x", 1)])
    t.delete_keys([(3, 9)])
    flow.step()
    t.upsert([(1, "old", 4), (3, "too old", 8), (2, "tie b", 2), (2, "tie a", 2)])
    flow.step()
    assert _rows(flow, "v") == [(1, "new"), (2, "tie b")]
    t.delete_keys([{"seq": 4, "id": 1}])
    t.upsert([(3, "back", 10)])
    flow.step()
    assert _rows(flow, "v") == [(1, "new"), (2, "tie b"), (3, "back")]
    assert sorted(map(tuple, flow.table("t").collect())) == [(1, "new", 5), (2, "tie b", 2), (3, "back", 10)]
    with pytest.raises(DeclarationError, match="with order_by a deletion may come before the row"):
        t.delete_keys([(1, 9)], on_missing="error")
    flow.close()


@pytest.mark.parametrize("format", ["parquet", "json", pytest.param("csv", marks=pytest.mark.slow)])
def test_in_files_the_later_line_of_the_later_file_counts(spark: SparkSession, tmp_path: Path, format: str) -> None:
    (tmp_path / "in").mkdir()

    def write(name: str, rows: list[tuple[int, str]], when: int) -> None:
        path = tmp_path / "in" / name
        if format == "parquet":
            pq.write_table(pa.table({"id": [row[0] for row in rows], "v": [row[1] for row in rows]}), path)
        elif format == "json":
            path.write_text("".join(json.dumps({"id": key, "v": text}) + "\n" for key, text in rows))
        else:
            path.write_text("".join(f"{key},{text}\n" for key, text in rows))
        os.utime(path, (when, when))

    def declared() -> hf.Flow:
        flow = hf.Flow("files", log=tmp_path / "log", spark=spark, partitions=2)
        source = hf.files(tmp_path / "in", format=format, schema="id long, v string")  # type: ignore[arg-type]
        return flow.source("t", source, key="id").view("v", "SELECT id, v FROM t")

    write("b 1", [(1, "first"), (2, "z"), (1, "second")], 1000)
    write("a%20[1]", [(2, "y"), (3, "x"), (2, "a")], 2000)
    flow = declared()
    flow.step()
    assert _rows(flow, "v") == [(1, "second"), (2, "a"), (3, "x")]
    write("c", [(3, "w")], 3000)
    flow.step()
    flow.close()
    # A view that comes later is filled from what the log keeps.
    flow = declared().view("n", "SELECT count(*) AS n FROM t")
    write("d", [(1, "third")], 4000)
    flow.step()
    assert _rows(flow, "v") == [(1, "third"), (2, "a"), (3, "w")] and _rows(flow, "n") == [(3,)]
    flow.close()


def test_another_key_or_none_is_said_and_nothing_is_lost(spark: SparkSession, tmp_path: Path) -> None:
    flow, orders = _flow(spark, tmp_path / "log")
    orders.upsert([(1, "ada", 10)])
    flow.step()
    again = flow.input("orders", "id long, user string, amount long", key=["id"], on_missing="ignore")
    assert again is orders and orders.on_missing == "ignore"
    with pytest.raises(DeclarationError, match="there is a source or view of that name already"):
        flow.input("orders", "id long, user string, amount long", key="user")
    flow.close()
    for kinds in ({"key": "user"}, {"key": "id", "order_by": "amount"}, {}):
        other = hf.Flow("keys", log=tmp_path / "log", spark=spark, partitions=2)
        other.input("orders", "id long, user string, amount long", **kinds)  # type: ignore[call-overload]
        other.view("spend", SUM)
        with pytest.raises(SchemaChanged, match=r"and its rows were taken with key=id\. Declare it as it was"):
            other.step()
        other.close()
    flow, orders = _flow(spark, tmp_path / "log")
    orders.upsert([(1, "ada", 11)])
    flow.step()
    assert _rows(flow, "spend") == [("ada", 11)]
    flow.close()


def test_a_key_that_cannot_be_is_refused_at_the_call(spark: SparkSession, tmp_path: Path) -> None:
    flow = hf.Flow("refused", log=tmp_path / "log", spark=spark)
    schema = "id long, m map<string, long>, at timestamp"
    for kinds, message in (
        ({"key": "idd"}, r"input 't': key 'idd' is not a column of \(id, m, at\); did you mean 'id'\?"),
        ({"key": []}, "key must be the name of a column, or a list of names"),
        ({"key": ["id", "ID"]}, "key names a column twice"),
        ({"key": "m"}, "column 'm' is of type map<string,bigint>, which has no order"),
        ({"key": "id", "order_by": "seq"}, "order_by 'seq' is not a column"),
        ({"key": "id", "on_missing": "skip"}, "on_missing must be one of 'error', 'ignore'"),
        ({"order_by": "id"}, "order_by and on_missing are for rows with a key"),
        ({"key": "id", "expires": "at"}, "key and expires cannot be had together"),
    ):
        with pytest.raises(DeclarationError, match=message):
            flow.input("t", schema, **kinds)  # type: ignore[call-overload]
    t = flow.input("t", "id long, v string", key="id")
    with pytest.raises(DeclarationError, match="input 't', delete_keys: row 0, column 'id': expected bigint"):
        t.delete_keys(["one"])
    flow.close()
