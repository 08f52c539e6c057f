"""Durable layers: what goes in comes out bit for bit, damage is named, and anybody can read them."""

from __future__ import annotations

import datetime as dt
import io
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.trace.model import KEY_TYPES, TYPES, value
from tests.trace.test_rows import SUBS, contents, random_block

from holdfast.errors import LogDamaged, LogFormat
from holdfast.log import durable_layer
from holdfast.log.durable_layer import decode_layer, durable_name, encode_layer
from holdfast.plan.types import arrow_type
from holdfast.trace import layer as layers
from holdfast.trace.hashing import hash_columns, normalise_keys, order_prefix
from holdfast.trace.layer import open_layer, write_layer
from holdfast.trace.name import ALL, LayerName
from holdfast.trace.rows import Block, Layout, consolidate, constant_epoch, sub_hash

DIGEST = "00112233aabbccdd"

# Every type that a view can have, by itself and inside others, beside those that only traces have.
SPARK_TYPES = [
    *map(arrow_type, ("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string", "binary")),
    *map(arrow_type, ("date", "timestamp", "timestamp_ntz", "void", "varchar(3)", "interval day to second")),
    *map(arrow_type, ("decimal(1,0)", "decimal(9,2)", "decimal(18,3)", "decimal(38,10)")),
] + [
    arrow_type(text)
    for text in (
        "array<interval day to second>",
        "array<void>",
        "array<timestamp>",
        "map<string,interval day to second>",
        "map<string,void>",
        "map<string,array<struct<a:int,b:double>>>",
        "struct<>",
        "array<struct<>>",
        "map<string,struct<>>",
        "struct<a:struct<>,b:struct<c:struct<>,d:interval day to second>>",
        "array<array<struct<x:struct<>>>>",
        "struct<a:decimal(20,3),b:map<string,binary>,c:timestamp_ntz>",
    )
]
ALL_TYPES = list(dict.fromkeys([*SPARK_TYPES, *TYPES]))


def column(rng: Random, kind: pa.DataType, rows: int) -> pa.Array:
    if pa.types.is_decimal(kind) and kind.precision < 5:
        return pa.array([rng.choice([None, Decimal(0), Decimal(-9), Decimal(9)]) for _ in range(rows)], kind)
    return pa.array([value(rng, kind) for _ in range(rows)], kind)


def durable(block: Block, layout: Layout, epoch: int = 0, **metadata: str) -> tuple[bytes, LayerName]:
    data = encode_layer(block, layout, metadata=metadata)
    return data, durable_name(0, ALL, epoch, epoch, DIGEST, -1, data)


def simple(rows: int = 3) -> tuple[Block, Layout]:
    numbers = pa.array(range(rows), pa.int64())
    adds = {"+diff": np.ones(rows, np.int64)}
    layout = Layout(1, 1, "none")
    block = Block(hash_columns([numbers]), None, (numbers,), constant_epoch(7, rows), adds)
    return consolidate(block, layout), layout


def assert_round_trip(directory: Path, block: Block, layout: Layout, epoch: int, metadata: dict[str, str]) -> None:
    """Arrow file → Parquet → Arrow file gives the same bytes, and the same dtypes in between."""
    place: dict[str, Any] = {"low": 0, "high": ALL, "first": 0, "last": epoch, "digest": DIGEST}
    original = write_layer(directory / "original", block, layout, metadata=metadata, **place)
    whole = open_layer(directory / "original" / original.text()).whole
    data, name = durable(whole, layout, epoch, **metadata)
    found, found_layout, found_metadata = decode_layer(data, name, "the copy")
    assert (found_layout, found_metadata) == (layout, metadata)
    assert contents(found) == contents(whole)
    assert [c.type for c in found.columns] == [c.type for c in whole.columns]
    assert found.hash.dtype == np.uint64 and found.epoch.dtype == np.int64
    assert (found.sub is None) == (whole.sub is None) and (found.sub is None or found.sub.dtype == np.uint64)
    assert all(values.dtype == np.int64 for values in found.adds.values())
    again = write_layer(directory / "again", found, found_layout, metadata=found_metadata, **place)
    assert again == original
    assert (directory / "again" / again.text()).read_bytes() == (directory / "original" / original.text()).read_bytes()


