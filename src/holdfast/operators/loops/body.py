"""The body of a loop, compiled: its operators, each after its producers, and the paths between them.

A body has one plan per variable. The leaves of the plans are `LoopLeaf`s, named by `variable_name` and `input_name`. It
becomes a dataflow like any plan (`plan.dataflow`); the logs of this dataflow are the variables in the next round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from holdfast.operators.arrangement import change_table
from holdfast.operators.join import InnerJoin
from holdfast.operators.linear_step import is_native_in_loop, native_step
from holdfast.operators.loops.differences import difference_layouts
from holdfast.operators.loops.pairs import join_with_rounds, pair_layouts
from holdfast.operators.loops.round_traces import squeezed
from holdfast.operators.step import KeyedOperator, NativeStep, OperatorNode, arrow_types
from holdfast.plan.dataflow import Dataflow, Operator, build
from holdfast.plan.expression import plain
from holdfast.plan.fingerprint import digest
from holdfast.plan.nodes import Linear, Node, Source
from holdfast.trace.rows import Layout

Target = tuple[int, int]
"""The destination of rows: (index of the operator, port), or (-1, variable) for a variable's next round."""


def variable_name(index: int) -> str:
    """The name of the leaf that stands for a loop's variable."""
    return f"variable {index}"


def input_name(index: int) -> str:
    """The name of the leaf that stands for a loop's input."""
    return f"input {index}"


@dataclass(frozen=True)
class LoopLeaf(Source):
    """A leaf of a body: a variable or an input of the loop. The names of its columns have no meaning."""

    def meaning(self, *inputs: str) -> str:
        return digest("loop leaf", self.name, tuple(field.type for field in self.fields))


@dataclass(frozen=True)
class BodyPort:
    """A port of an operator: the positions of the columns that it takes, and the schema of what ``prepare`` makes."""

    columns: tuple[int, ...]
    arrived: pa.Schema


@dataclass(frozen=True)
class BodyOperator:
    """A keyed operator of a body."""

    spec: KeyedOperator
    ports: tuple[BodyPort, ...]
    stage: int
    """The stage of a round in which it runs, from 1 on: a stage of the body's dataflow, with an exchange before it."""

    @property
    def layouts(self) -> dict[str, Layout]:
        return pair_layouts(self.spec) if isinstance(self.spec, InnerJoin) else difference_layouts(self.spec)

    @cached_property
    def _receives(self) -> KeyedOperator:
        return join_with_rounds(self.spec) if isinstance(self.spec, InnerJoin) else self.spec

    def prepare(self, port: int, change: pa.Table, round: int) -> pa.Table:
        """Prepare a change at a round for a port. The hashes are those of the first slot (`round_traces.squeezed`)."""
        arrays = [change.column(index) for index in self.ports[port].columns]
        if isinstance(self.spec, InnerJoin):
            arrays.append(pa.array(np.full(change.num_rows, round, np.int32)))
        names = [f"c{index}" for index in range(len(arrays))]
        taken = pa.table([*arrays, change.column("_diff")], names=[*names, "_diff"])
        return squeezed(self._receives.prepare(port, taken))


@dataclass(frozen=True)
class BodyPath:
    """A path from a producer (the name of a leaf, or the index of an operator) through linear steps to a target."""

    producer: str | int
    steps: tuple[NativeStep, ...]
    target: Target
    local: bool = False
    """Whether the rows are already in the task that needs them, as for `plan.dataflow.Path`."""

    computes: bool = False
    """Whether a step does more than select columns. Such a step may fail, so rows that cancel must not reach it."""


@dataclass(frozen=True)
class Body:
    """All operators of a body and the paths between them."""

    operators: tuple[BodyOperator, ...]
    paths: tuple[BodyPath, ...]
    keys: tuple[tuple[int, ...], ...]
    """Variable → the positions of the columns by whose hash the rows of its next round are exchanged."""

    stages: int

    def layouts(self) -> dict[str, Layout]:
        """The traces of all operators: suffix → layout. The suffix begins with the operator's index."""
        return {
            f"{index}.{suffix}": layout
            for index, operator in enumerate(self.operators)
            for suffix, layout in operator.layouts.items()
        }

    def out_of(self, producer: str | int) -> list[BodyPath]:
        return [path for path in self.paths if path.producer == producer]


def body_dataflow(plans: Sequence[Node]) -> Dataflow:
    """The dataflow of a body: each variable's plan is a view with the variable's name."""
    return build({variable_name(index): plan for index, plan in enumerate(plans)}, {}, is_native_in_loop)


def compile_body(plans: Sequence[Node]) -> Body:
    """Compile the body of a loop whose variables have these plans. All steps must be native."""
    flow = body_dataflow(plans)
    logs = set(flow.views.values())
    keyed = [operator for operator in flow.operators.values() if operator.id not in logs]
    places: dict[str, int] = {operator.id: index for index, operator in enumerate(keyed)}
    paths = []
    for path in flow.paths:
        steps = [native_step(step, in_loop=True) for step in path.steps]
        assert all(step is not None for step in steps), "a loop's body was checked when it was declared"
        found = tuple(step for step in steps if step is not None)
        producer = places.get(path.producer, path.producer)
        computes = not all(isinstance(step, Linear) and _only_picks(step) for step in path.steps)
        if path.consumer in places:
            paths.append(BodyPath(producer, found, (places[path.consumer], path.port), path.local, computes))
        else:
            wanted = [index for index in range(len(plans)) if flow.views[variable_name(index)] == path.consumer]
            paths += [BodyPath(producer, found, (-1, index), path.local, computes) for index in wanted]
    ends = [flow.operators[flow.views[variable_name(index)]] for index in range(len(plans))]
    return Body(tuple(map(_compiled, keyed)), tuple(paths), tuple(each.keys[0] for each in ends), flow.stages)


def _only_picks(step: Linear) -> bool:
    return all(plain(expression) is not None for expression in step.expressions)


def _compiled(operator: Operator) -> BodyOperator:
    assert isinstance(operator.node, OperatorNode)
    spec = operator.node.compiled(operator)
    ports = []
    for port, fields in enumerate(operator.arriving):
        taken = operator.part.takes[port] if operator.part.takes else tuple(range(len(fields)))
        ports.append(BodyPort(taken, spec.prepare(port, empty(arrow_types(fields[i] for i in taken))).schema))
    if isinstance(spec, InnerJoin):
        rounds = join_with_rounds(spec)
        sides = (rounds.left_types, rounds.right_types)
        ports = [
            BodyPort(port.columns, rounds.prepare(index, empty(types)).schema)
            for index, (port, types) in enumerate(zip(ports, sides, strict=True))
        ]
    return BodyOperator(spec, tuple(ports), operator.stage)


def empty(types: Sequence[pa.DataType]) -> pa.Table:
    """A change of these columns without rows."""
    return change_table([pa.array([], kind) for kind in types], types, np.zeros(0, np.int64))
