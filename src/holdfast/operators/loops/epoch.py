"""One epoch of a loop: rounds 0, 1, 2, … while changes are pending, for all hashes or a share of them.

Changes of the loop's inputs are changes of round 0. In each round the operators of the body run one after the other on
the changes of that round. The output of a variable's plan in round *r* is the variable's change in round *r* + 1. A
variable with a start has these rows at round 0; they are removed at round 1, when the first result of the body replaces
them.

The rows of a variable at the end are the sum of its plan's output over all rounds. Rounds in which no row arrives and
no operator has pending work are skipped.

A round runs in *stages*, the stages of the body's dataflow: the output of a stage's operators is needed only in later
stages, or in the same task. A task that has all hashes runs the stages one after the other (`LoopEpoch.run`). If
several tasks each have a share (`shares`), rows are cut by hash and exchanged before each stage. The rows of a
variable's next round are exchanged by hash too, and then consolidated, since rows that cancel must not reach steps that
compute. The progress of a share is its `state`. Another task may take it over, or one task may take over all shares and
continue with all hashes (`absorb`), and later divide the state into shares again (`share_of`). In all cases the same
code runs over the same rows, so the layers at the end are the same.

After each round of a large epoch, `task/round_tasks.py` decides whether the next round runs in shares, by the number of
rows that it is expected to hand to operators (`expected_rows`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from holdfast.foundation import failpoints
from holdfast.operators.arrangement import consolidated, negated, without_cancelled
from holdfast.operators.join import InnerJoin
from holdfast.operators.loops.arrivals import Arrivals
from holdfast.operators.loops.body import Body, Target, empty, input_name, variable_name
from holdfast.operators.loops.differences import DifferencesInRounds, DifferencesState
from holdfast.operators.loops.limits import Limits, check, counting
from holdfast.operators.loops.pairs import PairsInRounds, PairsState
from holdfast.operators.loops.pieces import Tables
from holdfast.operators.loops.shares import ALL, Share
from holdfast.operators.step import Context
from holdfast.trace.rows import Block
from holdfast.trace.trace import Trace


@dataclass(frozen=True)
class VariableSpec:
    """A variable of a loop: the types of its columns, and the index of the input that it starts with (None: empty)."""

    types: tuple[pa.DataType, ...]
    start: int | None = None


@dataclass(frozen=True)
class Rounds:
    """The progress of an epoch's rounds."""

    last: int = -1
    """The number of the last round that has run; -1 before the first."""

    count: int = 0
    """The number of rounds that have run."""

    handed: int = 0
    """Rows that were handed to operators in the last round."""

    given: int = 0
    """Rows that the last round began with."""


def expected_rows(pending: int, before: Rounds) -> int:
    """The number of rows that a round which begins with ``pending`` rows is expected to hand to operators: per pending
    row as many as in the round before."""
    return pending * max(1, before.handed) // max(1, min(before.given, before.handed))


class LargeRound(Exception):
    """The next round is too large for one task. The epoch has stopped after the last complete round."""

    def __init__(self, rounds: Rounds, following: int, pending: int, operator: str = "", state: str = "") -> None:
        """``following`` is the next round, which begins with ``pending`` rows. ``state`` is the name under which the
        task has stored its state."""
        super().__init__(rounds, following, pending, operator, state)
        self.rounds, self.following, self.pending = rounds, following, pending
        self.operator, self.state = operator, state


@dataclass
class Changes:
    """The changes with which later rounds begin, and the output of the result's plan so far. Together with the state of
    the operators, this is the state of an epoch."""

    inputs: dict[str, list[pa.Table]] = field(default_factory=dict)
    """Leaf of an input → its change, for round 0."""

    variables: dict[int, dict[int, list[pa.Table]]] = field(default_factory=dict)
    """Round → variable → its change."""

    given: list[pa.Table] = field(default_factory=list)
    """The output of the result's plan in the rounds so far."""


State = Changes | list[PairsState | DifferencesState]
"""A part of an epoch's state: the changes, or the states of a stage's operators."""


