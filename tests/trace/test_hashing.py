"""Hashes: against a reference written row by row from the specification, over every type in every disguise."""

from __future__ import annotations

import datetime as dt
import struct
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import Unsupported
from holdfast.trace.hashing import hash_columns, normalise_keys, weak_bits

from .model import TYPES, disguised, identity, values

MASK = (1 << 64) - 1
G, SEED, NULL = 0x9E3779B97F4A7C15, 0x6A09E667F3BCC908, 0xB5C0FBCFEC4D3B2F


def mix(x: int) -> int:
    x = (x + G) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def fold(words: list[int]) -> int:
    state = SEED if words else 0
    for word in words:
        state = mix(state ^ word)
    return state


def sequence(words: list[int], length: int) -> int:
    return mix((length + sum(mix((word + (k + 1) * G) & MASK) for k, word in enumerate(words))) & MASK)


def word(value: Any, kind: pa.DataType, normalise: bool) -> int:
    if value is None:
        return NULL
    if pa.types.is_floating(kind):
        if normalise:
            value = float("nan") if value != value else value + 0.0
        return int.from_bytes(struct.pack("<d", value), "little")
    if pa.types.is_decimal(kind):
        digits = "".join(map(str, value.as_tuple().digits))
        unscaled = int(digits) * (-1 if value < 0 else 1) & ((1 << 128) - 1)
        return fold([unscaled & MASK, unscaled >> 64])
    if isinstance(value, str | bytes):
        raw = value.encode() if isinstance(value, str) else value
        return sequence([int.from_bytes(raw[i : i + 8], "little") for i in range(0, len(raw), 8)], len(raw))
    if isinstance(value, dict):
        return fold([word(value[field.name], field.type, normalise) for field in kind])
    if pa.types.is_map(kind):
        entries = [fold([word(k, kind.key_type, normalise), word(v, kind.item_type, normalise)]) for k, v in value]
        return sequence(entries, len(entries))
    if isinstance(value, list):
        return sequence([word(v, kind.value_type, normalise) for v in value], len(value))
    if isinstance(value, dt.timedelta):
        return int(value / dt.timedelta(microseconds=1)) & MASK
    return int(pa.scalar(value, kind).cast(pa.int64() if kind.bit_width == 64 else pa.int32()).as_py()) & MASK


@pytest.mark.parametrize("kind", TYPES, ids=str)
@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=25, deadline=None)
def test_hash_is_what_the_specification_says_whatever_the_buffers(kind: pa.DataType, seed: int) -> None:
    rng = Random(seed)
    items = values(rng, kind)
    array = disguised(rng, items, kind)
    assert rows(array) == [identity(item) for item in items]
    for normalise in (True, False):
        expected = [fold([word(item, kind, normalise)]) for item in items]
        assert hash_columns([array], normalise=normalise).tolist() == expected
    chunks = pa.chunked_array([array.slice(0, 3), array.slice(3)], kind)
    assert hash_columns([chunks]).tolist() == hash_columns([array]).tolist()


def rows(array: pa.Array) -> list[Any]:
    return [identity(item) for item in array.to_pylist()]


def test_columns_fold_in_order() -> None:
    a, b = pa.array([1, 2, None]), pa.array(["x", None, "z"])
    pairs = zip(a.to_pylist(), b.to_pylist(), strict=True)
    expected = [fold([word(x, a.type, True), word(y, b.type, True)]) for x, y in pairs]
    assert hash_columns([a, b]).tolist() == expected
    assert hash_columns([a, b]).tolist() != hash_columns([b, a]).tolist()


def test_hashes_never_change() -> None:
    """They are in the durable format: if this fails, old logs can no longer be read."""
    columns = [pa.array([0, 42, None], pa.int64()), pa.array(["", "the quick brown fox", None])]
    assert [f"{h:016x}" for h in hash_columns(columns)] == ["ae4a5f8bbc3a66b6", "df1d8aba23f1d9cb", "6deb833c5c3826d8"]


def test_numbers_of_any_width_and_strings_of_any_offsets_hash_alike() -> None:
    numbers = [0, 1, -1, 100, -128]
    hashes = [hash_columns([pa.array(numbers, t)]).tolist() for t in (pa.int8(), pa.int16(), pa.int32(), pa.int64())]
    assert all(h == hashes[0] for h in hashes)
    texts = ["", "a", "a longer text than one word"]
    kinds = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.string_view())
    hashes = [hash_columns([pa.array(texts).cast(t)]).tolist() for t in kinds]
    hashes.append(hash_columns([pa.array(texts).dictionary_encode()]).tolist())
    assert all(h == hashes[0] for h in hashes)


