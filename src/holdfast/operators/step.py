"""What every operator takes and gives: the classes that the files of this room fill in.

An operator is a node of the plan (a `StepNode` or an `OperatorNode`: what it means) and what the tasks run for it (a
`NativeStep` or a `KeyedOperator`), which the node makes when the dataflow is compiled. Nothing else knows of operators:
there is no list of them (docs/adding-an-operator.md).

A keyed operator is a frozen dataclass, a `KeyedOperator`: its fields say what it is asked for (positions and types of
columns), and its methods, all pure, are what the tasks run. It travels to them as it is. The result of ``step`` depends
on the bags that arrived and on the traces as of the epoch before, never on order, splitting, partitioning or merges
(invariant 1, functional).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import pyarrow as pa

from holdfast.plan.dataflow import Operator
from holdfast.plan.nodes import Field, KeyedNode, Step
from holdfast.plan.types import arrow_type
from holdfast.trace.rows import Block, Layout
from holdfast.trace.trace import Trace


def arrow_types(fields: Iterable[Field]) -> tuple[pa.DataType, ...]:
    """The types of these columns in the tasks."""
    return tuple(arrow_type(each.type) for each in fields)


class NativeStep(ABC):
    """A linear step as the tasks run it. A frozen dataclass: it travels to them as it is."""

    calls_users: ClassVar[bool] = False
    """True: it calls functions of the user's, which may not bear to be called by two threads."""

    @abstractmethod
    def run(self, change: pa.Table) -> pa.Table:
        """The change (``c0…``, ``_diff``) behind the step: a function of each row alone, with the row's diff."""


@dataclass(frozen=True)
class StepNode(Step):
    """A linear step of a plan that is made by an operator of this room. (`Linear` is the plan's own.)"""

    @abstractmethod
    def compiled(self) -> NativeStep | None:
        """What the tasks run. None: Spark must run it (``runs_in_spark``)."""


class OperatorNode(KeyedNode):
    """A keyed node of a plan."""

    @abstractmethod
    def compiled(self, operator: Operator) -> KeyedOperator:
        """What the tasks run for one of its parts."""


@dataclass(frozen=True)
class Context:
    """Where and when a step runs: the epoch, and the partition's range of key hashes [low, high)."""

    epoch: int
    low: int
    high: int
    initial: bool
    """True in the operator's very first epoch: its traces are empty."""

    clock: int = 0
    seed: int = 0
    """The lineage's: microseconds since 1970, and the epoch's seed."""

    before: int = -(2**63)
    """The clock of the epoch before."""

    answers: Mapping[str, str] | None = None
    """In a replay: question → answer, what the operator's outside functions returned, from the lineage."""


@dataclass(frozen=True)
class StepResult:
    """What a step did: the rows of each trace's new layer, and the output change (``c0…``, ``_diff``)."""

    layers: dict[str, Block]
    output: pa.Table
    answers: Mapping[str, str] = field(default_factory=dict)
    """Question → answer, for the lineage: what outside functions returned. No two partitions ask the same question."""

    counts: Mapping[str, int] = field(default_factory=dict)
    """What it counted, for people: what → how many (`plan.drawing.Filtered`). No result depends on it."""

    due: int | None = None
    """At what clock something will happen although nothing arrives; not later than that. None: never."""

    rounds: int = 0
    """Of a loop: how many rounds it ran."""


class KeyedOperator(ABC):
    """A keyed operator as the tasks run it."""

    keeps_collection: ClassVar[bool] = False
    """True: its rows are those of a view or a source. They can be read as far back as the flow retains."""

    one_key: ClassVar[bool] = False
    """True: all that arrives has one key, whatever the hashes in its traces say."""

    remembers: ClassVar[bool] = False
    """True: its output depends on the epoch in which a row came, so that an epoch that stands for a whole history must
    not compute it again. Then ``remembered`` says what it gave."""

    @property
    def asks(self) -> bool:
        """Whether it calls functions from outside, whose answers go into the lineage."""
        return False

    @abstractmethod
    def layouts(self) -> dict[str, Layout]:
        """The traces that it keeps: suffix → layout."""

    @abstractmethod
    def prepare(self, port: int, change: pa.Table) -> pa.Table:
        """Runs before the exchange, once per batch: cuts the change to what the operator needs, combines locally, and
        puts the hash of the key in front as ``_hash``."""

    @abstractmethod
    def step(self, arrived: list[pa.Table], traces: dict[str, Trace], context: Context) -> StepResult:
        """Runs after the exchange, once per epoch and partition: ``arrived[port]`` is what ``prepare`` made, from any
        number of tasks, in any order."""

    def remembered(self, traces: Mapping[str, Trace]) -> pa.Table:
        """All rows that the operator has given and not taken back as of the traces' epoch, as one change: what somebody
        who begins to read it must start from. Only asked of an operator that ``remembers``."""
        raise NotImplementedError
