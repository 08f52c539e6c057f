"""Spark's order of values, and a total order of rows.

``ranks`` numbers the values of a column in Spark's order: NaN greatest, -0.0 = 0.0, strings and binaries by bytes,
structs field by field, arrays element by element and shorter first, NULL least inside them. ``sort_rows`` orders rows
by some columns, then by all columns ascending, then by content. Content only decides between rows that are equal in
Spark's order (-0.0 and 0.0, maps), so that the order of rows does not depend on the order in which they arrived. O(rows
log rows) per column; called only for the first rows of groups and for the partitions of windows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.trace import physical
from holdfast.trace.equality import content_ranks
from holdfast.trace.order import order_prefix

Ranks = npt.NDArray[np.int64]

Order = tuple[int, bool, bool]
"""A column to order by: (position, descending, nulls first)."""


def sort_rows(group: npt.NDArray[np.generic], columns: Sequence[pa.Array], order: Sequence[Order]) -> Ranks:
    """The permutation that sorts rows by group, and the rows of each group by ``order``."""
    if len(group) < 2:
        return np.arange(len(group))
    place = _dense(group)
    for position, descending, nulls_first in order:
        place = _refined(place, _directed(columns[position], descending, nulls_first))
    for column in columns:
        if int(place.max()) + 1 == len(place):
            break  # no two rows tie any more
        place = _refined(place, ranks(column))
    place = _refined(place, content_ranks(columns, rows=len(group)))
    return np.argsort(place, kind="stable")


def is_ordered(kind: pa.DataType) -> bool:
    """Whether Spark orders values of the type."""
    return not pa.types.is_map(kind) and all(is_ordered(kind.field(i).type) for i in range(kind.num_fields))


def ranks(array: pa.Array) -> Ranks:
    """Number the values in Spark's order: NULL is 0, values are 1 and above. Maps, which Spark does not order, are
    numbered by content."""
    array = physical.plain(array)
    kind = array.type
    if pa.types.is_null(kind) or not len(array):
        return np.zeros(len(array), np.int64)
    if physical.is_bytes(kind) or pa.types.is_map(kind):
        return content_ranks([array])  # by bytes, which is Spark's order of strings
    if pa.types.is_struct(kind):
        found = np.zeros(len(array), np.int64)
        for i in range(kind.num_fields):
            found = _refined(found, ranks(array.field(i)))
    elif physical.is_list(kind):
        found = _list_ranks(array)
    elif pa.types.is_decimal(kind):
        halves = physical.fixed(array)
        found = _dense(halves[:, -1].view(np.int64))  # the sign is in the high half
        for word in range(halves.shape[1] - 2, -1, -1):
            found = _refined(found, _dense(halves[:, word]))
    else:
        found = _dense(order_prefix(array, descending=False, nulls_first=True))
    valid = physical.valid(array)
    return found + 1 if valid is None else np.where(valid, found + 1, 0)


def _directed(array: pa.Array, descending: bool, nulls_first: bool) -> Ranks:
    found = ranks(array)
    nulls = found == 0
    top = int(found.max(initial=0)) + 1
    if descending:
        found = top - found
    return np.where(nulls, 0 if nulls_first else top + 1, found)


def _list_ranks(array: pa.Array) -> Ranks:
    """Number lists element by element: at each place, a list that has ended comes first, then NULL, then values."""
    starts, lengths = physical.spans(array)
    inner = ranks(physical.elements(array)) + 1
    found = np.zeros(len(array), np.int64)
    for index in range(int(lengths.max(initial=0))):
        here = np.zeros(len(array), np.int64)
        rows = np.flatnonzero(lengths > index)
        here[rows] = inner[starts[rows] + index]
        found = _refined(found, here)
    return found


def _refined(major: Ranks, minor: Ranks) -> Ranks:
    """Ranks by major, then minor. They are dense, so that products of ranks stay below the number of rows squared."""
    return _dense(major * (int(minor.max(initial=0)) + 1) + minor)


def _dense(values: npt.NDArray[np.generic]) -> Ranks:
    found: Ranks = np.unique(values, return_inverse=True)[1].astype(np.int64, copy=False)
    return found
