"""Draws: each row with nondeterministic values that are drawn when it is inserted, and kept until it is deleted.

Trace ``rows``: the input's row (the key), the epoch in which its values were drawn, and the values, with a diff. So a
deletion retracts exactly the values that were emitted for the row, whatever the functions would return now.

A row that is inserted n times draws n times. Each copy has a *place*: the hash of the row and its number among the new
copies of that hash, in the canonical order of their content. Places are a function of the bag that arrived. Values are
a function of the place and the lineage (`operators.numbers.randomness`), or answers of outside functions
(`operators.outside_functions`). If only the clock is drawn, all copies are equal and stay one row with a diff.

A row that is deleted n times removes n kept copies: the latest drawn first, then in the canonical order of the values.
The epoch of a draw is a column of its own, because compaction collapses the epochs of trace rows. The trace is ordered
by it, latest first, so that only as many copies are read as are deleted. The order depends on content alone, hence it
is the same after any merge.

Cost: one sort of the change; O(copies deleted · log state) to find them; a call per copy for outside functions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.errors import NegativeMultiplicity
from holdfast.operators.arrangement import Arrangement, as_block, change_table
from holdfast.operators.numbers import randomness
from holdfast.operators.outside_functions import ask
from holdfast.operators.step import Context, KeyedOperator, OperatorNode, StepResult, arrow_types
from holdfast.plan.dataflow import Operator
from holdfast.plan.expression import Tree
from holdfast.plan.fingerprint import digest, positions
from holdfast.plan.nodes import Field, KeyedPart, Node, OneInput, Order, Outside, only, touches
from holdfast.plan.types import arrow_type
from holdfast.trace import exact, physical
from holdfast.trace.equality import equal_rows
from holdfast.trace.inner_loops import spans
from holdfast.trace.order import order_prefix
from holdfast.trace.rows import Block, Layout, consolidate, constant_epoch
from holdfast.trace.trace import Trace

Indices = npt.NDArray[np.int64]

_SHOWN = 3


@dataclass(frozen=True)
class Drawn:
    """A column of a `Draw`: its name, the function that draws it, argument columns and Spark type.

    ``function`` is ``clock``, ``rand``, ``randn`` or ``uuid``, or ``udf:<name>`` for the user's function ``outside``.
    ``salt`` makes several draws of one function independent: the seed that the user gave, or the number of the call in
    the query.
    """

    name: str
    function: str
    arguments: tuple[str, ...]
    type: str
    salt: str = ""
    outside: Outside | None = None

    @property
    def text(self) -> str:
        """The call, for people."""
        name = "current_timestamp" if self.function == "clock" else self.function.removeprefix("udf:")
        return f"{name}({', '.join(self.arguments)})"


@dataclass(frozen=True)
class Draw(OneInput, OperatorNode):
    """Each row of the input with values that were drawn when it was inserted, and stay until it is deleted.

    `Draw` is the only nondeterministic node: its values are a function of the row and of the epoch's lineage. Columns:
    the input's, then the draws'.

    Rows that differ only in pruned columns become copies of one row, and each copy still draws its own values. A `Draw`
    without draws is its input.
    """

    draws: tuple[Drawn, ...]

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        return self.input.fields + tuple(Field(draw.name, draw.type) for draw in self.draws)

    @cached_property
    def parts(self) -> tuple[KeyedPart, ...]:
        # The whole row is the key: equal rows meet in one task, and a deleted row finds the values drawn for it.
        row = tuple(range(len(self.input.columns)))
        title = "draw " + ", ".join(f"{draw.text} as {draw.name}" for draw in self.draws)
        drawn = tuple(draw.function for draw in self.draws)
        return (KeyedPart("draw", keys=(row,), spread=(row,), title=title, colour="#fff8c9", draws=drawn),)

    def compiled(self, operator: Operator) -> DrawSpec:
        draws = tuple(
            DrawnSpec(
                each.function,
                positions(each.arguments, self.input.columns),
                arrow_type(each.type),
                each.salt,
                b"" if each.outside is None else each.outside.pickled,
            )
            for each in self.draws
        )
        return DrawSpec(operator.id, arrow_types(self.input.fields), draws, operator.name)

    def meaning(self, *inputs: str) -> str:
        draws = tuple(
            (
                each.function,
                each.salt,
                positions(each.arguments, self.input.columns),
                each.type,
                None if each.outside is None else each.outside.meaning,
            )
            for each in self.draws
        )
        return digest("draw", inputs[0], draws)

    def needs(self, wanted: Collection[str]) -> tuple[set[str], ...]:
        passed = (name for name in self.input.columns if name in wanted)
        return ({*passed, *(name for draw in self.draws if draw.name in wanted for name in draw.arguments)},)

    def pruned(self, wanted: Collection[str], inputs: Sequence[Node]) -> Node:
        draws = tuple(draw for draw in self.draws if draw.name in wanted)
        below = only(inputs[0], self.needs(wanted)[0])
        if not draws:
            return below
        return self if below is self.input and len(draws) == len(self.draws) else Draw(below, draws)

    def pushed(self, condition: Tree) -> tuple[Tree | None, ...] | None:
        # Rows that the condition drops then draw nothing. The other rows draw the same values as before, since a value
        # depends only on its row and its epoch.
        return (condition,) if touches(condition, self.input.columns) else None

    @property
    def shown_order(self) -> tuple[Order, ...]:
        return self.input.shown_order


@dataclass(frozen=True)
class DrawnSpec:
    """One drawn column as tasks compute it: see `Drawn`. ``arguments`` are positions in the input's row."""

    function: str
    arguments: tuple[int, ...]
    type: pa.DataType
    salt: str = ""
    pickled: bytes = b""


