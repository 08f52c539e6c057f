"""What a recovery runs and reads: it stops at whatever a log can give at the epoch, and says so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from holdfast.runtime.recovery.record import RecoveryRecord
from holdfast.testing.simulator import actions as act
from holdfast.testing.simulator.run import Simulation
from holdfast.trace.name import LayerName

EPOCHS = 5


class Losing:
    """A flow of five epochs, of which no copy was made."""

    def __init__(self, seed: int, root: Path) -> None:
        """``seed``: 0 for views spend and top (from spend), 1 for placed (a join) and cities (from placed)."""
        self.simulation = Simulation(seed, root)
        self.driver = self.simulation.drivers[0]
        self.driver.partitions = 2
        world = self.simulation.world
        for epoch in range(EPOCHS):
            world.feed("orders", [((10 * epoch + n, (epoch + n) % 12, 5 * n + 1), 1) for n in range(6)])
            world.feed("users", [((2 * epoch + n, n), 1) for n in range(2)])
            self.simulation.do(act.Step(0))
        self.flow = self.driver.open()._compiled.flow
        self.simulation.do(act.Kill(0))

    def operator(self, kind: str) -> str:
        """The operator of that kind."""
        return next(mark for mark, operator in self.flow.operators.items() if operator.kind == kind)

    def log(self, view: str) -> str:
        return self.flow.views[view]

    def recover(self, lost: Iterable[str], after: int, partitions: Iterable[int] = (0, 1)) -> RecoveryRecord:
        """Open the flow again without the layers of some operators after an epoch."""
        low = {f"{each * 2**63:016x}" for each in partitions}
        for operator in lost:
            for path in self.simulation.world.local(0).glob(f"traces/{operator}.*/*.arrow"):
                name = LayerName.parse(path.name)
                if name is not None and name.last > after and f"{name.low:016x}" in low:
                    path.unlink()
        self.simulation._drive(0, lambda driver: driver.open())
        return self.driver.open().recovery


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Losing]:
    losing = Losing(0, tmp_path)
    yield losing
    losing.simulation.finish()


@pytest.fixture
def map_(tmp_path: Path) -> Iterator[Losing]:
    losing = Losing(1, tmp_path)
    yield losing
    losing.simulation.finish()


def test_a_log_that_holds_the_epochs_is_read_instead_of_the_sources(shop: Losing) -> None:
    lost = [shop.operator("bucket"), shop.operator("global"), shop.log("top")]
    recovery = shop.recover(lost, after=2)
    assert recovery.epochs == [3, 4]
    assert recovery.sources == {}
    assert recovery.logs == {"spend": [3, 4]}
    assert recovery.run == recovery.partitions == {operator: [0, 1] for operator in lost}


def test_only_what_lies_between_the_log_and_what_is_lost_is_run(shop: Losing) -> None:
    recovery = shop.recover([shop.log("spend")], after=3, partitions=[1])
    assert recovery.epochs == [4] and recovery.sources == {}
    assert recovery.logs == {"orders": [4]}, "rows of orders may be deleted: so they are kept"
    assert recovery.partitions == {shop.log("spend"): [1]}
    assert recovery.run == {shop.log("spend"): [1], shop.operator("aggregate"): [1]}


def test_a_source_is_read_where_no_log_has_its_rows(map_: Losing) -> None:
    recovery = map_.recover([map_.operator("join")], after=3)
    assert recovery.sources == {"users": [4]} and recovery.logs == {"orders": [4]}
    assert recovery.run == {map_.operator("join"): [0, 1]}


def test_a_log_answers_what_was_fused_with_its_view(map_: Losing) -> None:
    """``cities`` groups the join itself: the columns of ``placed`` that it does not read are gone from its plan."""
    lost = [map_.operator("aggregate"), map_.log("cities")]
    recovery = map_.recover(lost, after=2)
    assert recovery.epochs == [3, 4]
    assert recovery.sources == {}
    assert recovery.logs == {"placed": [3, 4]}
    assert recovery.run == recovery.partitions == {operator: [0, 1] for operator in lost}


def test_a_log_between_two_lost_operators_cuts_the_way_between_them(shop: Losing) -> None:
    recovery = shop.recover([shop.operator("aggregate"), shop.operator("bucket")], after=3, partitions=[1])
    assert recovery.logs == {"orders": [4], "spend": [4]}
    assert recovery.sources == {}
    assert recovery.run == {shop.operator("aggregate"): [1], shop.operator("bucket"): [1]}


def test_what_every_log_lost_is_computed_from_the_sources(shop: Losing) -> None:
    recovery = shop.recover(shop.flow.operators, after=3)
    assert recovery.epochs == [4] and recovery.sources == {"orders": [4]} and recovery.logs == {}
    assert recovery.run.keys() == shop.flow.operators.keys()
