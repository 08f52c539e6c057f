"""A dataflow, compiled for the tasks: plain picklable values with all that a worker must know.

The driver compiles once per flow, and the program is broadcast. An epoch adds only its number, its digests and its
input.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import pyarrow as pa

from holdfast.operators.linear_step import native_step
from holdfast.operators.log import LogSpec
from holdfast.operators.step import KeyedOperator, NativeStep, OperatorNode, arrow_types
from holdfast.operators.topk import BUCKETS
from holdfast.plan.dataflow import Dataflow, Operator
from holdfast.plan.nodes import Field, Linear, Step
from holdfast.plan.types import arrow_type
from holdfast.trace.rows import Layout

SLOTS = BUCKETS
"""Partitions are whole slots of the hash space, so that a top-k's buckets never straddle two."""


@dataclass(frozen=True)
class Route:
    """The way of a producer's rows: native steps, then a port of an operator.

    On a path that crosses through Spark, ``steps`` run before the crossing and ``after`` behind it.
    """

    steps: tuple[NativeStep, ...]
    channel: int
    local: bool
    catalyst: bool
    after: tuple[NativeStep, ...] = ()


@dataclass(frozen=True)
class Port:
    """A port of an operator: the input columns that it takes, and the schema that the operator's `prepare` makes of
    them."""

    columns: tuple[int, ...]
    arrived: pa.Schema


@dataclass(frozen=True)
class Compiled:
    """An operator, ready to run."""

    id: str
    kind: str
    spec: KeyedOperator
    stage: int
    ports: tuple[Port, ...]
    channels: tuple[int, ...]
    output: pa.Schema
    view: str = ""
    """The view or source that the operator is for; if several share it, the one declared first."""

    timed: bool = False
    """Whether the operator depends on the clock, and so may give output when nothing arrives."""

    ticks: bool = False
    """Whether the operator runs in every epoch, even if nothing arrives."""

    @cached_property
    def traces(self) -> tuple[tuple[str, Layout], ...]:
        """The directory and the layout of each of the operator's traces."""
        return tuple((f"{self.id}.{suffix}", layout) for suffix, layout in self.spec.layouts().items())


@dataclass(frozen=True)
class Program:
    """All operators by stage, and the routes out of each producer."""

    operators: tuple[Compiled, ...]
    routes: dict[str, tuple[Route, ...]]
    channels: tuple[tuple[int, int], ...]
    """Channel → (index of the operator, port)."""

    stages: int
    sources: dict[str, pa.Schema]

    @cached_property
    def calls_users(self) -> bool:
        """Whether tasks call users' functions."""
        steps = [step for routes in self.routes.values() for route in routes for step in route.steps + route.after]
        return any(step.calls_users for step in steps) or any(operator.spec.asks for operator in self.operators)

    @cached_property
    def _stages(self) -> dict[int, tuple[Compiled, ...]]:
        found: dict[int, list[Compiled]] = {}
        for operator in self.operators:
            found.setdefault(operator.stage, []).append(operator)
        return {stage: tuple(some) for stage, some in found.items()}

    def at(self, stage: int) -> tuple[Compiled, ...]:
        return self._stages.get(stage, ())


def change_schema(fields: Iterable[Field]) -> pa.Schema:
    """The schema of a change in flight: ``c0…``, ``_diff``."""
    return _change_schema(tuple(item.type for item in fields))


@lru_cache(maxsize=1024)
def _change_schema(types: tuple[str, ...]) -> pa.Schema:
    # Equal schemas are one object: pickling a schema is slow, and pickle writes an object only once.
    columns = [pa.field(f"c{index}", arrow_type(kind)) for index, kind in enumerate(types)]
    return pa.schema([*columns, pa.field("_diff", pa.int64())])


def _ends(steps: Sequence[Step], compiled: Sequence[NativeStep | None]) -> tuple[int, int]:
    """For the steps of a path with a crossing, return (how many run before it, how many run before it or in it). Tasks
    run the steps up to the last native generator or function before the crossing, and from the first one behind it.
    Spark runs the plain filters and projections in between, since it does these as well."""
    foreign = [index for index, step in enumerate(compiled) if step is None]
    own = [index for index, step in enumerate(steps) if compiled[index] is not None and not isinstance(step, Linear)]
    before = max((index + 1 for index in own if index < foreign[0]), default=0)
    behind = min((index for index in own if index > foreign[-1]), default=len(compiled))
    return before, behind


def compile_program(flow: Dataflow) -> Program:
    """The program of ``flow``."""
    channels: list[tuple[int, int]] = []
    operators: list[Compiled] = []
    schemas: dict[bytes, pa.Schema] = {}
    logs = set(flow.views.values())
    for operator in flow.operators.values():
        spec = _log(operator) if operator.id in logs and not operator.part.keeps else _keyed(operator)
        ports = []
        for port, fields in enumerate(operator.arriving):
            taken = operator.part.takes[port] if operator.part.takes else tuple(range(len(fields)))
            arrived = change_schema(fields[index] for index in taken)
            schema = spec.prepare(port, arrived.empty_table()).schema
            ports.append(Port(taken, schemas.setdefault(schema.serialize().to_pybytes(), schema)))
        numbers = tuple(range(len(channels), len(channels) + operator.ports))
        channels += [(len(operators), port) for port in range(operator.ports)]
        operators.append(
            Compiled(
                operator.id,
                operator.kind,
                spec,
                operator.stage,
                tuple(ports),
                numbers,
                change_schema(operator.fields),
                operator.name,
                operator.part.timed,
                operator.part.timed or operator.part.ticks,
            )
        )
    by_id = {compiled.id: compiled for compiled in operators}
    routes: dict[str, list[Route]] = {}
    for path in flow.paths:
        compiled = [native_step(step) for step in path.steps]
        before, behind = _ends(path.steps, compiled) if path.catalyst else (len(compiled), len(compiled))
        steps, after = (tuple(step for step in some if step) for some in (compiled[:before], compiled[behind:]))
        channel = by_id[path.consumer].channels[path.port]
        routes.setdefault(path.producer, []).append(Route(steps, channel, path.local, path.catalyst, after))
    return Program(
        tuple(operators),
        {producer: tuple(found) for producer, found in routes.items()},
        tuple(channels),
        flow.stages,
        {name: change_schema(source.fields) for name, source in flow.sources.items()},
    )


def _log(operator: Operator) -> KeyedOperator:
    return LogSpec(arrow_types(operator.fields), operator.keys[0], operator.check, operator.name)


def _keyed(operator: Operator) -> KeyedOperator:
    assert isinstance(operator.node, OperatorNode), f"{type(operator.node).__name__} says not what the tasks run for it"
    return operator.node.compiled(operator)


def bounds(partitions: int) -> np.ndarray:
    """The first slot's hash of each partition, as uint64; partition i is [bounds[i], bounds[i+1])."""
    width = 2**64 // SLOTS
    return np.array([(index * SLOTS // partitions) * width for index in range(partitions)], dtype=np.uint64)


def partition_range(partition: int, partitions: int) -> tuple[int, int]:
    """The range of key hashes [low, high) of a partition."""
    starts = [int(start) for start in bounds(partitions)] + [2**64]
    return starts[partition], starts[partition + 1]