@dataclass(frozen=True)
class DrawSpec(KeyedOperator):
    """The keyed operator of a `Draw` over rows of ``types``. ``id``, the operator_id, makes the values of different
    operators independent. ``name`` is the name of a view with these values, for errors."""

    id: str
    types: tuple[pa.DataType, ...]
    draws: tuple[DrawnSpec, ...]
    name: str

    remembers = True

    @property
    def arrangement(self) -> Arrangement:
        return Arrangement.by(range(len(self.types)), len(self.types))

    @property
    def layout(self) -> Layout:
        width = len(self.types)
        return Layout(width + 1 + len(self.draws), width, "order")

    @property
    def output(self) -> tuple[pa.DataType, ...]:
        return self.types + tuple(draw.type for draw in self.draws)

    @property
    def asks(self) -> bool:
        return any(draw.function.startswith("udf:") for draw in self.draws)

    def layouts(self) -> dict[str, Layout]:
        return {"rows": self.layout}

    def prepare(self, port: int, change: pa.Table) -> pa.Table:
        return self.arrangement.prepare(change)

    def step(self, arrived: list[pa.Table], traces: dict[str, Trace], context: Context) -> StepResult:
        width = len(self.types)
        columns = tuple(physical.plain(arrived[0].column(f"c{index}")) for index in range(width))
        change = consolidate(as_block(arrived[0], columns, None, context.epoch), Layout(width, width))
        come, answers = _come(self, change.filter(change.diff > 0), context)
        gone = _gone(self, change.filter(change.diff < 0), traces["rows"], context)
        layer = consolidate(Block.concat([come, gone]), self.layout)
        return StepResult({"rows": layer}, _output(self, layer), answers)

    def remembered(self, traces: Mapping[str, Trace]) -> pa.Table:
        # Running the operator over the whole input again would draw other values.
        return _output(self, traces["rows"].scan())


def _output(spec: DrawSpec, rows: Block) -> pa.Table:
    """Rows of the trace as an output change, without the epochs of their draws."""
    width = len(spec.types)
    columns = rows.columns[:width] + rows.columns[width + 1 :]
    block = Block(rows.hash, None, columns, constant_epoch(0, rows.rows), {"+diff": rows.diff})
    whole = consolidate(block, Layout(len(columns), width, "hash"))
    return change_table(whole.columns, spec.output, whole.diff)


def _come(spec: DrawSpec, rows: Block, context: Context) -> tuple[Block, dict[str, str]]:
    """The inserted rows, each with its draws, as rows of the trace; and the answers of outside functions."""
    if any(draw.function != "clock" for draw in spec.draws):
        copies = exact.repeated(rows.diff)
        rows = replace(rows.take(copies), adds={"+diff": np.ones(len(copies), np.int64)})
    numbers = _numbers(rows.hash)
    answers: dict[str, str] = {}
    drawn: list[pa.Array] = []
    for index, draw in enumerate(spec.draws):
        key = (context.seed, spec.id, index, draw.function, draw.salt)
        match draw.function:
            case "clock":
                drawn.append(pa.array(np.full(rows.rows, context.clock), pa.int64()).cast(draw.type))
            case "rand":
                drawn.append(pa.array(randomness.uniform(randomness.words(key, rows.hash, numbers)), draw.type))
            case "randn":
                drawn.append(pa.array(randomness.normal(randomness.words(key, rows.hash, numbers)), draw.type))
            case "uuid":
                halves = [randomness.words((*key, half), rows.hash, numbers) for half in range(2)]
                drawn.append(randomness.uuids(*halves))
            case function:
                questions = [
                    f"{index}:{hash_:016x}:{number}"
                    for hash_, number in zip(rows.hash.tolist(), numbers.tolist(), strict=True)
                ]
                arguments = [rows.columns[index] for index in draw.arguments]
                subject = f"view '{spec.name}': function '{function.removeprefix('udf:')}'"
                values, given = ask(draw.pickled, draw.type, questions, arguments, subject, context)
                drawn.append(values)
                answers |= given
    epochs = pa.array(np.full(rows.rows, context.epoch), pa.int64())
    return replace(rows, sub=_latest_first(epochs), columns=(*rows.columns, epochs, *drawn)), answers


