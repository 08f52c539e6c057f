"""A dataflow, compiled for the tasks: plain picklable values that say all that a worker must do.

The driver compiles once per flow; the program is broadcast; an epoch adds only its number, its digests and its input.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from holdfast.operators import (
    aggregate,
    draw,
    join,
    log,
    set_operation,
    temporal,
    topk,
    window,
    window_functions,
)
from holdfast.operators.aggregates.calls import CallSpec
from holdfast.operators.expressions.native_stretch import compile_stretch
from holdfast.operators.generate import Explode, compile_generator
from holdfast.operators.linear_step import NativeStep
from holdfast.operators.step import KeyedOperator
from holdfast.operators.user_functions import Called, FunctionCalls
from holdfast.plan.dataflow import Dataflow, Operator
from holdfast.plan.nodes import (
    Aggregate,
    Apply,
    Draw,
    Field,
    Generate,
    Join,
    Linear,
    Order,
    SetOperation,
    Step,
    Temporal,
    TopK,
    Window,
    WindowCall,
)
from holdfast.plan.types import arrow_type

SLOTS = topk.BUCKETS
"""Partitions are whole slots of the hash space, so that a top-k's buckets never straddle two."""


@dataclass(frozen=True)
class Route:
    """Where a producer's rows go: native steps, then a port of an operator.

    On a path that crosses through Spark, ``steps`` are those before, ``after`` those behind what Spark runs.
    """

    steps: tuple[NativeStep, ...]
    channel: int
    local: bool
    catalyst: bool
    after: tuple[NativeStep, ...] = ()


@dataclass(frozen=True)
class Port:
    """A port of an operator: the columns it takes of what comes, and the schema of what `prepare` makes of it."""

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
    """The view, or the source, that it is for: of several the first to be declared."""


@dataclass(frozen=True)
class Program:
    """All operators by stage, and the routes out of each producer."""

    operators: tuple[Compiled, ...]
    routes: dict[str, tuple[Route, ...]]
    channels: tuple[tuple[int, int], ...]
    """Channel → (index of the operator, port)."""

    stages: int
    sources: dict[str, pa.Schema]

    def at(self, stage: int) -> list[Compiled]:
        return [operator for operator in self.operators if operator.stage == stage]


def change_schema(fields: Iterable[Field]) -> pa.Schema:
    """The schema of a change in flight: ``c0…``, ``_diff``."""
    columns = [pa.field(f"c{place}", arrow_type(item.type)) for place, item in enumerate(fields)]
    return pa.schema([*columns, pa.field("_diff", pa.int64())])


def is_native(steps: tuple[Step, ...]) -> bool:
    """Whether all of ``steps`` can run in the tasks, without Spark's expressions."""
    return all(native_step(step) is not None for step in steps)


def native_step(step: Step) -> NativeStep | None:
    """A step, compiled; None if Spark must run it."""
    match step:
        case Linear():
            return compile_stretch(step)
        case Generate():
            return compile_generator(step)
        case Apply():
            names = list(step.input.columns)
            return FunctionCalls(
                tuple(
                    Called(
                        call.function.name,
                        call.function.style,
                        call.function.pickled,
                        tuple(names.index(name) for name in call.arguments),
                        arrow_type(call.function.returns),
                    )
                    for call in step.calls
                )
            )


def _ends(compiled: list[NativeStep | None]) -> tuple[int, int]:
    """Of steps that cross through Spark: how many go before, and how many go before or through it. What a task can do
    stays in the task as far as generators and functions reach; Spark does a plain filter or projection as well."""
    foreign = [place for place, step in enumerate(compiled) if step is None]
    own = [place for place, step in enumerate(compiled) if isinstance(step, (Explode, FunctionCalls))]
    before = max((place + 1 for place in own if place < foreign[0]), default=0)
    behind = min((place for place in own if place > foreign[-1]), default=len(compiled))
    return before, behind


def compile_program(flow: Dataflow) -> Program:
    """The program of ``flow``."""
    channels: list[tuple[int, int]] = []
    operators: list[Compiled] = []
    owners: dict[str, str] = {}
    for view, mark in flow.views.items():
        owners = dict.fromkeys([mark, *flow.ancestors({mark})], view) | owners
    for operator in flow.operators.values():
        spec, columns = _spec(operator)
        ports = []
        for port in range(operator.ports):
            fields = _port_fields(operator, port)
            empty = pa.table(
                [pa.array([], type=arrow_type(fields[place].type)) for place in columns[port]]
                + [pa.array([], type=pa.int64())],
                names=[f"c{place}" for place in range(len(columns[port]))] + ["_diff"],
            )
            ports.append(Port(columns[port], spec.prepare(port, empty).schema))
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
                owners.get(operator.id, operator.name),
            )
        )
    place = {compiled.id: compiled for compiled in operators}
    routes: dict[str, list[Route]] = {}
    for path in flow.paths:
        compiled = [native_step(step) for step in path.steps]
        before, behind = _ends(compiled) if path.catalyst else (len(compiled), len(compiled))
        steps, after = (tuple(step for step in some if step) for some in (compiled[:before], compiled[behind:]))
        channel = place[path.consumer].channels[path.port]
        routes.setdefault(path.producer, []).append(Route(steps, channel, path.local, path.catalyst, after))
    return Program(
        tuple(operators),
        {producer: tuple(found) for producer, found in routes.items()},
        tuple(channels),
        flow.stages,
        {name: change_schema(source.fields) for name, source in flow.sources.items()},
    )


