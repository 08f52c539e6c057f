"""GROUP BY, DISTINCT and global aggregates, kept up to date from changes.

State: the trace ``acc`` has, per key, the number of rows and the additive accumulators (`accumulators`). Values in
order (`extremes`, `values`) and multiplicities of distinct values (`distinct_values`) have traces of their own. An
epoch reads the state of the groups it touches, adds its change, and compares each group's results before and after, bit
for bit. If they differ, it retracts the old result and inserts the new one. A group exists while it has rows; without
keys there is one group, which always exists.

Before the exchange, rows are combined: into partial accumulators if all calls are sums, otherwise into one row per key
and arguments. Cost: O(change × log state); a key's row in ``acc`` is read once per layer.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from holdfast.errors import NegativeMultiplicity
from holdfast.operators.aggregates.accumulators import Totals, advance, combine, count_of, distinct_sums, partial_sums
from holdfast.operators.aggregates.calls import (
    EXTREMES,
    VALUES,
    CallSpec,
    Grouping,
    distinct,
    inputs,
    is_additive,
    ordered,
)
from holdfast.operators.aggregates.distinct_values import distinct_change
from holdfast.operators.aggregates.extremes import change_of, ends
from holdfast.operators.aggregates.results import describe, results
from holdfast.operators.aggregates.touched_groups import Groups
from holdfast.operators.aggregates.values import evaluate, gather
from holdfast.operators.numbers.digits import Bools, Ints
from holdfast.operators.step import Context, KeyedOperator, OperatorNode, StepResult, arrow_types
from holdfast.plan.dataflow import Operator
from holdfast.plan.expression import Tree
from holdfast.plan.fingerprint import digest, positions
from holdfast.plan.nodes import Field, KeyedPart, Node, OneInput, only, touches
from holdfast.plan.types import arrow_type
from holdfast.trace import exact, physical
from holdfast.trace.hashing import hash_columns, normalise_keys
from holdfast.trace.rows import Block, Layout, consolidate, constant_epoch, equal_rows, group_rows
from holdfast.trace.trace import Trace

FROM_LAST = {"min": False, "any_value": False, "max": True}
"""Function → whether it takes the last of a group's values in order (True) or the first (False)."""


_WHOLE_GROUP = frozenset({"collect_list", "collect_set", "mode", "percentile", "percentile_disc"})
_GROUPS = 0.1
"""The estimated number of groups per row."""


