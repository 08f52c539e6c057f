"""The body of a loop, compiled: its operators, in an order in which each comes after its producers, and their paths.

A body is a plan, one for each variable, whose leaves are `LoopLeaf`s with the names that `variable_name` and
`input_name` give. It becomes a dataflow as any plan does (`plan.dataflow`), whose logs are the variables' next rounds.
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
"""Where rows go: (index of the operator, port), or (-1, variable) for a variable's next round."""


def variable_name(index: int) -> str:
    """The name of the leaf that stands for a loop's variable."""
    return f"variable {index}"


def input_name(index: int) -> str:
    """The name of the leaf that stands for a loop's input."""
    return f"input {index}"


@dataclass(frozen=True)
class LoopLeaf(Source):
    """A leaf of a body: a variable or an input of the loop. What its columns are called means nothing."""

    def meaning(self, *inputs: str) -> str:
        return digest("loop leaf", self.name, tuple(field.type for field in self.fields))


@dataclass(frozen=True)
class BodyPort:
    """A port of an operator: the columns it takes of what comes, and the schema of what `prepare` makes of it."""

    columns: tuple[int, ...]
    arrived: pa.Schema


@dataclass(frozen=True)
class BodyOperator:
    """A keyed operator of a body."""

    spec: KeyedOperator
    ports: tuple[BodyPort, ...]
    stage: int
    """In which stage of a round it runs, from 1 on: the stages of the body's dataflow, with an exchange before each."""

    @property
    def layouts(self) -> dict[str, Layout]:
        return pair_layouts(self.spec) if isinstance(self.spec, InnerJoin) else difference_layouts(self.spec)

    @cached_property
    def _receives(self) -> KeyedOperator:
        return join_with_rounds(self.spec) if isinstance(self.spec, InnerJoin) else self.spec

    def prepare(self, port: int, change: pa.Table, round: int) -> pa.Table:
        """What a port is to have of a change at a round, with hashes of the first slot."""
        arrays = [change.column(index) for index in self.ports[port].columns]
        if isinstance(self.spec, InnerJoin):
            arrays.append(pa.array(np.full(change.num_rows, round, np.int32)))
        names = [f"c{index}" for index in range(len(arrays))]
        taken = pa.table([*arrays, change.column("_diff")], names=[*names, "_diff"])
        return squeezed(self._receives.prepare(port, taken))


@dataclass(frozen=True)
class BodyPath:
    """From a producer (the name of a leaf, or an operator's index) through linear steps to a target."""

    producer: str | int
    steps: tuple[NativeStep, ...]
    target: Target
    local: bool = False
    """Whether rows lie where they are needed already, as for a path between operators outside a loop."""

    computes: bool = False
    """Whether a step does more than to pick columns, so that rows which cancel must not come to it: it may fail."""


@dataclass(frozen=True)
class Body:
    """All operators of a body and the paths between them."""

    operators: tuple[BodyOperator, ...]
    paths: tuple[BodyPath, ...]
    keys: tuple[tuple[int, ...], ...]
    """Variable → the columns by whose hash its next round is brought together."""

    stages: int

    def layouts(self) -> dict[str, Layout]:
        """The traces of all operators: each has the operator's index in front of its suffix."""
        return {
            f"{index}.{suffix}": layout
            for index, operator in enumerate(self.operators)
            for suffix, layout in operator.layouts.items()
        }

    def out_of(self, producer: str | int) -> list[BodyPath]:
        return [path for path in self.paths if path.producer == producer]


def body_dataflow(plans: Sequence[Node]) -> Dataflow:
    """The dataflow of a body: each variable's plan under the variable's name."""
    return build({variable_name(index): plan for index, plan in enumerate(plans)}, {}, is_native_in_loop)


def compile_body(plans: Sequence[Node]) -> Body:
    """The body of a loop whose variables have these plans. All steps must be native."""
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
