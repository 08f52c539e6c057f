"""Arrow arrays as NumPy arrays: validity, fixed-width values, offsets; and taking and joining of Arrow arrays.

The code above this module works on four shapes, whatever the logical type: *fixed* (a vector of fixed-width values),
*bytes* (offsets into bytes), *list* (offsets into another array) and *struct* (several arrays). Maps are lists of
structs. Only this module handles slices and null bitmaps. Values under a null are garbage until ``canonical`` sets them
to zero. All functions cost O(rows) or nothing (zero-copy views).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Bools = npt.NDArray[np.bool_]
Words = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]
AnyArray: TypeAlias = "pa.Array | pa.ChunkedArray"

_TAILS = np.array([(1 << 8 * left) - 1 for left in range(9)], np.uint64)
_BIT_WIDTHS = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}


def plain(array: AnyArray) -> pa.Array:
    """One contiguous array of a plain type: chunks joined, dictionaries decoded, extension types unwrapped."""
    if isinstance(array, pa.ChunkedArray):
        chunks = array.chunks or [pa.array([], array.type)]
        array = chunks[0] if len(chunks) == 1 else concat(chunks)
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_string_view(array.type):
        array = array.cast(pa.large_string())
    elif pa.types.is_binary_view(array.type):
        array = array.cast(pa.large_binary())
    elif pa.types.is_decimal32(array.type) or pa.types.is_decimal64(array.type):
        array = array.cast(pa.decimal128(array.type.precision, array.type.scale))
    return array


def is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or is_fixed_bytes(kind)
    )


def is_fixed_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_fixed_size_binary(kind) and not pa.types.is_decimal(kind))


def is_whole(kind: pa.DataType) -> bool:
    """Whether the type is stored as an integer of at most 64 bits, or is boolean."""
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_boolean(kind)
        or (pa.types.is_temporal(kind) and not pa.types.is_interval(kind))
    )


def is_list(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_fixed_size_list(kind)
        or pa.types.is_map(kind)
    )


def is_large(kind: pa.DataType) -> bool:
    """Whether the type's offsets are 64 bits wide."""
    return bool(pa.types.is_large_string(kind) or pa.types.is_large_binary(kind) or pa.types.is_large_list(kind))


def valid(array: pa.Array) -> Bools | None:
    """Whether each row is not null; None if no row is null."""
    if pa.types.is_null(array.type):
        return np.zeros(len(array), np.bool_)
    if array.null_count == 0:
        return None
    return bits(array.buffers()[0], array.offset, len(array))


def bits(buffer: pa.Buffer, offset: int, length: int) -> Bools:
    first = offset >> 3
    packed = np.frombuffer(buffer, np.uint8)[first : (offset + length + 7) >> 3]
    unpacked = np.unpackbits(packed, count=offset - first * 8 + length, bitorder="little")
    return unpacked[offset - first * 8 :].view(np.bool_)