@dataclass(frozen=True)
class Call:
    """One aggregate of an `Aggregate`: output column, function, argument columns (none for ``count(*)``), type.

    ``function`` is one of ``count, sum, avg, min, max, any_value, stddev_samp, stddev_pop, var_samp, var_pop, count_if,
    bool_and, bool_or, skewness, kurtosis, covar_pop, covar_samp, bit_and, bit_or, bit_xor, collect_list, collect_set,
    mode, percentile, percentile_disc``. ``distinct``: each value counts once. ``any_value`` is used for SQL's first,
    last and any_value. It is the least non-null value, so that every replay gives the same value. For the same reason
    collected lists are sorted.
    ``parameters`` are constants: a percentage, and ``desc`` if it counts from the greatest value; ``greatest`` for a
    mode that takes the greatest of the values that tie; ``try`` for a sum that is NULL if it does not fit its type.
    """

    name: str
    function: str
    arguments: tuple[str, ...]
    type: str
    distinct: bool = False
    parameters: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The call, for people."""
        arguments = ", ".join(self.arguments + self.parameters) or "*"
        return f"{self.function}({'distinct ' if self.distinct else ''}{arguments})"


@dataclass(frozen=True)
class Aggregate(OneInput, OperatorNode):
    """One row per distinct key with the aggregates of its rows; without keys, always one row.

    With keys and without calls it is DISTINCT. NULL keys group together; NaN equals NaN and -0.0 equals 0.0.
    Columns: the keys, then the calls.
    """

    keys: tuple[str, ...]
    calls: tuple[Call, ...]

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        keys = tuple(Field(key, self.input.types[key]) for key in self.keys)
        return keys + tuple(Field(call.name, call.type) for call in self.calls)

    @cached_property
    def parts(self) -> tuple[KeyedPart, ...]:
        calls = ", ".join(call.text for call in self.calls)
        keys = ", ".join(self.keys) or "nothing"
        whole = any(call.function in _WHOLE_GROUP for call in self.calls)
        return (
            KeyedPart(
                "aggregate",
                keys=(positions(self.keys, self.input.columns),),
                spread=(tuple(range(len(self.keys))),),
                title=f"aggregate by {keys}: {calls}" if calls else f"distinct {keys}",
                takes=(self._taken,),
                cost="of the group" if whole else "of the change",
                colour="#fdf3e0",
            ),
        )

    @property
    def _taken(self) -> tuple[int, ...]:
        """The positions of the input's columns that are needed: the keys, then the arguments. A key that is named twice
        is there twice."""
        key = positions(self.keys, self.input.columns)
        arguments = positions([name for call in self.calls for name in call.arguments], self.input.columns)
        return (*key, *(index for index in dict.fromkeys(arguments) if index not in key))

    def compiled(self, operator: Operator) -> AggregateSpec:
        taken, fields = self._taken, self.input.fields
        calls = []
        for call in self.calls:
            at = positions(call.arguments, self.input.columns)
            calls.append(
                CallSpec(
                    call.function,
                    tuple(map(taken.index, at)),
                    arrow_types(fields[index] for index in at),
                    arrow_type(call.type),
                    call.distinct,
                    call.parameters,
                )
            )
        key_types = arrow_types(fields[index] for index in operator.keys[0])
        return AggregateSpec(len(self.keys), tuple(calls), key_types)

    def meaning(self, *inputs: str) -> str:
        columns = self.input.columns
        calls = tuple(
            (call.function, positions(call.arguments, columns), call.distinct, *call.parameters) for call in self.calls
        )
        return digest("aggregate", inputs[0], positions(self.keys, columns), calls)

    def needs(self, wanted: Collection[str]) -> tuple[set[str], ...]:
        return ({*self.keys, *(name for call in self.calls if call.name in wanted for name in call.arguments)},)

    def pruned(self, wanted: Collection[str], inputs: Sequence[Node]) -> Node:
        calls = tuple(call for call in self.calls if call.name in wanted)
        below = only(inputs[0], self.needs(wanted)[0])
        if below is self.input and len(calls) == len(self.calls):
            return self
        return replace(self, input=below, calls=calls)

    def pushed(self, condition: Tree) -> tuple[Tree | None, ...] | None:
        # A condition on the keys keeps or drops whole groups.
        return (condition,) if touches(condition, self.keys) else None

    def guessed_rows(self, *inputs: float) -> float:
        return max(1.0, inputs[0] * _GROUPS) if self.keys else 1.0

    @property
    def compared(self) -> tuple[str, ...]:
        return (*self.keys, *(name for call in self.calls if call.distinct for name in call.arguments))


@dataclass(frozen=True)
class AggregateSpec(Grouping, KeyedOperator):
    """The keyed operator of an `Aggregate`."""

    def layouts(self) -> dict[str, Layout]:
        found = {"acc": Layout(width=self.keys, key=self.keys, sub="none")}
        for index in ordered(self):
            found[f"order.{index}"] = Layout(width=self.keys + 1, key=self.keys, sub="order")
        for state, accumulator in distinct(self).items():
            width = self.keys + len(accumulator.arguments)
            found[f"distinct.{state}"] = Layout(width=width, key=self.keys, sub="hash")
        return found

    def prepare(self, port: int, change: pa.Table) -> pa.Table:
        """Combine rows by key (if all calls are additive) or by key and arguments, and sort them by the key's hash.

        Batches may have different additive columns: a missing column is zero.
        """
        keys = [normalise_keys(_column(change, index, kind)) for index, kind in enumerate(self.key_types)]
        arguments = {index: _column(change, index, kind) for index, kind in inputs(self).items()}
        diff = change.column("_diff").to_numpy()
        hashes = hash_columns(keys, rows=change.num_rows)
        if is_additive(self):
            order, starts = group_rows(hashes, keys)
            columns = {
                index: physical.take(column, order) for index, column in _arguments(self, keys, arguments).items()
            }
            totals = partial_sums(self, columns, diff[order], starts)
            first = order[starts]
            if not totals["+diff"].all():
                alive = np.flatnonzero(np.any([column != 0 for column in totals.values()], axis=0))
                first, totals = first[alive], {name: column[alive] for name, column in totals.items()}
            return _table(hashes[first], physical.take_all(keys, first), totals)
        arguments = {index: normalise_keys(column) for index, column in arguments.items()}
        rest = list(arguments.values())
        order, starts = group_rows(hashes, keys + rest, sub=hash_columns(rest, normalise=False, rows=change.num_rows))
        total = exact.sums(diff[order], starts)
        alive = np.flatnonzero(total)
        first = order[starts[alive]]
        kept = {f"c{index}": physical.take(column, first) for index, column in arguments.items()}
        return _table(hashes[first], physical.take_all(keys, first), {**kept, "_diff": total[alive]})

    def step(self, arrived: list[pa.Table], traces: dict[str, Trace], context: Context) -> StepResult:
        """Run one epoch of one partition."""
        rows = _arrange(self, arrived[0])
        groups = rows.groups
        forced = self.keys == 0 and context.low == 0 and context.initial
        if not len(groups):
            if not forced:
                none = [pa.nulls(0, call.result_type) for call in self.calls]
                return StepResult({}, _output(self, groups, none, none, _nobody(0), _nobody(0)))
            groups = Groups(np.zeros(1, dtype=np.uint64), ())
        delta, layers = (rows.totals if len(rows.groups) else {}), {}
        for state, accumulator in distinct(self).items():
            suffix = f"distinct.{state}"
            given = [rows.columns[index] for index in accumulator.arguments]
            layers[suffix], gained = distinct_change(
                groups, rows.places, given, rows.diff, traces[suffix], self.layouts()[suffix], context.epoch
            )
            delta |= distinct_sums(accumulator, gained.values, gained.gains, gained.places, len(groups))
        old = _totals(groups, traces["acc"])
        new, change = advance(self, old, delta)
        acc = Block(groups.hash, None, groups.keys, constant_epoch(context.epoch, len(groups)), change)
        layers["acc"] = consolidate(acc, self.layouts()["acc"])
        there_before, there_after = _present(self, groups, old, new, context)
        picked_before: dict[CallSpec, pa.Array] = {}
        picked_after: dict[CallSpec, pa.Array] = {}
        for index, calls in ordered(self).items():
            suffix = f"order.{index}"
            layout = self.layouts()[suffix]
            had = count_of(old, f"+{index}.null")
            moved = change_of(groups, rows.places, rows.columns[index], rows.diff, had, layout, context.epoch)
            layers[suffix] = moved.layer
            for last in {FROM_LAST[call.function] for call in calls if call.function in EXTREMES}:
                first, second = ends(moved, traces[suffix], layout, last=last)
                for call in (call for call in calls if FROM_LAST.get(call.function) == last):
                    picked_before[call], picked_after[call] = first, second
            if whole := [call for call in calls if call.function in VALUES]:
                values = gather(moved, traces[suffix], layout)
                for call in whole:
                    picked_before[call] = evaluate(call, values, values.old)
                    picked_after[call] = evaluate(call, values, values.new)
        before = results(self, old, picked_before, groups.keys)
        after = results(self, new, picked_after, groups.keys)
        same = equal_rows(before, after, rows=len(groups))
        gone = there_before & ~(there_after & same)
        come = there_after & ~(there_before & same)
        return StepResult(layers, _output(self, groups, before, after, gone, come))


@dataclass(frozen=True)
class _Rows:
    """The rows that arrived, by group: the change of the additive state, and the rows themselves unless all calls are
    additive."""

    groups: Groups
    totals: Totals
    places: Ints
    columns: dict[int, pa.Array]
    diff: Ints


def _arrange(spec: AggregateSpec, table: pa.Table) -> _Rows:
    hashes = table.column("_hash").to_numpy()
    keys = [physical.plain(table.column(f"c{index}")) for index in range(spec.keys)]
    order, starts = group_rows(hashes, keys)
    first = order[starts]
    groups = Groups(hashes[first], physical.take_all(keys, first))
    if is_additive(spec):
        partial = {name: table.column(name).to_numpy()[order] for name in table.column_names if name.startswith("+")}
        return _Rows(groups, combine(spec, partial, starts), np.zeros(0, dtype=np.int64), {}, partial["+diff"])
    given = {index: physical.plain(table.column(f"c{index}")) for index in inputs(spec)}
    columns = {index: physical.take(column, order) for index, column in _arguments(spec, keys, given).items()}
    diff = table.column("_diff").to_numpy()[order]
    places = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(order)))
    return _Rows(groups, partial_sums(spec, columns, diff, starts), places, columns, diff)


def _totals(groups: Groups, trace: Trace) -> Totals:
    """The groups' accumulators as of the epoch before."""
    candidates, block = trace.matching(groups.hashes)
    places = groups.locate(block, candidates)
    totals = {name: groups.sums(places, column) for name, column in block.adds.items()}
    return {"+diff": np.zeros(len(groups), dtype=np.int64)} | totals


