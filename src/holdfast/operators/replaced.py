"""A collection that is replaced as a whole: its rows are those of the last version, and a version comes in full.

What arrives are the collection's columns and, behind them, ``_version``, a number that grows, and ``_mark``: true in
rows that are no rows of the collection and say that a version has come. One such row is sent to every partition, so
that those to which no row of the new version belongs let go of the rows of the old one.

Trace ``rows``: the rows of the last version, laid out as a log is; it is the log of the source. An epoch with a new
version reads all of its partition, and gives the difference: what is the same in both cancels. Rows that arrive without
a mark, which only a log of these rows gives, are changes, and are taken as they are.

With a key, rows of one key are an error: the version is refused, and the one before it stays.

Cost: a new version costs its size and that of the one before it, as reading it does. All other epochs cost nothing.
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
    """The rows of the last version, which has the input's columns but the last two. ``keys``: columns by which rows
    are unique; none: they are a bag."""

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
    """Rows of ``types``, arranged by the columns at ``key``, which are unique if ``names`` has them."""

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
        """The hash of the key; a mark goes to every slot."""
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
            # Of several versions, in an epoch that stands for many, the last counts.
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
