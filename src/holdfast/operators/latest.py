"""The latest version of each key: rows arrive as versions, and a later version replaces an earlier one.

The rows that arrive have the collection's columns, followed by (`arrival_fields`):

    _deleted           whether the key was deleted; then only the key (and the order column) of the row count
    _strict            whether the deleted key must exist: if it does not, the epoch fails with an error
    _offer _block _row the place of the row in the input, as three ascending numbers: only without an order column

With an order column (``order``), the version with the greatest value is the latest, whatever the order of arrival. If
versions tie, a deletion beats a row, and of several rows the greatest by content wins. Without an order column a
version of a later epoch beats one of an earlier epoch, and inside an epoch the three numbers decide. These are compared
but not kept, so only their order matters, and they may be different when the epoch is computed again.

Trace ``rows``: the current version of each key, key first, without replaced versions. It has the layout of a log, and
is the log of the source, so no log operator follows. With an order column a deletion is kept too, as a row in which
``_deleted`` is true and all columns but the key and the order are NULL: it must win against an older version that
arrives afterwards. (Rows with ``_deleted`` are filtered out above the operator.)

An epoch reads the current versions of the keys that its change touches, sorts them together with the versions that
arrived, and keeps the last version of each key. The result does not depend on the order of arrival inside an epoch;
with an order column, it does not depend on the order of epochs either. Cost: O(change · log state). State: a row per
key (with an order column: also for deleted keys).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import NegativeMultiplicity
from holdfast.operators.arrangement import Arrangement, as_block, change_table
from holdfast.operators.ordering import ranks
from holdfast.operators.step import Context, KeyedOperator, OperatorNode, StepResult, arrow_types
from holdfast.plan.dataflow import Operator
from holdfast.plan.fingerprint import digest
from holdfast.plan.nodes import Field, KeyedPart, OneInput
from holdfast.trace import physical
from holdfast.trace.equality import content_ranks
from holdfast.trace.hashing import normalise_keys
from holdfast.trace.physical import Bools, Ints
from holdfast.trace.rows import Block, Layout, consolidate, constant_epoch, group_rows
from holdfast.trace.trace import Trace

DELETED = Field("_deleted", "boolean")
STRICT = Field("_strict", "boolean")
PLACE = (Field("_offer", "bigint"), Field("_block", "bigint"), Field("_row", "bigint"))
_SHOWN = 3


def arrival_fields(fields: Sequence[Field], ordered: bool) -> tuple[Field, ...]:
    """The columns of the rows that arrive for a collection with these columns. ``ordered``: it has an order column."""
    return (*fields, DELETED, STRICT, *(() if ordered else PLACE))


@dataclass(frozen=True)
class Latest(OneInput, OperatorNode):
    """The latest version of each key. ``keys`` and ``order`` are columns of the collection, which has the first
    ``width`` columns of the input. With an ``order`` the output also has ``_deleted``, and rows of deleted keys."""

    keys: tuple[str, ...]
    order: str | None
    width: int

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        return self.input.fields[: self.width] + ((DELETED,) if self.order is not None else ())

    @property
    def _positions(self) -> tuple[int, ...]:
        return tuple(self.columns.index(name) for name in self.keys)

    @property
    def _order(self) -> int | None:
        return None if self.order is None else self.columns.index(self.order)

    @cached_property
    def parts(self) -> tuple[KeyedPart, ...]:
        key = self._positions
        by = "" if self.order is None else f" by {self.order}"
        title = f"latest version of each {', '.join(self.keys)}{by}"
        return (KeyedPart("latest", keys=(key,), spread=(key,), title=title, colour="#e9f7ec", keeps=True),)

    def compiled(self, operator: Operator) -> LatestSpec:
        types = arrow_types(self.input.fields[: self.width])
        return LatestSpec(types, self._positions, self._order, operator.name)

    def meaning(self, *inputs: str) -> str:
        return digest("latest", inputs[0], self._positions, self._order, self.width)

    def needs(self, wanted: Collection[str]) -> tuple[set[str], ...]:
        return (set(self.input.columns),)


@dataclass(frozen=True)
class LatestSpec(KeyedOperator):
    """The keyed operator of a `Latest` over rows of ``types``; ``key`` and ``order`` are positions. ``name`` is the
    collection's name, for errors."""

    types: tuple[pa.DataType, ...]
    key: tuple[int, ...]
    order: int | None
    name: str

    keeps_collection = True

    @property
    def kept(self) -> tuple[pa.DataType, ...]:
        """The column types of the trace and of the output."""
        return self.types if self.order is None else (*self.types, pa.bool_())

    @property
    def arrangement(self) -> Arrangement:
        return Arrangement.by(self.key, len(self.kept))

    def layouts(self) -> dict[str, Layout]:
        return {"rows": self.arrangement.layout}

    def prepare(self, port: int, change: pa.Table) -> pa.Table:
        return self.arrangement.prepare(change)

    def step(self, arrived: list[pa.Table], traces: dict[str, Trace], context: Context) -> StepResult:
        layout = self.arrangement.layout
        versions = _Versions.of(self, arrived[0], traces["rows"], context)
        latest = versions.latest()
        if self.order is None:
            _check_deletions(self, versions, context.epoch)
        # A version that stays the latest has diff 0. Without an order column, a deleted key leaves no row; with one, it
        # does, since an older version may arrive afterwards.
        come = latest & ~versions.deleted if self.order is None else latest
        diff = come.astype(np.int64) - versions.old
        layer = consolidate(versions.block(diff, context.epoch), layout)
        output = change_table(self.arrangement.original(layer.columns), self.kept, layer.diff)
        return StepResult({"rows": layer}, output)