def _present(spec: AggregateSpec, groups: Groups, old: Totals, new: Totals, context: Context) -> tuple[Bools, Bools]:
    """Whether each group exists before the epoch, and after it. Raises NegativeMultiplicity if a group has less than 0
    rows."""
    if (new["+diff"] < 0).any():
        index = int(np.argmin(new["+diff"]))
        raise NegativeMultiplicity(
            f"a group has {new['+diff'][index]} rows after epoch {context.epoch}: {describe(groups.keys, index)}; "
            "more of its rows were deleted than inserted",
            epoch=context.epoch,
            rows=[tuple(column[index].as_py() for column in groups.keys)],
        )
    if spec.keys == 0:
        always = np.ones(len(groups), dtype=np.bool_)
        return (_nobody(len(groups)) if context.initial else always), always
    return old["+diff"] > 0, new["+diff"] > 0


def _output(
    spec: AggregateSpec, groups: Groups, before: list[pa.Array], after: list[pa.Array], gone: Bools, come: Bools
) -> pa.Table:
    """The output change: the old results where ``gone``, retracted, then the new results where ``come``, inserted."""
    left, entered = np.flatnonzero(gone), np.flatnonzero(come)
    columns = list(physical.take_all(groups.keys, np.concatenate([left, entered])))
    for call, old, new in zip(spec.calls, before, after, strict=True):
        columns.append(physical.concat([physical.take(old, left), physical.take(new, entered)]).cast(call.result_type))
    diff = np.concatenate([np.full(len(left), -1, dtype=np.int64), np.ones(len(entered), dtype=np.int64)])
    return pa.table([*columns, pa.array(diff)], names=[*(f"c{index}" for index in range(len(columns))), "_diff"])


def _nobody(size: int) -> Bools:
    return np.zeros(size, dtype=np.bool_)


def _column(change: pa.Table, index: int, kind: pa.DataType) -> pa.Array:
    column = physical.plain(change.column(index))
    return column if column.type.equals(kind) else column.cast(kind)


def _arguments(spec: AggregateSpec, keys: list[pa.Array], others: dict[int, pa.Array]) -> dict[int, pa.Array]:
    """The argument columns of the calls, by their position in the input. An argument may be a key."""
    used = {index for call in spec.calls for index in call.arguments}
    return {index: keys[index] if index < spec.keys else others[index] for index in used}


def _table(hashes: np.ndarray, keys: tuple[pa.Array, ...], rest: dict[str, pa.Array | Ints]) -> pa.Table:
    columns = [pa.array(hashes), *keys, *(pa.array(c) if isinstance(c, np.ndarray) else c for c in rest.values())]
    return pa.table(columns, names=["_hash", *(f"c{index}" for index in range(len(keys))), *rest])