def _numbers(hashes: npt.NDArray[np.uint64]) -> Indices:
    """For each of these sorted hashes, its number among the equal hashes, from 0."""
    places = np.arange(len(hashes))
    fresh = np.ones(len(hashes), np.bool_)
    fresh[1:] = hashes[1:] != hashes[:-1]
    return places - np.maximum.accumulate(np.where(fresh, places, 0))


def _latest_first(epochs: pa.Array) -> npt.NDArray[np.uint64]:
    return order_prefix(epochs, descending=True, nulls_first=False)


def _gone(spec: DrawSpec, rows: Block, trace: Trace, context: Context) -> Block:
    """The kept copies that the deleted rows remove, with negative diffs. Raises NegativeMultiplicity if there are fewer
    copies than deletions."""
    if not rows.rows:
        return Block.empty(spec.layout)
    wanted = -rows.diff
    # Enough copies for all deleted rows of a hash, also if several rows share it.
    hashes, of = np.unique(rows.hash, return_inverse=True)
    most = int(exact.sums_at(of, wanted, len(hashes)).max())
    _, kept = trace.first(hashes, most)
    copy, row = _meet(rows, kept, len(spec.types))
    # Sort copies by their row; copies of one row stay in the order of the trace.
    order = np.argsort(row, kind="stable")
    copy, row = copy[order], row[order]
    before = _running(row, kept.diff[copy])
    take = np.clip(wanted[row] - before, 0, kept.diff[copy])
    missing = wanted - exact.sums_at(row, take, rows.rows)
    if missing.any():
        raise _negative(spec, rows, missing, context.epoch)
    found = replace(kept.take(copy).at(context.epoch), adds={"+diff": -take})
    return found.filter(take > 0)


def _meet(rows: Block, kept: Block, width: int) -> tuple[Indices, Indices]:
    """(index of the kept copy, index of its row) for each copy of one of the rows. The hash finds candidates, equality
    decides."""
    starts, lengths = spans(rows.hash, kept.hash)
    copy = np.repeat(np.arange(kept.rows), lengths)
    row = physical.ranges(starts, lengths)
    left, right = physical.take_all(kept.columns[:width], copy), physical.take_all(rows.columns, row)
    same = equal_rows(left, right, rows=len(copy))
    return copy[same], row[same]


def _running(groups: Indices, values: Indices) -> Indices:
    """For each value, the sum of the values before it in its group. The groups are sorted."""
    before: Indices = np.cumsum(values) - values
    fresh = np.ones(len(groups), np.bool_)
    fresh[1:] = groups[1:] != groups[:-1]
    starts = np.flatnonzero(fresh)
    exact.sums(values, starts)  # raises if the sum of a group overflows; the cumsum across groups may wrap
    running: Indices = before - before[starts][np.cumsum(fresh) - 1]
    return running


def _negative(spec: DrawSpec, rows: Block, missing: Indices, epoch: int) -> NegativeMultiplicity:
    wrong = np.flatnonzero(missing)
    shown = change_table(rows.columns, spec.types, rows.diff).take(pa.array(wrong[:_SHOWN])).to_pylist()
    values = [tuple(row[f"c{index}"] for index in range(len(spec.types))) for row in shown]
    listed = ", ".join(f"{row!r} ({-count})" for row, count in zip(values, missing[wrong].tolist(), strict=False))
    more = f" and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
    return NegativeMultiplicity(
        f"view '{spec.name}', epoch {epoch}: rows are retracted more often than values were drawn for them: "
        f"{listed}{more} (in brackets: how many copies there would be)",
        name=spec.name,
        epoch=epoch,
        rows=values,
    )
