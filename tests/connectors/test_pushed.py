"""Pushed rows: conversion with errors that name row, column, type and value; and that every change is taken once."""

from __future__ import annotations

import datetime as dt
import json
import pickle
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pytest
from pyspark.sql import Row

from holdfast.connectors import Input, input
from holdfast.connectors.input import Pending
from holdfast.errors import InputError, SchemaError, WrongVerb
from holdfast.plan.schema import parse_schema
from holdfast.plan.types import arrow_type


def orders(schema: str = "id long, user string, amount double") -> Input:
    return Input("orders", parse_schema(schema, subject="input 'orders'"))


def read(source: Input) -> list[tuple[Any, ...]]:
    """The rows of the next offer, with their diffs, as a task reads them."""
    offer = source.poll()
    assert offer is not None
    schema = pa.schema([pa.field(f"c{place}", arrow_type(field.type)) for place, field in enumerate(source.fields)])
    found: list[tuple[Any, ...]] = []
    for part in source.parts(json.loads(json.dumps(offer))):
        for table in pickle.loads(pickle.dumps(part)).read(schema):
            assert table.schema.names == [*schema.names, "_diff"]
            found += [tuple(row.values()) for row in table.to_pylist()]
    return found


def test_inserts_deletes_and_updates_come_in_order_with_their_diffs() -> None:
    source = orders()
    source.insert([(1, "ada", 20.0), (2, None, 5)])
    source.delete([(2, None, 5.0)])
    source.update([(1, "ada", 20.0)], [(1, "ada", 21.0)])
    assert source.pending == Pending(changes=3, inserted=3, deleted=2)
    assert read(source) == [
        (1, "ada", 20.0, 1), (2, None, 5.0, 1), (2, None, 5.0, -1), (1, "ada", 20.0, -1), (1, "ada", 21.0, 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "make",
    [
        lambda rows: rows,
        lambda rows: iter(rows),
        lambda rows: [list(row) for row in rows],
        lambda rows: [dict(zip(("amount", "id", "user"), (c, a, b), strict=True)) for a, b, c in rows],
        lambda rows: pa.table([list(column) for column in zip(*rows, strict=True)], names=["id", "user", "amount"]),
        lambda rows: pa.RecordBatch.from_pylist([{"amount": c, "user": b, "id": a} for a, b, c in rows]),
        lambda rows: pd.DataFrame(rows, columns=["id", "user", "amount"])[["user", "amount", "id"]],
    ],
)  # fmt: skip
def test_rows_come_in_many_forms(make: Callable[[Any], Any]) -> None:
    source = orders()
    source.insert(make([(1, "ada", 20.0), (2, None, None)]))
    assert read(source) == [(1, "ada", 20.0, 1), (2, None, None, 1)]


class Backwards(NamedTuple):
    amount: float | None
    user: str | None
    id: int


@dataclass
class Order:
    amount: float | None
    id: int
    user: str | None


@pytest.mark.parametrize(
    "make",
    [
        lambda a, b, c: Row(user=b, amount=c, id=a),
        lambda a, b, c: Row("amount", "user", "id")(c, b, a),
        lambda a, b, c: Backwards(c, b, a),
        lambda a, b, c: Order(c, a, b),
        lambda a, b, c: {"user": b, "amount": c, "id": a},
        lambda a, b, c: (a, b, c),
        lambda a, b, c: Row(a, b, c),
        lambda a, b, c: Row(user=b, amount=c, id=a) if b else (a, b, c),
    ],
)
def test_rows_that_have_names_are_matched_by_name(make: Callable[..., Any]) -> None:
    source = orders()
    source.insert([make(1, "ada", 20.0), make(2, None, None)])
    assert read(source) == [(1, "ada", 20.0, 1), (2, None, None, 1)]


def test_columns_of_any_table_are_matched_by_name() -> None:
    source = orders("first string, last string")
    table = pa.table({"last": ["l"], "first": ["f"]})
    source.insert(polars.from_arrow(table))
    source.insert(table)
    source.insert(table.to_pandas())
    assert read(source) == [("f", "l", 1)] * 3


def test_structs_inside_rows_are_matched_by_name() -> None:
    source = orders("x struct<a:int,b:array<struct<c:int,d:int>>,m:map<string,struct<c:int,d:int>>>")
    inner = Row(d=4, c=3)
    source.insert([(Row(m={"k": inner}, b=[inner], a=1),)])
    source.insert([{"x": {"m": {"k": inner}, "b": [inner], "a": 1}}])
    source.insert([((1, [(3, 4)], {"k": (3, 4)}),)])
    inside = {"c": 3, "d": 4}
    assert read(source) == [({"a": 1, "b": [inside], "m": [("k", inside)]}, 1)] * 3


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (Row(id=1, user="a", amuont=1.0), "row 0: column 'amuont' is not in the schema; did you mean 'amount'"),
        (Row(id=1, user="a"), "row 0: column 'amount' is missing"),
        (Row("id", "user", "amount", "id")(1, "a", 1.0, 2), "row 0: a column is there twice"),
        (dataclass(type("Short", (), {"__annotations__": {"id": int}}))(1), "row 0: column 'user' is missing"),
    ],
)
def test_names_that_are_missing_or_too_many_are_said(row: Any, message: str) -> None:
    for rows in ([row], [(1, "a", 2.0), row][::-1]):
        with pytest.raises(SchemaError, match=message):
            orders().insert(rows)
    with pytest.raises(SchemaError, match=r"a single row goes in a list"):
        orders().insert(row)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("boolean", [True, None, np.bool_(False)]),
        ("tinyint", [1, np.int64(-128)]),
        ("bigint", [2**63 - 1, -(2**63)]),
        ("double", [1, 2.5, np.float32(0.5), float("inf")]),
        ("decimal(10,2)", [Decimal("1.50"), 3]),
        ("string", ["", "ß"]),
        ("binary", [b"", bytearray(b"x")]),
        ("date", [dt.date(2020, 2, 29)]),
        ("timestamp", [dt.datetime(2020, 1, 1), pd.Timestamp("2020-01-01", tz="UTC")]),
        ("timestamp_ntz", [dt.datetime(2020, 1, 1)]),
        ("interval day to second", [dt.timedelta(days=1)]),
        ("array<int>", [[1, None], (), np.array([3])]),
        ("map<string,int>", [{"a": 1}, [("b", None)]]),
        ("struct<a:int,b:array<string>>", [{"a": 1, "b": ["x"]}, None]),
        ("struct<a:int,b:array<string>>", [(2, None), None]),
    ],
)
def test_every_type_takes_its_python_values_and_none(kind: str, values: list[Any]) -> None:
    source = orders(f"x {kind}")
    source.insert([(value,) for value in values])
    source.insert([(None,)])
    assert len(read(source)) == len(values) + 1


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int", True), ("int", 1.0), ("int", "1"), ("int", 2**31), ("int", np.bool_(True)), ("tinyint", 128),
        ("boolean", 1), ("double", True), ("double", "1.0"), ("double", Decimal(1)), ("double", 2**60 + 1),
        ("decimal(4,2)", 1.5), ("decimal(4,2)", Decimal("1.234")), ("decimal(4,2)", 100),
        ("string", 5), ("string", b"x"), ("string", "\ud800"), ("binary", "x"),
        ("date", dt.datetime(2020, 1, 1)), ("date", "2020-01-01"), ("date", 3),
        ("timestamp", dt.date(2020, 1, 1)), ("timestamp", 3), ("timestamp", "2020-01-01"),
        ("array<int>", 1), ("array<int>", [True]), ("array<int>", "ab"), ("array<array<int>>", [[1], [1.5]]),
        ("map<string,int>", {"a": 1.5}), ("map<string,int>", {1: 1}),
        ("struct<a:int>", {"b": 1}), ("struct<a:int>", {"a": 1, "b": 1}), ("struct<a:int>", (1, 2)),
        ("struct<a:int>", {"a": "x"}),
    ],
)  # fmt: skip
def test_a_value_that_does_not_fit_names_input_row_column_type_and_value(kind: str, value: Any) -> None:
    source = orders(f"k int, x {kind}")
    with pytest.raises(SchemaError) as caught:
        source.insert([(1, None), (2, value), (3, None)])
    message = str(caught.value)
    assert message.startswith("input 'orders': row 1, column 'x': expected ")
    assert repr(value)[:20] in message
    assert {key: caught.value.fields[key] for key in ("row", "column")} == {"row": 1, "column": "x"}
    assert source.pending == Pending(0, 0, 0), "a refused call pushes nothing"


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([(1, "ada")], r"row 0: expected 3 values \(id, user, amount\), found 2"),
        ([(1, "ada", 2.0), 5], r"row 1: expected a tuple or dict of \(id, user, amount\), found 5 \(int\)"),
        ((1, "ada", 2.0), "row 0: expected a tuple or dict"),
        ({"id": 1}, "expected a list of rows"),
        ("rows", "expected a list of rows"),
        (None, "expected a list of rows"),
        ([{"id": 1, "user": "a", "amuont": 1.0}], "row 0: column 'amuont' is not in the schema; did you mean 'amount'"),
        ([{"id": 1, "user": "a"}], "row 0: column 'amount' is missing"),
        (pa.table({"id": [1], "user": ["a"]}), "column 'amount' is missing"),
        (pa.table({"id": [1, 2], "user": ["a", "b"], "amount": ["x", "y"]}),
         r"row 0, column 'amount': expected double, found 'x' \(str\) \(string\)"),
        (pa.table({"id": pa.array([1, 2**63], pa.uint64()), "user": ["a", "b"], "amount": [1.0, 2.0]}),
         "row 1, column 'id': expected bigint, found 9223372036854775808"),
        (pd.DataFrame({"id": [1], "user": [2], "amount": [1.0]}), "column 'user': expected string, found int64"),
        (pd.DataFrame({"id": [1, 2], "user": ["a", 2], "amount": [1.0, 2.0]}),
         r"row 1, column 'user': expected string, found 2 \(int\)"),
        (pd.DataFrame({"id": [1.5], "user": ["a"], "amount": [1.0]}), "column 'id': expected bigint, found float64"),
        (pd.DataFrame({"id": [True], "user": ["a"], "amount": [1.0]}), "column 'id': expected bigint, found bool"),
    ],
)  # fmt: skip
def test_rows_of_the_wrong_shape_are_refused(rows: Any, message: str) -> None:
    source = orders()
    with pytest.raises(SchemaError, match=f"input 'orders'.*{message}"):
        source.insert(rows)
    assert source.poll() is None