class LoopEpoch:
    """The rounds of one epoch, or a share of them."""

    def __init__(
        self,
        body: Body,
        variables: Sequence[VariableSpec],
        result: int,
        limits: Limits,
        traces: Mapping[str, Trace],
        context: Context,
        share: Share = ALL,
        stages: Collection[int] | None = None,
    ) -> None:
        """``traces``: those of the whole loop, also for a share. ``stages``: the stages whose operators run in this
        task (None: all)."""
        self._body, self._variables, self._result, self._limits = body, variables, result, limits
        self._context, self._share = context, share
        self._operators: dict[int, PairsInRounds | DifferencesInRounds] = {}
        self._stages: dict[int, list[int]] = {stage: [] for stage in range(1, body.stages + 1)}
        low, high = share.range if not share.is_all else (context.low, context.high)
        own = replace(context, low=low, high=high)
        for index, operator in enumerate(body.operators):
            if stages is not None and operator.stage not in stages:
                continue
            self._stages[operator.stage].append(index)
            whole = {suffix: traces[f"{index}.{suffix}"] for suffix in operator.layouts}
            mine = whole
            if not share.is_all:
                # All rows of an operator with one key are in the first share, whatever the hashes in its traces are.
                bounds = ((0, 1 << 64) if share.is_first else (0, 0)) if operator.spec.one_key else (low, high)
                mine = {suffix: trace.within(*bounds) for suffix, trace in whole.items()}
            if isinstance(operator.spec, InnerJoin):
                exact = any(path.computes for path in body.out_of(index))
                self._operators[index] = PairsInRounds(operator.spec, mine, own, exact=exact)
            else:
                schemas = [port.arrived for port in operator.ports]
                past = any(trace.rows for trace in whole.values())
                self._operators[index] = DifferencesInRounds(operator.spec, schemas, mine, own, has_history=past)
        self._changes = Changes()
        self._given = Tables()
        """The output of the result's plan, round by round."""
        self._here: dict[Target, list[pa.Table]] = {}
        """Rows that this task has for an operator or a variable, and that are not used yet."""
        self._away: list[tuple[int, Target, pa.Table]] = []
        """Rows to send to other tasks: (share, target, rows)."""
        self.handed = 0
        """Rows that this task handed to operators in this round."""
        self.rounds = Rounds()

    def run(self, arrived: Sequence[pa.Table]) -> pa.Table:
        """Run all rounds: the change of the result, given the changes of the inputs (``c0…``, ``_diff``)."""
        self.start(arrived)
        return self.rest()

    def start(self, arrived: Sequence[pa.Table]) -> None:
        """Take the changes of the inputs, for round 0."""
        arrived = [without_cancelled(table) if self._computed(index) else table for index, table in enumerate(arrived)]
        for index, variable in enumerate(self._variables):
            if variable.start is not None and (start := arrived[variable.start]).num_rows:
                self._changes.variables.setdefault(0, {}).setdefault(index, []).append(start)
                self._changes.variables.setdefault(1, {}).setdefault(index, []).append(negated(start))
        self._changes.inputs = {input_name(index): [table] for index, table in enumerate(arrived) if table.num_rows}

    def _computed(self, index: int) -> bool:
        """Whether a step computes with the rows of an input, as an input or as the start of a variable."""
        begun = (variable_name(place) for place, each in enumerate(self._variables) if each.start == index)
        return any(path.computes for leaf in (input_name(index), *begun) for path in self._body.out_of(leaf))

    def rest(self, most: int | None = None) -> pa.Table:
        """Run the remaining rounds and return the change of the result. Raises `LargeRound` before a round that is
        expected to hand more than ``most`` rows to operators."""
        # Round 0 runs even if nothing changes: in the first epoch an operator may have output without any input.
        following = 0 if self.rounds.last < 0 else self._next()
        while following is not None:
            pending = self.pending(following)
            if most is not None and self._limits.shared(following, pending, expected_rows(pending, self.rounds), most):
                raise LargeRound(self.rounds, following, pending)
            self.handed = 0
            self.begin(following)
            for stage in range(1, self._body.stages + 1):
                self.run_stage(stage, following)
            self.end(following)
            self.rounds = Rounds(following, self.rounds.count + 1, self.handed, pending)
            following = self._next()
        types = self._variables[self._result].types
        return consolidated(pa.concat_tables([empty(types), *self._given.pieces]))

    def layers(self) -> dict[str, Block]:
        """The rows of each trace's new layer."""
        return {
            f"{index}.{suffix}": block
            for index, operator in self._operators.items()
            for suffix, block in operator.layers().items()
        }

    def next_round(self) -> int | None:
        """The next round in which this task has work; None if there is none."""
        waiting = [each for operator in self._operators.values() if (each := operator.next_round()) is not None]
        return min([*self._changes.variables, *waiting], default=None)

    def pending(self, round: int) -> int:
        """The number of rows and due keys with which a round begins."""
        tables = [table for tables in self._changes.variables.get(round, {}).values() for table in tables]
        if round == 0:
            tables += [table for tables in self._changes.inputs.values() for table in tables]
        waiting = sum(operator.pending(round) for operator in self._operators.values())
        return waiting + int(sum(table.num_rows for table in tables))

    def _next(self) -> int | None:
        following = self.next_round()
        return None if following is None or (self._limits.cut and following > self._limits.last) else following

    # -- a round, stage by stage ---------------------------------------------------------------------------------------

    def begin(self, round: int) -> None:
        """Begin a round: hand the changes of inputs and variables to the operators."""
        failpoints.reach("loop.round")
        with counting(round, self._limits, self._context.epoch):
            self._begin(round)

    def _begin(self, round: int) -> None:
        for name, tables in self._changes.inputs.items():
            for table in tables:
                self._send(name, table, round)
        self._changes.inputs = {}
        for index, tables in self._changes.variables.pop(round, {}).items():
            change = tables[0] if len(tables) == 1 else consolidated(pa.concat_tables(tables))
            if change.num_rows:
                check(change, round, self._limits, self._context.epoch)
                self._send(variable_name(index), change, round)

    def run_stage(self, stage: int, round: int) -> None:
        """Run the operators of a stage. All rows for them must have been handed over before."""
        with counting(round, self._limits, self._context.epoch):
            for index in self._stages[stage]:
                arrived = [
                    Arrivals(schema.arrived).together(self._here.pop((index, port), []))
                    for port, schema in enumerate(self._body.operators[index].ports)
                ]
                output = self._operators[index].advance(round, arrived)
                if output is not None:
                    self._send(index, output, round)

    def end(self, round: int) -> None:
        """End a round: consolidate the changes of the variables for the next round."""
        with counting(round, self._limits, self._context.epoch):
            self._end(round)

    def _end(self, round: int) -> None:
        for index, variable in enumerate(self._variables):
            tables = self._here.pop((-1, index), [])
            change = consolidated(pa.concat_tables([empty(variable.types), *tables]))
            if not change.num_rows:
                continue
            if index == self._result:
                self._given.add(change)
            waiting = self._changes.variables.setdefault(round + 1, {})
            if others := waiting.get(index):
                change = consolidated(pa.concat_tables([*others, change]))
            waiting[index] = [change]

    def _send(self, producer: str | int, change: pa.Table, round: int) -> None:
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
            if index >= 0:
                table = self._body.operators[index].prepare(port, table, round)
                self.handed += table.num_rows
            if path.local or self._share.is_all:
                self._here.setdefault(path.target, []).append(table)
            elif index >= 0:
                self._away += [(owner, path.target, part) for owner, part in self._share.cut(table)]
            else:
                parts = self._share.cut_by(table, self._body.keys[port])
                self._away += [(owner, path.target, part) for owner, part in parts]

    def receive(self, target: Target, table: pa.Table) -> None:
        """Take rows that another task, or an earlier stage of this task, sent to an operator or a variable."""
        self._here.setdefault(target, []).append(table)

    def sent(self) -> list[tuple[int, Target, pa.Table]]:
        """Remove and return all rows that were handed on and are not used yet: (share, target, rows)."""
        kept = [(self._share.index, target, table) for target, tables in self._here.items() for table in tables]
        sent, self._away, self._here = self._away + kept, [], {}
        return sent

    # -- handing the state from task to task ---------------------------------------------------------------------------

    def state(self, stage: int) -> State:
        """The state of a stage's operators; for stage 0, the changes."""
        if stage == 0:
            return replace(self._changes, given=list(self._given.pieces))
        return [self._operators[index].state() for index in self._stages[stage]]

    def absorb(self, stage: int, state: State, after: int) -> None:
        """Add the state of a stage, of one share or of the whole loop. Rounds up to ``after`` have begun, so their
        changes are not taken."""
        if isinstance(state, Changes):
            self._given.absorb(state.given)
            if after < 0:
                for name, tables in state.inputs.items():
                    self._changes.inputs.setdefault(name, []).extend(tables)
            for round, changes in state.variables.items():
                for index, tables in changes.items() if round > after else ():
                    self._changes.variables.setdefault(round, {}).setdefault(index, []).extend(tables)
            return
        for index, each in zip(self._stages[stage], state, strict=True):
            self._operators[index].absorb(each)  # type: ignore[arg-type]  # of its own kind

    def share_of(self, stage: int, state: State, share: Share) -> State:
        """The part of a whole state with which a share continues."""
        if isinstance(state, Changes):
            inputs = {name: [_part(table, share) for table in tables] for name, tables in state.inputs.items()}
            variables = {
                round: {
                    index: [share.rows_by(table, self._body.keys[index]) for table in tables]
                    for index, tables in changes.items()
                }
                for round, changes in state.variables.items()
            }
            return Changes(inputs, variables, state.given if share.is_first else [])
        found: list[PairsState | DifferencesState] = []
        for index, each in zip(self._stages[stage], state, strict=True):
            found.append(self._operators[index].share_of(each, share))  # type: ignore[arg-type]  # of its own kind
        return found


def _part(table: pa.Table, share: Share) -> pa.Table:
    """A share of the rows of an input. Any rows will do, since rows are cut by hash before they reach an operator."""
    start, stop = (place * table.num_rows // share.count for place in (share.index, share.index + 1))
    return table.slice(start, stop - start)
