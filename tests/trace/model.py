"""What the tests of traces share: arrays of every type in every disguise, and rows as Python sees them.

Lists of values and Arrow arrays are made side by side, so that each kernel has its oracle in plain Python: ``identity``
turns a value into something hashable that is equal exactly when the kernels must call two values equal.
"""

from __future__ import annotations

import datetime as dt
import struct
from decimal import Decimal
from functools import cache
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

TYPES: list[pa.DataType] = [
    pa.bool_(),
    pa.int8(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.decimal128(10, 2),
    pa.decimal128(38, 5),
    pa.string(),
    pa.large_string(),
    pa.binary(),
    pa.binary(5),
    pa.date32(),
    pa.timestamp("us"),
    pa.timestamp("us", "UTC"),
    pa.duration("us"),
    pa.time64("us"),
    pa.null(),
    pa.struct([("a", pa.int64()), ("b", pa.string())]),
    pa.struct([]),
    pa.list_(pa.int32()),
    pa.list_(pa.string()),
    pa.large_list(pa.float64()),
    pa.list_(pa.struct([("x", pa.string()), ("y", pa.list_(pa.bool_()))])),
    pa.struct([("l", pa.list_(pa.float64())), ("d", pa.decimal128(20, 0))]),
    pa.list_(pa.int16(), 2),
    pa.map_(pa.string(), pa.int64()),
]
KEY_TYPES = [kind for kind in TYPES if not pa.types.is_map(kind)]

_FLOATS = [0.0, -0.0, 1.0, -1.5, float("inf"), float("-inf"), float("nan"), 5e-324, 2.0**900, -0.1]
_TEXTS = [
    "",
    "a",
    "b",
    "ab",
    "a\0",
    "ä",
    "exactly8",
    "exactly8x",
    "more than sixteen bytes",
    "x" * 300,
    "x" * 299 + "y",
]


def value(rng: Random, kind: pa.DataType, *, nulls: bool = True) -> Any:
    """A value of a type, from a small set, so that equal ones meet."""
    if pa.types.is_null(kind) or (nulls and rng.random() < 0.25):
        return None
    if pa.types.is_struct(kind):
        return {field.name: value(rng, field.type) for field in kind}
    if pa.types.is_map(kind):
        return [(key, value(rng, kind.item_type)) for key in rng.sample(["", "a", "b"], rng.randrange(3))]
    if pa.types.is_nested(kind):
        size = kind.list_size if pa.types.is_fixed_size_list(kind) else rng.randrange(4)
        return [value(rng, kind.value_type) for _ in range(size)]
    return rng.choice(_choices(kind))


def values(rng: Random, kind: pa.DataType, most: int = 12) -> list[Any]:
    return [value(rng, kind) for _ in range(rng.randrange(most + 1))]


@cache
def _choices(kind: pa.DataType) -> list[Any]:
    if pa.types.is_boolean(kind):
        return [True, False]
    if pa.types.is_integer(kind):
        top = 2 ** (kind.bit_width - 1) - 1
        return [0, 1, -1, 2, 7, top, -top - 1]
    if pa.types.is_floating(kind):
        return _FLOATS if kind.bit_width == 64 else [f for f in _FLOATS if f != f or pa.scalar(f, kind).as_py() == f]
    if pa.types.is_decimal(kind):
        top = int("9" * kind.precision)
        return [unscaled(n, kind) for n in (0, 1, -1, 12345, -12346, top, -top)]
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _TEXTS
    if pa.types.is_fixed_size_binary(kind):
        return [b"\0" * kind.byte_width, b"a" * kind.byte_width, b"\xff" * kind.byte_width]
    if pa.types.is_binary(kind):
        return [text.encode() for text in _TEXTS] + [b"\xff\xfe"]
    if pa.types.is_date(kind):
        return [dt.date(1970, 1, 1), dt.date(1969, 12, 31), dt.date(2024, 2, 29)]
    if pa.types.is_timestamp(kind):
        zone = dt.UTC if kind.tz else None
        return [dt.datetime(1970, 1, 1, tzinfo=zone), dt.datetime(2024, 2, 29, 12, 30, 1, 7, tzinfo=zone)]
    if pa.types.is_duration(kind):
        return [dt.timedelta(0), dt.timedelta(microseconds=-1), dt.timedelta(days=3)]
    assert pa.types.is_time(kind)
    return [dt.time(0), dt.time(23, 59, 59, 999999)]


def unscaled(number: int, kind: pa.DataType) -> Decimal:
    return Decimal((number < 0, tuple(int(digit) for digit in str(abs(number))), -kind.scale))


def identity(value: Any) -> Any:
    """Equal exactly for values that are the same: NULL = NULL, floats by their bits."""
    if isinstance(value, float):
        return ("float", struct.pack("d", value))
    if isinstance(value, dict):
        return ("struct", tuple((name, identity(inner)) for name, inner in value.items()))
    if isinstance(value, list | tuple):
        return ("list", tuple(identity(inner) for inner in value))
    return value


def columns_of(rows: list[tuple[Any, ...]], kinds: list[pa.DataType]) -> list[pa.Array]:
    return [pa.array([row[i] for row in rows], kind) for i, kind in enumerate(kinds)]


def rows_of(columns: list[pa.Array] | tuple[pa.Array, ...]) -> list[tuple[Any, ...]]:
    if not columns:
        return []
    return [tuple(identity(v) for v in row) for row in zip(*(c.to_pylist() for c in columns), strict=True)]


def disguised(rng: Random, items: list[Any], kind: pa.DataType) -> pa.Array:
    """The same values in other buffers: a slice out of a longer array, with other values under the nulls."""
    before, behind = values(rng, kind, 9), values(rng, kind, 2)
    nulls = np.array([item is None for item in items], np.bool_)
    if nulls.any() and not pa.types.is_null(kind):
        fill = value(rng, kind, nulls=False)
        array = _nulled([fill if item is None else item for item in items], nulls, kind)
    else:
        array = pa.array(items, kind)
    if before or behind:
        array = pa.concat_arrays([pa.array(before, kind), array, pa.array(behind, kind)])
    return array.slice(len(before), len(items))


def _nulled(items: list[Any], nulls: np.ndarray, kind: pa.DataType) -> pa.Array:
    """An array with values that do not count under its nulls."""
    full = pa.array(items, kind)
    validity = pa.py_buffer(np.packbits(~nulls, bitorder="little"))
    if pa.types.is_struct(kind):
        children = [full.field(i) for i in range(kind.num_fields)]
        return pa.Array.from_buffers(kind, len(items), [validity], children=children)
    if pa.types.is_map(kind):
        entries = pa.StructArray.from_arrays([full.keys, full.items], fields=[kind.key_field, kind.item_field])
        return pa.Array.from_buffers(kind, len(items), [validity, full.buffers()[1]], children=[entries])
    if pa.types.is_fixed_size_list(kind):
        return pa.Array.from_buffers(kind, len(items), [validity], children=[full.values])
    if pa.types.is_nested(kind):
        return pa.Array.from_buffers(kind, len(items), [validity, full.buffers()[1]], children=[full.values])
    return pa.Array.from_buffers(kind, len(items), [validity, *full.buffers()[1:]])
