"""Window functions: each row with values computed from its partition, kept up to date from changes.

Trace ``rows``: the input's rows, key first (the PARTITION BY columns), ordered by a prefix of the first order column.
An epoch reads only the partitions that its change touches, as of the epoch before. It sorts their rows, old and new,
computes the functions twice, over the old rows and over the new rows, and outputs the difference.

The order is total: the order columns, then all columns, then content (`ordering`). Copies of a row are adjacent. The
i-th copy of a row before the epoch is compared with its i-th copy after it: if the values of the functions are equal
bit for bit, both are dropped. The remaining rows are consolidated.

With ``first`` the output has only the first rows of each partition, by row number or by rank. Then only these rows are
read, from the front of the trace (`first_rows.front`), and the rest of the partition costs nothing. The trace keeps all
rows: if a first row is deleted, a later row takes its place.

Multiplicities are assumed to be ≥ 0: sources check that.

Cost: O(n log n) for the n rows of the partitions touched, however small the change: a new first row changes the values
of all others. With ``first``, n counts only the first rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from holdfast.operators.aggregates.results import describe
from holdfast.operators.aggregates.touched_groups import Groups
from holdfast.operators.arrangement import Arrangement, as_block, change_table
from holdfast.operators.first_rows import front, together
from holdfast.operators.numbers.digits import Bools, Ints, Words
from holdfast.operators.ordering import Order, sort_rows
from holdfast.operators.step import Context, KeyedOperator, OperatorNode, StepResult, arrow_types
from holdfast.operators.window_frames import Ends, Places, reached
from holdfast.operators.window_functions import WHOLE, OverSpec, WindowCall, evaluate
from holdfast.plan import nodes
from holdfast.plan.dataflow import Operator
from holdfast.plan.expression import Tree
from holdfast.plan.fingerprint import digest, order_positions, positions
from holdfast.plan.nodes import Field, KeyedPart, Node, OneInput, only, touches
from holdfast.plan.types import arrow_type
from holdfast.trace import exact, physical
from holdfast.trace.hashing import hash_columns, normalise_keys
from holdfast.trace.order import order_prefix
from holdfast.trace.rows import Block, Layout, consolidate, constant_epoch, equal_rows, group_rows
from holdfast.trace.trace import Trace


@dataclass(frozen=True)
class First:
    """A limit: only rows for which ``call``, a ``row_number`` or a ``rank``, is at most ``count`` are in the output."""

    call: str
    count: int


@dataclass(frozen=True)
class Window(OneInput, OperatorNode):
    """Each row of the input with values computed from the rows of its partition, in an order.

    Rows are in one partition if their columns ``partition`` are equal, as in GROUP BY. Ties of the order are broken by
    the whole row, and copies of a row are adjacent. Columns: the input's, then the calls'. A `Window` without calls is
    its input.

    With ``first`` only the first rows are in the output; then all calls are ``row_number``, ``rank`` or ``dense_rank``.
    """

    partition: tuple[str, ...]
    order: tuple[nodes.Order, ...]
    calls: tuple[WindowCall, ...]
    first: First | None = None

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        return self.input.fields + tuple(Field(call.name, call.type) for call in self.calls)

    @cached_property
    def parts(self) -> tuple[KeyedPart, ...]:
        key = positions(self.partition, self.columns)
        order = ", ".join(item.text for item in self.order)
        calls = ", ".join(call.text for call in self.calls)
        by = f" by {', '.join(self.partition)}" if self.partition else ""
        first = "" if self.first is None else f", {self.first.call} up to {self.first.count}"
        return (
            KeyedPart(
                "window",
                keys=(key,),
                spread=(key,),
                title=f"window{by}{' in order of ' + order if order else ''}: {calls}{first}",
                cost="of the partition" if self.first is None else "of the change and the partition's front",
                colour="#fdeaea",
            ),
        )

    @property
    def _first(self) -> tuple[int, int] | None:
        """``first`` with the index of its call instead of the name: (index, count)."""
        names = [call.name for call in self.calls]
        return None if self.first is None else (names.index(self.first.call), self.first.count)

    def compiled(self, operator: Operator) -> WindowSpec:
        partition = tuple(dict.fromkeys(operator.keys[0]))
        order = order_positions(self.order, self.columns)
        calls = tuple(map(self._over_spec, self.calls))
        return WindowSpec(partition, order, calls, arrow_types(self.input.fields), self._first)

    def _over_spec(self, call: WindowCall) -> OverSpec:
        columns, fields = self.input.columns, self.input.fields
        at = positions(call.arguments, columns)
        low, high = (None if end is None else columns.index(end.column) for end in call.reach)
        return OverSpec(
            call.function,
            at,
            arrow_types(fields[index] for index in at),
            arrow_type(call.type),
            call.number,
            WHOLE if call.frame is None else call.frame,
            call.ignore_nulls,
            (low, high),
        )

    def meaning(self, *inputs: str) -> str:
        columns = self.input.columns
        calls = tuple(
            (
                call.function,
                positions(call.arguments, columns),
                call.number,
                None if call.frame is None else (call.frame.rows, call.frame.start, call.frame.end),
                call.ignore_nulls,
                tuple(None if end is None else columns.index(end.column) for end in call.reach),
            )
            for call in self.calls
        )
        partition, order = positions(self.partition, columns), order_positions(self.order, columns)
        return digest("window", inputs[0], partition, order, calls, self._first)

    def _wanted(self, wanted: Collection[str]) -> tuple[WindowCall, ...]:
        """The wanted calls, and the call of ``first``, which decides which rows are in the output."""
        decisive = "" if self.first is None else self.first.call
        return tuple(call for call in self.calls if call.name in wanted or call.name == decisive)

    def needs(self, wanted: Collection[str]) -> tuple[set[str], ...]:
        calls = self._wanted(wanted)
        own = {*self.partition, *(each.column for each in self.order)} if calls else set()
        passed = {name for name in self.input.columns if name in wanted}
        return (passed | own | {name for call in calls for name in call.reads},)

    def pruned(self, wanted: Collection[str], inputs: Sequence[Node]) -> Node:
        calls = self._wanted(wanted)
        below = only(inputs[0], self.needs(wanted)[0])
        if not calls:
            return below
        if below is self.input and len(calls) == len(self.calls):
            return self
        return replace(self, input=below, calls=calls)

    def pushed(self, condition: Tree) -> tuple[Tree | None, ...] | None:
        # A condition on the partition columns keeps or drops whole partitions.
        return (condition,) if touches(condition, self.partition) else None


@dataclass(frozen=True)
class WindowSpec(KeyedOperator):
    """The keyed operator of a `Window`: rows of ``types``, in partitions by the columns at ``partition``, each in
    ``order``. In the output, the calls' results follow the row's columns."""

    partition: tuple[int, ...]
    order: tuple[Order, ...]
    calls: tuple[OverSpec, ...]
    types: tuple[pa.DataType, ...]
    first: tuple[int, int] | None = None
    """(call, count): only rows for which this call, a row_number or a rank, is at most ``count`` are in the output.
    Then all calls are functions that do not depend on later rows."""

    @property
    def arrangement(self) -> Arrangement:
        return Arrangement.by(self.partition, len(self.types))

    @property
    def layout(self) -> Layout:
        return Layout(len(self.arrangement.places), len(self.partition), "order" if self.order else "hash")

    @property
    def result_types(self) -> tuple[pa.DataType, ...]:
        return tuple(call.result_type for call in self.calls)

    def layouts(self) -> dict[str, Layout]:
        return {"rows": self.layout}

    def prepare(self, port: int, change: pa.Table) -> pa.Table:
        return self.arrangement.prepare(change)

    def step(self, arrived: list[pa.Table], traces: dict[str, Trace], context: Context) -> StepResult:
        trace = traces["rows"]
        delta = _delta(self, arrived[0], context.epoch)
        rows, group = _touched(self, delta, trace)
        places = sort_rows(group, rows.columns, _places_in_trace(self))
        rows, group = rows.take(places), group[places]
        before = _Side.of(self, rows, group, rows.add("+old"))
        after = _Side.of(self, rows, group, rows.add("+new"))
        return StepResult({"rows": delta}, _difference(self, rows, before, after, context))


def _delta(spec: WindowSpec, arrived: pa.Table, epoch: int) -> Block:
    columns = tuple(physical.plain(arrived.column(f"c{index}")) for index in spec.arrangement.places)
    sub: Words | None = None
    if spec.order:
        position, descending, nulls_first = spec.order[0]
        column = columns[spec.arrangement.places.index(position)]
        sub = order_prefix(column, descending=descending, nulls_first=nulls_first)
    return consolidate(as_block(arrived, columns, sub, epoch), spec.layout)


def _places_in_trace(spec: WindowSpec) -> tuple[Order, ...]:
    places = spec.arrangement.places
    return tuple((places.index(position), descending, nulls_first) for position, descending, nulls_first in spec.order)


def _touched(spec: WindowSpec, delta: Block, trace: Trace) -> tuple[Block, Ints]:
    """The rows of the partitions that the change touches (with ``first``: only the first rows), with their multiplicity
    before (``+old``) and after (``+new``) the epoch; and the index of each row's partition."""
    groups = _partitions(spec, delta)
    if spec.first is not None:
        rows = front(delta, trace, spec.first[1])
    else:
        rows = together(trace.matching(groups.hashes)[1], delta, trace)
    group = groups.locate(_normalised(spec, rows))
    mine = group >= 0
    return rows.filter(mine), group[mine]


