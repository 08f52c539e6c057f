"""Hashes of rows: 64 bits. The hash function can never change, since layers on disk are sorted by hash.

Every value becomes a 64-bit *word*; a row's hash folds the words of its columns.

- a whole number, date, time, boolean: its 64-bit two's complement; a float: its bits as a double
- bytes, strings: ``mix(length + Σ_k mix(word_k + (k+1)·G))`` over its little-endian 8-byte words, the last zero-padded
- a decimal: its low and high half folded; a struct: its fields folded; a list: as bytes, over the words of its elements
- NULL: a constant; the bytes under the null are ignored

``fold``: ``h = mix((h ^ word) + G)``, a bijection of the word, so two different keys of one integer never collide. The
words of a string are summed, not chained, so that long and short strings can be computed in any order, in vectors.
The hash only finds candidates: equality of the rows decides (``rows.py``). ``weak_bits`` and the environment variable
``HOLDFAST_WEAK_HASH`` keep only that many top bits of each hash, so that tests get many collisions.

Cost: a few nanoseconds per 8 bytes. Blocks of rows are sized to stay in the cache.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pyarrow as pa

from holdfast.errors import Unsupported
from holdfast.trace import physical
from holdfast.trace.inner_loops import mix
from holdfast.trace.order import order_prefix
from holdfast.trace.physical import AnyArray, Bools, Ints, Words

__all__ = ["hash_columns", "normalise_keys", "order_prefix", "weak_bits"]

_G = np.uint64(0x9E3779B97F4A7C15)
_SEED = np.uint64(0x6A09E667F3BCC908)
_NULL = np.uint64(0xB5C0FBCFEC4D3B2F)
_CHUNK = 16384
_LONG = 32
"""The words of a string after this many are hashed all at once instead of one word per pass."""

_weak: int | None = None


@contextmanager
def weak_bits(bits: int) -> Iterator[None]:
    """Keep only the ``bits`` top bits of every hash, in this process, so that tests get many collisions."""
    global _weak
    before, _weak = _weak, bits
    try:
        yield
    finally:
        _weak = before


def _kept_bits() -> int:
    if _weak is not None:
        return _weak
    return int(os.environ.get("HOLDFAST_WEAK_HASH") or 64)


def hash_columns(columns: Sequence[AnyArray], *, normalise: bool = True, rows: int | None = None) -> Words:
    """Return one hash per row. ``normalise``: -0.0 hashes as 0.0, every NaN as the same NaN (Spark's equality of keys);
    otherwise floats hash by their bits. Without columns: ``rows`` zeros, the hash of the empty key.

    Raises Unsupported for a column type that cannot be hashed."""
    if not columns:
        return np.zeros(rows or 0, np.uint64)
    first, *others = columns
    hashes = _words(physical.plain(first), normalise) ^ _SEED
    mix(hashes)
    for column in others:
        hashes ^= _words(physical.plain(column), normalise)
        mix(hashes)
    kept = _kept_bits()
    if kept < 64:
        hashes &= np.uint64(((1 << kept) - 1) << (64 - kept))
    return hashes


def _words(array: pa.Array, normalise: bool) -> Words:
    """The word of every row. May be a view of the array, so it must not be written to."""
    kind = array.type
    if pa.types.is_null(kind):
        return np.full(len(array), _NULL)
    if physical.is_bytes(kind):
        words = _bytes_words(array)
    elif pa.types.is_floating(kind):
        doubles = physical.fixed(array).astype(np.float64, copy=False)
        words = (_normal(doubles) if normalise else doubles).view(np.uint64)
    elif pa.types.is_decimal(kind):
        halves = physical.fixed(array)
        words = _folded([np.ascontiguousarray(halves[:, i]) for i in range(halves.shape[1])])
    elif physical.is_list(kind):
        words = _list_words(array, normalise)
    elif pa.types.is_struct(kind):
        words = _folded([_words(physical.plain(array.field(i)), normalise) for i in range(kind.num_fields)], len(array))
    elif physical.is_whole(kind):
        words = physical.fixed(array).astype(np.int64, copy=False).view(np.uint64)
    else:
        raise Unsupported(f"a column of type {kind} cannot be hashed, so it cannot be part of a row", type=str(kind))
    mask = physical.valid(array)
    return words if mask is None else np.where(mask, words, _NULL)


def _folded(parts: list[Words], rows: int = 0) -> Words:
    if not parts:
        return np.zeros(rows, np.uint64)
    hashes = parts[0] ^ _SEED
    mix(hashes)
    for part in parts[1:]:
        hashes ^= part
        mix(hashes)
    return hashes


def _normal(doubles: np.ndarray) -> np.ndarray:
    normal = doubles + 0.0  # -0.0 + 0.0 is 0.0
    nans = normal != normal
    if nans.any():
        normal[nans] = np.nan
    return normal


def _list_words(array: pa.Array, normalise: bool) -> Words:
    starts, lengths = physical.spans(array)
    inner = physical.plain(physical.elements(array))
    indices = physical.ranges(starts, lengths)
    if len(indices) != len(inner) or (len(indices) and indices[0] != 0):
        inner = physical.take(inner, indices)
    ends = np.cumsum(lengths)
    places = np.arange(1, len(indices) + 1, dtype=np.int64) - np.repeat(ends - lengths, lengths)
    terms = places.view(np.uint64) * _G
    terms += _words(inner, normalise)
    return _sealed(_span_sums(terms, ends, lengths), lengths)


def _span_sums(terms: Words, ends: Ints, lengths: Ints) -> Words:
    """Sums of mixed terms per span, modulo 2^64: differences of one running sum. Exact, since unsigned sums wrap."""
    mix(terms)
    running = np.zeros(len(terms) + 1, np.uint64)
    np.cumsum(terms, out=running[1:])
    sums: Words = running[ends] - running[ends - lengths]
    return sums


def _sealed(sums: Words, lengths: Ints) -> Words:
    sums += lengths.view(np.uint64)
    mix(sums)
    return sums


def _bytes_words(array: pa.Array) -> Words:
    """The word of every string, chunk by chunk. Each chunk's bytes are copied and padded, so that its last word can be
    read too."""
    starts, lengths = physical.spans(array)
    raw = physical.data(array)
    sums = np.empty(len(array), np.uint64)
    for at in range(0, len(array), _CHUNK):
        start, length = starts[at : at + _CHUNK], lengths[at : at + _CHUNK]
        low, high = int(start[0]), int(start[-1] + length[-1])
        sums[at : at + _CHUNK] = _chunk_sums(raw[low:high], start - low, length)
    return _sealed(sums, lengths)


def _chunk_sums(raw: np.ndarray, start: Ints, length: Ints) -> Words:
    view = physical.words_at_bytes(raw)
    sums = np.zeros(len(start), np.uint64)
    longest = int(length.max(initial=0))
    shortest = int(length.min(initial=0))
    rows: Ints | None = None  # the rows that have a k-th word; None: all
    for k in range(min((longest + 7) >> 3, _LONG)):
        if shortest <= 8 * k:
            keep = np.flatnonzero(length > 8 * k)
            rows = keep if rows is None else rows[keep]
            start, length = start[keep], length[keep]
            shortest = int(length.min())
        terms = physical.tail_masked(view[start + 8 * k], length - 8 * k, shortest - 8 * k)
        terms += np.uint64((k + 1) * int(_G) & (1 << 64) - 1)
        mix(terms)
        if rows is None:
            sums += terms
        else:
            sums[rows] += terms
    if longest > 8 * _LONG:
        keep = np.flatnonzero(length > 8 * _LONG)
        sums[keep if rows is None else rows[keep]] += _long_sums(view, start[keep], length[keep])
    return sums


def _long_sums(view: Words, start: Ints, length: Ints) -> Words:
    counts = ((length + 7) >> 3) - _LONG
    ends = np.cumsum(counts)
    places = np.arange(int(ends[-1]), dtype=np.int64) - np.repeat(ends - counts, counts) + _LONG
    at = np.repeat(start, counts) + 8 * places
    terms = physical.tail_masked(view[at], np.repeat(length, counts) - 8 * places, 0)
    terms += (places + 1).view(np.uint64) * _G
    return _span_sums(terms, ends, counts)


def normalise_keys(array: AnyArray) -> pa.Array:
    """Replace -0.0 by 0.0 and every NaN by the same NaN, also inside structs, lists and maps. Returns the same object
    if nothing changes."""
    found = physical.plain(array)
    normal = _normalised(found)
    return array if normal is found and isinstance(array, pa.Array) else normal


def _has_floats(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return _has_floats(kind.key_type) or _has_floats(kind.item_type)
    return pa.types.is_floating(kind) or any(_has_floats(kind.field(i).type) for i in range(kind.num_fields))


def _normalised(array: pa.Array) -> pa.Array:
    kind = array.type
    if not _has_floats(kind):
        return array
    mask = physical.valid(array)
    if pa.types.is_floating(kind):
        floats = physical.fixed(array)
        normal = _normal(floats)
        width = f"u{floats.itemsize}"
        changed: Bools = normal.view(width) != floats.view(width)
        if mask is not None:
            changed &= mask
        return pa.array(normal, kind, mask=None if mask is None else ~mask) if changed.any() else array
    if pa.types.is_struct(kind):
        fields = [array.field(i) for i in range(kind.num_fields)]
        normal_fields = [_normalised(field) for field in fields]
        if all(a is b for a, b in zip(fields, normal_fields, strict=True)):
            return array
        inverse = None if mask is None else pa.array(~mask)
        return pa.StructArray.from_arrays(normal_fields, fields=list(kind), mask=inverse)
    inner = physical.elements(array)
    normal_inner = _normalised(inner)
    if normal_inner is inner:
        return array
    buffers = array.buffers()[: 1 if pa.types.is_fixed_size_list(kind) else 2]
    return pa.Array.from_buffers(kind, len(array), buffers, offset=array.offset, children=[normal_inner])
