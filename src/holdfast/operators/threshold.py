"""Rows that are compared with one value: a scalar subquery in a condition, such as ``total > (SELECT avg(total) …)``.

The right side has the *bounds*, usually one per key. A row of the left side is in the output once for each bound of its
key with which the comparison holds. Let w(k, v) be the number of bounds of key k with which value v compares true, and
L the left side, before the epoch. With dL, and dw the w of the changed bounds alone, the output changes by

    dL · (w + dw)  +  L · dw

dw is zero for all values outside of a few ranges: if a bound moves from a to b, for ``<`` and ``>`` the values between
a and b, for ``=`` and ``<>`` the values a and b. Only if a key gets or loses a bound, the range is open. So an epoch
reads only the rows whose answer may change, however many rows there are.

Trace ``left``: the rows, key first, with the value's order prefix as ``_sub``, so that a range of values is a run of
rows. Prefixes may tie: a range is read with its ends, and values are compared exactly afterwards. Trace ``right``: the
bounds, key first. Without a key, the left side stays in its 256 buckets (by the hash of the key by which it is spread
already), and each bucket has a copy of every bound. So neither all rows nor all the work are in one task.

A comparison with NULL holds for nothing, so rows and bounds that are NULL (or whose key is) are dropped in ``prepare``.
Values compare in Spark's order: NaN is the greatest and equals NaN, -0.0 equals 0.0.

Cost: O((dL + rows in the ranges) · log state), plus the bounds of the keys of dL; without a key, a binary search per
bucket and layer if a bound changes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.operators.arrangement import Arrangement, as_block, change_table, consolidated
from holdfast.operators.join_sides import distinct
from holdfast.operators.ordering import ranks
from holdfast.operators.step import Context, KeyedOperator, OperatorNode, StepResult, arrow_types
from holdfast.operators.topk import BUCKETS
from holdfast.plan.dataflow import Operator
from holdfast.plan.expression import Tree
from holdfast.plan.fingerprint import digest, positions
from holdfast.plan.nodes import Field, KeyedPart, TwoInputs, touches
from holdfast.plan.placement import Placement
from holdfast.trace import exact, physical
from holdfast.trace.hashing import hash_columns, normalise_keys
from holdfast.trace.order import order_prefix
from holdfast.trace.physical import Ints, Words
from holdfast.trace.rows import Block, Layout, consolidate, group_rows
from holdfast.trace.trace import Trace

Comparison = Literal["=", "<>", "<", "<=", ">", ">="]

_WIDTH = 2**64 // BUCKETS
_MASK = np.uint64(2**64 - _WIDTH)
_STARTS = np.arange(BUCKETS, dtype=np.uint64) * np.uint64(_WIDTH)
_LEAST, _MOST = np.uint64(0), np.uint64(2**64 - 1)


@dataclass(frozen=True)
class Threshold(TwoInputs, OperatorNode):
    """The rows of the left side for which ``value comparison bound`` holds with the bound of their key, on the right
    side. Without keys there is one bound for all rows. Columns: the left side's.

    ``value`` and ``bound`` have the same type. If there are several bounds, a row is in the output once for each with
    which the comparison holds. ``null_safe`` has a flag per key, as in `operators.join.Join`.

    Without keys, the right side must not be spread by ``bound``: its rows go to all partitions.
    """

    left_keys: tuple[str, ...]
    right_keys: tuple[str, ...]
    value: str
    comparison: Comparison
    bound: str
    null_safe: tuple[bool, ...] = ()

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        return self.left.fields

    @cached_property
    def parts(self) -> tuple[KeyedPart, ...]:
        title = f"rows with {self.value} {self.comparison} {self.bound}"
        if self.left_keys:
            signs = ["<=>" if safe else "=" for safe in self.null_safe or [False] * len(self.left_keys)]
            pairs = zip(self.left_keys, signs, self.right_keys, strict=True)
            title += " of " + " and ".join(" ".join(pair) for pair in pairs)
        by_left, by_right = self._keys()
        cost = "of the change and of the rows that a moved bound passes"
        return (KeyedPart("threshold", (by_left, by_right), (by_left,), title, cost=cost, colour="#f6e9f7"),)

    def _keys(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        if self.left_keys:
            return positions(self.left_keys, self.left.columns), positions(self.right_keys, self.right.columns)
        return self.left.arrangement, positions((self.bound,), self.right.columns)

    def compiled(self, operator: Operator) -> ThresholdSpec:
        left, right = self.left.columns, self.right.columns
        return ThresholdSpec(
            arrow_types(self.left.fields),
            arrow_types(self.right.fields),
            positions(self.left_keys, left),
            positions(self.right_keys, right),
            left.index(self.value),
            self.comparison,
            right.index(self.bound),
            () if self.left_keys else operator.keys[0],
            self.null_safe,
        )

    def meaning(self, *inputs: str) -> str:
        left, right = self.left.columns, self.right.columns
        keys = positions(self.left_keys, left), positions(self.right_keys, right), self.null_safe
        return digest("threshold", *inputs, *keys, left.index(self.value), self.comparison, right.index(self.bound))

    def placed(self, *inputs: Placement) -> Placement:
        if self.left_keys:
            return super().placed(*inputs)
        left, right = inputs
        if left.stage and left.spread:
            return Placement(max(left.stage, right.stage + 1), left.spread)
        row = tuple(self.left.columns[index] for index in self.left.arrangement)
        return Placement(max(left.stage, right.stage) + 1, frozenset({row}))

    def needs(self, wanted: Collection[str]) -> tuple[set[str], ...]:
        return {*wanted, *self.left_keys, self.value}, {*self.right_keys, self.bound}

    def pushed(self, condition: Tree) -> tuple[Tree | None, ...] | None:
        return (condition, None) if touches(condition, self.left.columns) else None

    def guessed_rows(self, *inputs: float) -> float:
        return max(1.0, inputs[0] / 3)


@dataclass(frozen=True)
class ThresholdSpec(KeyedOperator):
    """The keyed operator of a `Threshold`. Everything that names columns is positions; ``spread``: without keys, the
    positions by whose hash the rows of the left side are spread."""

    left_types: tuple[pa.DataType, ...]
    right_types: tuple[pa.DataType, ...]
    left_keys: tuple[int, ...]
    right_keys: tuple[int, ...]
    value: int
    comparison: Comparison
    bound: int
    spread: tuple[int, ...] = ()
    null_safe: tuple[bool, ...] = ()

    @cached_property
    def arrangements(self) -> tuple[Arrangement, Arrangement]:
        """The order of the columns in the traces. The right one has only the key and the bound."""
        left = Arrangement.by(self.left_keys, len(self.left_types))
        return left, Arrangement((*self.right_keys, self.bound), len(self.right_keys))

    def layouts(self) -> dict[str, Layout]:
        left, right = self.arrangements
        return {"left": Layout(len(left.places), left.key, "order"), "right": right.layout}

    def prepare(self, port: int, change: pa.Table) -> pa.Table:
        keys = self.right_keys if port else self.left_keys
        strict = [key for place, key in enumerate(keys) if not (self.null_safe and self.null_safe[place])]
        for position in (self.bound if port else self.value, *strict):
            if change.column(position).null_count:
                change = change.filter(pc.is_valid(change.column(position)))
        if keys:
            return self.arrangements[port].prepare(change)
        if port:
            rows = np.repeat(np.arange(change.num_rows), BUCKETS)
            return change.take(pa.array(rows)).add_column(0, "_hash", pa.array(np.tile(_STARTS, change.num_rows)))
        hashes = hash_columns([change.column(index) for index in self.spread], rows=change.num_rows) & _MASK
        return change.add_column(0, "_hash", pa.array(hashes))

    def step(self, arrived: list[pa.Table], traces: dict[str, Trace], context: Context) -> StepResult:
        left, right = self.arrangements
        columns = tuple(physical.plain(arrived[0].column(f"c{index}")) for index in left.places)
        prefixes = _prefixes(columns[left.places.index(self.value)])
        change = consolidate(as_block(arrived[0], columns, prefixes, context.epoch), traces["left"].layout)
        moved = right.block(arrived[1], context.epoch)
        _, known = traces["right"].matching(distinct(change.hash))
        passed = traces["left"].ranges(*self._ranges(moved))
        bounds = Block.concat([known.at(context.epoch), moved])
        rows = Block.concat([change.at(context.epoch), passed.at(context.epoch)])
        diff = np.concatenate([
            exact.multiply(change.diff, self._holding(change, bounds)),
            exact.multiply(passed.diff, self._holding(passed, moved)),
        ])  # fmt: skip
        counted = np.flatnonzero(diff)
        output = physical.take_all(left.original(rows.columns), counted)
        result = consolidated(change_table(output, self.left_types, diff[counted]))
        return StepResult({"left": change, "right": moved}, result)

    def _ranges(self, moved: Block) -> tuple[Words, Words, Words]:
        """The ranges of prefixes outside of which no row's answer changes: hashes (sorted), least and greatest
        prefixes. Ranges of one hash do not overlap."""
        prefixes = _prefixes(moved.columns[-1])
        hashes, first = np.unique(moved.hash, return_index=True)
        gained = self._gained(moved, hashes)
        if self.comparison in ("=", "<>"):
            open_ones = hashes[gained] if self.comparison == "<>" else hashes[:0]
            single = ~np.isin(moved.hash, open_ones)
            points = np.unique(np.stack([moved.hash[single], prefixes[single]], axis=1), axis=0)
            at = np.concatenate([points[:, 0], open_ones])
            order = np.argsort(at, kind="stable")
            least = np.concatenate([points[:, 1], np.full(len(open_ones), _LEAST)])
            most = np.concatenate([points[:, 1], np.full(len(open_ones), _MOST)])
            return at[order], least[order], most[order]
        if not len(hashes):
            return hashes, hashes, hashes
        least, most = np.minimum.reduceat(prefixes, first), np.maximum.reduceat(prefixes, first)
        if self.comparison in ("<", "<="):
            return hashes, np.where(gained, _LEAST, least), most
        return hashes, least, np.where(gained, _MOST, most)

    def _gained(self, moved: Block, hashes: Words) -> np.ndarray:
        """Whether a key of each hash has another number of bounds than before."""
        keys = [normalise_keys(column) for column in moved.columns[:-1]]
        order, starts = group_rows(moved.hash, keys)
        changed = exact.sums(moved.diff[order], starts) != 0
        return np.isin(hashes, moved.hash[order[starts[changed]]])

    def _holding(self, rows: Block, bounds: Block) -> Ints:
        """For each row, the number of the bounds of its key with which the comparison holds."""
        if not rows.rows or not bounds.rows:
            return np.zeros(rows.rows, np.int64)
        left, _ = self.arrangements
        count = rows.rows
        value = physical.concat([rows.columns[left.places.index(self.value)], bounds.columns[-1]])
        both = zip(rows.columns[: left.key], bounds.columns[: left.key], strict=True)
        keys = [normalise_keys(physical.concat([mine, other])) for mine, other in both]
        group = _numbered(np.concatenate([rows.hash, bounds.hash]), keys)
        rank = ranks(value)
        size = int(rank.max()) + 1
        place = group * size + rank
        order = np.argsort(place[count:], kind="stable")
        ordered = place[count:][order]
        total = np.concatenate([np.zeros(1, np.int64), exact.running(bounds.diff[order])])

        def between(start: Ints, end: Ints) -> Ints:
            return exact.add(total[end], -total[start])

        first = group[:count] * size
        start, end = np.searchsorted(ordered, first), np.searchsorted(ordered, first + size)
        less = np.searchsorted(ordered, place[:count], "left")
        upto = np.searchsorted(ordered, place[:count], "right")
        match self.comparison:
            case "=":
                return between(less, upto)
            case "<>":
                return exact.add(between(start, end), -between(less, upto))
            case "<":
                return between(upto, end)
            case "<=":
                return between(less, end)
            case ">":
                return between(start, less)
            case ">=":
                return between(start, upto)


def _prefixes(values: pa.Array) -> Words:
    return order_prefix(values, descending=False, nulls_first=True)


def _numbered(hashes: Words, keys: Sequence[pa.Array]) -> Ints:
    """The number of each row's key; equal keys have equal numbers."""
    order, starts = group_rows(hashes, keys)
    found = np.empty(len(order), np.int64)
    found[order] = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(order)))
    return found
