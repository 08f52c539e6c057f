"""One epoch of a loop: rounds 0, 1, 2, … while anything is pending.

Changes of the loop's inputs are changes of round 0. In each round the operators of the body run one after the other on
the changes of that round. What a variable's plan gives in round *r* is the variable's change in round *r* + 1. A
variable with a start begins as that: it is given at round 0, and taken back at round 1, when the body's first result
takes its place.

The rows of a variable at the end are the sum, over all rounds, of what its plan gave. Rounds in which nothing arrives
and no operator has anything waiting are passed over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from holdfast.errors import LoopDiverged
from holdfast.foundation import failpoints
from holdfast.operators.arrangement import consolidated, negated
from holdfast.operators.join import InnerJoin
from holdfast.operators.loops.arrivals import Arrivals
from holdfast.operators.loops.body import Body, empty, input_name, variable_name
from holdfast.operators.loops.differences import DifferencesInRounds
from holdfast.operators.loops.pairs import PairsInRounds
from holdfast.operators.loops.pieces import Tables
from holdfast.operators.step import Context
from holdfast.trace.rows import Block
from holdfast.trace.trace import Trace

_SHOWN = 3


@dataclass(frozen=True)
class VariableSpec:
    """A variable of a loop: the types of its columns, and the input that it starts with, if there is one."""

    types: tuple[pa.DataType, ...]
    start: int | None = None


@dataclass(frozen=True)
class Limits:
    """After how many rounds a loop must have ended, or is left as it is (``cut``)."""

    bound: int
    cut: bool = False


class LoopEpoch:
    """The rounds of one epoch."""

    def __init__(
        self,
        body: Body,
        variables: Sequence[VariableSpec],
        result: int,
        limits: Limits,
        traces: dict[str, Trace],
        context: Context,
    ) -> None:
        self._body, self._variables, self._result, self._limits = body, variables, result, limits
        self._context = context
        self._operators: list[PairsInRounds | DifferencesInRounds] = []
        for index, operator in enumerate(body.operators):
            mine = {suffix: traces[f"{index}.{suffix}"] for suffix in operator.layouts}
            if isinstance(operator.spec, InnerJoin):
                exact = any(path.computes for path in body.out_of(index))
                self._operators.append(PairsInRounds(operator.spec, mine, context, exact=exact))
            else:
                schemas = [port.arrived for port in operator.ports]
                self._operators.append(DifferencesInRounds(operator.spec, schemas, mine, context))
        self._changes: dict[int, dict[int, list[pa.Table]]] = {}
        """Round → variable → its change."""
        self._given = Tables()
        """What the result's plan gave, round by round."""
        self.rounds = 0
        """How many rounds were run."""

    def run(self, arrived: Sequence[pa.Table]) -> pa.Table:
        """The change of the result, given those of the inputs (``c0…``, ``_diff``)."""
        for index, variable in enumerate(self._variables):
            if variable.start is not None and (start := arrived[variable.start]).num_rows:
                self._changes.setdefault(0, {}).setdefault(index, []).append(start)
                self._changes.setdefault(1, {}).setdefault(index, []).append(negated(start))
        outer = {input_name(index): table for index, table in enumerate(arrived) if table.num_rows}
        round: int | None = 0
        while round is not None:
            failpoints.reach("loop.round")
            self._round(round, outer)
            self.rounds += 1
            outer = {}
            round = self._next(round)
        types = self._variables[self._result].types
        return consolidated(pa.concat_tables([empty(types), *self._given.pieces]))

    def layers(self) -> dict[str, Block]:
        """The rows of each trace's new layer."""
        return {
            f"{index}.{suffix}": block
            for index, operator in enumerate(self._operators)
            for suffix, block in operator.layers().items()
        }

    def _next(self, round: int) -> int | None:
        """The next round in which there is something to do."""
        pending = [*self._changes, *(each for op in self._operators if (each := op.next_round()) is not None)]
        following = min(pending, default=None)
        if following is None or (self._limits.cut and following >= self._limits.bound):
            return None
        return following

    def _round(self, round: int, outer: dict[str, pa.Table]) -> None:
        ports: list[list[list[pa.Table]]] = [[[] for _ in each.ports] for each in self._body.operators]
        next_round: dict[int, list[pa.Table]] = {}

        def send(producer: str | int, change: pa.Table) -> None:
            done: dict[tuple[object, ...], pa.Table] = {}
            for path in self._body.out_of(producer):
                table = done.get(path.steps)
                if table is None:
                    table = change
                    for step in path.steps:
                        table = step.run(table)
                    done[path.steps] = table
                if not table.num_rows:
                    continue
                index, port = path.target
                if index < 0:
                    next_round.setdefault(port, []).append(table)
                else:
                    taken = _taken(table, self._body.operators[index].ports[port].columns)
                    ports[index][port].append(self._operators[index].prepare(port, taken, round))

        for name, table in outer.items():
            send(name, table)
        for index, tables in self._changes.pop(round, {}).items():
            change = tables[0] if len(tables) == 1 else consolidated(pa.concat_tables(tables))
            if change.num_rows:
                self._check(round, index, change)
                send(variable_name(index), change)
        for index, operator in enumerate(self._operators):
            arrived = [
                Arrivals(port.arrived).together(tables)
                for port, tables in zip(self._body.operators[index].ports, ports[index], strict=True)
            ]
            output = operator.advance(round, arrived)
            if output is not None:
                send(index, output)
        for index, tables in next_round.items():
            change = consolidated(pa.concat_tables([empty(self._variables[index].types), *tables]))
            if not change.num_rows:
                continue
            if index == self._result:
                self._given.add(change)
            self._changes.setdefault(round + 1, {}).setdefault(index, []).append(change)

    def _check(self, round: int, variable: int, change: pa.Table) -> None:
        """Raise if a variable still changes at a round after the last one."""
        if round <= self._limits.bound:
            return
        rows = [tuple(row.values())[:-1] for row in change.slice(0, _SHOWN).to_pylist()]
        raise LoopDiverged(
            f"the loop still changes {change.num_rows} row{'s' if change.num_rows > 1 else ''} after its bound of "
            f"{self._limits.bound} rounds, among them {', '.join(map(repr, rows))}; nothing of the epoch took effect: "
            "raise max_rounds if the loop ends later, or take back the input that makes it go on for ever",
            epoch=self._context.epoch,
            max_rounds=self._limits.bound,
            changing=change.num_rows,
            rows=rows,
        )


def _taken(table: pa.Table, columns: Sequence[int]) -> pa.Table:
    """The columns that a port takes, under their places there."""
    arrays = [table.column(index) for index in columns]
    names = [f"c{index}" for index in range(len(arrays))]
    return pa.table([*arrays, table.column("_diff")], names=[*names, "_diff"])
