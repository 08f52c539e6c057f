"""Sources that Spark reads: JSON lines, CSV and tables."""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.connectors import Files, Input, file_listing, files, table
from holdfast.connectors.spark_files import checked_options
from holdfast.errors import BadFile, DeclarationError, SchemaError
from holdfast.plan.nodes import Field
from logged import logged

SCHEMA = "id long, name string"


def put(path: Path, text: str, at: int = 0) -> Path:
    path.write_text(text)
    os.utime(path, (at, at))
    return path


def read(spark: SparkSession, source: Files) -> list[tuple[Any, ...]]:
    """Poll and read, with rejections, as an epoch does."""
    while True:
        offer = source.poll()
        assert offer is not None
        try:
            rows = [tuple(row) for row in source.frame(spark, offer).collect()]
        except Exception as error:
            if source.reject(offer, error):
                continue
            raise
        source.advance(offer)
        return rows


def test_json_lines_are_read_with_the_declared_schema(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "a.json", '{"id": 1, "name": "x", "more": 0}\n{"id": 2}\n', at=1)
    put(tmp_path / "empty.json", "", at=2)
    source = files(tmp_path, "json", SCHEMA)
    assert sorted(read(spark, source)) == [(1, "x"), (2, None)]
    assert source.poll() is None


def test_csv_is_read_with_its_options(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "a.csv", "id;name\n1;x\n2;\n")
    source = files(tmp_path, "csv", SCHEMA, options={"header": "true", "sep": ";"})
    assert sorted(read(spark, source)) == [(1, "x"), (2, None)]


def test_a_header_that_does_not_match_the_schema_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "swapped.csv", "name,id\n1,2\n")
    with pytest.raises(BadFile, match=r"swapped\.csv': it does not read as csv"):
        read(spark, files(tmp_path, "csv", SCHEMA, options={"header": "true"}))


def seconds(frame: Any) -> list[float]:
    return [row[0] for row in frame.selectExpr("unix_seconds(at)").collect()]


def test_times_without_a_zone_are_in_the_zone_that_the_source_began_with(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "a.json", '{"at": "2020-01-01T00:00:00"}\n', at=1)
    tokyo, here = spark.newSession(), spark
    tokyo.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    utc = dt.datetime(2020, 1, 1, tzinfo=dt.UTC).timestamp()
    in_tokyo = seconds(tokyo.read.schema("at timestamp").json(str(tmp_path)))
    assert in_tokyo == [utc - 9 * 3600]

    source = files(tmp_path, "json", "at timestamp")
    source.in_session("Asia/Tokyo")
    offer = source.poll()
    assert offer is not None
    assert seconds(source.frame(here, offer)) == in_tokyo, "whichever session reads it"
    put(tmp_path / "b.json", '{"at": "2020-01-01T00:00:00"}\n', at=2)
    again = files(tmp_path, "json", "at timestamp")
    again.in_session("UTC")
    again.advance(offer)
    with logged("go on being read in Asia/Tokyo"):
        again.in_session("UTC")
    later = again.poll()
    assert later is not None and seconds(again.frame(here, later)) == in_tokyo
    told = files(tmp_path, "json", "at timestamp", options={"timezone": "UTC"})
    told.in_session("Asia/Tokyo")
    told.advance(offer)
    later = told.poll()
    assert later is not None and seconds(told.frame(here, later)) == [utc]
    assert seconds(told.frame(here, offer)) == in_tokyo, "an offer of the past is read as it was"
    old = {"under": str(tmp_path), "files": [["a.json", *(os.stat(tmp_path / "a.json").st_size, 10**9)]]}
    assert seconds(source.frame(tokyo, old)) == [utc], "before zones were said it was UTC"


ODD = [
    "a[12]", "a1", "a2", "x{1,2}", "x1", "c:d", "12:30:00", "s3:", "back\\slash", "\\*", "sp ace", "p%20q", "p%q", "ü€",
    "st*r",
    "q?", "co,mma", "h#ash", "k=v", "plus+", "tab\tx", "new\nline", "quote'\"", "$x!^~&;|", "both[1]:2", "both{a}:b",
    "d[1]:x/f", "d[2]/f", "d:3/f", "d[2]/g:h",
]  # fmt: skip


