"""Avro files: their types are those that Spark gives them; a file that lacks a column, or is cut off, is an error."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from avro_files import AVRO, write_avro
from holdfast.connectors.avro_header import read_header
from holdfast.errors import BadFile, SchemaError

DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 4}
FIXED = {"type": "fixed", "name": "fix", "size": 5, "logicalType": "decimal", "precision": 10, "scale": 2}
INNER = {"type": "record", "name": "inner", "fields": [{"name": "a", "type": ["null", "int"]}]}
FIELDS: list[dict[str, Any]] = [
    {"name": "i", "type": "int"},
    {"name": "l", "type": ["null", "long"]},
    {"name": "f", "type": ["float", "null"]},
    {"name": "d", "type": ["null", "double"]},
    {"name": "b", "type": "boolean"},
    {"name": "s", "type": ["null", "string"]},
    {"name": "e", "type": {"type": "enum", "name": "colour", "symbols": ["red", "blue"]}},
    {"name": "raw", "type": ["null", "bytes"]},
    {"name": "dec", "type": ["null", DECIMAL]},
    {"name": "fixed_dec", "type": ["null", FIXED]},
    {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
    {"name": "milli", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
    {"name": "micro", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
    {"name": "here", "type": ["null", {"type": "long", "logicalType": "local-timestamp-micros"}]},
    {"name": "list", "type": ["null", {"type": "array", "items": ["null", INNER]}]},
    {"name": "map", "type": {"type": "map", "values": ["null", "long"]}},
]
ROWS = """
    SELECT 1 AS i, -1L AS l, 1.5F AS f, 2.5D AS d, true AS b, 'ü' AS s, 'red' AS e, X'00FF' AS raw,
      CAST('-1234567.8901' AS decimal(20,4)) AS dec, CAST(-1.25 AS decimal(10,2)) AS fixed_dec, DATE'1969-12-30' AS day,
      TIMESTAMP'2024-05-01 12:00:00.123' AS milli, TIMESTAMP'1960-01-01 00:00:00.000001' AS micro,
      TIMESTAMP_NTZ'2024-05-01 12:00:00.5' AS here, array(named_struct('a', 1), NULL) AS list, map('k', 7L) AS map
    UNION ALL
    SELECT 2, NULL, NULL, NULL, false, NULL, 'blue', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
      map('n', CAST(NULL AS long))
"""


def test_avro_types_and_values_are_those_that_spark_gives(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    write_avro(spark.sql(ROWS), tmp_path / "in/1.avro", FIELDS, compression="snappy")
    write_avro(spark.sql(ROWS).where("i = 2"), tmp_path / "in/without-an-ending", FIELDS, compression="zstandard")
    (tmp_path / "in/empty.avro").touch()
    plain = spark.read.format(AVRO).load([str(tmp_path / "in/1.avro"), str(tmp_path / "in/without-an-ending")])
    with hf.Flow("types", log=tmp_path / "log", spark=spark, partitions=1) as flow:
        flow.source("t", hf.files(tmp_path / "in", format="avro", schema="infer")).view("v", "SELECT * FROM t")
        flow.step()
        found = flow.read("v")
        assert [(field.name, field.dataType.simpleString()) for field in found.schema] == [
            (field.name, field.dataType.simpleString()) for field in plain.schema
        ]
        assert "timestamp_ntz" in dict(found.dtypes).values() and "decimal(20,4)" in dict(found.dtypes).values()
        assert sorted(map(repr, found.collect())) == sorted(map(repr, plain.collect()))


def test_an_avro_file_that_does_not_fit_is_an_error_until_it_is_mended(spark: SparkSession, tmp_path: Path) -> None:
    place = tmp_path / "in"
    place.mkdir()
    good = spark.range(5000).selectExpr("id", "uuid() AS v")
    with hf.Flow("bad", log=tmp_path / "log", spark=spark, partitions=1) as flow:
        flow.source("t", hf.files(place, format="avro", schema="id long, v string"))
        flow.view("n", "SELECT count(*) AS n FROM t")
        write_avro(good.withColumnRenamed("v", "w"), place / "renamed.avro")
        with pytest.raises(SchemaError, match=r"renamed\.avro': column 'v' is missing; it has w, undeclared"):
            flow.step()
        (place / "renamed.avro").unlink()
        write_avro(good, place / "1.avro")
        whole = (place / "1.avro").read_bytes()
        for cut in (10, 60, len(whole) - 1000):
            (place / "1.avro").write_bytes(whole[:cut])
            with pytest.raises(BadFile, match=r"1\.avro': it does not read as [Aa]vro"):
                flow.step()
        write_avro(good.selectExpr("CAST(id AS string) AS id", "v"), place / "2.avro")
        (place / "1.avro").write_bytes(whole)
        with pytest.raises(BadFile, match=r"2\.avro': .* \(Cannot convert Avro field 'id'.*'skip'$"):
            flow.step()
        (place / "2.avro").unlink()
        flow.step()
        assert flow.read("n").collect()[0].n == 5000


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"PAR1....", "it does not begin as an Avro file does"),
        (b"Obj\x01", "its header ends early"),
        (b"Obj\x01\x02\x16avro.schema\x04{}\x00" + b"s" * 16, "its rows are not records"),
        (b"Obj\x01\x00" + b"s" * 16, "its header has no schema"),
        (b"Obj\x01\x02\xff\xff\xff\xff\xff\xff\xff\x7f", "a length in its header is out of range"),
        (b"Obj\x01" + b"\xff" * 12, "a number in its header is too long"),
    ],
)
def test_a_header_that_is_none_is_a_bad_file(data: bytes, reason: str) -> None:
    with pytest.raises(BadFile, match=reason):
        read_header(io.BytesIO(data), "x.avro")


def test_a_header_says_the_columns_and_where_the_rows_begin() -> None:
    schema = b'{"type":"record","name":"r","fields":[{"name":"id","type":"long"},{"name":"v","type":"string"}]}'
    size = bytes([(len(schema) << 1 & 0x7F) | 0x80, len(schema) << 1 >> 7])
    # A map may be in blocks, of which one with a negative count says how many bytes it has.
    data = b"Obj\x01\x01\x02\x14avro.codec\x08null\x02\x16avro.schema" + size + schema + b"\x00" + b"s" * 16
    found = read_header(io.BytesIO(data + b"rows"), "x.avro")
    assert found.columns == ("id", "v") and found.length == len(data)