def _normalised(spec: WindowSpec, block: Block) -> Block:
    """The block with normalised keys, so that equal keys have equal bits."""
    keys = tuple(normalise_keys(column) for column in block.columns[: len(spec.partition)])
    return replace(block, columns=(*keys, *block.columns[len(spec.partition) :]))


def _partitions(spec: WindowSpec, delta: Block) -> Groups:
    keys = _normalised(spec, delta).columns[: len(spec.partition)]
    order, starts = group_rows(delta.hash, keys)
    first = order[starts]
    return Groups(delta.hash[first], physical.take_all(keys, first))


@dataclass(frozen=True)
class _Side:
    """The copies of rows in the partitions, before or after the epoch: the row of each copy, its number among the
    copies of that row, and the functions' values."""

    row: Ints
    copy: Ints
    values: tuple[pa.Array, ...]

    @staticmethod
    def of(spec: WindowSpec, rows: Block, group: Ints, copies: Ints) -> _Side:
        copies = np.maximum(copies, 0)
        if spec.first is not None and spec.calls[spec.first[0]].function == "row_number":
            copies = np.minimum(copies, spec.first[1])
        row = exact.repeated(copies)
        copy = np.arange(len(row)) - np.repeat(np.cumsum(copies) - copies, copies)
        places = _places(spec, rows, group, row)
        keys = rows.columns[: len(spec.partition)]

        def column(index: int) -> pa.Array:
            found = rows.columns[spec.arrangement.places.index(index)]
            # A column of a trace without rows has type null.
            return physical.take(found.cast(spec.types[index]) if pa.types.is_null(found.type) else found, row)

        values = tuple(
            evaluate(
                call,
                [column(index) for index in call.arguments],
                places,
                lambda index: describe(keys, int(row[index])),
                _ends(spec, call, column, places),
            )
            for call in spec.calls
        )
        side = _Side(row, copy, values)
        return side if spec.first is None else side.first(*spec.first)

    def first(self, call: int, count: int) -> _Side:
        """Keep the copies for which the call is at most ``count``."""
        kept = np.flatnonzero(physical.fixed(self.values[call]) <= count)
        return _Side(self.row[kept], self.copy[kept], physical.take_all(self.values, kept))