def test_structs_written_in_two_ways_in_one_call_are_refused() -> None:
    with pytest.raises(SchemaError, match="column 'x': write its values all in one way"):
        orders("x struct<a:int>").insert([({"a": 1},), ((1,),)])


def test_gaps_in_pandas_are_null() -> None:
    source = orders()
    source.insert(pd.DataFrame({"id": [1.0, None], "user": ["a", np.nan], "amount": [np.nan, 2.0]}))
    assert read(source) == [(1, "a", None, 1), (None, None, 2.0, 1)]


def test_an_aware_time_is_converted_and_a_naive_one_is_utc() -> None:
    source = orders("at timestamp")
    east = dt.timezone(dt.timedelta(hours=2))
    source.insert([(dt.datetime(2020, 1, 1, 2, tzinfo=east),), (dt.datetime(2020, 1, 1),)])
    assert read(source) == [(dt.datetime(2020, 1, 1, tzinfo=dt.UTC), 1)] * 2


def test_nothing_pushed_is_nothing_offered() -> None:
    source = orders()
    source.insert([])
    source.insert(pd.DataFrame({"id": [], "user": [], "amount": []}, dtype=object))
    assert source.poll() is None


def test_an_offer_stays_the_same_until_taken_and_later_rows_wait() -> None:
    source = orders()
    source.insert([(1, "a", 1.0)])
    offer = source.poll()
    source.insert([(2, "b", 2.0), (3, "c", 3.0)])
    assert source.poll() == offer == {"first": 0, "changes": 1}
    assert source.waiting() == 2
    assert [row[0] for row in read(source)] == [1]
    source.advance(offer)
    assert source.poll() == {"first": 1, "changes": 1}
    assert [row[0] for row in read(source)] == [2, 3]