@dataclass(frozen=True)
class _Versions:
    """All versions of the touched keys: the current ones and those that arrived."""

    rows: Block
    """The versions, sorted by key, then from the earliest to the latest."""

    starts: Ints
    """The index of each key's first version."""

    old: Bools
    """Whether each version was the current one before the epoch."""

    deleted: Bools
    strict: Bools

    @staticmethod
    def of(spec: LatestSpec, arrived: pa.Table, trace: Trace, context: Context) -> _Versions:
        width, places = len(spec.types), spec.arrangement.places
        deleted = _flag(arrived.column(f"c{width}"))
        strict = _flag(arrived.column(f"c{width + 1}"))
        columns = [physical.plain(arrived.column(f"c{index}")) for index in range(width)]
        for index in range(width):
            if deleted.any() and index not in spec.key and index != spec.order:
                columns[index] = pc.if_else(pa.array(deleted), pa.scalar(None, columns[index].type), columns[index])
        kept = columns if spec.order is None else [*columns, pa.array(deleted)]
        new = as_block(arrived, tuple(kept[index] for index in places), None, context.epoch)
        _, before = trace.matching(np.unique(new.hash))
        before = replace(consolidate(before.at(context.epoch), trace.layout), sub=None)
        both = Block.concat([before, new])
        count = before.rows
        was = _flag(before.columns[places.index(width)]) if spec.order is not None else np.zeros(count, np.bool_)
        old = np.arange(both.rows) < count
        deleted = np.concatenate([was, deleted])
        strict = np.concatenate([np.zeros(count, np.bool_), strict])
        group = _keys(both, len(spec.key))
        if spec.order is None:
            numbers = [physical.plain(arrived.column(f"c{width + 2 + index}")) for index in range(len(PLACE))]
            by = [np.concatenate([np.zeros(count, np.int64), ranks(each) + 1]) for each in numbers]
        else:
            by = [ranks(both.columns[places.index(spec.order)]), deleted.astype(np.int64)]
        # Versions that tie are ordered by content.
        order = np.lexsort((content_ranks(both.columns, rows=both.rows), *reversed(by), group))
        keys = group[order]
        fresh = np.ones(len(keys), np.bool_)
        fresh[1:] = keys[1:] != keys[:-1]
        touched = np.zeros(int(group.max(initial=-1)) + 1, np.bool_)
        touched[group[count:]] = True
        mine = touched[keys]  # drops keys that only share a hash with a touched key
        order, fresh = order[mine], fresh[mine]
        return _Versions(both.take(order), np.flatnonzero(fresh), old[order], deleted[order], strict[order])

    def latest(self) -> Bools:
        """Whether each version is the last of its key."""
        last = np.zeros(self.rows.rows, np.bool_)
        if self.rows.rows:
            last[np.append(self.starts[1:], self.rows.rows) - 1] = True
        return last

    def block(self, diff: Ints, epoch: int) -> Block:
        rows = self.rows
        return Block(rows.hash, None, rows.columns, constant_epoch(epoch, rows.rows), {"+diff": diff})


def _flag(column: pa.Array | pa.ChunkedArray) -> Bools:
    found: Bools = pc.fill_null(physical.plain(column).cast(pa.bool_()), False).to_numpy(zero_copy_only=False)
    return found.astype(np.bool_)


def _keys(rows: Block, width: int) -> Ints:
    """The number of each row's key: keys that are equal in Spark have equal numbers."""
    order, starts = group_rows(rows.hash, [normalise_keys(column) for column in rows.columns[:width]])
    fresh = np.zeros(rows.rows, np.int64)
    fresh[starts] = 1
    number = np.empty(rows.rows, np.int64)
    number[order] = np.cumsum(fresh) - 1
    return number


def _check_deletions(spec: LatestSpec, versions: _Versions, epoch: int) -> None:
    """Raise NegativeMultiplicity if a strict deletion deletes a key that does not exist."""
    nothing = versions.deleted.copy()  # whether the key does not exist after this version
    before = np.ones(len(nothing), np.bool_)
    before[1:] = nothing[:-1]
    before[versions.starts] = True
    wrong = np.flatnonzero(versions.deleted & versions.strict & before & ~versions.old)
    if not len(wrong):
        return
    columns = [versions.rows.columns[place] for place in range(len(spec.key))]
    keys = [tuple(column[int(index)].as_py() for column in columns) for index in wrong[:_SHOWN]]
    listed = ", ".join(repr(key[0] if len(key) == 1 else key) for key in keys)
    more = f" and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
    raise NegativeMultiplicity(
        f"{spec.name!r}, epoch {epoch}: deleted, and not there: key {listed}{more}. Nothing of the epoch took effect. "
        "Delete only keys that are there; take back what was pushed with discard(); or delete with "
        "on_missing='ignore', which leaves such keys alone",
        name=spec.name,
        epoch=epoch,
        keys=keys,
    )