def test_every_file_name_is_read_as_it_is(spark: SparkSession, tmp_path: Path) -> None:
    for number, name in enumerate(ODD):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        put(tmp_path / name, f'{{"id": {number}}}\n', at=number)
    source = files(tmp_path, "json", "id long")
    assert sorted(read(spark, source)) == [(number,) for number in range(len(ODD))]
    assert source.poll() is None


def test_a_file_that_looks_empty_to_spark_is_not_read_as_empty(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "a.json", '{"id": 1}\n', at=1)
    path = put(tmp_path / "b.json", '{"id": 2}\n', at=2)
    source = files(tmp_path, "json", "id long", on_bad_file="skip")
    offer = source.poll()
    assert offer is not None
    monkeypatch.setattr(file_listing, "check_unchanged", lambda *_: None)
    path.write_text("")  # as it looks where the file system fails when Java asks for the size
    with pytest.raises(BadFile, match="Spark finds 10 bytes in the files of an epoch, which have 20") as caught:
        source.frame(spark, offer)
    assert not source.reject(offer, caught.value), "it is no bad file"
    path.write_text('{"id": 2}\n')
    assert sorted(read(spark, source)) == [(1,), (2,)]


def test_a_bad_file_of_any_name_is_the_one_that_is_named(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "a1", "1\n", at=1)
    for name in ("a[1]", "c:d%20 ü", "both[1]:2", "end."):
        path = put(tmp_path / name, "x\n", at=2)
        with pytest.raises(BadFile, match="it does not read as csv") as caught:
            read(spark, files(tmp_path, "csv", "id long"))
        assert caught.value.fields["path"] == str(path)
        path.unlink()


