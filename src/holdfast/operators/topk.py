"""The first rows of a collection in an order: ORDER BY … LIMIT … OFFSET.

Two operators of one class. ``bucket`` keeps every row, in 256 fixed buckets by the hash of the key by which the input
is already spread, and outputs the first ``limit + offset`` rows of each bucket. ``global`` keeps the rows that the
buckets output, in one partition, and outputs the rows at places [offset, offset + limit). So neither all rows nor all
the work are in one task. The buckets do not depend on the number of partitions, so neither does the result.

Trace ``rows``: ``_hash`` is the bucket, ``_sub`` the order prefix of the first order column, so the first rows of a
bucket are at the front of its run (``Trace.first``).

A row takes as many places as it has copies; at the border only some of its copies may be in the output. The order is
total: the order columns, then all columns, then content (`ordering`).

Cost: O(change · log change + front), where *front* (see `first_rows.front`) includes rows that tie with the border's
prefix and removed rows before the border.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.operators.arrangement import as_block, change_table
from holdfast.operators.first_rows import front
from holdfast.operators.ordering import Order, is_ordered, sort_rows
from holdfast.operators.step import Context, KeyedOperator, OperatorNode, StepResult, arrow_types
from holdfast.plan import nodes
from holdfast.plan.dataflow import Operator
from holdfast.plan.fingerprint import digest, order_positions
from holdfast.plan.nodes import Field, KeyedPart, OneInput
from holdfast.plan.placement import Placement
from holdfast.trace import physical
from holdfast.trace.hashing import hash_columns
from holdfast.trace.order import order_prefix
from holdfast.trace.rows import Layout, consolidate
from holdfast.trace.trace import Trace

BUCKETS = 256
_MASK = np.uint64((BUCKETS - 1) << 56)

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class TopK(OneInput, OperatorNode):
    """The rows at places ``offset`` to ``offset + limit`` of the order. Ties are broken by the whole row.

    Without ``order`` it is a bare LIMIT: rows are ordered by the whole row. Conditions are not pushed through: which
    rows are first depends on the rows that a condition would drop.
    """

    order: tuple[nodes.Order, ...]
    limit: int
    offset: int = 0

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        return self.input.fields

    @cached_property
    def parts(self) -> tuple[KeyedPart, ...]:
        order = ", ".join(item.text for item in self.order)
        title = f"first {self.limit}" + (f" after {self.offset}" if self.offset else "")
        first = f"first {self.limit + self.offset} of each bucket"
        return (
            # The first rows of each of 256 fixed buckets, in many tasks; then the first rows of all, in one partition.
            KeyedPart("bucket", keys=(self.input.arrangement,), spread=(), title=first, suffix="-bucket"),
            KeyedPart("global", keys=((),), spread=((),), title=title + (f" by {order}" if order else "")),
        )

    def compiled(self, operator: Operator) -> TopKSpec:
        scope: Literal["bucket", "global"] = "bucket" if operator.part == self.parts[0] else "global"
        order = order_positions(self.order, self.columns)
        return TopKSpec(order, self.limit, self.offset, arrow_types(self.fields), scope, operator.keys[0])

    def meaning(self, *inputs: str) -> str:
        return digest("topk", inputs[0], order_positions(self.order, self.columns), self.limit, self.offset)

    def placed(self, *inputs: Placement) -> Placement:
        # The bucket part runs where the rows are spread by a key; rows that are not spread by any are first exchanged.
        (below,) = inputs
        return Placement((below.stage if below.spread else below.stage + 1) + 1, frozenset({()}))

    def needs(self, wanted: Collection[str]) -> tuple[set[str], ...]:
        return ({*wanted, *(each.column for each in self.order)},)

    def guessed_rows(self, *inputs: float) -> float:
        return max(1.0, min(float(self.limit), inputs[0]))

    @property
    def shown_order(self) -> tuple[nodes.Order, ...]:
        return self.order


@dataclass(frozen=True)
class TopKSpec(KeyedOperator):
    """The rows at places [offset, offset + limit) of rows of ``types`` in ``order`` (position, descending, nulls
    first). ``key``: the positions by whose hash the rows are spread; not used by ``global``."""

    order: tuple[Order, ...]
    limit: int
    offset: int
    types: tuple[pa.DataType, ...]
    scope: Literal["bucket", "global"]
    key: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        """The number of first rows that decide about the output."""
        return self.limit + self.offset

    def layouts(self) -> dict[str, Layout]:
        return {"rows": Layout(len(self.types), 0, "order")}

    def prepare(self, port: int, change: pa.Table) -> pa.Table:
        if self.scope == "bucket":
            keys = [change.column(index) for index in self.key]
            hashes = hash_columns(keys, rows=change.num_rows) & _MASK
        else:
            hashes = np.zeros(change.num_rows, np.uint64)
        return change.add_column(0, "_hash", pa.array(hashes, pa.uint64()))

    def step(self, arrived: list[pa.Table], traces: dict[str, Trace], context: Context) -> StepResult:
        table, trace = arrived[0], traces["rows"]
        columns = tuple(physical.plain(table.column(f"c{index}")) for index in range(len(self.types)))
        delta = consolidate(
            as_block(table, columns, _prefix(self, columns, table.num_rows), context.epoch), trace.layout
        )
        found = front(delta, trace, self.count) if self.count else delta.slice(0, 0)
        found = found.take(sort_rows(found.hash, found.columns, self.order))
        low = self.offset if self.scope == "global" else 0
        before = _places(found.hash, found.add("+old"), low, self.count)
        after = _places(found.hash, np.maximum(found.add("+new"), 0), low, self.count)
        diff = after - before
        changed = np.flatnonzero(diff)
        output = change_table(physical.take_all(found.columns, changed), self.types, diff[changed])
        return StepResult({"rows": delta}, output)


def _prefix(spec: TopKSpec, columns: tuple[pa.Array, ...], rows: int) -> Words:
    """The ``_sub`` of each row: the prefix of the first order column, or of the first column if there is no order."""
    if spec.order:
        position, descending, nulls_first = spec.order[0]
        return order_prefix(columns[position], descending=descending, nulls_first=nulls_first)
    if columns and is_ordered(columns[0].type):
        return order_prefix(columns[0], descending=False, nulls_first=True)
    return np.zeros(rows, np.uint64)


def _places(group: Words, copies: Ints, low: int, high: int) -> Ints:
    """How many copies of each row are at places [low, high) of its group. Rows of a group are adjacent and in order."""
    if not len(group):
        return copies
    copies = np.minimum(copies, high)
    starts = np.flatnonzero(np.concatenate(([True], group[1:] != group[:-1])))
    sizes = np.diff(np.append(starts, len(group)))
    end = np.cumsum(copies)
    end = end - np.repeat((end - copies)[starts], sizes)
    inside: Ints = np.minimum(end, high) - np.maximum(end - copies, low)
    return np.maximum(inside, 0)