def fixed(array: pa.Array) -> npt.NDArray[Any]:
    """The values of a boolean (as bytes), number, date, time, timestamp or duration column; decimals as rows of 64-bit
    words, lowest word first. Values under nulls are garbage."""
    kind = array.type
    n, offset = len(array), array.offset
    buffer = array.buffers()[1]
    nothing = n == 0 or buffer is None  # a column that is all null may come without values
    if pa.types.is_boolean(kind):
        return np.zeros(n, np.uint8) if nothing else bits(buffer, offset, n).view(np.uint8)
    if pa.types.is_decimal(kind):
        words = kind.bit_width // 64
        if nothing:
            return np.zeros((n, words), np.uint64)
        return np.frombuffer(buffer, np.uint64, n * words, offset * words * 8).reshape(n, words)
    dtype: npt.DTypeLike = (
        kind.to_pandas_dtype()
        if pa.types.is_integer(kind) or pa.types.is_floating(kind)
        else _BIT_WIDTHS[kind.bit_width]
    )
    if nothing:
        return np.zeros(n, dtype)
    return np.frombuffer(buffer, dtype, n, offset * (kind.bit_width // 8))


def offsets(array: pa.Array) -> Ints:
    """The n + 1 offsets of a bytes or list array into ``data`` or ``elements``. The first need not be 0."""
    kind, n = array.type, len(array)
    if pa.types.is_fixed_size_binary(kind) or pa.types.is_fixed_size_list(kind):
        size = kind.byte_width if pa.types.is_fixed_size_binary(kind) else kind.list_size
        bounds: Ints = np.arange(array.offset, array.offset + n + 1, dtype=np.int64) * size
        return bounds
    if n == 0:
        return np.zeros(1, np.int64)
    dtype = np.dtype(np.int64 if is_large(kind) else np.int32)
    found = np.frombuffer(array.buffers()[1], dtype, n + 1, array.offset * dtype.itemsize)
    return found.astype(np.int64, copy=False)


def spans(array: pa.Array) -> tuple[Ints, Ints]:
    """Start and length of every row of a bytes or list array; nulls have length 0."""
    bounds = offsets(array)
    starts, lengths = bounds[:-1], np.diff(bounds)
    mask = valid(array)
    return starts, lengths if mask is None else np.where(mask, lengths, 0)


def data(array: pa.Array) -> npt.NDArray[np.uint8]:
    """The bytes that ``offsets`` of a bytes array point into."""
    buffer = array.buffers()[1 if pa.types.is_fixed_size_binary(array.type) else 2]
    return np.zeros(0, np.uint8) if buffer is None else np.frombuffer(buffer, np.uint8)


def elements(array: pa.Array) -> pa.Array:
    """The array that ``offsets`` of a list or map array point into."""
    if pa.types.is_map(array.type):
        # A map is stored as a list of structs, but pyarrow only gives its keys and items as separate arrays.
        entries = pa.struct([array.type.key_field, array.type.item_field])
        as_list = pa.Array.from_buffers(
            pa.list_(pa.field("entries", entries, nullable=False)),
            len(array),
            array.buffers()[:2],
            offset=array.offset,
            children=[pa.StructArray.from_arrays([array.keys, array.items], fields=list(entries))],
        )
        return as_list.values
    return array.values


def words_at_bytes(raw: npt.NDArray[np.uint8]) -> Words:
    """A view with one little-endian 64-bit word per byte of ``raw`` (unaligned), zero-padded past its end."""
    padded = np.empty(len(raw) + 8, np.uint8)
    padded[: len(raw)] = raw
    padded[len(raw) :] = 0
    return np.ndarray(len(raw) + 1, "<u8", buffer=padded.data, strides=(1,))


def tail_masked(words: Words, left: Ints, least: int) -> Words:
    """Clear the bytes of each word that are past the end of its string, in place. ``left`` ≥ 1 bytes remain of each
    string, ``least`` of the shortest."""
    if least < 8:
        words &= _TAILS.take(left, mode="clip")
    return words


def first_words(array: pa.Array) -> Words:
    """The first 8 bytes of every string or binary, zero-padded, as a little-endian word; 0 for nulls."""
    starts, lengths = spans(array)
    words = np.zeros(len(array), np.uint64)
    rows = np.flatnonzero(lengths)
    if len(rows):
        low = int(starts[rows[0]])
        high = int(starts[rows[-1]] + lengths[rows[-1]])
        view = words_at_bytes(data(array)[low:high])
        words[rows] = tail_masked(view[starts[rows] - low], lengths[rows], 0)
    return words


def ranges(starts: Ints, lengths: Ints) -> Ints:
    """The integers of all ranges [start, start + length), one range after another."""
    total = int(lengths.sum())
    ends = np.cumsum(lengths)
    integers: Ints = np.arange(total, dtype=np.int64) + np.repeat(starts - (ends - lengths), lengths)
    return integers


def take(array: pa.Array, indices: npt.NDArray[np.integer]) -> pa.Array:
    """Rows of an array. The indices must be in range; this is not checked."""
    return pc.take(array, pa.array(indices), boundscheck=False)


def take_all(arrays: Sequence[pa.Array], indices: npt.NDArray[np.integer]) -> tuple[pa.Array, ...]:
    wanted = pa.array(indices)
    return tuple(pc.take(array, wanted, boundscheck=False) for array in arrays)


def concat(arrays: Sequence[pa.Array]) -> pa.Array:
    """One array of all rows. Strings get 64-bit offsets if one of the arrays has them or all bytes together reach
    2^31."""
    kind = next((a.type for a in arrays if not pa.types.is_null(a.type)), pa.null())
    if is_bytes(kind) and not pa.types.is_fixed_size_binary(kind):
        wide = any(is_large(a.type) for a in arrays)
        if not wide and sum(int(o[-1] - o[0]) for o in map(offsets, arrays)) >= 1 << 31:
            wide = True
        if wide:
            text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
            kind = pa.large_string() if text else pa.large_binary()
    return pa.concat_arrays([a if a.type.equals(kind) else a.cast(kind) for a in arrays])
