"""Feeds of changes in files: an operation column, and Debezium's envelopes, in JSON, CSV, Avro and Parquet, with and
without a key."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from avro_files import write_avro
from holdfast.connectors.change_feed import changes_of, feed_form
from holdfast.errors import BadFile, DeclarationError, NegativeMultiplicity

SCHEMA = "id long, v string"
ROW = pa.struct([("id", pa.int64()), ("v", pa.string())])
WIDER = pa.struct([*ROW, ("more", pa.float64())])


def _line(op: str | None, before: Any = None, after: Any = None, lsn: int = 0) -> dict[str, Any]:
    return {"before": before, "after": after, "op": op, "source": {"lsn": lsn}, "ts_ms": 1}


def _row(key: int, text: str | None) -> dict[str, Any]:
    return {"id": key, "v": text}


def _rows(flow: hf.Flow) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, flow.read("now").collect()))


def _flow(spark: SparkSession, directory: Path, source: hf.Source, **key: Any) -> hf.Flow:
    flow = hf.Flow("feed", log=directory / "log", spark=spark, partitions=2)
    return flow.source("t", source, **key).view("now", "SELECT id, v FROM t")


@pytest.mark.parametrize("format", ["json", pytest.param("csv", marks=pytest.mark.slow), "parquet", "avro"])
def test_an_operation_column_says_what_happens_to_the_row_of_a_key(
    spark: SparkSession, tmp_path: Path, format: str
) -> None:
    (tmp_path / "in").mkdir()
    lines = [("I", 1, "a"), ("I", 2, "b"), ("update", 1, "c"), ("D", 2, None), ("U", 3, "d"), ("r", 2, "e")]
    path = tmp_path / f"in/1.{format}"
    if format == "parquet":
        names = ("op", "id", "v")
        pq.write_table(pa.table({name: [line[place] for line in lines] for place, name in enumerate(names)}), path)
    elif format == "avro":
        write_avro(spark.createDataFrame(lines, "op string, id long, v string"), path)
    elif format == "json":
        path.write_text("".join(json.dumps({"op": op, **_row(key, text)}) + "\n" for op, key, text in lines))
    else:
        path.write_text("id,v,op\n" + "".join(f"{key},{text or ''},{op}\n" for op, key, text in lines))
    options = {"header": "true"} if format == "csv" else None
    source = hf.files(tmp_path / "in", format=format, schema=SCHEMA, op="op", options=options)  # type: ignore[arg-type]
    with _flow(spark, tmp_path, source, key="id") as flow:
        flow.step()
        assert _rows(flow) == [(1, "c"), (2, "e"), (3, "d")]


@pytest.mark.parametrize(
    ("format", "key"),
    [
        ("json", {"key": "id"}),
        ("parquet", {}),
        ("avro", {"key": "id", "order_by": "lsn"}),
        pytest.param("avro", {}, marks=pytest.mark.slow),
        pytest.param("avro", {"key": "id"}, marks=pytest.mark.slow),
        pytest.param("json", {}, marks=pytest.mark.slow),
        pytest.param("parquet", {"key": "id"}, marks=pytest.mark.slow),
        pytest.param("json", {"key": "id", "order_by": "lsn"}, marks=pytest.mark.slow),
        pytest.param("parquet", {"key": "id", "order_by": "lsn"}, marks=pytest.mark.slow),
    ],
)
def test_debezium_envelopes_insert_update_delete_and_read(
    spark: SparkSession, tmp_path: Path, format: str, key: dict[str, str]
) -> None:
    (tmp_path / "in").mkdir()
    first = [
        _line("r", after=_row(1, "a"), lsn=1),
        _line("c", after=_row(2, "b"), lsn=2),
        _line("u", _row(1, "a"), _row(1, "c"), lsn=3),
        _line("u", _row(2, "b"), _row(9, "moved"), lsn=4),
    ]
    second = [_line("d", _row(1, "c"), lsn=5), _line("c", after=_row(3, "d"), lsn=6)]

    def write(name: str, lines: list[dict[str, Any]], wrapped: bool) -> None:
        path = tmp_path / "in" / name
        # Databases have more columns, and envelopes more members, than anybody asks for.
        if format == "parquet":
            source = pa.struct([("lsn", pa.int64()), ("db", pa.string())])
            schema = pa.schema([("before", WIDER), ("after", WIDER), ("op", pa.string()), ("source", source)])
            pq.write_table(pa.Table.from_pylist(lines, schema=schema), path)
            return
        if format == "avro":
            ddl = "before {0}, after {0}, op string, source struct<lsn: long, db: string>".format(
                "struct<id: long, v: string, more: double>"
            )
            write_avro(spark.createDataFrame(lines, ddl).coalesce(1), path)
            return
        found = [{"schema": {"type": "struct"}, "payload": line} if wrapped else line for line in lines]
        path.write_text("".join(json.dumps(line) + "\n" for line in [*found, {}]))  # a tombstone behind them

    source = hf.files(
        tmp_path / "in", format=format, schema=SCHEMA, envelope="debezium",  # type: ignore[arg-type]
        envelope_columns={"lsn": "source.lsn bigint"} if "order_by" in key else None,
    )  # fmt: skip
    with _flow(spark, tmp_path, source, **key) as flow:
        # Late messages come first where the order is said by a column.
        write("1", second if "order_by" in key else first, wrapped=False)
        flow.step()
        write("2", first if "order_by" in key else second, wrapped=True)
        flow.step()
        assert _rows(flow) == [(3, "d"), (9, "moved")]


@pytest.mark.parametrize("format", ["json", "parquet"])
def test_an_operation_that_is_not_known_names_the_file_and_the_operation(
    spark: SparkSession, tmp_path: Path, format: str
) -> None:
    (tmp_path / "in").mkdir()
    bad = tmp_path / f"in/bad one.{format}"
    lines = [{"op": "i", **_row(1, "a")}, {"op": "explode", **_row(2, "b")}]
    if format == "json":
        bad.write_text("".join(json.dumps(line) + "\n" for line in lines))
    else:
        pq.write_table(pa.Table.from_pylist(lines), bad)
    source = hf.files(tmp_path / "in", format=format, schema=SCHEMA, op="op")  # type: ignore[arg-type]
    with _flow(spark, tmp_path, source) as flow:
        with pytest.raises(BadFile, match=r"bad one\..*a line with operation 'explode' cannot be taken") as caught:
            flow.step()
        assert caught.value.fields["path"] == str(bad)
        bad.unlink()
        (tmp_path / f"in/good.{format}").write_text("") if format == "json" else pq.write_table(
            pa.Table.from_pylist(lines[:1]), tmp_path / "in/good.parquet"
        )
        flow.step()
        assert _rows(flow) == ([] if format == "json" else [(1, "a")])


def test_an_update_of_a_row_whose_key_is_null_or_nan_deletes_nothing() -> None:
    """With order_by the deletion would have the same moment as the new row, and win."""
    row = pa.struct([("id", pa.int64()), ("part", pa.float64()), ("of", pa.struct([("a", pa.int64())])),
                     ("v", pa.string())])  # fmt: skip
    schema = "id long, part double, of struct<a: bigint>, v string"
    form = replace(feed_form("feed", schema, None, "debezium", None), key=("id", "part", "of"))
    keys = [(1, None, {"a": 1}), (None, float("nan"), None), (1, 0.0, {"a": None})]
    sides = [[{"id": a, "part": b, "of": c, "v": text} for a, b, c in keys] for text in ("old", "new")]
    sides[1][2]["part"] = -0.0
    moved = dict(sides[1][2], of={"a": 2})
    lines = pa.table(
        {
            "before": pa.array([*sides[0], sides[0][2]], row),
            "after": pa.array([*sides[1], moved], row),
            "op": pa.array(["u"] * 4),
        }
    )
    change = changes_of(form, lines, "f")
    assert change.column("_diff").to_pylist() == [1, 1, 1, -1, 1]
    assert change.column("v").to_pylist() == ["new", "new", "new", "old", "new"]


def test_without_a_key_rows_are_taken_back_in_full() -> None:
    form = feed_form("files", SCHEMA, "op", None, None)
    table = pa.table({"id": [1, 1, 2], "v": ["a", "a", "b"], "op": ["+I", "-U", "+U"]})
    assert changes_of(form, table, "f").to_pylist() == [
        {"id": 1, "v": "a", "_diff": 1}, {"id": 1, "v": "a", "_diff": -1}, {"id": 2, "v": "b", "_diff": 1},
    ]  # fmt: skip
    with pytest.raises(BadFile, match="an update has no before-image here: declare the source with key"):
        changes_of(form, pa.table({"id": [1], "v": ["a"], "op": ["u"]}), "f")
    form = feed_form("files", SCHEMA, None, "debezium", None)
    for op, before, after, message in (
        ("u", None, _row(1, "a"), "REPLICA IDENTITY FULL"),
        ("d", None, None, "no row in 'before'"),
        ("c", None, None, "no row in 'after'"),
        ("t", None, None, "a whole table was emptied"),
        (None, None, _row(1, "a"), "operation None cannot be taken"),
    ):
        lines = pa.table(
            {"before": pa.array([before], ROW), "after": pa.array([after], ROW), "op": pa.array([op], pa.string())}
        )
        with pytest.raises(BadFile, match=message):
            changes_of(form, lines, "f")


def test_a_deletion_of_a_row_that_is_not_there_is_said_and_can_be_ignored(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/1").write_text(json.dumps({"op": "d", **_row(7, "a")}) + "\n")

    def source() -> hf.Source:
        return hf.files(tmp_path / "in", format="json", schema=SCHEMA, op="op")

    for key in ({}, {"key": "id"}):
        flow = _flow(spark, tmp_path / str(len(key)), source(), **key)
        with flow, pytest.raises(NegativeMultiplicity, match="7"):
            flow.step()
    with _flow(spark, tmp_path / "1", source(), key="id", on_missing="ignore") as flow:
        flow.step()
        assert _rows(flow) == []


def test_a_feed_that_cannot_be_is_refused_at_the_call(tmp_path: Path) -> None:
    for given, message in (
        ({"op": "v", "schema": SCHEMA}, "op 'v' says what happened to the row, and is no column of it"),
        ({"op": "op"}, "a feed of changes needs a schema"),
        ({"op": "op", "envelope": "debezium", "schema": SCHEMA}, "an envelope says what happened; leave op out"),
        ({"envelope": "maxwell", "schema": SCHEMA}, "envelope must be one of 'debezium'"),
        ({"envelope": "debezium", "schema": SCHEMA, "format": "csv"}, "format must be 'json', 'avro' or 'parquet'"),
        ({"envelope": "debezium", "schema": SCHEMA, "envelope_columns": {"l": "lsn"}}, "a place and a type such as"),
        ({"envelope_columns": {"l": "lsn long"}, "schema": SCHEMA}, "give envelope='debezium', too"),
    ):
        with pytest.raises(DeclarationError, match=message):
            hf.files(tmp_path, **{"format": "json", **given})  # type: ignore[arg-type]


def test_lines_that_are_no_envelopes_are_not_passed_over_and_plain_envelopes_are_no_reason_to_warn(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/1.json").write_text('{"after": {"id": 1, "v": "x"}, "op": "c", "ts_ms": 5}\n')
    with hf.Flow("feed", log=tmp_path / "log", spark=spark, partitions=1) as flow:
        schema = "id long, v string"
        flow.source("t", hf.files(tmp_path / "in", format="json", schema=schema, envelope="debezium"), key="id")
        flow.view("rows", "SELECT * FROM t")
        with caplog.at_level("WARNING", "holdfast"):
            flow.step()
        assert caplog.text == ""
        (tmp_path / "in/2.json").write_text('{"id": 2, "v": "y"}\n')
        with pytest.raises(hf.HoldfastError, match=r"2\.json': column 'op' or 'payload' is missing.*it has id, v"):
            flow.step()
        (tmp_path / "in/2.json").unlink()
        flow.step()
        assert [tuple(row) for row in flow.read("rows").collect()] == [(1, "x")]
