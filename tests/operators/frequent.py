"""Rows whose key is frequent: each row of the input while its key has at least so many rows.

The sample operator of docs/adding-an-operator.md: all that is known of it is in this file.

Trace ``rows``: the input's rows, key first. An epoch reads the rows of the keys that its change touches, counts each
key's rows before and after, and gives

    (row + its change) · frequent after  -  row · frequent before

Cost: O(change × log state), and the rows of the keys that are touched.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from holdfast.operators.arrangement import Arrangement, change_table
from holdfast.operators.first_rows import together
from holdfast.operators.join_sides import touched
from holdfast.operators.step import Context, KeyedOperator, OperatorNode, StepResult, arrow_types
from holdfast.plan.dataflow import Operator
from holdfast.plan.expression import Tree
from holdfast.plan.fingerprint import digest, positions
from holdfast.plan.nodes import Field, KeyedPart, OneInput, touches
from holdfast.trace import physical
from holdfast.trace.hashing import normalise_keys
from holdfast.trace.rows import Block, Layout
from holdfast.trace.trace import Trace


@dataclass(frozen=True)
class Frequent(OneInput, OperatorNode):
    """The rows of the input whose ``keys`` have at least ``least`` rows. Columns: the input's."""

    keys: tuple[str, ...]
    least: int

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        return self.input.fields

    @cached_property
    def parts(self) -> tuple[KeyedPart, ...]:
        key = positions(self.keys, self.columns)
        title = f"rows of each {', '.join(self.keys)} that has at least {self.least}"
        return (KeyedPart("frequent", keys=(key,), spread=(key,), title=title, cost="of the group"),)

    def compiled(self, operator: Operator) -> FrequentSpec:
        return FrequentSpec(operator.keys[0], self.least, arrow_types(self.fields))

    def meaning(self, *inputs: str) -> str:
        return digest("frequent", inputs[0], positions(self.keys, self.columns), self.least)

    def needs(self, wanted: Collection[str]) -> tuple[set[str], ...]:
        return ({*wanted, *self.keys},)

    def pushed(self, condition: Tree) -> tuple[Tree | None, ...] | None:
        # It keeps or drops whole keys.
        return (condition,) if touches(condition, self.keys) else None


@dataclass(frozen=True)
class FrequentSpec(KeyedOperator):
    """Rows of ``types``, of keys (the columns at ``key``) that have at least ``least`` rows."""

    key: tuple[int, ...]
    least: int
    types: tuple[pa.DataType, ...]

    @property
    def arrangement(self) -> Arrangement:
        return Arrangement.by(self.key, len(self.types))

    def layouts(self) -> dict[str, Layout]:
        return {"rows": self.arrangement.layout}

    def prepare(self, port: int, change: pa.Table) -> pa.Table:
        return self.arrangement.prepare(change)

    def step(self, arrived: list[pa.Table], traces: dict[str, Trace], context: Context) -> StepResult:
        delta = self.arrangement.block(arrived[0], context.epoch)
        keys = touched([self._keys(delta)])
        rows = together(traces["rows"].matching(keys.hashes)[1], delta, traces["rows"])
        place = keys.locate(self._keys(rows))  # -1: it only shares a hash with a key that is touched
        old, new = rows.add("+old"), rows.add("+new")
        # What is at place -1 finds the False at the end.
        before = np.append(keys.sums(place, old) >= self.least, False)
        after = np.append(keys.sums(place, new) >= self.least, False)
        diff = new * after[place] - old * before[place]
        changed = np.flatnonzero(diff)
        columns = self.arrangement.original(physical.take_all(rows.columns, changed))
        return StepResult({"rows": delta}, change_table(columns, self.types, diff[changed]))

    def _keys(self, rows: Block) -> Block:
        """The keys of these rows, with equal ones identical."""
        return replace(rows, sub=None, columns=tuple(map(normalise_keys, rows.columns[: len(self.key)])))
