"""Deduplication by id: of all records with one id, only the first counts.

A source that delivers at least once gives some records again: late, across crashes, several times in one epoch. Each
record has an id. The operator keeps a catalog of the ids it has seen, and passes a record on if its id is new. Of
several new records with one id in one epoch, the first in the canonical order of their content counts, so the result
does not depend on the order of arrival or on how the records are split.

Trace ``ids``: one row per remembered id: the id, whether its record was deleted, and until when the id is remembered;
if the source can delete records, also the record itself. Trace ``ends`` (only with ``within``): the ids by the moment
at which they are forgotten, in 256 buckets by their hash, as in `operators/temporal.py`. An epoch reads the moments
that have passed since the epoch before, and removes those ids from both traces. A moment is an epoch number, or a time
on the clock of the lineage. Moments are rounded up to a multiple of the *period*, an eighth of ``within``, so that
there are few filters (`trace/hash_filter.py`): one per partition and period.

An id that is in no filter is new, and needs no look-up in the layers. The filters are derived from the trace and only
save look-ups, so losing them changes no result.

Deletions. A deletion of the record that counts for its id is passed on, once. The id stays in the catalog: if the
record or its deletion is delivered again, that has no effect. A deletion of another record with this id has no effect
either, since that record never counted. A deletion whose id is not known (it was forgotten, since ``within`` has
passed) is passed on, once. A record that is inserted and deleted in one epoch leaves nothing, not even its id. So the
output determines the catalog: feeding the output in again, as recovery does, gives the same traces.

A record whose id is NULL has no id, and is passed on unchanged.

The output depends on the epochs in which records came, not only on the bag of all records, so the operator
``remembers``. The rows after this operator are always kept in a log of the source, from which a new view is filled.

Cost: one sort of the change, O(k) filter bits per id, O(ids that may be known · log state), plus the ids forgotten.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from holdfast.operators.aggregates.touched_groups import Groups
from holdfast.operators.arrangement import Arrangement, as_block, change_table
from holdfast.operators.join_sides import touched
from holdfast.operators.step import Context, KeyedOperator, OperatorNode, StepResult, arrow_types
from holdfast.operators.topk import BUCKETS
from holdfast.plan.dataflow import Operator
from holdfast.plan.fingerprint import digest, positions
from holdfast.plan.nodes import Field, KeyedPart, OneInput
from holdfast.trace import physical
from holdfast.trace.equality import equal_rows
from holdfast.trace.hash_filter import filters_of
from holdfast.trace.hashing import hash_columns, normalise_keys
from holdfast.trace.physical import Bools, Ints, Words
from holdfast.trace.rows import Block, Layout, consolidate
from holdfast.trace.trace import Trace

_EVER = np.iinfo(np.int64).max
_WIDTH = 2**64 // BUCKETS
_MASK = np.uint64(2**64 - _WIDTH)
_PERIODS = 8


@dataclass(frozen=True)
class Within:
    """For how long an id is remembered after it came: ``length`` epochs if ``epochs``, else microseconds on the
    lineage's clock."""

    length: int
    epochs: bool

    @property
    def period(self) -> int:
        return max(1, self.length // _PERIODS)

    def until(self, now: int) -> int:
        """The first moment at which an id that comes at ``now`` is forgotten."""
        return -(-(now + self.length + 1) // self.period) * self.period

    @property
    def text(self) -> str:
        return f"{self.length} epochs" if self.epochs else f"{self.length / 1e6:g} s"


@dataclass(frozen=True)
class Unique(OneInput, OperatorNode):
    """The first record of each id (the columns ``ids``). Columns: the input's.

    ``retracts``: whether the source can delete records. ``rate``: the wanted share of new ids that the filters do not
    recognise as new (0 to 1); it changes only the cost.
    """

    ids: tuple[str, ...]
    within: Within | None
    retracts: bool
    rate: float

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        return self.input.fields

    @cached_property
    def parts(self) -> tuple[KeyedPart, ...]:
        key = positions(self.ids, self.columns)
        span = "" if self.within is None else f" within {self.within.text}"
        title = f"the first record of each {', '.join(self.ids)}{span}"
        clock = self.within is not None and not self.within.epochs
        return (
            KeyedPart("unique", keys=(key,), spread=(key,), title=title, timed=clock, ticks=self.within is not None),
        )

    def compiled(self, operator: Operator) -> UniqueSpec:
        return UniqueSpec(arrow_types(self.fields), operator.keys[0], self.within, self.retracts, self.rate)

    def meaning(self, *inputs: str) -> str:
        span = None if self.within is None else (self.within.length, self.within.epochs)
        return digest("unique", inputs[0], positions(self.ids, self.columns), span, self.retracts)

    def needs(self, wanted: Collection[str]) -> tuple[set[str], ...]:
        # All columns decide which record counts.
        return (set(self.input.columns),)

    @property
    def compared(self) -> tuple[str, ...]:
        return self.ids


@dataclass(frozen=True)
class UniqueSpec(KeyedOperator):
    """The keyed operator of a `Unique` over records of ``types``, with the id in the columns at ``key``."""

    types: tuple[pa.DataType, ...]
    key: tuple[int, ...]
    within: Within | None
    retracts: bool
    rate: float

    remembers = True

    @property
    def arrangement(self) -> Arrangement:
        return Arrangement.by(self.key, len(self.types))

    @property
    def _kept(self) -> int:
        """The number of a record's columns, in the order of the arrangement, that are in the catalog."""
        return len(self.arrangement.places) if self.retracts else len(self.key)

    @property
    def _catalog(self) -> Layout:
        return Layout(self._kept + 2, len(self.key), "hash")

    @property
    def _ends(self) -> Layout:
        return Layout(len(self.key), 0, "order")

    def layouts(self) -> dict[str, Layout]:
        return {"ids": self._catalog} if self.within is None else {"ids": self._catalog, "ends": self._ends}

    def prepare(self, port: int, change: pa.Table) -> pa.Table:
        return self.arrangement.prepare(change)

    def step(self, arrived: list[pa.Table], traces: dict[str, Trace], context: Context) -> StepResult:
        now = _now(self.within, context.epoch, context.clock)
        records, nameless = self._records(arrived[0], context.epoch)
        ids = touched([self._ids(records)])
        ended = self._ended(traces, context, now)
        known, counts = self._known(ids, ended, traces["ids"], now, context.epoch)
        over = _column(known, -1) <= now
        new, orphaned, taken, which = self._decided(records, ids, known.filter(~over))
        until = _EVER if self.within is None else self.within.until(now)
        came = [self._entries(records.take(new), 0, until), self._entries(records.take(orphaned), 1, until)]
        live = known.filter(~over).take(which)
        gone = replace(live, columns=(*live.columns[:-2], _constant(1, live.rows), live.columns[-1]))
        entries = [_times(known.filter(over), -1), _times(live, -1), _times(gone, 1), *came]
        layers = {"ids": consolidate(Block.concat([replace(each, sub=None) for each in entries]), self._catalog)}
        if self.within is not None:
            ends = Block.concat([_times(ended, -1), *(self._under(each, until) for each in came)])
            layers["ends"] = consolidate(ends, self._ends)
        out = [_times(records.take(new), 1), _times(records.take(np.concatenate([orphaned, taken])), -1), nameless]
        output = consolidate(Block.concat(out), self.arrangement.layout)
        columns = self.arrangement.original(output.columns)
        counts["new"] = len(new)
        return StepResult(layers, change_table(columns, self.types, output.diff), counts=counts)

    def remembered(self, traces: Mapping[str, Trace]) -> pa.Table:
        raise AssertionError("the rows behind ids that count once are kept in a log, and read from it")

    def _records(self, arrived: pa.Table, epoch: int) -> tuple[Block, Block]:
        """Each record with an id once, with the number of its insertions and deletions (``+come``, ``+gone``); and the
        change of the records without an id."""
        columns = tuple(physical.plain(arrived.column(f"c{index}")) for index in self.arrangement.places)
        rows = as_block(arrived, columns, None, epoch)
        named = np.ones(rows.rows, np.bool_)
        for column in columns[: len(self.key)]:
            valid = physical.valid(column) if column.null_count else None
            named = named if valid is None else named & valid
        some, diff = rows.filter(named), rows.diff[named]
        apart = {"+come": (diff > 0).astype(np.int64), "+gone": (diff < 0).astype(np.int64)}
        layout = self.arrangement.layout
        return consolidate(replace(some, adds=apart), layout), consolidate(rows.filter(~named), layout)

    def _ids(self, rows: Block) -> Block:
        """The ids of these rows, normalised, so that equal ids have equal bits."""
        keys = tuple(map(normalise_keys, rows.columns[: len(self.key)]))
        return replace(rows, sub=None, columns=keys)

    def _ended(self, traces: Mapping[str, Trace], context: Context, now: int) -> Block:
        """The ids whose moment has passed since the epoch before, as rows of ``ends``."""
        if self.within is None:
            return Block.empty(self._ends)
        before = context.epoch - 1 if self.within.epochs else context.before
        events = traces["ends"].between(_buckets(context.low, context.high), _place(before), _place(now))
        return consolidate(events.at(context.epoch), self._ends)

    def _known(self, ids: Groups, ended: Block, trace: Trace, now: int, epoch: int) -> tuple[Block, dict[str, int]]:
        """The catalog entries of these ids, and of the ids that have ended; and the counters of the filters."""
        filters = filters_of(trace, self.rate)
        maybe = ids.hashes[filters.contains(ids.hashes)]
        filters.drop(now)
        wanted = maybe
        if ended.rows:
            wanted = np.union1d(maybe, hash_columns(list(ended.columns)))
        known = consolidate(trace.matching(wanted)[1].at(epoch), self._catalog)
        found = len(np.intersect1d(known.hash[_column(known, -1) > now], maybe))
        return known, {
            "asked": len(ids.hashes), "looked up": len(maybe), "found": found,
            "remembered": filters.count, "bytes": filters.bytes, "rate": round(self.rate * 1e9),
        }  # fmt: skip

    def _decided(self, records: Block, ids: Groups, live: Block) -> tuple[Ints, Ints, Ints, Ints]:
        """The rows of ``records`` that are new, those that delete a record of an unknown id, and those that delete the
        record that counts; and the catalog entry of each of the last kind."""
        place = ids.locate(self._ids(records))
        entry = np.full(len(ids) + 1, -1, np.int64)
        owner = ids.locate(self._ids(live))  # -1: the entry only shares a hash with an id
        entry[owner[owner >= 0]] = np.flatnonzero(owner >= 0)
        known = entry[place] >= 0
        come, gone = records.add("+come") > 0, records.add("+gone") > 0
        first = _firsts(place, come & ~known)
        counts = np.zeros(len(ids) + 1, np.bool_)
        counts[place[first]] = True
        orphaned = _firsts(place, gone & ~known & ~counts[place])
        taken = self._taken(records, place, entry, live) if self.retracts else np.zeros(0, np.int64)
        return first[~gone[first]], orphaned, taken, entry[place[taken]]

    def _taken(self, records: Block, place: Ints, entry: Ints, live: Block) -> Ints:
        """The rows of ``records`` that delete the record that counts for their id, if it is not deleted yet."""
        asked = np.flatnonzero((records.add("+gone") > 0) & (entry[place] >= 0))
        here = asked[_column(live, -2)[entry[place[asked]]] == 0] if len(asked) else asked
        mine = physical.take_all(records.columns, here)
        held = physical.take_all(live.columns[:-2], entry[place[here]])
        return here[equal_rows(mine, held, rows=len(here))] if len(here) else here

    def _entries(self, records: Block, gone: int, until: int) -> Block:
        """Catalog entries for these records; ``gone`` is 1 if the record was deleted."""
        kept = records.columns[: self._kept]
        columns = (*kept, _constant(gone, records.rows), _constant(until, records.rows))
        return _times(replace(records, columns=columns), 1)

    def _under(self, entries: Block, until: int) -> Block:
        """The ids of these entries, as rows of ``ends``."""
        place = np.full(entries.rows, _place(until), np.uint64)
        return replace(entries, hash=entries.hash & _MASK, sub=place, columns=entries.columns[: len(self.key)])


def _now(within: Within | None, epoch: int, clock: int) -> int:
    """The moment of an epoch in the unit of ``within``: its number or its clock; -1 without ``within``."""
    return -1 if within is None else epoch if within.epochs else clock


def _firsts(places: Ints, some: Bools) -> Ints:
    """Of the rows with ``some``, the first row of each place, ascending."""
    rows = np.flatnonzero(some)
    return np.sort(rows[np.unique(places[rows], return_index=True)[1]])


def _times(rows: Block, diff: int) -> Block:
    """The rows, all with this diff."""
    return replace(rows, adds={"+diff": np.full(rows.rows, diff, np.int64)})


def _column(rows: Block, place: int) -> Ints:
    """A numeric column of the catalog."""
    if not rows.rows:
        return np.zeros(0, np.int64)
    values: Ints = physical.fixed(rows.columns[place]).astype(np.int64, copy=False)
    return values


def _constant(value: int, rows: int) -> pa.Array:
    return pa.array(np.full(rows, value, np.int64), pa.int64())


def _buckets(low: int, high: int) -> Words:
    """The first hashes of the buckets in the range [low, high) of hashes."""
    starts = np.arange(BUCKETS, dtype=np.uint64) * np.uint64(_WIDTH)
    return starts[(starts >= np.uint64(low)) & (starts <= np.uint64(high - 1))]


def _place(moment: int) -> np.uint64:
    """The ``_sub`` of a moment: it has the order of the moments."""
    return np.uint64(moment + (1 << 63))
