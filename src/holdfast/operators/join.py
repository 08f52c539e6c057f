"""The equi-join of two collections.

Traces ``left`` and ``right`` hold the rows of each side, key first. With L and R the sides before the epoch, and dL and
dR their changes, the output changes by

    dL ⋈ (R + dR)  +  L ⋈ dR

Of L only the rows with a key of dR are read, of R only the rows with a key of dL (`join_sides`). Then every pair of
rows in which at least one row changed is built once, with its whole diff

    dl · (r + dr) + l · dr

so the output holds no row twice, and need not be sorted or hashed: only pairs whose diff is zero are dropped.

Rows are matched by the hash of their key. If a hash belongs to several keys (comparing neighbours tells, in one pass),
the keys of each pair are compared too. Keys are compared normalised, but the output has them as they arrived. A row
whose key has a NULL (in a column that is not null-safe) joins nothing, and is dropped in ``prepare``.

Cost: O((|dL| + |dR|) · log state), plus the rows that match, plus the pairs in the output.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import pyarrow as pa

from holdfast.operators.arrangement import change_table
from holdfast.operators.join_sides import Indices, JoinSpec, Side, distinct, pair_diffs, pairs_by_hash, side
from holdfast.operators.outer_join import OuterJoin
from holdfast.operators.semi_join import SemiJoin
from holdfast.operators.step import Context, OperatorNode, StepResult, arrow_types
from holdfast.plan.dataflow import Operator
from holdfast.plan.expression import Tree
from holdfast.plan.fingerprint import digest, positions
from holdfast.plan.nodes import Field, KeyedPart, TwoInputs, touches
from holdfast.plan.placement import Placement
from holdfast.trace import physical
from holdfast.trace.equality import equal_rows
from holdfast.trace.inner_loops import lower_bounds
from holdfast.trace.physical import Bools
from holdfast.trace.rows import Layout
from holdfast.trace.trace import Trace

_KINDS = {"inner": "join", "left": "outer", "full": "outer", "semi": "semi", "anti": "semi"}


@dataclass(frozen=True)
class Join(TwoInputs, OperatorNode):
    """Pairs of rows whose keys are equal. Without keys all rows match. Further conditions are in a `Linear` above.

    ``how`` decides about rows that match nothing: ``inner`` drops them; ``left`` keeps rows of the left side, with
    NULLs for the right columns; ``full`` keeps rows of both sides. ``semi`` gives the left rows that match a right row,
    ``anti`` the left rows that match none; both have only the columns of the left side.

    A NULL in a key matches nothing, except in the keys that ``null_safe`` marks (``<=>``), where it matches NULL.
    ``null_safe`` has a flag per key, or is empty if no key is marked.

    The kernel of the inner join is in this file, the others are in `outer_join` and `semi_join`.
    """

    left_keys: tuple[str, ...]
    right_keys: tuple[str, ...]
    how: Literal["inner", "left", "full", "semi", "anti"] = "inner"
    null_safe: tuple[bool, ...] = ()

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        return self.left.fields if self.how in ("semi", "anti") else self.left.fields + self.right.fields

    @cached_property
    def parts(self) -> tuple[KeyedPart, ...]:
        left, right = self.left.columns, self.right.columns
        return (
            KeyedPart(
                _KINDS[self.how],
                keys=(positions(self.left_keys, left), positions(self.right_keys, right)),
                spread=self._spread(),
                title=self._title(),
                cost="of the change and what it matches" if self.left_keys else "of a side",
                colour="#f6e9f7",
            ),
        )

    def _spread(self) -> tuple[tuple[int, ...], ...]:
        """The keys by which the output is spread. A row without a match has NULLs for the other side's key, so it is
        not spread by that key."""
        left, right = self.left.columns, self.right.columns
        by_left = positions(self.left_keys, left)
        match self.how:
            case "inner":
                return by_left, tuple(len(left) + index for index in positions(self.right_keys, right))
            case "full":
                return () if self.left_keys else ((),)
            case _:
                return (by_left,)

    def _title(self) -> str:
        title = "join" if self.how == "inner" else f"{self.how} join"
        if not self.left_keys:
            return f"{title} of everything with everything: for each row that changes, the other side is scanned"
        signs = ["<=>" if safe else "=" for safe in self.null_safe or [False] * len(self.left_keys)]
        pairs = zip(self.left_keys, signs, self.right_keys, strict=True)
        return f"{title} on " + " and ".join(" ".join(pair) for pair in pairs)

    def compiled(self, operator: Operator) -> JoinSpec:
        left_key, right_key = operator.keys
        left, right = arrow_types(self.left.fields), arrow_types(self.right.fields)
        return KERNELS[self.how](left_key, right_key, left, right, self.how, self.null_safe)

    def meaning(self, *inputs: str) -> str:
        # An inner join adds nothing after its keys: its fingerprint is older than the other kinds of joins.
        kind = () if self.how == "inner" and not self.null_safe else (self.how, self.null_safe)
        left, right = self.left.columns, self.right.columns
        return digest("join", *inputs, positions(self.left_keys, left), positions(self.right_keys, right), *kind)

    def placed(self, *inputs: Placement) -> Placement:
        found = super().placed(*inputs)
        return Placement(found.stage) if self.how == "full" else found

    def needs(self, wanted: Collection[str]) -> tuple[set[str], ...]:
        left = {*self.left_keys, *(name for name in self.left.columns if name in wanted)}
        if self.how in ("semi", "anti"):
            return left, set(self.right_keys)
        return left, {*self.right_keys, *(name for name in self.right.columns if name in wanted)}

    def pushed(self, condition: Tree) -> tuple[Tree | None, ...] | None:
        # Only to a side whose rows are never padded with NULLs.
        if self.how != "full" and touches(condition, self.left.columns):
            return condition, None
        if self.how == "inner" and touches(condition, self.right.columns):
            return None, condition
        return None

    def guessed_rows(self, *inputs: float) -> float:
        return max(inputs)


@dataclass(frozen=True)
class InnerJoin(JoinSpec):
    """The keyed operator of an inner join."""

    def layouts(self) -> dict[str, Layout]:
        left, right = self.arrangements
        return {"left": left.layout, "right": right.layout}

    def step(self, arrived: list[pa.Table], traces: dict[str, Trace], context: Context) -> StepResult:
        left_arrangement, right_arrangement = self.arrangements
        left_delta = left_arrangement.block(arrived[0], context.epoch)
        right_delta = right_arrangement.block(arrived[1], context.epoch)
        left = side(left_delta, distinct(right_delta.hash), traces["left"])
        right = side(right_delta, distinct(left_delta.hash), traces["right"])

        collide = _collide(left, right)
        changed = _pairs(left, right, left.changed, np.arange(len(right.at)), collide)
        unchanged = _pairs(left, right, np.flatnonzero(left.delta == 0), right.changed, collide)
        one, other = (np.concatenate(parts) for parts in zip(changed, unchanged, strict=True))
        diff = pair_diffs(left, right, one, other)
        if not diff.all():
            kept = np.flatnonzero(diff)
            one, other, diff = one[kept], other[kept], diff[kept]
        columns = [
            *physical.take_all(left_arrangement.original(left.columns), left.at[one]),
            *physical.take_all(right_arrangement.original(right.columns), right.at[other]),
        ]
        output = change_table(columns, (*self.left_types, *self.right_types), diff)
        return StepResult({"left": left_delta, "right": right_delta}, output)


KERNELS: dict[str, type[InnerJoin | OuterJoin | SemiJoin]] = {
    "inner": InnerJoin,
    "left": OuterJoin,
    "full": OuterJoin,
    "semi": SemiJoin,
    "anti": SemiJoin,
}
"""``Join.how`` → the keyed operator."""


def _collide(left: Side, right: Side) -> bool:
    """Whether a hash belongs to several keys."""
    for rows in (left, right):
        same = np.flatnonzero(rows.hash[1:] == rows.hash[:-1])
        if not _agree(rows, same, rows, same + 1).all():
            return True
    if not len(left.at) or not len(right.at):
        return False
    place = np.minimum(lower_bounds(right.hash, left.hash), len(right.at) - 1)
    met = np.flatnonzero(right.hash[place] == left.hash)
    return not _agree(left, met, right, place[met]).all()


def _agree(one: Side, rows: Indices, other: Side, other_rows: Indices) -> Bools:
    """Whether the keys of each pair of rows are equal."""
    return equal_rows(one.take_keys(rows), other.take_keys(other_rows), rows=len(rows))


def _pairs(left: Side, right: Side, some: Indices, others: Indices, collide: bool) -> tuple[Indices, Indices]:
    """The pairs of a left row in ``some`` and a right row in ``others`` (both ascending) whose keys are equal."""
    one, other = pairs_by_hash(left, right, some, others)
    if collide:
        equal = _agree(left, one, right, other)
        one, other = one[equal], other[equal]
    return one, other
