"""The interfaces of an operator: the base classes that the files of this package implement.

An operator consists of a plan node, which has its meaning (a `StepNode` or an `OperatorNode`), and of the code that
tasks run (a `NativeStep` or a `KeyedOperator`), which the node makes when the dataflow is compiled. There is no list of
operators (docs/adding-an-operator.md).

A `KeyedOperator` is a frozen dataclass: its fields are its parameters (positions and types of columns), and its pure
methods run in tasks. It is sent to the tasks as it is. The result of ``step`` depends only on the bags of rows that
arrived, on the traces as of the epoch before and on the `Context`, never on order, splitting, partitioning or merges
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
    """The Arrow types of these columns."""
    return tuple(arrow_type(each.type) for each in fields)


class NativeStep(ABC):
    """A linear step as tasks run it. A frozen dataclass, which is sent to the tasks as it is."""

    calls_users: ClassVar[bool] = False
    """Whether the step calls users' functions. These may not be thread-safe, so only one thread calls them."""

    @abstractmethod
    def run(self, change: pa.Table) -> pa.Table:
        """Apply the step to a change (``c0…``, ``_diff``). Its output for a row depends on this row alone, and has the
        row's diff."""


@dataclass(frozen=True)
class StepNode(Step):
    """A linear step of a plan that is defined in this package. (`Linear` is defined in `plan.nodes`.)"""

    @abstractmethod
    def compiled(self) -> NativeStep | None:
        """Return the step as tasks run it; None if Spark must run it (``runs_in_spark``)."""


class OperatorNode(KeyedNode):
    """A keyed node of a plan that is defined in this package."""

    @abstractmethod
    def compiled(self, operator: Operator) -> KeyedOperator:
        """Return one of the node's parts, given as ``operator``, as tasks run it."""


@dataclass(frozen=True)
class Context:
    """The circumstances of a ``step``: the epoch with its lineage, and the partition's range of key hashes [low,
    high)."""

    epoch: int
    low: int
    high: int
    initial: bool
    """True in the operator's first epoch, when its traces are empty."""

    clock: int = 0
    """The lineage's clock: microseconds since 1970."""

    seed: int = 0
    """The lineage's seed of the epoch."""

    before: int = -(2**63)
    """The clock of the epoch before, in microseconds since 1970."""

    answers: Mapping[str, str] | None = None
    """Only in a replay: question → answer of the operator's outside functions, from the lineage."""


@dataclass(frozen=True)
class StepResult:
    """The result of a step: the rows of each trace's new layer, and the output change (``c0…``, ``_diff``)."""

    layers: dict[str, Block]
    output: pa.Table
    answers: Mapping[str, str] = field(default_factory=dict)
    """Question → answer of the outside functions, for the lineage. No two partitions ask the same question."""

    counts: Mapping[str, int] = field(default_factory=dict)
    """Counters for people, by name (`plan.drawing.Filtered`). No result depends on them."""

    due: int | None = None
    """The clock (microseconds since 1970) by which the operator must run again even if no row arrives; None if it need
    not."""

    rounds: int = 0
    """Only for a loop: the number of rounds it ran."""


class KeyedOperator(ABC):
    """A keyed operator as tasks run it."""

    keeps_collection: ClassVar[bool] = False
    """Whether its trace has the rows of a view or a source. Readers may read them as far back as the flow's
    retention."""

    @property
    def reads_traces(self) -> bool:
        """Whether a step reads what the operator's traces hold. If not, its traces are not opened: ``step`` gets
        none."""
        return True

    one_key: ClassVar[bool] = False
    """Whether all rows that arrive have one key, so that one partition has them all. The hashes in its traces do not
    matter then."""

    remembers: ClassVar[bool] = False
    """Whether its output depends on the epoch in which a row came. Then an epoch that stands for a whole history must
    not compute the output again, but take it from ``remembered``."""

    @property
    def asks(self) -> bool:
        """Whether the operator calls outside functions, whose answers go into the lineage."""
        return False

    @abstractmethod
    def layouts(self) -> dict[str, Layout]:
        """The operator's traces: suffix → layout."""

    @abstractmethod
    def prepare(self, port: int, change: pa.Table) -> pa.Table:
        """Runs before the exchange, once per batch. Keeps the columns and rows that the operator needs, combines rows
        within the batch, and adds the hash of the key as the first column, ``_hash``."""

    @abstractmethod
    def step(self, arrived: list[pa.Table], traces: dict[str, Trace], context: Context) -> StepResult:
        """Runs after the exchange, once per epoch and partition. ``arrived[port]`` has the tables that ``prepare`` made
        in any number of tasks, in any order."""

    def remembered(self, traces: Mapping[str, Trace]) -> pa.Table:
        """All rows in the operator's output as of the traces' epoch, as one change. A new reader of the operator starts
        with them. Called only if ``remembers`` is True."""
        raise NotImplementedError
