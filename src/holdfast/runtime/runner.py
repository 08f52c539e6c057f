"""The interface between the engine and Spark, or a simulation of Spark.

The engine decides what is to be done, and a runner does it in tasks. `spark/runner.py` is the runner on Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

from holdfast.connectors.source import Offer, Source
from holdfast.coordinator.clock import Reading
from holdfast.coordinator.partition_ownership import PartitionOwnership
from holdfast.errors import MemberUnreachable
from holdfast.foundation.choices import EpochPath
from holdfast.log.host_paths import MISPLACED
from holdfast.plan.dataflow import Dataflow
from holdfast.task.program import Program
from holdfast.task.sink_parts import ViewWriters
from holdfast.task.stage import EpochSpec, TaskReport

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Work:
    """The offers that an epoch takes of a source."""

    name: str
    source: Source
    offers: Sequence[Offer]


@dataclass(frozen=True)
class Outcome:
    """The reports of an epoch's tasks."""

    reports: tuple[TaskReport, ...]
    planning: float
    """Seconds of planning before the tasks ran."""

    seconds: float
    path: EpochPath = "stages"
    """How the epoch was run: as stages, as one task, or in the task that stays."""


def unreachable(error: Exception | str) -> MemberUnreachable:
    """Return the error to raise when tasks could not run on the members that have their layers. Recovery then looks
    which members are there."""
    why = next((line.strip() for line in str(error).split("\n") if MISPLACED in line), "")
    return MemberUnreachable(f"a member that has layers of the flow cannot be reached: {why}")


class Beside(Enum):
    """Kinds of work that goes on beside epochs, and must not take the task slots that epochs need."""

    MERGING = "merging"
    MERGING_LOGS = "merging logs"
    COPYING = "copying"
    LAGGING = "copying to slow places"


class Job(Protocol):
    """Runs the epochs of a compiled dataflow."""

    def run(self, epoch: EpochSpec, work: Sequence[Work], subject: str) -> Outcome:
        """Run an epoch and return its reports. Raise the error of the user's code or rows if there is one; the epoch
        then has no effect."""
        ...

    @property
    def reads_ahead(self) -> bool:
        """Whether the input of the next epoch can be read now, beside other work."""

    def read_ahead(self, work: Sequence[Work], partitions: int) -> None:
        """Begin to read what the next epoch will probably take, and wait for nothing; without work, drop what was read.
        No result depends on it."""
        ...

    def warm_up(self, epoch: EpochSpec, sources: Sequence[str], subject: str) -> None:
        """Run an empty epoch, with the plan that it would have if these sources had input."""
        ...


class Runner(Protocol):
    """Runs epochs in the foreground, and upkeep beside them."""

    partitions: int

    threads: bool
    """Whether background work has threads of its own. If not, the caller of the engine calls `Engine.upkeep`."""

    grace: float
    """Seconds to wait for a lost member: it may be restarted on the same host, with the same layers."""

    def job(
        self,
        flow: Dataflow,
        program: Program,
        before: Job | None = None,
        writers: Mapping[str, ViewWriters] = MappingProxyType({}),
    ) -> Job:
        """Return a job that runs a program. ``before``: a job of the same program with another number of partitions,
        from which the job takes all else. ``writers``: the writers of sinks, by operator."""
        ...

    scattered: bool
    """Whether each member keeps the layers of its own partitions, in a directory that this process cannot see."""

    def tasks(
        self,
        what: str,
        function: Callable[[list[T]], list[R]],
        items: Sequence[T],
        slots: int | Beside,
        low: Callable[[T], int] | None = None,
    ) -> list[R]:
        """Call ``function`` on shares of ``items``, in tasks of low weight, and return all results. ``slots``: the
        greatest number of tasks, or the kind of background work, whose tasks wait for their turn and take only slots
        that epochs leave. ``low`` gives the first key hash of an item's partition: the item is done on the member that
        has the layers of that partition."""
        ...

    def everywhere(self, what: str, function: Callable[[], R]) -> dict[str, R]:
        """Call ``function`` once on each member, and return member → result. (A member whose partitions were all handed
        over is left out: it may not answer.)"""
        ...

    def visit(self, what: str, shares: Mapping[str, list[T]], function: Callable[[list[T]], list[R]]) -> list[R]:
        """Call ``function`` on each member with its share of items, and return all results."""
        ...

    @property
    def ownership(self) -> PartitionOwnership | None:
        """The owners of the partitions, for the flow's state; None if one host has all layers."""

    def owners(self) -> tuple[str, ...]:
        """Return, for each partition, the member that owns it."""
        ...

    def members(self) -> frozenset[str]:
        """Return the members that were there at the last `refresh`."""
        ...

    @property
    def membership_change(self) -> str:
        """What happened to members since the last `refresh`: "", "joined" or "lost" ("lost" also if both happened).
        "unsettled": lost partitions were inherited, and the assignment at rest is another one."""

    def refresh(self, settle: bool = False) -> bool:
        """Look which members are there now, and assign the partitions to them. Return whether a partition has a new
        owner. After a loss, members that are left inherit the lost partitions and nothing else moves, unless ``settle``
        asks for the assignment at rest."""
        ...

    def await_members(self, names: Sequence[str]) -> None:
        """Wait a short time, when a flow is opened, for these members to be there."""
        ...

    def hand_over(self, moves: Mapping[int, str]) -> None:
        """Make other members the owners of these partitions, until members change."""
        ...

    def thread(self, target: Callable[[], None], name: str) -> Any:
        """Start a daemon thread and return it."""
        ...

    def clock(self) -> int:
        """Return the host's clock, in microseconds since 1970."""
        ...

    def reading(self) -> Reading:
        """Return the host's clock together with its monotonic clock, which is never set."""
        ...

    def draw(self) -> int:
        """Return 63 random bits."""
        ...