@pytest.mark.parametrize("kind", ALL_TYPES, ids=str)
@pytest.mark.parametrize("rows", [0, 1, 40])
def test_every_type_comes_back_as_it_was(tmp_path: Path, kind: pa.DataType, rows: int) -> None:
    rng = Random(rows)
    numbers = pa.array(range(rows), pa.int64())
    for number, held in enumerate((column(rng, kind, rows), pa.nulls(rows, kind))):
        adds = {"+diff": np.ones(rows, np.int64)}
        block = Block(hash_columns([numbers], rows=rows), None, (numbers, held), constant_epoch(2, rows), adds)
        assert_round_trip(tmp_path / str(number), block, Layout(2, 1, "none"), 2, {})


@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=40, deadline=None)
def test_any_block_comes_back_as_it_was(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    rng = Random(seed)
    kinds = [rng.choice(KEY_TYPES), rng.choice(KEY_TYPES), rng.choice(TYPES)]
    layout = Layout(3, rng.randrange(3), rng.choice(SUBS))
    block = random_block(rng, layout, kinds, rng.randrange(30), epochs=rng.choice((1, 4)))
    metadata = rng.choice(({}, {"lineage": "ä" * 20, "b": "", "a": "1"}))
    assert_round_trip(tmp_path_factory.mktemp("layers"), block, layout, 4, metadata)


def test_bits_of_floats_survive(tmp_path: Path) -> None:
    odd = np.array([0x7FF8000000000001, 0xFFF8000000000000, 0x8000000000000000, 0, 0x7FF0000000000000], np.uint64)
    floats = pa.array(odd.view(np.float64))
    numbers = pa.array(range(5), pa.int64())
    adds = {"+diff": np.ones(5, np.int64)}
    block = Block(hash_columns([numbers]), None, (numbers, floats), constant_epoch(0, 5), adds)
    assert_round_trip(tmp_path, block, Layout(2, 1, "none"), 0, {})


def test_a_trace_that_never_had_rows_comes_back(tmp_path: Path) -> None:
    for number, layout in enumerate((Layout(2, 1, "hash"), Layout(0, 0, "none"), Layout(3, 1, "order"))):
        assert_round_trip(tmp_path / str(number), Block.empty(layout), layout, 9, {"a": "b"})


def test_many_row_groups_are_one_layer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable_layer, "_GROUP", 16)
    rng = Random(5)
    layout = Layout(3, 1, "hash")
    kinds = [pa.int64(), arrow_type("array<struct<a:string,b:struct<>>>"), pa.string()]
    columns = [column(rng, kind, 100) for kind in kinds]
    adds = {"+diff": np.ones(100, np.int64), "+0.s.0": np.arange(100)}
    hashes = hash_columns(columns[:1])
    block = Block(hashes, sub_hash(columns, layout), tuple(columns), np.arange(100, dtype=np.int64) % 3, adds)
    assert_round_trip(tmp_path, block, layout, 2, {})
    data, _ = durable(consolidate(block, layout), layout)
    assert pq.ParquetFile(io.BytesIO(data)).num_row_groups > 5


def test_equal_rows_are_equal_bytes() -> None:
    rng = Random(3)
    layout = Layout(2, 1, "order")
    columns = [normalise_keys(column(rng, pa.string(), 50)), column(rng, pa.float64(), 50)]
    sub = order_prefix(columns[1], descending=False, nulls_first=True)
    adds = {"+diff": np.ones(50, np.int64)}
    block = Block(hash_columns(columns[:1]), sub, tuple(columns), np.arange(50, dtype=np.int64) % 2, adds)
    shuffled = block.take(np.array(rng.sample(range(50), 50)))
    assert durable(consolidate(block, layout), layout, a="1", b="2") == durable(
        consolidate(shuffled, layout), layout, b="2", a="1"
    )


def test_the_epoch_is_a_column_even_when_it_is_one() -> None:
    block, layout = simple()
    data, _ = durable(block, layout, 7)
    file = pq.ParquetFile(io.BytesIO(data))
    assert file.schema_arrow.names == ["_hash", "c0", "_epoch", "+diff"]
    assert file.read().column("_epoch").to_pylist() == [7, 7, 7]
    held = [file.metadata.row_group(0).column(place) for place in range(4)]
    assert [column.compression for column in held] == ["UNCOMPRESSED", "ZSTD", "ZSTD", "ZSTD"], "hashes do not shrink"
    assert all(column.is_stats_set for column in held)


