"""Sources that Spark reads: JSON lines, CSV and tables."""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from holdfast.connectors import Files, files, table
from holdfast.errors import BadFile, DeclarationError
from holdfast.plan.nodes import Field

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


def test_times_without_a_zone_are_utc_whatever_the_session_says(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "a.json", '{"at": "2020-01-01T00:00:00"}\n')
    own = spark.newSession()
    own.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    source = files(tmp_path, "json", "at timestamp")
    offer = source.poll()
    assert offer is not None
    assert (
        source.frame(own, offer).selectExpr("unix_seconds(at)").first()[0]
        == dt.datetime(2020, 1, 1, tzinfo=dt.UTC).timestamp()
    )


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
        with pytest.raises(BadFile, match=f"bad one': it does not read as {format}") as caught:
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
