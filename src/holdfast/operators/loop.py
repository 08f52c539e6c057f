"""A loop: the fixpoint of a body, kept up to date from changes. Recursive views and iterations are loops.

A loop has variables. Each is a collection with a plan, its *body*, which computes the variable in the next round. The
leaves of the bodies are the variables and the loop's inputs, which are ordinary collections of the flow. With X(r) the
variables at round *r*:

    X(0) = start, or nothing          X(r+1) = body(X(r), inputs)          the loop's rows = X(∞) of one variable

Inside, a time is (epoch, round). Every operator of the body keeps its trace with the round as one more column
(`loops.round_traces`). An epoch runs rounds one after the other over the changes in them (`loops.epoch`), with the
operators' usual kernels: inner joins pair by pair (`loops.pairs`), all other operators by differences
(`loops.differences`). A round computes the difference to the same round as of the epoch before. So at each round the
rows are those that a computation from the start would have at that round, and a deletion also removes all rows derived
from the deleted row, even through cycles.

Outside, a loop is one keyed operator with the empty key. All of its rows are in the partition with hash 0, and its
rounds run in that partition's task, without an exchange. Large rounds may run in several tasks, each with a share of
the hashes inside the loop (`loops.shares`, `spark/round_jobs.py`). Its layers are merged, copied, recovered and read as
of an epoch like those of any operator.

Cost: in each round, that of the changes in the round: the rows that the epoch changed there, and the rows that they
meet.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
import pyarrow as pa

from holdfast.operators.loops.body import Body, body_dataflow, compile_body, empty
from holdfast.operators.loops.epoch import LoopEpoch, VariableSpec
from holdfast.operators.loops.limits import Limits
from holdfast.operators.loops.shares import ALL, Share
from holdfast.operators.step import Context, KeyedOperator, OperatorNode, StepResult, arrow_types
from holdfast.plan.dataflow import Operator
from holdfast.plan.explain import outline
from holdfast.plan.fingerprint import digest, fingerprint, fingerprints
from holdfast.plan.nodes import Field, KeyedNode, KeyedPart, Node
from holdfast.plan.walk import reachable
from holdfast.trace.rows import Layout
from holdfast.trace.trace import Trace


@dataclass(frozen=True)
class LoopVariable:
    """A variable of a loop. ``body`` computes it in the next round; ``start`` is the index of the input that it equals
    at round 0 (None: it is empty then)."""

    body: Node
    start: int | None = None


@dataclass(frozen=True)
class Loop(OperatorNode):
    """The rows of the variable ``result`` when no variable changes any more.

    ``max_rounds`` and ``max_rows`` are bounds: an epoch fails if variables still change after ``max_rounds`` rounds, or
    if a round adds more than ``max_rows`` rows to a variable. Bounds are not part of the meaning: a loop with other
    bounds has the same state. ``rounds``: the loop ends after this number of rounds, at the fixpoint or not.
    """

    inputs: tuple[Node, ...]
    variables: tuple[LoopVariable, ...]
    result: int
    max_rounds: int
    rounds: int | None = None
    max_rows: int | None = None

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        return self.variables[self.result].body.fields

    @cached_property
    def parts(self) -> tuple[KeyedPart, ...]:
        flow = body_dataflow([each.body for each in self.variables])
        logs = set(flow.views.values())
        inner = [each.part.title for each in flow.operators.values() if each.id not in logs]
        until = "until nothing changes" if self.rounds is None else f"{self.rounds} rounds"
        return (
            KeyedPart(
                "loop",
                keys=((),) * len(self.inputs),
                spread=((),),
                title=f"loop {until}, of {', '.join(inner) or 'linear steps'}",
                cost="of the change, in each round; large rounds may run as Spark jobs",
                colour="#e6f4f1",
                inside=outline(flow),
            ),
        )

    def compiled(self, operator: Operator) -> LoopSpec:
        variables = tuple(VariableSpec(arrow_types(each.body.fields), each.start) for each in self.variables)
        bound = self.max_rounds if self.rounds is None else self.rounds
        limits = Limits(bound, cut=self.rounds is not None, rows=self.max_rows)
        return LoopSpec(
            compile_body([each.body for each in self.variables]),
            tuple(arrow_types(each.fields) for each in self.inputs),
            variables,
            self.result,
            limits,
        )

    def meaning(self, *inputs: str) -> str:
        bodies = tuple((fingerprint(each.body), each.start) for each in self.variables)
        return digest("loop", inputs, bodies, self.result, self.rounds)

    is_bounded: ClassVar[bool] = True

    def bounded_with(self, other: KeyedNode) -> Loop:
        """The loop with the least of both bounds, for views that share it: passing the bound of one view is an error
        for all of them."""
        assert isinstance(other, Loop)
        rows = [each for each in (self.max_rows, other.max_rows) if each is not None]
        pairs = zip(self.variables, other.variables, strict=True)
        variables = tuple(replace(one, body=_bounded(one.body, another.body)) for one, another in pairs)
        least = replace(
            self,
            max_rounds=min(self.max_rounds, other.max_rounds),
            max_rows=min(rows, default=None),
            variables=variables,
        )
        return self if loop_bounds(least) == loop_bounds(self) else least

    def needs(self, wanted: Collection[str]) -> tuple[set[str], ...]:
        return tuple(set(each.columns) for each in self.inputs)

    def _over(self, *inputs: Node) -> Node:
        return replace(self, inputs=tuple(inputs))


@dataclass(frozen=True)
class LoopSpec(KeyedOperator):
    """The keyed operator of a `Loop`. ``inputs`` has the column types of each input."""

    one_key = True

    body: Body
    inputs: tuple[tuple[pa.DataType, ...], ...]
    variables: tuple[VariableSpec, ...]
    result: int
    limits: Limits

    def layouts(self) -> dict[str, Layout]:
        # The layers of a trace show which epochs an operator has reached, so every operator has at least one trace.
        return self.body.layouts() or {"nothing": Layout(0, 0)}

    def prepare(self, port: int, change: pa.Table) -> pa.Table:
        """Return the change with the hash of the empty key as the first column."""
        return change.add_column(0, "_hash", pa.array(np.zeros(change.num_rows, np.uint64)))

    def step(self, arrived: list[pa.Table], traces: dict[str, Trace], context: Context) -> StepResult:
        if context.low > 0:
            return StepResult({}, empty(self.variables[self.result].types))
        epoch = self.epoch(traces, context)
        return self.result_of(epoch, epoch.run(self.changes(arrived)))

    def changes(self, arrived: Sequence[pa.Table]) -> list[pa.Table]:
        """The changes of the inputs: the tables that arrived, without their hashes."""
        return [table.drop_columns(["_hash"]) for table in arrived]

    def epoch(
        self,
        traces: Mapping[str, Trace],
        context: Context,
        share: Share = ALL,
        stages: Collection[int] | None = None,
    ) -> LoopEpoch:
        """The rounds of an epoch, for this task to run; or only a share of their hashes, in some stages of the body."""
        return LoopEpoch(self.body, self.variables, self.result, self.limits, traces, context, share, stages)

    def result_of(self, epoch: LoopEpoch, output: pa.Table) -> StepResult:
        """The result of the step, after all rounds of the epoch have run."""
        return StepResult(epoch.layers(), output, rounds=epoch.rounds.count)


def loop_bounds(plan: Node) -> tuple[tuple[int, int | None], ...]:
    """(max_rounds, max_rows) of every loop in a plan, also of loops inside loops. Fingerprints do not cover them."""
    found: list[tuple[int, int | None]] = []
    for each in reachable(plan):
        if isinstance(each, Loop):
            inside = (bound for own in each.variables for bound in loop_bounds(own.body))
            found += [(each.max_rounds, each.max_rows), *inside]
    return tuple(found)


def _bounded(body: Node, other: Node) -> Node:
    """The body with the least bounds of its loops and those of ``other``, a body with the same meaning."""
    others = reachable(other)
    meanings = fingerprints(others)
    bounds = {meanings[id(each)]: each for each in others if isinstance(each, Loop)}
    if not bounds:
        return body
    own = reachable(body)
    meant, done = fingerprints(own), dict[int, Node]()
    for each in own:
        made = each.with_inputs([done[id(child)] for child in each.inputs]) if each.inputs else each
        known = bounds.get(meant[id(each)])
        done[id(each)] = made.bounded_with(known) if isinstance(made, Loop) and known is not None else made
    return done[id(body)]