def test_damage_is_found_before_anything_is_read() -> None:
    block, layout = simple(1000)
    data, name = durable(block, layout)
    flipped = bytearray(data)
    flipped[len(data) // 2] ^= 1
    for broken in (bytes(flipped), data[:-1], b"", b"x" * len(data)):
        with pytest.raises(LogDamaged, match="layer s3://bucket/x is damaged") as caught:
            decode_layer(broken, name, "s3://bucket/x")
        assert caught.value.fields["path"] == "s3://bucket/x"


def test_what_is_no_layer_is_damage_although_its_checksum_is_right() -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"a": [1]}, metadata={"holdfast.layer": "1", "holdfast.layout": "no"}), sink)
    for data in (b"", b"not parquet", sink.getvalue()):
        with pytest.raises(LogDamaged, match="layer here does not read"):
            decode_layer(data, durable_name(0, ALL, 0, 0, DIGEST, -1, data), "here")


def test_a_newer_format_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    block, layout = simple()
    monkeypatch.setattr(layers, "FORMAT", "9")
    data, name = durable(block, layout)
    monkeypatch.undo()
    with pytest.raises(LogFormat, match="layer there has format 9"):
        decode_layer(data, name, "there")


def test_a_durable_name_differs_from_an_arrow_layers_only_in_its_ending() -> None:
    data = b"some bytes"
    name = durable_name(0, 1 << 63, 3, 12, DIGEST, 5, data)
    assert name.durable().endswith(".parquet") and name.text().endswith(".arrow")
    assert LayerName.parse_durable(name.durable()) == name == LayerName.parse(name.text())
    assert LayerName.parse(name.durable()) is None and LayerName.parse_durable(name.text()) is None


def table_of_many_types() -> tuple[list[list[Any]], Block, Layout]:
    """Rows that every reader gives to Python in the same way, and the block of them."""
    moment = dt.datetime(2024, 2, 29, 12, 30, 1, 7)
    rows: list[list[Any]] = [
        [1, "ä", -0.5, Decimal("12.50"), moment, dt.date(2024, 2, 29), [1, None], {"x": 1, "y": "a"}, True, b"\0"],
        [2, None, None, None, None, None, None, None, None, None],
        [3, "", float("inf"), Decimal("-0.01"), moment, dt.date(1969, 12, 31), [], {"x": None, "y": ""}, False, b""],
    ]
    texts = "bigint string double decimal(10,2) timestamp_ntz date array<int> struct<x:int,y:string> boolean binary"
    kinds = [arrow_type(text) for text in texts.split()]
    columns = tuple(pa.array([row[i] for row in rows], kind) for i, kind in enumerate(kinds))
    extra = (pa.nulls(3), pa.array([dt.timedelta(0), None, dt.timedelta(1)], pa.duration("us")))
    bare = pa.array([{}, None, {}], pa.struct([]))
    layout = Layout(len(kinds) + 3, 1, "hash")
    columns = (*columns, *extra, bare)
    adds = {"+diff": np.array([1, 2, -1])}
    block = Block(hash_columns(columns[:1]), sub_hash(columns, layout), columns, constant_epoch(4, 3), adds)
    return rows, consolidate(block, layout), layout


def test_pandas_duckdb_and_spark_read_the_rows(tmp_path: Path, spark: Any) -> None:
    rows, block, layout = table_of_many_types()
    path = tmp_path / "layer.parquet"
    path.write_bytes(durable(block, layout, 4)[0])
    wanted = sorted([*row, 4, diff] for row, diff in zip(rows, (1, 2, -1), strict=True))
    names = [f"c{i}" for i in range(len(rows[0]))] + ["_epoch", "+diff"]

    frame = pd.read_parquet(path)
    assert sorted(map(plain, frame[names].itertuples(index=False))) == wanted
    assert len(frame) == 3

    quoted = ", ".join(f'"{name}"' for name in names)
    fetched = duckdb.connect().execute(f"SELECT {quoted} FROM read_parquet('{path}')").fetchall()
    assert sorted(map(plain, fetched)) == wanted

    read = spark.read.parquet(str(path))
    assert read.count() == 3 and len(read.columns) == layout.width + 4
    assert sorted(map(plain, read.select(*(f"`{name}`" for name in names)).collect())) == wanted
    assert sorted(read.toArrow().column("_hash").to_pylist()) == sorted(block.hash.tolist())


def plain(row: Any) -> list[Any]:
    """A row as every reader's Python values agree on it."""
    return [_plain(item) for item in row]


def _plain(item: Any) -> Any:
    if isinstance(item, np.ndarray):
        return [None if pd.isna(one) else int(one) for one in item]
    if hasattr(item, "asDict"):
        return item.asDict()
    if isinstance(item, dict | list):
        return item
    if pd.isna(item):
        return None
    if isinstance(item, pd.Timestamp):
        return item.to_pydatetime()
    return bytes(item) if isinstance(item, bytearray) else item
