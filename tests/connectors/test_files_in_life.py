"""Files as they are in life: compressed, empty, in partition directories, with other columns, bad, mended, archived."""

from __future__ import annotations

import gzip
import json
import logging
import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.connectors.file_patterns import split_pattern
from holdfast.errors import BadFile, DeclarationError, SchemaError

SCHEMA = "id long, v string"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


def _line(key: int, text: str) -> str:
    return json.dumps({"id": key, "v": text}) + "\n"


def _parquet(path: Path, **columns: list[Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


def _flow(spark: SparkSession, place: Path, source: hf.Source, view: str = "SELECT * FROM t") -> hf.Flow:
    flow = hf.Flow("life", log=place.parent / "log", spark=spark, partitions=2)
    return flow.source("t", source).view("v", view)


def _rows(flow: hf.Flow, view: str = "v") -> list[tuple[Any, ...]]:
    return sorted(map(tuple, flow.read(view).collect()), key=repr)


def _zstd(data: bytes) -> bytes:
    packed: bytes = pa.compress(data, "zstd", asbytes=True)
    return packed


def test_compressed_empty_and_oddly_ended_json_files_are_read(spark: SparkSession, place: Path) -> None:
    for name, data in {
        "gz.json.gz": gzip.compress(_line(1, "gz").encode()),
        "zst.json.zst": _zstd(_line(2, "zst").encode()),
        "bom.json": b"\xef\xbb\xbf" + _line(3, "bom").encode(),
        "crlf.json": (_line(4, "crlf") + _line(5, "ü")).replace("\n", "\r\n").encode(),
        "empty.json": b"",
        "blank.json": b"\n \n",
        "unended.json": _line(6, "unended").strip().encode(),
    }.items():
        (place / name).write_bytes(data)
    with _flow(spark, place, hf.files(place, format="json", schema=SCHEMA)) as flow:
        flow.step()
        found = [(1, "gz"), (2, "zst"), (3, "bom"), (4, "crlf"), (5, "ü"), (6, "unended")]
        assert _rows(flow) == found


def test_compressed_and_quoted_csv_files_are_read(spark: SparkSession, place: Path) -> None:
    for name, data in {
        "gz.csv.gz": gzip.compress(b"id,v\n1,gz\n"),
        "zst.csv.zst": _zstd(b"id,v\n2,zst\n"),
        "bom.csv": b"\xef\xbb\xbfid,v\n3,bom\n",
        "crlf.csv": b"id,v\r\n4,crlf\r\n",
        "empty.csv": b"",
        "header.csv": b"id,v\n",
        "quoted.csv": b'id,v\n5,"two\nlines, and ""quotes"""\n',
    }.items():
        (place / name).write_bytes(data)
    options = {"header": "true", "multiLine": "true", "escape": '"'}
    with _flow(spark, place, hf.files(place, format="csv", schema=SCHEMA, options=options)) as flow:
        flow.step()
        assert _rows(flow) == [(1, "gz"), (2, "zst"), (3, "bom"), (4, "crlf"), (5, 'two\nlines, and "quotes"')]


@pytest.mark.parametrize("format", ["parquet", "json"])
def test_columns_come_from_partition_directories(spark: SparkSession, place: Path, format: str) -> None:
    for directory, key in (("date=2024-05-01/zone=a%3Ab+c", 1), ("date=__HIVE_DEFAULT_PARTITION__/zone=x y", 2)):
        if format == "parquet":
            _parquet(place / directory / "1", id=[key], v=["x"])
        else:
            (place / directory).mkdir(parents=True)
            (place / directory / "1").write_text(_line(key, "x"))
    schema = "date date, id long, v string, zone string"
    source = hf.files(place, format=format, schema=schema, partitioned_by=["date", "zone"])  # type: ignore[arg-type]
    with _flow(spark, place, source, "SELECT id, CAST(date AS string) AS date, zone, v FROM t") as flow:
        flow.step()
        assert _rows(flow) == [(1, "2024-05-01", "a:b+c", "x"), (2, None, "x y", "x")]
        (place / "date=soon/zone=z").mkdir(parents=True)
        _parquet(place / "date=soon/zone=z/1", id=[3], v=["x"])
        with pytest.raises(BadFile, match="its directory says date=soon, expected date"):
            flow.step()
        shutil.rmtree(place / "date=soon")
        _parquet(place / "date=2024-05-02/1", id=[3], v=["x"])
        with pytest.raises(BadFile, match="no directory of its path says 'zone=…'"):
            flow.step()


def test_columns_of_partition_directories_may_be_called_anything(spark: SparkSession, place: Path) -> None:
    (place / "my col's=a b" / "n+(1)=7").mkdir(parents=True)
    (place / "my col's=a b" / "n+(1)=7" / "1").write_text(_line(1, "x"))
    source = hf.files(
        place, "json", "`my col's` string, id long, v string, `n+(1)` int", partitioned_by=["my col's", "n+(1)"]
    )
    with _flow(spark, place, source, "SELECT id, `my col's` AS text, `n+(1)` AS n FROM t") as flow:
        flow.step()
        assert _rows(flow) == [(1, "a b", 7)]


def test_patterns_choose_files_and_directories_need_not_be_searched(place: Path) -> None:
    for name in ("a/2024-01.parquet", "a/2024-02.txt", "b/2024-03.parquet", "b/c/2024-04.parquet", "2024-05.parquet"):
        _parquet(place / name, id=[1], v=["x"])

    def found(path: str, **more: Any) -> list[str]:
        offer = hf.files(path, schema=SCHEMA, **more).poll()
        return sorted(row[0].rpartition("/")[2] for row in offer["files"]) if offer else []

    assert found(f"{place}/*/2024-0?.parquet") == ["2024-01.parquet", "2024-03.parquet"]
    assert found(f"{place}/**/*.parquet") == [f"2024-0{n}.parquet" for n in (1, 3, 4, 5)]
    assert found(f"{place}/[ab]/2024-0[!1]*") == ["2024-02.txt", "2024-03.parquet"]
    assert found(str(place), recursive=False) == ["2024-05.parquet"]
    _parquet(place / "x[1].parquet", id=[1], v=["x"])
    assert found(f"{place}/x[1].parquet") == ["x[1].parquet"] and split_pattern(f"{place}/x[1].parquet")[1] is None
    with pytest.raises(DeclarationError, match="does not exist"):
        hf.files(f"{place}/nowhere/*.json", format="json", schema=SCHEMA)


def test_a_parquet_file_of_no_bytes_is_passed_over_until_it_has_some(place: Path) -> None:
    (place / "1.parquet").write_bytes(b"")
    source = hf.files(place, schema=SCHEMA)
    assert source.poll() is None
    _parquet(place / "1.parquet", id=[1], v=["x"])
    assert source.poll() is not None


def test_a_column_that_was_renamed_is_not_silently_null(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    _parquet(place / "1.parquet", id=[1], vv=["x"])
    with pytest.raises(SchemaError, match=r"column 'v' .*is missing.*did you mean 'vv'"):
        hf.files(place, schema=SCHEMA).poll()
    lenient = hf.files(place, schema=SCHEMA, on_missing="null")
    (part,) = lenient.parts(lenient.poll() or {})
    (table,) = part.read(pa.schema([("c0", pa.int64()), ("c1", pa.string())]))
    assert table.to_pylist() == [{"c0": 1, "c1": None}]
    with pytest.raises(SchemaError, match="column 'vv' was not declared; on_extra='ignore' passes it by"):
        hf.files(place, schema=SCHEMA, on_missing="null", on_extra="fail").poll()
    (place / "1.parquet").unlink()
    (place / "1.json.gz").write_bytes(gzip.compress(b'{"id": 1, "vv": "x"}\n{"id": 2}\n'))
    for given, warns in (({}, True), ({"on_missing": "null"}, False)):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            assert hf.files(place, format="json", schema=SCHEMA, **given).poll() is not None  # type: ignore[arg-type]
        assert ("column 'v' is missing; did you mean 'vv'?" in caplog.text) == warns
    with pytest.raises(SchemaError, match="column 'v' is missing"):
        hf.files(place, format="json", schema=SCHEMA, on_missing="fail").poll()


def test_a_bad_line_is_named_and_a_mended_or_removed_file_is_forgotten(spark: SparkSession, place: Path) -> None:
    (place / "good.json").write_text(_line(1, "a"))
    bad = place / "bad.json.gz"
    bad.write_bytes(gzip.compress((_line(2, "b") + '{"id": "two", "v": "c"}\n').encode()))
    with _flow(spark, place, hf.files(place, format="json", schema=SCHEMA)) as flow:
        for _ in range(2):
            with pytest.raises(BadFile, match=r"bad\.json\.gz', line 2: .*\"two\".*on_bad_file='skip'") as caught:
                flow.step()
            assert caught.value.fields["line"] == 2
        bad.write_bytes(gzip.compress((_line(2, "b") + _line(3, "c")).encode()))
        flow.step()
        assert _rows(flow) == [(1, "a"), (2, "b"), (3, "c")]
        (place / "worse.json").write_text("{")
        with pytest.raises(BadFile, match=r"worse\.json', line 1"):
            flow.step()
        (place / "worse.json").unlink()
        (place / "more.json").write_text(_line(4, "d"))
        flow.step()
        assert len(_rows(flow)) == 4


@pytest.mark.parametrize("format", ["json", pytest.param("csv", marks=pytest.mark.slow)])
def test_rows_that_do_not_fit_are_quarantined_with_file_and_reason(
    spark: SparkSession, place: Path, format: str
) -> None:
    path = place / "some+thing 1"
    if format == "json":
        path.write_text(_line(1, "a") + '{"id": "two", "v": "b"}\n{"id": 3\n' + _line(4, "d"))
    else:
        path.write_text("1,a\ntwo,b\n3,c,d\n4,d\n")
    source = hf.files(place, format=format, schema=SCHEMA, on_bad_rows="quarantine")  # type: ignore[arg-type]
    with _flow(spark, place, source) as flow:
        flow.view("bad", "SELECT reason, record, file FROM t_quarantine")
        flow.step()
        assert _rows(flow) == [(1, "a"), (4, "d")]
        json_reasons = [
            ("id: expected bigint, found two", '{"id": "two", "v": "b"}'),
            ("it does not read as JSON", '{"id": 3'),
        ]
        csv_reasons = [("id: expected bigint", "two,b"), ("it has not 2 values", "3,c,d")]
        assert [row[:2] for row in _rows(flow, "bad")] == (json_reasons if format == "json" else csv_reasons)
        assert {row[2] for row in _rows(flow, "bad")} == {str(path)}
        with pytest.raises(DeclarationError, match="there is a source or view of that name already"):
            flow.input("t_quarantine", SCHEMA)


def test_a_schema_is_inferred_once_and_then_fixed_in_the_log(spark: SparkSession, place: Path) -> None:
    (place / "1.json").write_text(_line(1, "a"))

    def declared() -> hf.Flow:
        return _flow(spark, place, hf.files(place, format="json", schema="infer"))

    with declared() as flow:
        assert flow.table("t").dtypes == [("id", "bigint"), ("v", "string")]
        flow.step()
    (place / "1.json").unlink()
    (place / "2.json").write_text(json.dumps({"id": 2, "v": "b", "w": 1.5}) + "\n")
    with declared() as flow:
        assert flow.table("t").dtypes == [("id", "bigint"), ("v", "string")]
        flow.step()
        assert _rows(flow) == [(1, "a"), (2, "b")]


def test_rows_that_are_kept_fill_views_when_their_files_are_archived(spark: SparkSession, place: Path) -> None:
    _parquet(place / "1.parquet", id=[1, 2], v=["a", "b"])

    def declared() -> hf.Flow:
        return _flow(spark, place, hf.files(place, schema=SCHEMA, keep="rows"))

    with declared() as flow:
        flow.step()
    shutil.move(place / "1.parquet", place.parent / "archive.parquet")
    with declared().view("n", "SELECT count(*) AS n FROM t") as flow:
        _parquet(place / "2.parquet", id=[3], v=["c"])
        flow.step()
        assert _rows(flow, "n") == [(3,)]


def test_an_edit_in_place_is_warned_of_and_a_touch_is_not(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = place / "1.parquet"
    _parquet(path, id=[1], v=["a"])
    source = hf.files(place, schema=SCHEMA)
    offer = source.poll()
    assert offer is not None
    source.advance(offer)
    with caplog.at_level(logging.WARNING):
        os.utime(path, (1, 1))
        assert source.poll() is None and not caplog.records
        assert len(source.parts(offer)) == 1  # the same file, whatever its time
        _parquet(path, id=[1, 2], v=["a", "b"])
        assert source.poll() is None and source.poll() is None
    (record,) = caplog.records
    assert "was written to after it was taken" in record.getMessage() and record.__dict__["path"] == str(path)


def test_a_header_in_another_order_is_said_with_both_orders(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/1.csv").write_text("v,id\nx,1\n")
    with hf.Flow("header", log=tmp_path / "log", spark=spark, partitions=1) as flow:
        source = hf.files(tmp_path / "in", format="csv", schema="id long, v string", options={"header": True})
        flow.source("t", source).view("rows", "SELECT * FROM t")
        with pytest.raises(
            BadFile, match=r"CSV header does not conform to the schema\. Header: v, id Schema: id, v"
        ) as no:
            flow.step()
        assert "py4j" not in str(no.value).lower() and "calling" not in str(no.value)
        (tmp_path / "in/1.csv").write_text("id,v\n1,x\n")
        flow.step()
        assert flow.read("rows").collect() == [(1, "x")]


@pytest.mark.parametrize(
    ("format", "options", "said"),
    [
        ("json", {"encoding": "UTF-16"}, "The UTF-16 encoding must not be included in the denyList"),
        ("json", {"multiLine": "yes"}, 'For input string: "yes"'),
        ("csv", {"encoding": "klingon"}, "but got klingon"),
        ("csv", {"quote": "ab"}, "The value of quote cannot be more than one character, but got ab"),
        ("csv", {"header": "maybe"}, "header flag can be true or false"),
        ("csv", {"timeZone": "Mars/Olympus"}, "The timezone: Mars/Olympus is invalid"),
    ],
)
def test_options_that_spark_refuses_are_said_without_java(
    spark: SparkSession, tmp_path: Path, format: str, options: dict[str, Any], said: str
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/1").write_text({"json": '{"id": 1}', "csv": "1"}[format])

    def flow_with(options: dict[str, Any]) -> hf.Flow:
        flow = hf.Flow("options", log=tmp_path / "log", spark=spark, partitions=1)
        flow.source("t", hf.files(tmp_path / "in", format=format, schema="id long", options=options))
        return flow.view("rows", "SELECT * FROM t")

    with flow_with(options) as flow, pytest.raises(DeclarationError, match="Spark refuses these options: ") as no:
        flow.step()
    assert said in str(no.value) and str(tmp_path / "in") in str(no.value)
    assert "SQLSTATE" not in str(no.value) and "org.apache" not in str(no.value)
    with flow_with({}) as flow:
        flow.step()
        assert flow.read("rows").collect() == [(1,)]