def test_offers_of_the_past_do_not_swallow_what_was_pushed_since() -> None:
    source = orders()
    source.insert([(1, "a", 1.0)])
    source.advance({"first": 0, "changes": 4})
    source.advance({"first": 4, "changes": 3})
    assert source.poll() == {"first": 7, "changes": 1}
    assert [row[0] for row in read(source)] == [1]


def test_discard_forgets_what_no_epoch_took_and_nothing_that_comes_after() -> None:
    source = orders()
    source.delete([(1, "a", 1.0)])
    offer = source.poll()
    source.insert([(2, "b", 2.0)])
    assert source.discard() == Pending(changes=2, inserted=1, deleted=1)
    assert source.poll() is None
    source.insert([(3, "c", 3.0)])
    assert offer is not None
    source.advance(offer)  # its epoch was running when it was discarded
    assert [row[0] for row in read(source)] == [3]


def test_rows_of_an_offer_that_was_taken_are_not_held() -> None:
    source = orders()
    source.insert([(1, "a", 1.0)])
    offer = source.poll()
    assert offer is not None
    source.advance(offer)
    with pytest.raises(InputError, match="input 'orders': changes 0 to 0 are not held"):
        source.parts(offer)


def test_many_rows_are_cut_into_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input, "PART_BYTES", 1000)
    source = orders("id long")
    source.insert([(number,) for number in range(1000)])
    offer = source.poll()
    assert offer is not None
    parts = source.parts(offer)
    assert 10 <= len(parts) <= 20
    assert [row[0] for row in read(source)] == list(range(1000))


