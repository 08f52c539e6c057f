"""A small flow without Spark, under any strategy: rows that only come, a view that passes them on and one that counts
them, and sinks of three kinds that remember all they were given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

import holdfast as hf
from holdfast.coordinator.durability_settings import DurabilitySettings
from holdfast.coordinator.retention import Bound, Retention
from holdfast.foundation import failpoints
from holdfast.operators.aggregate import Aggregate, Call
from holdfast.plan.nodes import Field, Linear, Node, Source, same
from holdfast.runtime.declaration import ConnectorProgress, Declaration
from holdfast.runtime.engine import Engine
from holdfast.runtime.prepared_flow import PreparedFlow
from holdfast.testing.crashes import Crash, crash_at
from holdfast.testing.memory import MemoryLocation
from holdfast.testing.simulator.model import ORDERS, USERS
from holdfast.testing.simulator.runner import SimulatedRunner
from holdfast.testing.simulator.world import SimulatedSource, World
from holdfast.trace.layer import forget_all

_USERS, _ORDERS = Source("users", USERS), Source("orders", ORDERS)
VIEWS: dict[str, Node] = {
    "passed": Linear(_USERS, None, same(_USERS)),
    "ordered": Aggregate(_ORDERS, ("user",), (Call("n", "count", (), "bigint"),)),
    "counted": Aggregate(_USERS, ("city",), (Call("n", "count", (), "bigint"),)),
}


@dataclass
class Given:
    """What a sink was given, in order; it outlives drivers."""

    rows: list[tuple[Any, ...]] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    changes: list[list[tuple[Any, ...]]] = field(default_factory=list)
    """The rows of each commit, with the number at the same place of ``numbers``."""

    lineage: bytes = b""


class Append(hf.Sink):
    """Takes whatever comes."""

    def __init__(self, given: Given) -> None:
        self.given = given

    def open(self, view: str, fields: tuple[Field, ...]) -> int | None:
        return None

    def commit(self, epoch: int, change: pa.Table, lineage: bytes) -> None:
        self.given.changes.append(list(zip(*(column.to_pylist() for column in change.columns), strict=True)))
        self.given.rows += self.given.changes[-1]
        self.given.numbers.append(epoch)
        self.given.lineage = lineage


class Transactional(Append):
    """Says what it has, and keeps the lineage of its last commit."""

    def open(self, view: str, fields: tuple[Field, ...]) -> int | None:
        return max(self.given.numbers, default=-1)

    def commit(self, epoch: int, change: pa.Table, lineage: bytes) -> None:
        assert epoch > max(self.given.numbers, default=-1), "an epoch that it has"
        super().commit(epoch, change, lineage)

    def lineage(self) -> bytes:
        return self.given.lineage


class Life:
    """A flow and its drivers, one after the other."""

    def __init__(
        self,
        root: Path,
        strategy: hf.Strategy,
        kind: Callable[[Given], hf.Sink] = Transactional,
        view: str = "passed",
        locations: int = 1,
        retain: int = 50,
    ) -> None:
        self.world = World(0, root)
        self.strategy, self.view, self._kind, self._retain = strategy, view, kind, retain
        self.given = Given()
        self.stores = [MemoryLocation(f"memory://{number}") for number in range(locations)]
        self.engine: Engine | None = None
        self._fed = 0

    def prepared(self, host: int = 0) -> PreparedFlow:
        """A driver that is ready, on a host."""
        declared = Declaration(
            name="lives",
            local=self.world.local(host),
            locations=tuple(self.stores),
            sources={name: SimulatedSource(self.world, name) for name in ("users", "orders")},
            views={self.view: VIEWS[self.view]},
            texts={},
            sinks=[(self.view, self._kind(self.given))],
            settings=DurabilitySettings(self.strategy, 1, Bound(), Retention(epochs=self._retain)),
        )
        return PreparedFlow(declared, SimulatedRunner(self.world, 2))

    def open(self, ready: PreparedFlow | None = None) -> Engine:
        if self.engine is None:
            self.engine = Engine(ready or self.prepared(), ConnectorProgress())
        return self.engine

    def feed(self, batches: int) -> None:
        for _ in range(batches):
            self._fed += 1
            self.world.feed("users", [((self._fed, self._fed % 2), 1)])

    def run(self, epochs: int, upkeep: bool = True) -> None:
        """One batch arrives before each epoch."""
        for _ in range(epochs):
            self.feed(1)
            self.step(upkeep)

    def step(self, upkeep: bool = True) -> None:
        engine = self.open()
        assert not engine.step().idle
        if upkeep:
            engine.upkeep()

    def finish(self) -> None:
        """Take all that waits, and close."""
        engine = self.open()
        while not engine.step().idle:
            engine.upkeep()
        engine.close()
        self.engine = None
        forget_all()

    def die(self) -> None:
        """The driver's process is gone."""
        if self.engine is not None:
            self.engine.abandon()
            forget_all()
            self.engine = None
        failpoints.hook = None

    def die_at(self, mark: str, work: Callable[[], object]) -> None:
        """The driver dies in the middle of something."""
        try:
            with crash_at(mark):
                work()
        except Crash:
            self.die()
            return
        raise AssertionError(f"{mark} was not reached")

    def copies(self) -> set[str]:
        """The traces that some location holds layers of."""
        return {path.split("/")[1] for store in self.stores for path in store.snapshot() if path.startswith("layers/")}


def reference(root: Path, view: str, batches: int, per_epoch: int = 1) -> list[tuple[Any, ...]]:
    """What a run without a crash delivers, a batch or two in each epoch."""
    life = Life(root, hf.nosync(), view=view)
    for _ in range(batches // per_epoch):
        life.feed(per_epoch)
        life.step()
    life.finish()
    return life.given.rows
