"""Order-preserving 64-bit prefixes: the ``_sub`` of traces whose rows are kept in order.

``x < y`` implies ``prefix(x) ≤ prefix(y)`` in Spark's order: NaN greatest, -0.0 = 0.0, strings by bytes, NULLs first or
last as the caller asks. Prefixes are not injective; readers must treat equal prefixes as ties. Layers on disk are
sorted by prefixes, so these encodings can never change. O(rows), vectorised.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from holdfast.errors import Unsupported
from holdfast.trace import physical
from holdfast.trace.physical import AnyArray, Bools, Words

_SIGN = np.uint64(1 << 63)
_MOST = np.uint64((1 << 64) - 1)


def order_prefix(array: AnyArray, *, descending: bool, nulls_first: bool) -> Words:
    """Return one prefix per row, ascending in the order asked for. Raises Unsupported for a type without an order."""
    column = physical.plain(array)
    prefix = _ascending(column)
    if descending:
        prefix = ~prefix
    mask = physical.valid(column)
    if mask is not None:
        prefix = np.where(mask, prefix, np.uint64(0) if nulls_first else _MOST)
    return prefix


def _ascending(array: pa.Array) -> Words:
    """Prefixes of the values in ascending order; garbage for nulls."""
    kind = array.type
    if pa.types.is_null(kind):
        return np.zeros(len(array), np.uint64)
    if physical.is_bytes(kind):
        return physical.first_words(array).byteswap()
    if pa.types.is_floating(kind):
        return _doubles(physical.fixed(array).astype(np.float64))
    if pa.types.is_decimal128(kind):
        return _decimals(array)
    if pa.types.is_struct(kind):
        if kind.num_fields == 0:
            return np.zeros(len(array), np.uint64)
        return order_prefix(array.field(0), descending=False, nulls_first=True)
    if physical.is_list(kind):
        starts, lengths = physical.spans(array)
        prefix = np.zeros(len(array), np.uint64)  # the empty list is the least
        rows = np.flatnonzero(lengths)
        heads = physical.take(physical.elements(array), starts[rows])
        prefix[rows] = order_prefix(heads, descending=False, nulls_first=True)
        return prefix
    if physical.is_whole(kind):
        numbers = physical.fixed(array)
        if numbers.dtype == np.uint64:
            return numbers.astype(np.uint64)
        return np.bitwise_xor(numbers.astype(np.int64).view(np.uint64), _SIGN)
    raise Unsupported(f"rows cannot be ordered by a column of type {kind}", type=str(kind))


def _doubles(doubles: np.ndarray) -> Words:
    doubles += 0.0
    doubles[doubles != doubles] = np.nan
    words = doubles.view(np.uint64)
    return np.where(words & _SIGN, ~words, words | _SIGN)


def _decimals(array: pa.Array) -> Words:
    halves = physical.fixed(array)
    low: Words = halves[:, 0]
    high: Words = halves[:, 1]
    if array.type.precision <= 18:  # the low half is the whole number
        return np.bitwise_xor(low, _SIGN)
    negative: Bools = (high & _SIGN) != 0
    low = np.where(negative, ~low + np.uint64(1), low)
    high = np.where(negative, ~high + (low == 0).astype(np.uint64), high)
    size = _scientific(low, high)
    return np.where(negative, ~(size | _SIGN), size | _SIGN)


def _scientific(low: Words, high: Words) -> Words:
    """Magnitudes below 2^127 as 7 bits of length above the 56 leading bits: monotone, and precise at every scale."""
    length = np.full(len(low), 127, np.uint64)
    for shift in (64, 32, 16, 8, 4, 2, 1):
        # The number is in bits 0..126; shift it up in rows where its top `shift` bits are all zero.
        if shift == 64:
            small = (high >> np.uint64(0)) == 0
            moved_high, moved_low = low >> np.uint64(1), low << np.uint64(63)
            # If high is zero, 63 places are enough: bit 63 of low becomes bit 126.
            places = 63
        else:
            small = (high >> np.uint64(63 - shift)) == 0
            by = np.uint64(shift)
            moved_high, moved_low = (high << by) | (low >> np.uint64(64 - shift)), low << by
            places = shift
        high, low = np.where(small, moved_high, high), np.where(small, moved_low, low)
        length = np.where(small, length - np.uint64(places), length)
    return (length << np.uint64(56)) | ((high >> np.uint64(7)) & np.uint64((1 << 56) - 1))