def test_pushing_from_many_threads_loses_nothing_and_doubles_nothing() -> None:
    source = orders("id long")

    def push(start: int) -> None:
        for number in range(start, start + 50):
            source.insert([(number,)])

    threads = [threading.Thread(target=push, args=(start,)) for start in range(0, 400, 50)]
    for thread in threads:
        thread.start()
    seen: list[int] = []
    while any(thread.is_alive() for thread in threads) or source.poll() is not None:
        offer = source.poll()
        if offer is not None:
            seen += [row[0] for row in read(source)]
            source.advance(offer)
    assert sorted(seen) == list(range(400))


def test_what_pandas_writes_for_null_is_null_in_rows_and_dicts_too() -> None:
    source = orders("id long, user string, at timestamp, tags array<string>")
    rows = [
        {"id": 1, "user": pd.NA, "at": pd.NaT, "tags": ["a", pd.NA]},
        {"id": 2, "user": "b", "at": None, "tags": None},
    ]
    source.insert(rows)
    assert read(source) == [(1, None, None, ["a", None], 1), (2, "b", None, None, 1)]
    with pytest.raises(SchemaError, match=r"column 'user': expected string, found nan \(float\); NULL is written None"):
        source.insert([(1, float("nan"), None, None)])


def test_a_time_with_a_zone_is_refused_by_a_column_that_has_none() -> None:
    source = orders("at timestamp_ntz, several array<timestamp_ntz>")
    east = dt.datetime(2020, 1, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=2)))
    for row in ((east, None), (None, [east])):
        with pytest.raises(SchemaError, match="it has a time zone, and the column has none"):
            source.insert([row])
    source.insert([(dt.datetime(2020, 1, 1, 2), None)])
    assert read(source) == [(dt.datetime(2020, 1, 1, 2), None, 1)]


def test_an_input_is_shown_in_one_line() -> None:
    assert repr(orders()) == "Input('orders': id bigint, user string, amount double)"


def test_a_frame_that_is_not_computed_yet_is_to_be_collected_first() -> None:
    with warnings.catch_warnings(), pytest.raises(SchemaError, match=r"LazyFrame\); collect\(\) it first"):
        warnings.simplefilter("error")
        orders().insert(polars.DataFrame({"id": [1]}).lazy())


def test_a_verb_of_the_other_kind_of_input_says_what_to_use() -> None:
    assert not hasattr(orders(), "upsert") and not hasattr(orders(), "nonsense")
    with pytest.raises(WrongVerb, match="upsert is for inputs with a key"):
        orders().upsert([(1, "ada", 2.0)])  # type: ignore[attr-defined]  # that is the mistake