@pytest.mark.parametrize(
    ("format", "option", "message"),
    [
        ("csv", {"mode": "PERMISSIVE"}, "use on_bad_file"),
        ("json", {"pathGlobFilter": "*.json"}, "which files are read"),
        ("json", {"modifiedAfter": "2020-01-01"}, "which files are read"),
        ("csv", {"inferSchema": True}, "nothing is inferred"),
        ("json", {"quote": ";"}, "json has"),
        ("csv", {"ignorecorruptfiles": True}, "use on_bad_file"),
        ("csv", {"heder": True}, "did you mean 'header'"),
        ("csv", {"compression": "gzip"}, "for writing"),
        ("csv", {"header": None}, "options must be"),
        ("csv", {"sep": ";", "SEP": ","}, "twice"),
    ],
)
def test_an_option_is_followed_or_refused(tmp_path: Path, format: Any, option: Any, message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        files(tmp_path, format, SCHEMA, options=option)


@pytest.mark.parametrize("format", ["csv", "json"])
def test_every_option_of_sparks_readers_is_known(spark: SparkSession, tmp_path: Path, format: Any) -> None:
    """Each is followed, or refused with the reason: none is ignored, and none is taken for a slip of the pen."""
    name = f"org.apache.spark.sql.catalyst.{format}.{format.upper()}Options$"
    assert spark._jvm is not None
    module = spark._jvm.java.lang.Class.forName(name).getField("MODULE$").get(None)
    options = str(module.getAllOptions().mkString(" ")).split()
    assert len(options) > 25
    for option in options:
        try:
            checked_options({option: "x"}, format, "files")
        except DeclarationError as error:
            assert "cannot be set; " in str(error) and f"; {format} has" not in str(error), str(error)


SAME = {
    "dateFormat": ("csv", "d date", "31/12/2020\n", {"dateFormat": "dd/MM/yyyy"}),
    "timestampFormat": ("json", "t timestamp", '{"t": "31.12.2020 07:05"}\n', {"timestampFormat": "dd.MM.yyyy HH:mm"}),
    "timestampNTZFormat": ("csv", "t timestamp_ntz", "2020 12 31\n", {"timestampNTZFormat": "yyyy MM dd"}),
    "locale": ("csv", "d date", "31 Dez. 2020\n", {"dateFormat": "dd MMM yyyy", "locale": "de"}),
    "lineSep": ("json", "id long", '{"id": 1}|{"id": 2}|', {"lineSep": "|"}),
    "comment": ("csv", "id long, name string", "# no\n1,a\n", {"comment": "#"}),
    "nullValue": ("csv", "id long, name string", "1,-\n-,b\n", {"nullValue": "-"}),
    "emptyValue": ("csv", "id long, name string", '1,""\n', {"emptyValue": "nothing"}),
    "nanValue": ("csv", "x double", "none\nmuch\n", {"nanValue": "none", "positiveInf": "much"}),
    "negativeInf": ("csv", "x double", "little\n", {"negativeInf": "little"}),
    "quote": ("csv", "id long, name string", "1,'a,b'\n", {"quote": "'"}),
    "leading": ("csv", "id long, name string", "1, a \n", {"ignoreLeadingWhiteSpace": True}),
    "trailing": ("csv", "id long, name string", "1, a \n", {"ignoreTrailingWhiteSpace": True}),
    "enforceSchema": ("csv", "id long, name string", "a,b\n1,x\n", {"header": True, "enforceSchema": True}),
    "allowComments": ("json", "id long", '/* one */ {"id": 1}\n', {"allowComments": True}),
    "allowUnquotedFieldNames": ("json", "id long", "{id: 1}\n", {"allowUnquotedFieldNames": True}),
    "allowSingleQuotes": ("json", "name string", "{'name': 'x'}\n", {"allowSingleQuotes": True}),
    "allowNumericLeadingZeros": ("json", "id long", '{"id": 007}\n', {"allowNumericLeadingZeros": True}),
    "allowNonNumericNumbers": ("json", "x double", '{"x": NaN}\n', {"allowNonNumericNumbers": True}),
    "multiLine": ("json", "id long", '[{"id": 1},\n {"id": 2}]', {"multiLine": True}),
    "encoding": ("csv", "name string", "\u00fc\n", {"encoding": "ISO-8859-1"}),
}  # fmt: skip


def test_an_option_means_what_it_means_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    for number, (case, (format, schema, text, options)) in enumerate(SAME.items()):
        directory = tmp_path / str(number)
        directory.mkdir()
        (directory / f"1.{format}").write_text(text)
        plain = spark.read.format(format).schema(schema).options(**options).load(str(directory))
        wanted = [repr(tuple(row)) for row in plain.collect()]
        found = [repr(row) for row in read(spark, files(directory, format, schema, options=options))]
        assert sorted(found) == sorted(wanted) and "(None,)" not in wanted, case


@pytest.mark.parametrize("format", ["csv", "json"])
def test_a_flow_reads_times_without_a_zone_in_its_sessions_zone(
    spark: SparkSession, tmp_path: Path, format: Any
) -> None:
    tokyo = spark.newSession()
    tokyo.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    (tmp_path / "in").mkdir()
    put(tmp_path / "in/a", '{"at": "2020-01-01T00:00:00"}\n' if format == "json" else "2020-01-01T00:00:00\n")
    with hf.Flow("zoned", log=tmp_path / "log", spark=tokyo, partitions=1) as flow:
        flow.source("t", hf.files(tmp_path / "in", format=format, schema="at timestamp"))
        flow.view("v", "SELECT at FROM t")
        flow.step()
        plain = tokyo.read.schema("at timestamp").format(format).load(str(tmp_path / "in"))
        assert seconds(flow.read("v")) == seconds(plain) == [1577836800 - 9 * 3600]


def test_an_offer_is_read_with_the_options_it_was_made_with(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "a.csv", "id;name\n1;x\n")
    source = files(tmp_path, "csv", SCHEMA, options={"HEADER": True, "sep": ";"})
    offer = source.poll()
    assert offer is not None
    assert [tuple(row) for row in files(tmp_path, "csv", SCHEMA).frame(spark, offer).collect()] == [(1, "x")]


@pytest.mark.parametrize(
    ("format", "bad"),
    [("json", '{"id": 1}\n{"id": 2, "na'), ("json", '{"id": "x"}\n'), ("csv", "1,a\nx,b\n"), ("csv", "1\n")],
)
def test_a_bad_file_is_named_and_the_source_stays_usable(
    spark: SparkSession, tmp_path: Path, format: Any, bad: str
) -> None:
    good = '{"id": 7, "name": "g"}\n' if format == "json" else "7,g\n"
    put(tmp_path / "good", good, at=1)
    path = put(tmp_path / "bad one", bad, at=2)
    source = files(tmp_path, format, SCHEMA)
    for _ in range(2):
        with pytest.raises(BadFile, match=f"bad one', line [12]: it does not read as {format}") as caught:
            read(spark, source)
        assert caught.value.fields["path"] == str(path)
        assert "SQLSTATE" not in str(caught.value) and "\n" not in str(caught.value)


def test_a_bad_file_is_skipped_and_recorded_and_read_once_repaired(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "bad", '{"id": 1', at=1)
    put(tmp_path / "bad too", '{"id": 1', at=2)
    put(tmp_path / "good", '{"id": 7}\n', at=3)
    source = files(tmp_path, "json", SCHEMA, on_bad_file="skip")
    offer = None
    while (found := source.poll()) != offer:
        offer = found
        assert offer is not None
        try:
            rows = source.frame(spark, offer).collect()
        except Exception as error:
            assert source.reject(offer, error)
    assert [tuple(row) for row in rows] == [(7, None)]
    assert offer is not None
    assert {skip[0] for skip in offer["skipped"]} == {str(tmp_path / "bad"), str(tmp_path / "bad too")}
    source.advance(offer)
    assert source.poll() is None
    put(tmp_path / "bad", '{"id": 1}', at=9)
    assert read(spark, source) == [(1, None)]


def test_an_offer_of_skips_alone_is_an_empty_frame(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "bad", '{"id": 1')
    source = files(tmp_path, "json", SCHEMA, on_bad_file="skip")
    assert read(spark, source) == []
    assert source.poll() is None


def test_a_file_changed_after_it_was_offered_is_not_read(spark: SparkSession, tmp_path: Path) -> None:
    path = put(tmp_path / "a", '{"id": 1}\n')
    source = files(tmp_path, "json", SCHEMA)
    offer = source.poll()
    assert offer is not None
    put(path, '{"id": 1}\n{"id": 2}\n')
    with pytest.raises(BadFile, match="changed after it was offered"):
        source.frame(spark, offer)


def test_a_table_is_offered_once(spark: SparkSession) -> None:
    source = table(spark.sql("SELECT 1 AS id, array(struct('x' AS a)) AS b, CAST(1 AS decimal(5,1)) AS c"))
    assert source.fields == (Field("id", "int"), Field("b", "array<struct<a:string>>"), Field("c", "decimal(5,1)"))
    offer = source.poll()
    assert offer is not None and source.poll() == offer
    assert source.frame(spark, offer).count() == 1
    source.advance(offer)
    assert source.poll() is None


def test_what_is_not_a_fixed_dataframe_is_refused(spark: SparkSession) -> None:
    with pytest.raises(DeclarationError, match="expected a Spark DataFrame, found list"):
        table([1])
    with pytest.raises(DeclarationError, match="column 'a' is there more than once"):
        table(spark.sql("SELECT 1 AS a, 2 AS a"))
    with pytest.raises(DeclarationError, match="streaming"):
        table(spark.readStream.format("rate").load())


def test_rows_of_a_dataframe_are_pushed_by_name(spark: SparkSession) -> None:
    source = Input("people", (Field("first", "string"), Field("last", "string")))
    source.insert(spark.sql("SELECT 'l' AS last, 'f' AS first"))
    offer = source.poll()
    assert offer is not None
    schema = pa.schema([("c0", pa.string()), ("c1", pa.string())])
    [table] = [table for part in source.parts(offer) for table in part.read(schema)]
    assert table.to_pylist() == [{"c0": "f", "c1": "l", "_diff": 1}]
    with pytest.raises(SchemaError, match="column 'lsat' is not in the schema; did you mean 'last'"):
        source.insert(spark.sql("SELECT 'l' AS lsat, raise_error('never run') AS first"))
