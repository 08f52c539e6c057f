"""A small flow over simulated input, without Spark, whose log is wherever a test says; with threads if it likes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from holdfast.coordinator.durability_settings import DurabilitySettings
from holdfast.coordinator.retention import Bound, Retention
from holdfast.guarantees.strategies import NoSync
from holdfast.guarantees.strategy import Strategy
from holdfast.log.location import Location
from holdfast.runtime.declaration import ConnectorProgress, Declaration
from holdfast.runtime.engine import Engine
from holdfast.runtime.prepared_flow import PreparedFlow
from holdfast.testing.simulator.model import SOURCES, VIEWS, Bag, expected, left, plans
from holdfast.testing.simulator.runner import SimulatedRunner
from holdfast.testing.simulator.world import SimulatedSink, SimulatedSource, World, bag_of
from holdfast.trace.layer import forget_all
from holdfast.trace.name import ALL

_NOSYNC, _UNBOUND = NoSync(), Bound()


class ThreadedRunner(SimulatedRunner):
    """Does upkeep in threads, as Spark does."""

    threads = True

    def thread(self, target: Callable[[], None], name: str) -> Any:
        started = threading.Thread(target=target, name=name, daemon=True)
        started.start()
        return started


class Shop:
    """Input that outlives drivers, and engines over it."""

    def __init__(self, root: Path) -> None:
        self.world = World(0, root)
        self._fed = 0

    def open(
        self,
        locations: Sequence[Location],
        min_replicas: int = 1,
        *,
        local: Path | None = None,
        threads: bool = False,
        sinks: bool = True,
        told: ConnectorProgress | None = None,
        strategy: Strategy = _NOSYNC,
        bound: Bound = _UNBOUND,
        on_loss: str = "replay",
        **settings: Any,
    ) -> Engine:
        world = self.world
        declared = Declaration(
            name="simulated",
            local=local or world.local(0),
            locations=tuple(locations),
            sources={name: SimulatedSource(world, name) for name in SOURCES},
            views=plans(world.flow, 0),
            texts={view: VIEWS[view] for view in world.flow},
            sinks=[(view, SimulatedSink(world, view)) for view in world.flow] if sinks else [],
            settings=DurabilitySettings(strategy, min_replicas, bound, Retention(epochs=6), **settings),
            expiring=left(world.flow),
            on_loss=on_loss,
        )
        runner = (ThreadedRunner if threads else SimulatedRunner)(world, 2)
        return Engine(PreparedFlow(declared, runner), told or ConnectorProgress())

    def feed(self) -> None:
        self._fed += 1
        self.world.feed("orders", [((self._fed, self._fed % 5, 10 * self._fed), 1)])
        self.world.feed("users", [((self._fed % 12, self._fed % 4), 1)])

    def run(self, engine: Engine, epochs: int, *, upkeep: bool = True) -> None:
        for _ in range(epochs):
            self.feed()
            assert not engine.step().idle
            if upkeep:
                engine.upkeep()

    def check(self, engine: Engine) -> None:
        """The views are what the input says."""
        bags: dict[str, Bag] = self.world.upto(engine.history)
        for view in self.world.flow:
            kept, last = engine.views.readable(view, None)
            wanted = expected(view, bags["orders"], bags["users"], engine.history[last].clock, 0)
            assert bag_of(kept.rows(0, ALL, last)) == wanted, view
        assert bags["orders"] == self.world.rows["orders"], "input was lost, or taken twice"


def die(engine: Engine) -> None:
    """The driver's process is gone."""
    engine.abandon()
    forget_all()