def _ends(spec: WindowSpec, call: OverSpec, column: Callable[[int], pa.Array], places: Places) -> Ends:
    """The ends of frames by value (`Reach`). Prefixes suffice to compare the values, since their types are
    fixed-width."""
    if call.reach == (None, None):
        return None, None
    (position, descending, nulls_first), *_ = spec.order

    def prefix(index: int) -> Words:
        return order_prefix(column(index), descending=descending, nulls_first=nulls_first)

    low, high = (None if index is None else prefix(index) for index in call.reach)
    return reached(prefix(position), physical.valid(column(position)), places, low, high)


def _places(spec: WindowSpec, rows: Block, group: Ints, row: Ints) -> Places:
    """The partition and the peers of each copy."""
    part = group[row]
    fresh = np.ones(len(row), np.bool_)
    fresh[1:] = part[1:] != part[:-1]
    if not spec.order:
        return Places.of(fresh, fresh)
    # Peers are rows with equal order columns, as Spark compares them.
    order = [normalise_keys(rows.columns[position]) for position, _, _ in _places_in_trace(spec)]
    differs = np.ones(rows.rows, np.bool_)
    differs[1:] = ~equal_rows([column.slice(0, max(rows.rows - 1, 0)) for column in order], [c.slice(1) for c in order])
    run = np.cumsum(differs)[row]
    peer = np.ones(len(row), np.bool_)
    peer[1:] = run[1:] != run[:-1]
    return Places.of(fresh, peer)


def _difference(spec: WindowSpec, rows: Block, before: _Side, after: _Side, context: Context) -> pa.Table:
    """The output change: copies that are only in ``before`` are retracted, copies that are only in ``after``
    inserted."""
    _, left, right = np.intersect1d(_copies(before), _copies(after), assume_unique=True, return_indices=True)
    kept = equal_rows(
        physical.take_all(before.values, left), physical.take_all(after.values, right), rows=len(left)
    )  # fmt: skip
    gone, come = _others(len(before.row), left[kept]), _others(len(after.row), right[kept])
    row = np.concatenate([before.row[gone], after.row[come]])
    values = [
        physical.concat([physical.take(old, gone), physical.take(new, come)])
        for old, new in zip(before.values, after.values, strict=True)
    ]
    columns = (*spec.arrangement.original(physical.take_all(rows.columns, row)), *values)
    diff = np.concatenate([np.full(len(gone), -1, np.int64), np.ones(len(come), np.int64)])
    # Copies with different numbers may still cancel: they can be equal in all columns and values.
    layout = Layout(len(columns), len(columns))
    block = Block(
        hash_columns(columns, normalise=False, rows=len(row)),
        None,
        columns,
        constant_epoch(context.epoch, len(row)),
        {"+diff": diff},
    )
    block = consolidate(block, layout)
    return change_table(block.columns, (*spec.types, *spec.result_types), block.diff)


def _copies(side: _Side) -> Ints:
    """A number that identifies each copy of each row: the row in the upper 32 bits, the copy in the lower."""
    return (side.row << 32) + side.copy


def _others(size: int, without: Ints) -> Ints:
    left: Bools = np.ones(size, np.bool_)
    left[without] = False
    return np.flatnonzero(left)
