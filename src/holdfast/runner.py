"""Where a flow's work is done: the interface between the engine and Spark, or a simulation of it.

The engine decides what is to be done; a runner does it, in tasks. `spark/cluster.py` is the real one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from holdfast.connectors.source import Offer, Source
from holdfast.operators.program import Program
from holdfast.operators.stage import Epoch, Report
from holdfast.plan.dataflow import Dataflow, Types

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

    reports: tuple[Report, ...]
    planning: float
    seconds: float


class Job(Protocol):
    """Runs the epochs of a compiled dataflow."""

    def run(self, epoch: Epoch, work: Sequence[Work], subject: str) -> Outcome:
        """Run an epoch to its end. Raises the user's error, if there is one; then nothing of the epoch counts."""
        ...

    def warm_up(self, epoch: Epoch, sources: Sequence[str], subject: str) -> None:
        """Run an epoch over nothing, as if these sources had something."""
        ...


class Runner(Protocol):
    """Runs epochs in the foreground, and upkeep beside them."""

    partitions: int

    threads: bool
    """Whether background work has threads of its own. If not, whoever drives the engine calls `Engine.upkeep`."""

    def job(self, flow: Dataflow, program: Program, types: Types) -> Job: ...

    def tasks(self, what: str, function: Callable[[list[T]], list[R]], items: Sequence[T], slots: int) -> list[R]:
        """Call ``function`` on shares of ``items``, in at most ``slots`` tasks of low weight; all results."""
        ...

    def thread(self, target: Callable[[], None], name: str) -> Any:
        """A started daemon thread."""
        ...

    def clock(self) -> int:
        """Microseconds since 1970."""
        ...

    def draw(self) -> int:
        """63 random bits."""
        ...
