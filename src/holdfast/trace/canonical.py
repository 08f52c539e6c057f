"""Canonical arrays: their buffers are a function of their values alone.

Arrow does not define all bytes of an array: the bytes under a null, in padding bits, before a slice. Layers are named
by a checksum of their bytes and compared across machines, so these bytes are fixed before a layer is written: zeros
under nulls, length zero under nulls, no validity buffer where nothing is null, offsets from zero, no bytes before or
after the values. O(bytes), mostly views.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from holdfast.trace import physical
from holdfast.trace.physical import Bools, Ints


def canonical(array: pa.Array) -> pa.Array:
    """Return the same values in canonical buffers."""
    array = physical.plain(array)
    kind, rows = array.type, len(array)
    if pa.types.is_null(kind):
        return pa.nulls(rows)
    mask = physical.valid(array)
    validity = None if mask is None else pa.py_buffer(np.packbits(mask, bitorder="little"))
    if physical.is_fixed_bytes(kind):
        return pa.Array.from_buffers(kind, rows, [validity, pa.py_buffer(_fixed_bytes(array, mask))])
    if physical.is_bytes(kind):
        return _bytes(array, mask, validity)
    if physical.is_list(kind):
        return _lists(array, mask, validity)
    if pa.types.is_struct(kind):
        fields = [array.field(i) for i in range(kind.num_fields)]
        if mask is not None:
            fields = [_masked(field, mask) for field in fields]
        return pa.Array.from_buffers(kind, rows, [validity], children=[canonical(field) for field in fields])
    values = physical.fixed(array)
    if mask is not None:
        values = np.where(mask if values.ndim == 1 else mask[:, None], values, values.dtype.type(0))
    if pa.types.is_boolean(kind):
        values = np.packbits(values.view(np.bool_), bitorder="little")
    return pa.Array.from_buffers(kind, rows, [validity, pa.py_buffer(np.ascontiguousarray(values))])


def _masked(array: pa.Array, mask: Bools) -> pa.Array:
    """Set the values to null wherever the mask is False. Taking a null index gives a null of any type."""
    return array.take(pa.array(np.arange(len(array)), mask=~mask))


def _fixed_bytes(array: pa.Array, mask: Bools | None) -> np.ndarray:
    width = array.type.byte_width
    if not len(array) or not width:
        return np.zeros(0, np.uint8)
    found = physical.data(array)[array.offset * width :][: len(array) * width].reshape(len(array), width)
    return found if mask is None else np.where(mask[:, None], found, np.uint8(0))


def _offsets(kind: pa.DataType, lengths: Ints) -> pa.Buffer:
    bounds = np.zeros(len(lengths) + 1, np.int64 if physical.is_large(kind) else np.int32)
    np.cumsum(lengths, out=bounds[1:])
    return pa.py_buffer(bounds)


def _bytes(array: pa.Array, mask: Bools | None, validity: pa.Buffer | None) -> pa.Array:
    bounds = physical.offsets(array)
    _, lengths = physical.spans(array)
    if int(lengths.sum()) != int(bounds[-1] - bounds[0]):  # bytes under nulls
        assert mask is not None
        array = _masked(array, mask)
        bounds = physical.offsets(array)
    used = physical.data(array)[int(bounds[0]) : int(bounds[-1])]
    return pa.Array.from_buffers(array.type, len(array), [validity, _offsets(array.type, lengths), pa.py_buffer(used)])


def _lists(array: pa.Array, mask: Bools | None, validity: pa.Buffer | None) -> pa.Array:
    kind = array.type
    inner = physical.elements(array)
    if pa.types.is_fixed_size_list(kind):
        inner = inner.slice(array.offset * kind.list_size, len(array) * kind.list_size)
        if mask is not None:
            inner = _masked(inner, np.repeat(mask, kind.list_size))
        return pa.Array.from_buffers(kind, len(array), [validity], children=[canonical(inner)])
    starts, lengths = physical.spans(array)
    bounds = physical.offsets(array)
    used = int(bounds[-1] - bounds[0])
    if int(lengths.sum()) == used:
        inner = inner.slice(int(bounds[0]), used)
    else:  # elements under nulls
        inner = physical.take(inner, physical.ranges(starts, lengths))
    return pa.Array.from_buffers(kind, len(array), [validity, _offsets(kind, lengths)], children=[canonical(inner)])