def _port_fields(operator: Operator, port: int) -> tuple[Field, ...]:
    node = operator.node
    match operator.kind, node:
        case "aggregate", Aggregate():
            return node.input.fields
        case (("join" | "outer" | "semi"), Join()):
            return (node.right if port else node.left).fields
        case "set", SetOperation():
            return (node.right if port else node.left).fields
        case "window", Window():
            return node.input.fields
        case "draw", Draw():
            return node.input.fields
        case _:
            return operator.fields


def _arrow(fields: Iterable[Field]) -> tuple[pa.DataType, ...]:
    return tuple(arrow_type(item.type) for item in fields)


def _spec(operator: Operator) -> tuple[KeyedOperator, list[tuple[int, ...]]]:
    """The operator's spec, and for each port the columns it takes, in the order it wants them."""
    node = operator.node
    whole = tuple(range(len(operator.fields)))
    match operator.kind, node:
        case "aggregate", Aggregate():
            names = list(node.input.columns)
            arguments = dict.fromkeys(names.index(name) for call in node.calls for name in call.arguments)
            # A key that is named twice keeps both its places.
            taken = (*operator.keys[0], *(place for place in arguments if place not in operator.keys[0]))
            fields = node.input.fields
            calls = tuple(
                CallSpec(
                    call.function,
                    tuple(taken.index(names.index(name)) for name in call.arguments),
                    tuple(arrow_type(fields[names.index(name)].type) for name in call.arguments),
                    arrow_type(result.type),
                    call.distinct,
                    call.parameters,
                )
                for call, result in zip(node.calls, operator.fields[len(node.keys) :], strict=True)
            )
            key_types = _arrow(fields[place] for place in operator.keys[0])
            return aggregate.AggregateSpec(len(node.keys), calls, key_types), [taken]
        case (("join" | "outer" | "semi"), Join()):
            left, right = node.left.fields, node.right.fields
            keys, types = operator.keys, (_arrow(left), _arrow(right))
            spec = join.KERNELS[node.how](keys[0], keys[1], types[0], types[1], node.how, node.null_safe)
            return spec, [tuple(range(len(left))), tuple(range(len(right)))]
        case "set", SetOperation():
            return set_operation.SetSpec(node.kind, node.all, _arrow(operator.fields)), [whole, whole]
        case "draw", Draw():
            names = list(node.input.columns)
            draws = tuple(
                draw.DrawnSpec(
                    each.function,
                    tuple(names.index(name) for name in each.arguments),
                    arrow_type(each.type),
                    each.salt,
                    b"" if each.outside is None else each.outside.pickled,
                )
                for each in node.draws
            )
            inputs = node.input.fields
            return draw.DrawSpec(operator.id, _arrow(inputs), draws, operator.name), [tuple(range(len(inputs)))]
        case "temporal", Temporal():
            start, end = (None if name is None else node.columns.index(name) for name in (node.start, node.end))
            return temporal.TemporalSpec(_arrow(operator.fields), start, end, operator.keys[0]), [whole]
        case (("bucket" | "global"), TopK()):
            order = _order(node.order, node.columns)
            return (
                topk.TopKSpec(order, node.limit, node.offset, _arrow(operator.fields), operator.kind, operator.keys[0]),
                [whole],
            )
        case "window", Window():
            fields = node.input.fields
            functions = tuple(
                _over(call, node.input.columns, fields, result)
                for call, result in zip(node.calls, operator.fields[len(fields) :], strict=True)
            )
            order = _order(node.order, node.columns)
            partition = tuple(dict.fromkeys(operator.keys[0]))
            names = [call.name for call in node.calls]
            first = None if node.first is None else (names.index(node.first.call), node.first.count)
            return window.WindowSpec(partition, order, functions, _arrow(fields), first), [tuple(range(len(fields)))]
        case _:
            return log.LogSpec(_arrow(operator.fields), operator.keys[0], operator.check, operator.name), [whole]


def _order(order: tuple[Order, ...], columns: tuple[str, ...]) -> tuple[tuple[int, bool, bool], ...]:
    return tuple((columns.index(item.column), item.descending, item.nulls_first) for item in order)


def _over(
    call: WindowCall, columns: tuple[str, ...], fields: tuple[Field, ...], result: Field
) -> window_functions.OverSpec:
    places = tuple(columns.index(name) for name in call.arguments)
    kinds = _arrow(fields[place] for place in places)
    frame = window_functions.WHOLE if call.frame is None else call.frame
    kind = arrow_type(result.type)
    low, high = (None if end is None else columns.index(end.column) for end in call.reach)
    return window_functions.OverSpec(
        call.function, places, kinds, kind, call.number, frame, call.ignore_nulls, (low, high)
    )


def bounds(partitions: int) -> np.ndarray:
    """The first slot's hash of each partition, as uint64; partition i is [bounds[i], bounds[i+1])."""
    width = 2**64 // SLOTS
    return np.array([(place * SLOTS // partitions) * width for place in range(partitions)], dtype=np.uint64)


def partition_range(partition: int, partitions: int) -> tuple[int, int]:
    """The range of key hashes [low, high) of a partition."""
    starts = [int(start) for start in bounds(partitions)] + [2**64]
    return starts[partition], starts[partition + 1]
