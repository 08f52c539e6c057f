"""Where a flow's work is done: the interface between the engine and Spark, or a simulation of it.

The engine decides what is to be done; a runner does it, in tasks. `spark/runner.py` is the real one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, TypeVar

from holdfast.connectors.source import Offer, Source
from holdfast.coordinator.clock import Reading
from holdfast.coordinator.partition_ownership import PartitionOwnership
from holdfast.errors import MemberUnreachable
from holdfast.foundation.choices import EpochPath
from holdfast.log.host_paths import MISPLACED
from holdfast.plan.dataflow import Dataflow
from holdfast.task.program import Program
from holdfast.task.stage import EpochSpec, TaskReport

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Work:
    """What an epoch takes of a source."""

    name: str
    source: Source
    offers: Sequence[Offer]


@dataclass(frozen=True)
class Outcome:
    """What an epoch's tasks reported."""

    reports: tuple[TaskReport, ...]
    planning: float
    seconds: float
    path: EpochPath = "stages"
    """In which way it was run."""


def unreachable(error: Exception | str) -> MemberUnreachable:
    """The error to raise when tasks could not run where their layers are. Recovery then looks who is there."""
    why = next((line.strip() for line in str(error).split("\n") if MISPLACED in line), "")
    return MemberUnreachable(f"a member that has layers of the flow cannot be reached: {why}")


class Beside(Enum):
    """Work that goes on beside epochs, and must not take the slots that they need."""

    MERGING = "merging"
    COPYING = "copying"
    LAGGING = "copying to slow places"


class Job(Protocol):
    """Runs the epochs of a compiled dataflow."""

    def run(self, epoch: EpochSpec, work: Sequence[Work], subject: str) -> Outcome:
        """Run an epoch to its end. Raises the user's error, if there is one; then nothing of the epoch counts."""
        ...

    def warm_up(self, epoch: EpochSpec, sources: Sequence[str], subject: str) -> None:
        """Run an epoch over nothing, as if these sources had something."""
        ...


class Runner(Protocol):
    """Runs epochs in the foreground, and upkeep beside them."""

    partitions: int

    threads: bool
    """Whether background work has threads of its own. If not, whoever drives the engine calls `Engine.upkeep`."""

    grace: float
    """Seconds for which a member that was lost is waited for: it may come back, beside the same layers."""

    def job(self, flow: Dataflow, program: Program, before: Job | None = None) -> Job:
        """What runs a program. ``before``: a job of the same program, which had another number of partitions."""
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
        """Call ``function`` on shares of ``items``, in tasks of low weight; all results. ``slots``: at most so many
        tasks, or as many as there may be beside epochs, once it is their turn. ``low``: an item belongs to the
        partition that begins with this hash, and is done where that one's layers are."""
        ...

    def everywhere(self, what: str, function: Callable[[], R]) -> dict[str, R]:
        """Call ``function`` once on each member; member → result. (Not on one whose partitions were all handed over:
        it may stand still.)"""
        ...

    def visit(self, what: str, shares: Mapping[str, list[T]], function: Callable[[list[T]], list[R]]) -> list[R]:
        """Call ``function`` on each member's share of items, there; all results."""
        ...

    @property
    def ownership(self) -> PartitionOwnership | None:
        """Who keeps which partition, for the flow's state to know; None where one host keeps all."""

    def owners(self) -> tuple[str, ...]:
        """Partition → the member that keeps its layers."""
        ...

    def members(self) -> frozenset[str]:
        """Those that were there at the last `refresh`."""
        ...

    @property
    def membership_change(self) -> str:
        """What happened to members since the last `refresh`: "", "joined" or "lost" (or both). "unsettled": what was
        lost was inherited, and the assignment at rest is another."""

    def refresh(self, settle: bool = False) -> bool:
        """Look who is there now, and assign partitions to them; whether one has another member than before. After a
        loss what was lost is inherited, and nothing else moves, unless ``settle`` asks for the assignment at rest."""
        ...

    def await_members(self, names: Sequence[str]) -> None:
        """Give members that are known by name a little time to be there, when a flow is opened."""
        ...

    def hand_over(self, moves: Mapping[int, str]) -> None:
        """Have these partitions kept by other members, until members change."""
        ...

    def thread(self, target: Callable[[], None], name: str) -> Any:
        """A started daemon thread."""
        ...

    def clock(self) -> int:
        """Microseconds since 1970."""
        ...

    def reading(self) -> Reading:
        """The same, with the clock that nobody sets."""
        ...

    def draw(self) -> int:
        """63 random bits."""
        ...
