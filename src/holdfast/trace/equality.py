"""Equality of rows, and an order of rows that is defined by their content alone.

``equal_rows`` compares row by row: NULL equals NULL, floats are compared by their bits (callers normalise keys first),
nested types element by element. ``content_ranks`` numbers rows so that equal rows get equal numbers and the order of
the numbers depends only on the rows' content. It is the last tie-break, when even the hashes of different rows are
equal; the order itself has no meaning. Both functions ignore values under nulls. Costs: O(rows) and O(rows log rows);
ranks are computed only for colliding rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.trace import physical
from holdfast.trace.physical import AnyArray, Bools, Ints


def equal_rows(left: Sequence[AnyArray], right: Sequence[AnyArray], *, rows: int | None = None) -> Bools:
    """Whether row i of ``left`` equals row i of ``right``. Without columns: True, ``rows`` times."""
    if not left:
        return np.ones(rows or 0, np.bool_)
    equal = _equal(physical.plain(left[0]), physical.plain(right[0]))
    for one, other in zip(left[1:], right[1:], strict=True):
        equal = equal & _equal(physical.plain(one), physical.plain(other))
    return equal


def _equal(left: pa.Array, right: pa.Array) -> Bools:
    same = _same_values(left, right)
    left_valid, right_valid = physical.valid(left), physical.valid(right)
    # A null never equals a value.
    if left_valid is None:
        return same if right_valid is None else same & right_valid
    if right_valid is None:
        return same & left_valid
    return (same & left_valid & right_valid) | ~(left_valid | right_valid)


def _same_values(left: pa.Array, right: pa.Array) -> Bools:
    """Whether values are equal. Where a side is null, the answer is arbitrary."""
    kind = left.type
    if pa.types.is_null(kind) or pa.types.is_null(right.type):
        return np.zeros(len(left), np.bool_)
    if physical.is_bytes(kind):
        if not kind.equals(right.type):
            left, right = left.cast(pa.large_binary()), right.cast(pa.large_binary())
        return physical.fixed(pc.equal(left, right)).view(np.bool_)
    if pa.types.is_struct(kind):
        fields = range(kind.num_fields)
        return equal_rows([left.field(i) for i in fields], [right.field(i) for i in fields], rows=len(left))
    if physical.is_list(kind):
        return _same_lists(left, right)
    one, other = physical.fixed(left), physical.fixed(right)
    if pa.types.is_floating(kind):
        one, other = one.view(f"u{one.itemsize}"), other.view(f"u{other.itemsize}")
    same: Bools = one == other
    return same if same.ndim == 1 else np.logical_and.reduce(same, axis=1)


def _same_lists(left: pa.Array, right: pa.Array) -> Bools:
    left_starts, lengths = physical.spans(left)
    right_starts, right_lengths = physical.spans(right)
    same: Bools = lengths == right_lengths
    rows = np.flatnonzero(same & (lengths > 0))
    lengths = lengths[rows]
    one = physical.take(physical.elements(left), physical.ranges(left_starts[rows], lengths))
    other = physical.take(physical.elements(right), physical.ranges(right_starts[rows], lengths))
    differing = np.zeros(len(one) + 1, np.int64)
    np.cumsum(~_equal(physical.plain(one), physical.plain(other)), out=differing[1:])
    ends = np.cumsum(lengths)
    same[rows] = differing[ends] == differing[ends - lengths]
    return same


def content_ranks(columns: Sequence[AnyArray], *, rows: int | None = None) -> Ints:
    """Number rows so that equal rows have equal numbers: 0, 1, 2, … without gaps, in an order defined by content."""
    if not columns:
        return np.zeros(rows or 0, np.int64)
    ranks = _ranks(physical.plain(columns[0]))
    for column in columns[1:]:
        ranks = _paired(ranks, _ranks(physical.plain(column)))
    return ranks


def _paired(major: Ints, minor: Ints) -> Ints:
    return _dense(major * (minor.max(initial=0) + 1) + minor)


def _dense(values: np.ndarray) -> Ints:
    return np.unique(values, return_inverse=True)[1].astype(np.int64, copy=False)


def _ranks(array: pa.Array) -> Ints:
    """Number the rows of one column: nulls are 0, values are 1 and above."""
    kind = array.type
    if pa.types.is_null(kind):
        return np.zeros(len(array), np.int64)
    if physical.is_bytes(kind):
        encoded = array.dictionary_encode()
        words = encoded.dictionary.cast(pa.large_binary())
        places = np.empty(len(words), np.int64)
        places[pc.sort_indices(words).to_numpy()] = np.arange(len(words))
        codes = encoded.indices
        ranks = places[codes.fill_null(0).to_numpy()] if len(words) else np.zeros(len(array), np.int64)
    elif pa.types.is_struct(kind):
        ranks = content_ranks([array.field(i) for i in range(kind.num_fields)], rows=len(array))
    elif physical.is_list(kind):
        ranks = _list_ranks(array)
    else:
        values = physical.fixed(array)
        if values.ndim == 2:
            ranks = _dense(np.ascontiguousarray(values[:, -1]))
            for word in range(values.shape[1] - 2, -1, -1):
                ranks = _paired(ranks, _dense(np.ascontiguousarray(values[:, word])))
        else:
            ranks = _dense(values.view(f"u{values.itemsize}"))
    mask = physical.valid(array)
    return ranks + 1 if mask is None else np.where(mask, ranks + 1, 0)


def _list_ranks(array: pa.Array) -> Ints:
    """Number lists by length, then element by element. Lists of equal rank have equal lengths, so either all of them
    have a next element or none has."""
    starts, lengths = physical.spans(array)
    inner = physical.plain(physical.elements(array))
    element_ranks = _ranks(inner)
    ranks = _dense(lengths)
    for place in range(int(lengths.max(initial=0))):
        rows = np.flatnonzero(lengths > place)
        here = np.zeros(len(array), np.int64)
        here[rows] = element_ranks[starts[rows] + place]
        ranks = _paired(ranks, here)
    return ranks
