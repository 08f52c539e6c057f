"""Stable ids of rows that go to sinks: a receiver that drops ids that it has seen before is exact.

An id is a text of four parts, ``<view>-<epoch>-<row>-<copy>``: a hash of the view's name, the flow's number of the
epoch, a hash of the row, and a number that tells rows of equal hash apart. A change holds *n* copies of a row as one
row with ``_diff`` = *n*; with ids they are *n* rows with ``_diff`` 1 or -1, each with its own id.

Invariant: ids are a function of view, epoch and change alone, so every replay gives the same ids, in the same order.
Within an epoch no two ids are equal, even if hashes collide: rows of equal hash are numbered in the canonical order of
their content (`trace.rows.consolidate`). Cost: one sort of the change.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import SinkError
from holdfast.plan.nodes import Field
from holdfast.trace import exact, physical
from holdfast.trace.hashing import hash_columns
from holdfast.trace.physical import Ints, Words
from holdfast.trace.rows import Block, Layout, consolidate, constant_epoch

ID = "_id"
"""The name of the column with the ids."""

_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)


def with_ids(view: str, epoch: int, change: pa.Table) -> pa.Table:
    """The change (the view's columns and ``_diff``) with one row and one id per copy: the view's columns, ``_id`` and
    ``_diff``, in an order that is a function of the rows."""
    width = change.num_columns - 1
    columns = tuple(physical.plain(change.column(place)) for place in range(width))
    hashes = hash_columns(list(columns), normalise=False, rows=change.num_rows)
    diff = physical.fixed(physical.plain(change.column("_diff")))
    block = Block(hashes, None, columns, constant_epoch(0, change.num_rows), {"+diff": diff})
    rows = consolidate(block, Layout(width, width))
    copies = exact.repeated(np.abs(rows.diff))
    taken = rows.take(copies)
    signs = np.sign(rows.diff)[copies]
    arrays = [*taken.columns, _texts(view, epoch, taken.hash), pa.array(signs, pa.int64())]
    names = [*change.column_names[:width], ID, "_diff"]
    types = [change.schema.field(place).type for place in range(width)] + [pa.string(), pa.int64()]
    made = [each if each.type == kind else each.cast(kind) for each, kind in zip(arrays, types, strict=True)]
    return pa.table(made, schema=pa.schema(list(zip(names, types, strict=True)), metadata=change.schema.metadata))


def check_no_ids(view: str, fields: Sequence[Field]) -> None:
    """Raise `SinkError` if a view whose rows get ids has a column ``_id`` of its own."""
    if any(field.name.lower() == ID for field in fields):
        raise SinkError(f"sink of view '{view}': its rows get a column '{ID}'; rename the view's own", view=view)


def _texts(view: str, epoch: int, hashes: Words) -> pa.Array:
    """The ids of rows with these sorted hashes."""
    prefix = f"{hashlib.blake2b(view.encode(), digest_size=8).hexdigest()}-{epoch}-"
    numbers = pa.array(_numbers(hashes), pa.int64()).cast(pa.string())
    return pc.binary_join_element_wise(pa.scalar(prefix), _hexadecimal(hashes), "-", numbers, "")


def _hexadecimal(words: Words) -> pa.Array:
    """Each word as 16 hexadecimal digits."""
    octets = words.astype(">u8").view(np.uint8).reshape(-1, 8)
    digits = np.stack([_DIGITS[octets >> 4], _DIGITS[octets & 15]], axis=-1)
    buffers = [None, pa.py_buffer((np.arange(len(words) + 1) * 16).astype(np.int32)), pa.py_buffer(digits.tobytes())]
    return pa.Array.from_buffers(pa.string(), len(words), buffers)


def _numbers(hashes: Words) -> Ints:
    """For each of the sorted ``hashes``, its number among the hashes equal to it, from 0 on."""
    places = np.arange(len(hashes))
    fresh = np.ones(len(hashes), np.bool_)
    fresh[1:] = hashes[1:] != hashes[:-1]
    numbers: Ints = places - np.maximum.accumulate(np.where(fresh, places, 0))
    return numbers
