"""A collection that is replaced as a whole: its rows are those of the last version, and every version is complete.

The rows that arrive have the collection's columns, followed by ``_version``, an ascending number, and ``_mark``. A row
with ``_mark`` is not a row of the collection: it announces a new version. A mark is sent to every partition, so that
partitions without rows of the new version also remove the rows of the old version.

Trace ``rows``: the rows of the last version, in the layout of a log; it is the log of the source. An epoch with a new
version reads all rows of its partition, and outputs the difference: rows that are in both versions cancel. If no mark
arrives (only when the rows come from a log of this collection), the rows are a change, and are added as they are.

With a key, a version with several rows of one key is an error: it is refused, and the version before it stays.

Cost: an epoch with a new version costs the size of the new and of the old version, like reading the version. All other
epochs cost nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import InputError
from holdfast.operators.arrangement import Arrangement, as_block, change_table
from holdfast.operators.step import Context, KeyedOperator, OperatorNode, StepResult, arrow_types
from holdfast.operators.topk import BUCKETS
from holdfast.plan.dataflow import Operator
from holdfast.plan.fingerprint import digest
from holdfast.plan.nodes import Field, KeyedPart, OneInput
from holdfast.trace import physical
from holdfast.trace.hashing import normalise_keys
from holdfast.trace.rows import Block, Layout, consolidate, group_rows
from holdfast.trace.trace import Trace

HIDDEN = (Field("_version", "bigint"), Field("_mark", "boolean"))
_STARTS = np.arange(BUCKETS, dtype=np.uint64) * np.uint64(2**64 // BUCKETS)


@dataclass(frozen=True)
class Replaced(OneInput, OperatorNode):
    """The rows of the last version, with the input's columns except the last two. ``keys``: columns by which rows must
    be unique; empty: the rows are a bag."""

    keys: tuple[str, ...]

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        return self.input.fields[: -len(HIDDEN)]

    @property
    def _key(self) -> tuple[int, ...]:
        return tuple(map(self.columns.index, self.keys)) or tuple(range(len(self.columns)))

    @cached_property
    def parts(self) -> tuple[KeyedPart, ...]:
        by = f", by {', '.join(self.keys)}" if self.keys else ""
        title = f"rows of the last version{by}"
        cost = "of both versions"
        return (KeyedPart("replaced", (self._key,), (self._key,), title, cost=cost, colour="#e9f7ec", keeps=True),)

    def compiled(self, operator: Operator) -> ReplacedSpec:
        return ReplacedSpec(arrow_types(self.fields), self._key, self.keys, operator.name)

    def meaning(self, *inputs: str) -> str:
        return digest("replaced", inputs[0], tuple(map(self.columns.index, self.keys)))

    def needs(self, wanted: Collection[str]) -> tuple[set[str], ...]:
        return (set(self.input.columns),)


@dataclass(frozen=True)
class ReplacedSpec(KeyedOperator):
    """The keyed operator of a `Replaced`: rows of ``types``, arranged by the columns at ``key``. ``names`` are the
    names of the key's columns if rows must be unique by them, else empty."""

    types: tuple[pa.DataType, ...]
    key: tuple[int, ...]
    names: tuple[str, ...]
    name: str

    keeps_collection = True

    @property
    def arrangement(self) -> Arrangement:
        return Arrangement.by(self.key, len(self.types))

    def layouts(self) -> dict[str, Layout]:
        return {"rows": self.arrangement.layout}

    def prepare(self, port: int, change: pa.Table) -> pa.Table:
        """Add the hash of the key; if there are marks, add one mark per hash slot, so that it reaches every
        partition."""
        marks = change.column(len(self.types) + 1)
        rows = change.filter(pc.invert(pc.fill_null(marks, False)))
        made = self.arrangement.prepare(rows)
        if rows.num_rows == change.num_rows:
            return made
        version = pc.max(change.column(len(self.types))).as_py()
        columns = [pa.array(_STARTS), *(pa.nulls(BUCKETS, kind) for kind in self.types)]
        columns += [pa.array([version] * BUCKETS, pa.int64()), pa.array([True] * BUCKETS)]
        columns.append(pa.array(np.ones(BUCKETS, np.int64)))
        return pa.concat_tables([made, pa.Table.from_arrays(columns, schema=made.schema)])

    def step(self, arrived: list[pa.Table], traces: dict[str, Trace], context: Context) -> StepResult:
        width, layout = len(self.types), self.arrangement.layout
        table = arrived[0]
        marks = pc.fill_null(table.column(f"c{width + 1}"), False)
        is_new = bool(pc.any(marks).as_py())
        if is_new:
            # If an epoch has several versions (it may stand for many epochs), the last one counts.
            newest = pc.equal(table.column(f"c{width}"), pc.max(table.column(f"c{width}")))
            table = table.filter(pc.and_(newest, pc.invert(marks)))
        columns = tuple(physical.plain(table.column(f"c{index}")) for index in self.arrangement.places)
        layer = consolidate(as_block(table, columns, None, context.epoch), layout)
        if is_new:
            if self.names:
                _check_unique(self, layer, context.epoch)
            before = consolidate(traces["rows"].scan().at(context.epoch), layout)
            layer = consolidate(Block.concat([layer, replace(before, adds={"+diff": -before.diff})]), layout)
        output = change_table(self.arrangement.original(layer.columns), self.types, layer.diff)
        return StepResult({"rows": layer}, output)


def _check_unique(spec: ReplacedSpec, rows: Block, epoch: int) -> None:
    keys = rows.columns[: len(spec.key)]
    order, starts = group_rows(rows.hash, [normalise_keys(column) for column in keys])
    copies = np.add.reduceat(rows.diff[order], starts) if rows.rows else np.zeros(0, np.int64)
    wrong = np.flatnonzero(copies > 1)
    if not len(wrong):
        return
    place = int(order[starts[wrong[0]]])
    found = tuple(column[place].as_py() for column in keys)
    raise InputError(
        f"'{spec.name}', epoch {epoch}: the new version has {int(copies[wrong[0]])} rows of the key "
        f"{', '.join(f'{name}={value!r}' for name, value in zip(spec.names, found, strict=True))}, and "
        f"{len(wrong)} keys that are not unique; nothing of it took effect, and the version before stays. Mend the "
        "data, or declare the source without key",
        name=spec.name,
        epoch=epoch,
        key=found,
    )
