"""Rows while their time is: each row of the input is in the output from one moment until another.

A row says by itself when it comes (``start``) and when it goes (``end``): two of its columns, NULL for never. Time is
the clock of the epochs' lineage, which never goes back (`coordinator.epochs`). A row is in the output as of an epoch if
start ≤ clock < end.

Trace ``pending``: what is still to happen, and nothing else. A row whose time has not come waits under its start; one
that is in the output waits under its end, if it has one. ``_hash`` is one of 256 fixed buckets by the hash of a key
(whichever the input is spread by already), ``_sub`` the moment itself: 64 bits hold all of it, so there are no ties to
settle. A row that arrives, or goes, changes what it would have waited under by its diff: nothing is looked up for it.

Invariant: as of an epoch, nothing waits under a moment that its clock has passed. So an epoch reads what lies between
the clock before it and its own, and no more: events that are over lie in front of that, and are never walked through,
however long merging leaves them there. It takes them away and does what they say; a row that begins is treated like
one that arrives now.

Cost: O(change + events · log state), plus a binary search per bucket and layer. State: the rows that have a moment
still to come.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from holdfast.operators.arrangement import as_block, change_table
from holdfast.operators.step import Context, KeyedOperator, Step
from holdfast.operators.topk import BUCKETS
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
class TemporalSpec(KeyedOperator):
    """Rows of ``types``; ``start`` and ``end`` are the positions of their moments (None: there is no such column), and
    ``key`` those by whose hash the rows are spread."""

    types: tuple[pa.DataType, ...]
    start: int | None
    end: int | None
    key: tuple[int, ...]

    timed = True

    @property
    def layout(self) -> Layout:
        return Layout(len(self.types), 0, "order")

    def layouts(self) -> dict[str, Layout]:
        return {"pending": self.layout}

    def prepare(self, port: int, change: pa.Table) -> pa.Table:
        keys = [change.column(place) for place in self.key]
        hashes = hash_columns(keys, rows=change.num_rows) & _MASK
        return change.add_column(0, "_hash", pa.array(hashes, pa.uint64()))

    def step(self, arrived: list[pa.Table], traces: dict[str, Trace], context: Context) -> Step:
        trace, clock = traces["pending"], context.clock
        buckets = _buckets(context.low, context.high)
        columns = tuple(physical.plain(arrived[0].column(f"c{place}")) for place in range(len(self.types)))
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
        return Step(
            {"pending": layer},
            _output(self, come.filter(inside), events.filter(~began)),
            due=_due(trace, layer, buckets, clock),
        )


def _buckets(low: int, high: int) -> Words:
    """The buckets in a range of hashes."""
    starts = np.arange(BUCKETS, dtype=np.uint64) * np.uint64(_WIDTH)
    return starts[(starts >= np.uint64(low)) & (starts <= np.uint64(high - 1))]


def _place(moment: int) -> np.uint64:
    """Where a moment stands in the order of ``_sub``."""
    return np.uint64(moment + (1 << 63))


def _places(moments: Ints) -> Words:
    return np.bitwise_xor(moments.view(np.uint64), _SIGN)


def _moments(spec: TemporalSpec, rows: Block) -> tuple[Ints, Ints]:
    """When each row comes and goes."""
    return _moment(spec.start, rows, _ALWAYS), _moment(spec.end, rows, _EVER)


def _moment(position: int | None, rows: Block, never: int) -> Ints:
    if position is None or not rows.rows:
        return np.full(rows.rows, never, np.int64)
    column = rows.columns[position]
    values: Ints = physical.fixed(column).astype(np.int64, copy=False)
    valid = physical.valid(column)
    return values if valid is None else np.where(valid, values, never)


def _begins(spec: TemporalSpec, events: Block) -> np.ndarray:
    """Which events are beginnings. A row that has both moments starts before it ends, so which one it is shows."""
    start, _ = _moments(spec, events)
    assert events.sub is not None
    began: np.ndarray = (events.sub == _places(start)) & (start > _ALWAYS)
    return began


def _negated(events: Block) -> Block:
    return replace(events, adds={"+diff": -events.diff})


def _under(moments: Ints, rows: Block, which: np.ndarray) -> Block:
    """The rows that wait, under the moments for which they do."""
    return replace(rows, sub=_places(moments)).filter(which)


def _output(spec: TemporalSpec, come: Block, gone: Block) -> pa.Table:
    rows = replace(Block.concat([come, _negated(gone)]), sub=None)
    whole = consolidate(rows, Layout(len(spec.types), 0, "hash"))
    return change_table(whole.columns, spec.types, whole.diff)


def _due(trace: Trace, layer: Block, buckets: Words, clock: int) -> int | None:
    """When something happens next: not after that, but maybe nothing, if the row that waited has gone since."""
    places = [] if (found := trace.least(buckets, _place(clock))) is None else [found]
    if layer.rows:
        assert layer.sub is not None
        later = layer.sub[layer.sub > _place(clock)]
        places += [int(later.min())] if len(later) else []
    return min(places) - (1 << 63) if places else None
