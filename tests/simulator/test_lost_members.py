"""What is brought and what is computed again when members come and go, each with layers of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.errors import Fenced
from holdfast.runtime.engine import Engine
from holdfast.testing.simulator import actions as act
from holdfast.testing.simulator.run import Simulation

PARTITIONS = 8


@pytest.fixture
def simulation(tmp_path: Path) -> Iterator[Simulation]:
    """Four members, eight partitions, and no task that runs elsewhere."""
    simulation = Simulation(3, tmp_path, scattered=True)
    assert len(simulation.world.members) == 4
    simulation.world.elsewhere = 0.0
    simulation.drivers[0].partitions = PARTITIONS
    yield simulation
    for driver in simulation.drivers:
        driver.die()


def _run(simulation: Simulation, epochs: int) -> Engine:
    engine = simulation.drivers[0].open()
    wanted, seed = engine.last + epochs, 0
    while engine.last < wanted:
        simulation.do(act.Feed(seed))
        simulation.do(act.Step(0))
        seed += 1
    return engine


def _owned(engine: Engine) -> dict[str, list[int]]:
    members: dict[str, list[int]] = engine.status().placement.members
    return members


def test_losing_a_member_recomputes_only_what_was_its_own_and_in_no_copy(simulation: Simulation) -> None:
    _run(simulation, 4)
    simulation.do(act.Upkeep(0))
    engine = _run(simulation, 3)
    assert (engine.safe, engine.last) == (3, 6)
    before = _owned(engine)
    assert [len(some) for some in before.values()] == [2, 2, 2, 2]
    lost = sorted(before)[0]
    simulation.world.lose_member(lost)
    _run(simulation, 1)
    recovery = engine.recovery
    assert recovery.epochs == [4, 5, 6] and recovery.filled is None
    assert recovery.partitions.keys() == engine._compiled.traces.keys()
    assert all(some == before[lost] for some in recovery.partitions.values())
    assert len(recovery.members) >= 2 and lost not in recovery.members
    assert recovery.layers_fetched > 0
    assert sorted(len(some) for some in _owned(engine).values()) == [2, 3, 3]
    simulation.finish()


def test_a_member_that_joins_takes_its_share_and_nothing_is_computed_again(simulation: Simulation) -> None:
    engine = _run(simulation, 3)
    before = _owned(engine)
    simulation.world.add_member()
    _run(simulation, 20)  # all that is unsafe for so long is handed over
    after = _owned(engine)
    assert len(after) == 5
    assert engine.recovery.epochs == [] and engine.recovery.filled is None
    assert engine.recovery.layers_handed > 0
    kept = sum(len(set(some) & set(before.get(member, ()))) for member, some in after.items())
    assert kept >= PARTITIONS // 2
    simulation.finish()


def test_a_task_elsewhere_takes_its_layers_from_the_copies_and_keeps_the_partition(simulation: Simulation) -> None:
    engine = _run(simulation, 3)
    simulation.do(act.Upkeep(0))
    before = _owned(engine)
    placement = engine.status().placement
    assert placement.tasks == placement.local > 0
    simulation.world.elsewhere = 0.5
    _run(simulation, 1)
    simulation.world.elsewhere = 0.0
    after = _owned(engine)
    assert after != before
    placement = engine.status().placement
    assert placement.local < placement.tasks
    _run(simulation, 2)
    assert _owned(engine) == after, "until members change"
    simulation.finish()


def test_without_copies_a_task_runs_at_home(simulation: Simulation) -> None:
    engine = _run(simulation, 3)
    before = _owned(engine)
    simulation.world.elsewhere = 0.5
    _run(simulation, 2)
    assert _owned(engine) == before
    simulation.finish()


def test_no_layer_is_left_with_a_member_that_does_not_keep_its_partition(simulation: Simulation) -> None:
    engine = _run(simulation, 3)
    simulation.world.add_member()
    _run(simulation, 20)
    assert len(_owned(engine)) == 5
    for trace in engine._compiled.layouts:
        ranges: dict[str, set[str]] = {}
        for member, place in simulation.world.members.items():
            for path in place.glob(f"*/traces-*/{trace}/*.arrow"):
                low = path.name.split("-")[2]
                ranges.setdefault(low, set()).add(member)
        assert ranges and all(len(members) == 1 for members in ranges.values()), trace


def test_a_driver_of_an_earlier_term_cannot_use_the_members_layers(simulation: Simulation) -> None:
    _run(simulation, 2)
    old = simulation.drivers[0].engine
    assert old is not None
    old._directory.close()  # as if on another host: the lock does not keep the next one away
    simulation.drivers[0].engine = None
    _run(simulation, 1)
    with pytest.raises(Fenced):
        old._layers.take()
    assert "HOLDFAST_LOCAL" not in os.environ
