"""Rows with a validity in time: each row of the input is in the output from one moment until another.

Two columns of a row are its moments: ``start`` and ``end``. A NULL start means always, a NULL end for ever. Time is the
clock of the epochs' lineage, which never goes back (`coordinator.epochs`). A row is in the output as of an epoch if
start ≤ clock < end.

Trace ``pending`` holds only future events. A row whose start has not come waits under its start; a row in the output
waits under its end, if it has one. ``_hash`` is one of 256 fixed buckets, by the hash of a key (the key by which the
input is already spread); ``_sub`` is the moment itself, which fits into 64 bits, so the order is exact. A row that
arrives is added under its moment with its diff, also if the diff is negative, so no row is looked up.

Invariant: as of an epoch, no row waits under a moment ≤ its clock. So an epoch reads only the events between the clock
of the epoch before and its own clock. Past events have smaller moments, so they are never read, even if merging has not
yet removed them from the layers. The epoch removes the events it read from the trace. A row that starts is then treated
like a row that arrives now; a row that ends leaves the output.

Cost: O(change + events · log state), plus a binary search per bucket and layer. State: the rows with a future moment.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from holdfast.operators.arrangement import as_block, change_table
from holdfast.operators.step import Context, KeyedOperator, OperatorNode, StepResult, arrow_types
from holdfast.operators.topk import BUCKETS
from holdfast.plan.dataflow import Operator
from holdfast.plan.expression import Tree
from holdfast.plan.fingerprint import digest
from holdfast.plan.nodes import Field, KeyedPart, OneInput, Order, touches
from holdfast.plan.placement import Placement
from holdfast.trace import physical
from holdfast.trace.hashing import hash_columns
from holdfast.trace.physical import Ints, Words
from holdfast.trace.rows import Block, Layout, consolidate
from holdfast.trace.trace import Trace

_WIDTH = 2**64 // BUCKETS
_MASK = np.uint64(2**64 - _WIDTH)
_SIGN = np.uint64(1 << 63)
_EVER = np.iinfo(np.int64).max
_ALWAYS = np.iinfo(np.int64).min


@dataclass(frozen=True)
class Temporal(OneInput, OperatorNode):
    """The rows of the input that are valid now. ``start`` and ``end`` are timestamp columns; a row is in the output as
    of an epoch if start ≤ clock < end. If the column or its value is missing, the row is valid always (start) or for
    ever (end).

    The clock is that of the epoch's lineage. Columns: the input's.
    """

    start: str | None
    end: str | None
    calendar: str = ""
    """What the expressions of the moments assume of the session's time zone: nothing (empty), that no date occurs twice
    (``days``), or that all days have 24 hours (``fixed``)."""

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        return self.input.fields

    @property
    def moments(self) -> tuple[str, ...]:
        """The names of the columns ``start`` and ``end``, as far as there are such columns."""
        return tuple(name for name in (self.start, self.end) if name is not None)

    @cached_property
    def parts(self) -> tuple[KeyedPart, ...]:
        since = "" if self.start is None else f" from {self.start}"
        title = "rows while their time is," + since + ("" if self.end is None else f" until {self.end}")
        key = self._key()
        return (KeyedPart("temporal", keys=(key,), spread=(key,), title=title, timed=True),)

    def _key(self) -> tuple[int, ...]:
        """The positions of the key: the key by which the rows are already spread, else all columns but the moments."""
        key = self.input.arrangement
        if len(key) < len(self.columns):
            return key
        moments = {self.columns.index(name) for name in self.moments}
        return tuple(index for index in key if index not in moments) or key

    @property
    def _positions(self) -> tuple[int | None, int | None]:
        """The positions of ``start`` and ``end``; None for a column that does not exist."""
        start, end = (None if name is None else self.columns.index(name) for name in (self.start, self.end))
        return start, end

    def compiled(self, operator: Operator) -> TemporalSpec:
        return TemporalSpec(arrow_types(self.fields), *self._positions, operator.keys[0])

    def meaning(self, *inputs: str) -> str:
        return digest("temporal", inputs[0], *self._positions)

    def placed(self, *inputs: Placement) -> Placement:
        (below,) = inputs
        if below.stage and below.spread:
            return below
        row = tuple(name for name in self.columns if name not in self.moments) or self.columns
        return Placement(below.stage + 1, frozenset({row}))

    def needs(self, wanted: Collection[str]) -> tuple[set[str], ...]:
        return ({*wanted, *self.moments},)

    def pushed(self, condition: Tree) -> tuple[Tree | None, ...] | None:
        # The moments of a row are in the row itself, and do not depend on other rows.
        return (condition,) if touches(condition, self.columns) else None

    @property
    def shown_order(self) -> tuple[Order, ...]:
        return self.input.shown_order


@dataclass(frozen=True)
class TemporalSpec(KeyedOperator):
    """The keyed operator of a `Temporal` over rows of ``types``. ``start`` and ``end`` are the positions of the moments
    (None: there is no such column), ``key`` the positions by whose hash the rows are spread."""

    types: tuple[pa.DataType, ...]
    start: int | None
    end: int | None
    key: tuple[int, ...]

    @property
    def layout(self) -> Layout:
        return Layout(len(self.types), 0, "order")

    def layouts(self) -> dict[str, Layout]:
        return {"pending": self.layout}

    def prepare(self, port: int, change: pa.Table) -> pa.Table:
        keys = [change.column(index) for index in self.key]
        hashes = hash_columns(keys, rows=change.num_rows) & _MASK
        return change.add_column(0, "_hash", pa.array(hashes, pa.uint64()))

    def step(self, arrived: list[pa.Table], traces: dict[str, Trace], context: Context) -> StepResult:
        trace, clock = traces["pending"], context.clock
        buckets = _buckets(context.low, context.high)
        columns = tuple(physical.plain(arrived[0].column(f"c{index}")) for index in range(len(self.types)))
        nothing = np.zeros(arrived[0].num_rows, np.uint64)
        change = as_block(arrived[0], columns, nothing, context.epoch)
        events = trace.between(buckets, _place(context.before), _place(clock))
        events = consolidate(events.at(context.epoch), self.layout)
        began = _begins(self, events)
        come = Block.concat([change, events.filter(began)])
        start, end = _moments(self, come)
        inside = (start <= clock) & (clock < end)
        waiting = (clock < start) & (start < end)
        layer = consolidate(
            Block.concat(
                [
                    _negated(events),
                    _under(start, come, waiting),
                    _under(end, come, inside & (end < _EVER)),
                ]
            ),
            self.layout,
        )
        return StepResult(
            {"pending": layer},
            _output(self, come.filter(inside), events.filter(~began)),
            due=_due(trace, layer, buckets, clock),
        )


def _buckets(low: int, high: int) -> Words:
    """The first hashes of the buckets in the range [low, high) of hashes."""
    starts = np.arange(BUCKETS, dtype=np.uint64) * np.uint64(_WIDTH)
    return starts[(starts >= np.uint64(low)) & (starts <= np.uint64(high - 1))]


def _place(moment: int) -> np.uint64:
    """The ``_sub`` of a moment (microseconds since 1970): it has the order of the moments."""
    return np.uint64(moment + (1 << 63))


def _places(moments: Ints) -> Words:
    return np.bitwise_xor(moments.view(np.uint64), _SIGN)


def _moments(spec: TemporalSpec, rows: Block) -> tuple[Ints, Ints]:
    """The moments at which each row starts and ends."""
    return _moment(spec.start, rows, _ALWAYS), _moment(spec.end, rows, _EVER)


def _moment(position: int | None, rows: Block, never: int) -> Ints:
    if position is None or not rows.rows:
        return np.full(rows.rows, never, np.int64)
    column = rows.columns[position]
    values: Ints = physical.fixed(column).astype(np.int64, copy=False)
    valid = physical.valid(column)
    return values if valid is None else np.where(valid, values, never)


def _begins(spec: TemporalSpec, events: Block) -> np.ndarray:
    """Whether each event is the start of a row. Every row in the trace starts before it ends, so its ``_sub`` tells
    which of the two moments the event is."""
    start, _ = _moments(spec, events)
    assert events.sub is not None
    began: np.ndarray = (events.sub == _places(start)) & (start > _ALWAYS)
    return began


def _negated(events: Block) -> Block:
    return replace(events, adds={"+diff": -events.diff})


def _under(moments: Ints, rows: Block, which: np.ndarray) -> Block:
    """The rows for which ``which`` is True, each under its moment."""
    return replace(rows, sub=_places(moments)).filter(which)


def _output(spec: TemporalSpec, come: Block, gone: Block) -> pa.Table:
    rows = replace(Block.concat([come, _negated(gone)]), sub=None)
    whole = consolidate(rows, Layout(len(spec.types), 0, "hash"))
    return change_table(whole.columns, spec.types, whole.diff)


def _due(trace: Trace, layer: Block, buckets: Words, clock: int) -> int | None:
    """The next moment in the trace: no event happens earlier. At this moment there may be no event, if the row that
    waited was deleted. None if no row waits."""
    places = [] if (found := trace.least(buckets, _place(clock))) is None else [found]
    if layer.rows:
        assert layer.sub is not None
        later = layer.sub[layer.sub > _place(clock)]
        places += [int(later.min())] if len(later) else []
    return min(places) - (1 << 63) if places else None
