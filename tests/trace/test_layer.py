"""Layer files: what goes in comes out, equal content is equal bytes, and damage is named."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import LogDamaged, LogFormat
from holdfast.trace import layer as layers
from holdfast.trace.canonical import canonical
from holdfast.trace.hashing import hash_columns, weak_bits
from holdfast.trace.layer import encode, layer_metadata, open_layer, retain, verify_layer, write_layer
from holdfast.trace.name import ALL, LayerName
from holdfast.trace.rows import Block, Layout, consolidate, constant_epoch

from .model import KEY_TYPES, TYPES, disguised, identity, values
from .test_rows import SUBS, bag, contents, random_block

DIGEST = "00112233aabbccdd"


def write(
    directory: Path, block: Block, layout: Layout, first: int = 0, last: int = 0, metadata: dict[str, str] | None = None
) -> LayerName:
    return write_layer(
        directory, block, layout, low=0, high=ALL, first=first, last=last, digest=DIGEST, since=-1, metadata=metadata
    )


def simple(rows: int = 3, epoch: int = 0) -> tuple[Block, Layout]:
    column = pa.array(range(rows), pa.int64())
    adds = {"+diff": np.ones(rows, np.int64)}
    return Block(hash_columns([column]), None, (column,), constant_epoch(epoch, rows), adds), Layout(1, 1, "none")


@pytest.mark.parametrize("kind", TYPES, ids=str)
@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=15, deadline=None)
def test_canonical_arrays_have_equal_values_and_equal_bytes(kind: pa.DataType, seed: int) -> None:
    rng = Random(seed)
    items = values(rng, kind)
    one, two = canonical(disguised(rng, items, kind)), canonical(disguised(rng, items, kind))
    one.validate(full=True)
    assert one.type == kind
    assert [identity(v) for v in one.to_pylist()] == [identity(v) for v in items]
    files = []
    for array in (one, two):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, pa.schema([("c", kind)])) as writer:
            writer.write_batch(pa.record_batch([array], ["c"]))
        files.append(sink.getvalue().to_pybytes())
    assert files[0] == files[1]


@pytest.mark.parametrize("weak", [2, 64])
@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=40, deadline=None)
def test_bytes_are_a_function_of_the_rows_in_any_order_and_splitting(weak: int, seed: int) -> None:
    rng = Random(seed)
    kinds = [rng.choice(KEY_TYPES), rng.choice(KEY_TYPES), rng.choice(TYPES)]
    layout = Layout(3, rng.randrange(2), rng.choice(SUBS))
    with weak_bits(weak):
        block = random_block(rng, layout, kinds, rng.randrange(25), epochs=rng.choice((1, 3)))
        shuffled = block.take(np.array(rng.sample(range(block.rows), block.rows), np.int64))
        cut = rng.randrange(block.rows + 1)
        parts = [consolidate(part, layout) for part in (shuffled.slice(0, cut), shuffled.slice(cut, block.rows))]
        parts[0].adds["+never"] = np.zeros(parts[0].rows, np.int64)
        one, two = pa.BufferOutputStream(), pa.BufferOutputStream()
        encode(one, consolidate(block, layout), layout, metadata={"b": "2", "a": "1"})
        encode(two, consolidate(Block.concat(parts), layout), layout, metadata={"a": "1", "b": "2"})
        assert one.getvalue().equals(two.getvalue())


@pytest.mark.parametrize("sub", SUBS)
def test_a_layer_reads_back_as_it_was_written(tmp_path: Path, sub: Any) -> None:
    layout = Layout(3, 1, sub)
    block = random_block(Random(11), layout, [pa.string(), pa.float64(), pa.list_(pa.int32())], 60, epochs=4)
    name = write(tmp_path, block, layout, 0, 3, metadata={"lineage": "x"})
    layer = open_layer(tmp_path / name.text())
    assert layer.name == name and layer.layout == layout and layer.metadata == {"lineage": "x"}
    assert bag(layer.block()) == bag(block)
    assert contents(layer.block()) == contents(consolidate(block, layout))
    assert contents(layer.block(5, 9)) == contents(layer.block())[5:9]
    assert layer.hash.tolist() == sorted(layer.hash.tolist())
    assert name.checksum == xxhash.xxh3_64_hexdigest((tmp_path / name.text()).read_bytes())
    verify_layer(tmp_path / name.text())


def test_one_epoch_is_stored_once_and_zero_columns_not_at_all(tmp_path: Path) -> None:
    block, layout = simple(epoch=7)
    block.adds.update({"+0.n": np.zeros(3, np.int64), "+0.s.0": np.array([0, 1, 0])})
    name = write(tmp_path, block, layout, 7, 7)
    batch = pa.ipc.open_file(tmp_path / name.text()).get_batch(0)
    assert batch.schema.names == ["_hash", "c0", "+0.s.0", "+diff"]
    layer = open_layer(tmp_path / name.text())
    assert layer.constant == 7 and layer.block().epoch.tolist() == [7, 7, 7]


def test_an_empty_layer_is_small_and_reads_back(tmp_path: Path) -> None:
    layout = Layout(2, 1, "hash")
    for types in (None, [pa.int64(), pa.string()]):
        name = write(tmp_path, Block.empty(layout, types), layout, 5, 5)
        layer = open_layer(tmp_path / name.text())
        assert layer.rows == 0 and layer.block().rows == 0
        assert (tmp_path / name.text()).stat().st_size < 2500


def test_writing_twice_is_writing_once(tmp_path: Path) -> None:
    block, layout = simple()
    name = write(tmp_path / "deep" / "trace", block, layout)
    path = tmp_path / "deep" / "trace" / name.text()
    before = path.read_bytes()
    assert write(tmp_path / "deep" / "trace", block, layout) == name
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [name.text()]


def test_what_a_crash_left_of_a_file_is_written_again(tmp_path: Path) -> None:
    block, layout = simple()
    name = write(tmp_path, block, layout)
    path = tmp_path / name.text()
    path.write_bytes(b"")
    assert write(tmp_path, block, layout) == name
    verify_layer(path)


def test_names_say_everything_and_sort_by_epoch() -> None:
    name = LayerName(1 << 63, ALL, 3, 12, DIGEST, 5, "f" * 16)
    assert LayerName.parse(name.text()) == name
    raw = LayerName(0, 1 << 62, 12, 12, DIGEST, -1, "0" * 16)
    assert LayerName.parse(raw.text()) == raw
    assert sorted([raw.text(), name.text()]) == [name.text(), raw.text()]
    for text in ("x.arrow", name.text() + ".tmp", "." + name.text(), name.text().replace("-", "_"), ""):
        assert LayerName.parse(text) is None


def test_floor_is_the_first_epoch_a_layer_can_be_read_as_of() -> None:
    assert LayerName(0, ALL, 3, 9, DIGEST, -1, "").floor == 3
    assert LayerName(0, ALL, 3, 9, DIGEST, 5, "").floor == 5
    assert LayerName(0, ALL, 3, 9, DIGEST, 50, "").floor == 9


def test_damage_is_found_and_names_the_file(tmp_path: Path) -> None:
    block, layout = simple(1000)
    name = write(tmp_path, block, layout)
    path = tmp_path / name.text()
    good = path.read_bytes()
    flipped = bytearray(good)
    flipped[len(good) // 2] ^= 1
    path.write_bytes(bytes(flipped))
    with pytest.raises(LogDamaged, match=name.text()):
        verify_layer(path)
    for broken in (b"", good[:100], good[: len(good) // 2], b"x" * len(good)):
        path.write_bytes(broken)
        with pytest.raises(LogDamaged, match=name.text()) as found:
            open_layer(path)
        assert found.value.fields["path"] == str(path)
    with pytest.raises(FileNotFoundError):
        open_layer(tmp_path / LayerName(0, ALL, 0, 0, DIGEST, -1, "0" * 16).text())
    with pytest.raises(LogDamaged, match="not the name of a layer"):
        open_layer(tmp_path / "other.arrow")


def test_a_flipped_bit_is_found_when_the_layer_is_opened(tmp_path: Path) -> None:
    block, layout = simple(1000)
    name = write(tmp_path / "written", block, layout)
    good = (tmp_path / "written" / name.text()).read_bytes()
    path = tmp_path / "copied" / name.text()  # to this process, somebody else's
    path.parent.mkdir()
    for place in (0, 100, len(good) // 2, len(good) - 1):
        flipped = bytearray(good)
        flipped[place] ^= 1
        path.write_bytes(bytes(flipped))
        with pytest.raises(LogDamaged, match=f"{name.text()} is damaged: its bytes have checksum") as found:
            open_layer(path)
        assert found.value.fields["expected"] == name.checksum
    path.write_bytes(good)
    assert open_layer(path).rows == 1000


def test_metadata_is_read_without_the_rows(tmp_path: Path) -> None:
    block, layout = simple(1000)
    name = write(tmp_path, block, layout, metadata={"lineage": "x", "other": ""})
    path = tmp_path / name.text()
    assert layer_metadata(path) == {"lineage": "x", "other": ""}
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    path.write_bytes(bytes(damaged))
    assert layer_metadata(path) == {"lineage": "x", "other": ""}
    path.write_bytes(b"")
    with pytest.raises(LogDamaged, match=name.text()):
        layer_metadata(path)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        layer_metadata(path)


def test_a_newer_format_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    block, layout = simple()
    monkeypatch.setattr(layers, "FORMAT", "2")
    name = write(tmp_path, block, layout)
    monkeypatch.undo()
    with pytest.raises(LogFormat, match="format 2"):
        open_layer(tmp_path / name.text())


def test_open_layers_are_shared_until_they_are_let_go(tmp_path: Path) -> None:
    block, layout = simple()
    name = write(tmp_path, block, layout)
    path = tmp_path / name.text()
    layer = open_layer(path)
    assert open_layer(path) is layer
    path.unlink()
    assert open_layer(path) is layer  # a mapping outlives its file
    retain(tmp_path, [name.text()])
    assert open_layer(path) is layer
    retain(tmp_path, [])
    with pytest.raises(FileNotFoundError):
        open_layer(path)
    assert layer.block().rows == 3


def test_only_a_few_layers_stay_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "_CACHED", 3)
    for rows in range(1, 9):
        block, layout = simple(rows)
        open_layer(tmp_path / write(tmp_path, block, layout).text())
    assert len(layers._open) == 3 and sum(map(len, layers._open_in.values())) == 3
