"""INTERSECT and EXCEPT, with and without ALL, by multiplicities.

The trace ``counts`` has, per row, its number of copies in the left side (``+diff``) and in the right side (``+right``).
If these numbers are *a* and *b*, the number of copies in the result is

    INTERSECT ALL  min(a, b)        INTERSECT  1 if a > 0 and b > 0
    EXCEPT ALL     max(a - b, 0)    EXCEPT     1 if a > 0 and b = 0

and 0 otherwise. An epoch reads the counts of the rows it touches, adds its change, and outputs the difference of the
results before and after. Rows are equal as in Spark's set operations: NULL equals NULL, NaN equals NaN, and -0.0 equals
0.0 (the output has 0.0). Cost: O(change × log state).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from holdfast.errors import NegativeMultiplicity
from holdfast.operators.aggregates.touched_groups import once
from holdfast.operators.arrangement import as_block, change_table
from holdfast.operators.numbers.digits import Ints
from holdfast.operators.step import Context, KeyedOperator, OperatorNode, StepResult, arrow_types
from holdfast.plan.dataflow import Operator
from holdfast.plan.expression import Tree, references
from holdfast.plan.fingerprint import digest
from holdfast.plan.nodes import Field, KeyedPart, TwoInputs, by_position
from holdfast.trace import exact, physical
from holdfast.trace.hashing import hash_columns, normalise_keys
from holdfast.trace.rows import Block, Layout, consolidate, group_rows
from holdfast.trace.trace import Trace


@dataclass(frozen=True)
class SetOperation(TwoInputs, OperatorNode):
    """INTERSECT or EXCEPT of two bags: ``kind`` is ``intersect`` or ``except``; with ``all``, copies count.

    Columns are matched by position; the names are the left input's. NULLs are equal, NaNs are equal, -0.0 equals 0.0.
    """

    kind: str
    all: bool

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        return self.left.fields

    @cached_property
    def parts(self) -> tuple[KeyedPart, ...]:
        row = tuple(range(len(self.columns)))
        title = f"{self.kind}{' all' if self.all else ''} of {', '.join(self.columns)}"
        return (KeyedPart("set", keys=(row, row), spread=(row,), title=title, colour="#f6e9f7"),)

    def compiled(self, operator: Operator) -> SetSpec:
        return SetSpec(self.kind, self.all, arrow_types(self.fields))

    def meaning(self, *inputs: str) -> str:
        return digest(self.kind, self.all, *inputs)

    def needs(self, wanted: Collection[str]) -> tuple[set[str], ...]:
        return set(self.left.columns), set(self.right.columns)  # it compares whole rows

    def pushed(self, condition: Tree) -> tuple[Tree | None, ...] | None:
        # Equal rows must get equal answers from the condition, but -0.0 and 0.0 are equal and may get different ones.
        if any(kind in self.types[name] for name in references(condition) for kind in ("float", "double")):
            return None
        return tuple(by_position(condition, self, side) for side in self.inputs)


@dataclass(frozen=True)
class SetSpec(KeyedOperator):
    """The keyed operator of a `SetOperation`; both sides have columns of ``types``."""

    kind: str
    all: bool
    types: tuple[pa.DataType, ...]

    @property
    def layout(self) -> Layout:
        return Layout(width=len(self.types), key=len(self.types), sub="none")

    def layouts(self) -> dict[str, Layout]:
        return {"counts": self.layout}

    def prepare(self, port: int, change: pa.Table) -> pa.Table:
        """Combine equal rows: each row once, with its hash and the sum of its diffs."""
        typed = [physical.plain(change.column(index)).cast(kind) for index, kind in enumerate(self.types)]
        rows = [normalise_keys(column) for column in typed]
        hashes = hash_columns(rows, rows=change.num_rows)
        order, starts = group_rows(hashes, rows)
        diff = change.column("_diff").to_numpy()
        total = exact.sums(diff[order], starts)
        alive = np.flatnonzero(total)
        first = order[starts[alive]]
        made = change_table(physical.take_all(rows, first), self.types, total[alive])
        return made.add_column(0, "_hash", pa.array(hashes[first]))

    def step(self, arrived: list[pa.Table], traces: dict[str, Trace], context: Context) -> StepResult:
        left, right = (_side(self, part, context.epoch) for part in arrived)
        change = consolidate(Block.concat([left, replace(right, adds={"+right": right.diff})]), self.layout)
        _, old = traces["counts"].matching(once(change.hash))
        # The search also finds rows that only share a hash with a changed row; they have no change, and are dropped
        # below.
        before = replace(old.at(context.epoch), adds={"+a": old.diff, "+b": old.add("+right")})
        moved = replace(change, adds={"+da": change.diff, "+db": change.add("+right")})
        both = consolidate(Block.concat([moved, before]), self.layout)
        both = both.filter((both.add("+da") != 0) | (both.add("+db") != 0))
        a, b = both.add("+a"), both.add("+b")
        new_a, new_b = exact.add(a, both.add("+da")), exact.add(b, both.add("+db"))
        _check(both, new_a, new_b, context.epoch)
        diff = _copies(self, new_a, new_b) - _copies(self, a, b)
        shown = np.flatnonzero(diff)
        return StepResult(
            {"counts": change}, change_table(physical.take_all(both.columns, shown), self.types, diff[shown])
        )


def _side(spec: SetSpec, arrived: pa.Table, epoch: int) -> Block:
    columns = tuple(physical.plain(arrived.column(f"c{index}")) for index in range(len(spec.types)))
    return as_block(arrived, columns, None, epoch)


def _copies(spec: SetSpec, a: Ints, b: Ints) -> Ints:
    """The number of copies in the result of a row with ``a`` copies on the left and ``b`` on the right."""
    if spec.kind == "intersect":
        copies = np.minimum(a, b)
    else:
        copies = np.maximum(a - b, 0) if spec.all else np.where(b == 0, a, 0)
    return copies if spec.all else np.minimum(copies, 1)


def _check(rows: Block, a: Ints, b: Ints, epoch: int) -> None:
    least = np.minimum(a, b)
    if not (least < 0).any():
        return
    index = int(np.argmin(least))
    row = tuple(column[index].as_py() for column in rows.columns)
    raise NegativeMultiplicity(
        f"a side of a set operation holds {row!r} {least[index]} times after epoch {epoch}; "
        "it was deleted more often than inserted",
        epoch=epoch,
        rows=[row],
    )