def test_null_is_not_zero_and_nulls_at_each_level_differ() -> None:
    kind = pa.list_(pa.struct([("x", pa.int64())]))
    nested = pa.array([None, [], [None], [{"x": None}], [{"x": 0}], [{"x": 0}, None]], kind)
    assert len(set(hash_columns([nested]).tolist())) == len(nested)
    assert len(set(hash_columns([pa.array([None, 0, 1])]).tolist())) == 3
    assert len(set(hash_columns([pa.array([None, "", "\0", "\0\0"])]).tolist())) == 4


def test_zeros_and_nans_of_keys_are_one_but_of_rows_are_not() -> None:
    odd_nan = np.array([0x7FF8000000000001], np.uint64).view(np.float64)
    floats = pa.array(np.concatenate([[0.0, -0.0, np.nan], odd_nan]))
    keys = hash_columns([floats]).tolist()
    assert keys[0] == keys[1] and keys[2] == keys[3] and keys[0] != keys[2]
    assert len(set(hash_columns([floats], normalise=False).tolist())) == 4


def test_no_columns_hash_to_zero_and_no_rows_to_nothing() -> None:
    assert hash_columns([], rows=3).tolist() == [0, 0, 0]
    for kind in TYPES:
        assert hash_columns([pa.array([], kind)]).tolist() == []
        assert hash_columns([pa.chunked_array([], kind)]).tolist() == []
        assert len(set(hash_columns([pa.nulls(5, kind)]).tolist())) == 1


def test_many_keys_do_not_collide_and_spread_over_all_ranges() -> None:
    numbers = hash_columns([pa.array(np.arange(200_000))])
    texts = hash_columns([pa.array([f"{'k' * (i % 400)}{i}" for i in range(20_000)])])
    assert len(np.unique(numbers)) == 200_000 and len(np.unique(texts)) == 20_000
    for hashes in (numbers, texts):
        counts = np.bincount((hashes >> np.uint64(58)).astype(np.int64), minlength=64)
        assert counts.min() > 0.7 * len(hashes) / 64 and counts.max() < 1.3 * len(hashes) / 64


def test_weak_bits_keep_only_the_top(monkeypatch: pytest.MonkeyPatch) -> None:
    column = pa.array(range(100))
    strong = hash_columns([column])
    with weak_bits(2):
        weak = hash_columns([column])
        assert len(np.unique(weak)) == 4
        assert (weak == strong & np.uint64(3 << 62)).all()
    with weak_bits(0):
        assert not hash_columns([column]).any()
    monkeypatch.setenv("HOLDFAST_WEAK_HASH", "2")
    assert (hash_columns([column]) == weak).all()
    monkeypatch.delenv("HOLDFAST_WEAK_HASH")
    assert (hash_columns([column]) == strong).all()


def normal(value: Any) -> Any:
    if isinstance(value, float):
        return float("nan") if value != value else value + 0.0
    if isinstance(value, dict):
        return {name: normal(inner) for name, inner in value.items()}
    if isinstance(value, tuple):  # an entry of a map
        return tuple(map(normal, value))
    return [normal(inner) for inner in value] if isinstance(value, list) else value


@pytest.mark.parametrize("kind", [*TYPES, pa.map_(pa.string(), pa.float64())], ids=str)
@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=15, deadline=None)
def test_normalised_keys_have_one_zero_and_one_nan(kind: pa.DataType, seed: int) -> None:
    rng = Random(seed)
    items = values(rng, kind)
    array = disguised(rng, items, kind)
    keys = normalise_keys(array)
    assert keys.type == kind
    assert rows(keys) == [identity(normal(item)) for item in items]
    assert normalise_keys(keys) is keys
    assert hash_columns([keys], normalise=False).tolist() == hash_columns([array]).tolist()


def test_keys_without_floats_are_returned_as_they_are() -> None:
    for array in (pa.array([1, None]), pa.array([1.0, 0.0]), pa.array([[0.5], None]), pa.array([{"a": 1.0}])):
        assert normalise_keys(array) is array


def test_a_type_without_hash_is_refused_by_name() -> None:
    with pytest.raises(Unsupported, match="month_day_nano_interval"):
        hash_columns([pa.array([None], pa.month_day_nano_interval())])
