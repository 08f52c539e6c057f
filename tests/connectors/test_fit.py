"""Fitting columns to declared types: what is converted without loss, and what is refused."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from holdfast.connectors.arrow_to_spark_types import spark_type
from holdfast.connectors.fit_types import Misfit, first_misfit, fit, fits
from holdfast.errors import SchemaError
from holdfast.plan.types import arrow_type

UTC = dt.UTC


def column(values: list[object], kind: pa.DataType) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(values, type=kind)])


@pytest.mark.parametrize(
    ("values", "found", "expected", "result"),
    [
        ([1, None], pa.int32(), "bigint", [1, None]),
        ([1, None], pa.int64(), "int", [1, None]),
        ([7], pa.uint64(), "bigint", [7]),
        ([1], pa.int32(), "double", [1.0]),
        ([1.5], pa.float32(), "double", [1.5]),
        ([3], pa.int64(), "decimal(10,2)", [Decimal("3.00")]),
        ([Decimal("1.5")], pa.decimal128(5, 1), "decimal(10,2)", [Decimal("1.50")]),
        (["a", "b"], pa.large_string(), "string", ["a", "b"]),
        (["a", "a"], pa.dictionary(pa.int8(), pa.string()), "string", ["a", "a"]),
        ([b"a"], pa.binary(), "string", ["a"]),
        ([b"a"], pa.binary(1), "binary", [b"a"]),
        ([dt.date(2020, 1, 2)], pa.date64(), "date", [dt.date(2020, 1, 2)]),
        ([None, None], pa.null(), "array<int>", [None, None]),
        ([[1], None], pa.large_list(pa.int64()), "array<int>", [[1], None]),
        ([{"b": "x", "a": 1}, None], pa.struct({"b": pa.string(), "a": pa.int64()}), "struct<a:int,b:string>",
         [{"a": 1, "b": "x"}, None]),
        ([[("k", 1)]], pa.map_(pa.string(), pa.int32()), "map<string,bigint>", [[("k", 1)]]),
    ],
)  # fmt: skip
def test_a_conversion_that_loses_nothing_is_made(
    values: list[object], found: pa.DataType, expected: str, result: list[object]
) -> None:
    fitted = fit(column(values, found), arrow_type(expected))
    assert fitted.type == arrow_type(expected)
    assert fitted.to_pylist() == result


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (pa.float64(), "bigint"),
        (pa.float64(), "float"),
        (pa.int32(), "float"),
        (pa.string(), "int"),
        (pa.int32(), "string"),
        (pa.bool_(), "int"),
        (pa.int32(), "boolean"),
        (pa.float64(), "decimal(10,2)"),
        (pa.timestamp("us"), "date"),
        (pa.timestamp("us", tz="UTC"), "timestamp_ntz"),
        (pa.struct({"a": pa.int32()}), "struct<a:int,b:int>"),
        (pa.struct({"a": pa.int32(), "b": pa.int32()}), "struct<a:int>"),
        (pa.list_(pa.string()), "array<int>"),
    ],
)
def test_a_type_that_could_lose_is_refused(found: pa.DataType, expected: str) -> None:
    assert not fits(found, arrow_type(expected))
    with pytest.raises(Misfit, match="found"):
        fit(column([], found), arrow_type(expected))


@pytest.mark.parametrize(
    ("values", "found", "expected", "place"),
    [
        ([1, 2, 3_000_000_000, 4], pa.int64(), "int", 2),
        ([1, 300], pa.int32(), "tinyint", 1),
        ([2**63], pa.uint64(), "bigint", 0),
        ([0, 2**53 + 1], pa.int64(), "double", 1),
        ([Decimal("1.00"), Decimal("1.25")], pa.decimal128(5, 2), "decimal(5,1)", 1),
        ([b"ok", b"\xff"], pa.binary(), "string", 1),
    ],
)
def test_a_value_that_does_not_fit_is_found(
    values: list[object], found: pa.DataType, expected: str, place: int
) -> None:
    held = column(values, found)
    with pytest.raises(Misfit):
        fit(held, arrow_type(expected))
    assert first_misfit(held, arrow_type(expected)) == place


def test_times_of_any_unit_become_microseconds_in_utc() -> None:
    moment = dt.datetime(2021, 3, 4, 5, 6, 7, tzinfo=UTC)
    for unit in ("s", "ms", "us", "ns"):
        for zone in (None, "UTC", "Europe/Berlin"):
            kind = pa.timestamp(unit, tz=zone)
            held = column([moment], pa.timestamp(unit, tz="UTC")).cast(kind)
            assert fit(held, arrow_type("timestamp")).to_pylist() == [moment]


def test_nanoseconds_are_cut_to_the_microsecond_before_also_before_1970() -> None:
    held = pa.chunked_array([pa.array([1_999, -1], pa.int64()).cast(pa.timestamp("ns"))])
    assert fit(held, arrow_type("timestamp_ntz")).cast(pa.int64()).to_pylist() == [1, -1]


def test_every_arrow_type_that_spark_has_is_named_so_that_it_fits() -> None:
    kinds = [
        pa.bool_(), pa.int8(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(), pa.float16(), pa.float64(),
        pa.large_string(), pa.string_view(), pa.binary(3), pa.date64(), pa.timestamp("ns"), pa.timestamp("s", tz="UTC"),
        pa.decimal128(12, 3), pa.duration("ms"), pa.dictionary(pa.int32(), pa.string()), pa.null(),
        pa.map_(pa.string(), pa.int32()), pa.list_(pa.struct({"a b": pa.int8()})), pa.list_(pa.int16(), 2),
    ]  # fmt: skip
    for kind in kinds:
        assert fits(kind, arrow_type(spark_type(kind, subject="x"))), kind


def test_a_type_that_spark_lacks_is_refused_with_the_column_named() -> None:
    with pytest.raises(SchemaError, match="column 'at': Spark has no type for time64"):
        spark_type(pa.time64("us"), subject="file 'a': column 'at'")


def test_an_instant_in_nanoseconds_is_none_the_less_one_when_clocks_show_its_hour_twice() -> None:
    moment = dt.datetime(2024, 10, 27, 0, 40, tzinfo=UTC)
    found = column([moment, None], pa.timestamp("ns", "Europe/Berlin"))
    assert fit(found, arrow_type("timestamp")).to_pylist() == [moment, None]
