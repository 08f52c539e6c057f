"""What a driver keeps, and reads when it starts, does not grow with epochs."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.connectors.source import Offer
from holdfast.coordinator.folded import Folded
from holdfast.log.begun_epochs import FILE
from holdfast.testing import Fault, Plan, faults
from holdfast.testing.faulty.plan import FOREVER
from holdfast.testing.simulator import actions as act
from holdfast.testing.simulator.run import Simulation


def sizes(simulation: Simulation) -> dict[str, int]:
    local = simulation.world.local(0)
    store = simulation.world.stores[0].snapshot()
    return {
        "records": len(list(simulation.drivers[0].open().history)),
        "offers": sum(map(len, simulation.drivers[0].open()._intake.taken.values())),
        "stash": (local / "lineage" / "log.jsonl").stat().st_size,
        "begun": (local / FILE).stat().st_size,
        "segments": sum(len(data) for path, data in store.items() if path.startswith("lineage/")),
    }


def run(simulation: Simulation, epochs: int, first: int) -> None:
    for number in range(first, first + epochs):
        simulation.world.feed("orders", [((number, number % 12, 7), 1)])
        simulation.do(act.Step(0))
        if number % 4 == 3:
            simulation.do(act.Upkeep(0))


def test_lineage_does_not_grow_with_epochs(tmp_path: Path) -> None:
    simulation = Simulation(2, tmp_path)
    simulation.drivers[0].partitions = 1
    run(simulation, 24, 0)
    early = sizes(simulation)
    run(simulation, 40, 24)
    late = sizes(simulation)
    assert late.pop("begun") < 256 * 300, "it is written anew when it has grown so much"
    assert all(late[name] <= 1.6 * early[name] + 400 for name in late), (early, late)
    simulation.do(act.Kill(0))
    history = simulation.drivers[0].open().history
    assert history.last == 63 and history.first > 50
    base = history.base
    assert base is not None and base.taken["orders"] == ((base.epoch, {"first": 0, "after": base.epoch + 1}),)


def test_a_view_that_is_new_is_filled_from_what_was_folded(tmp_path: Path) -> None:
    simulation = Simulation(0, tmp_path)
    run(simulation, 12, 0)
    assert simulation.bases
    simulation.do(act.Edit(0, 2))
    run(simulation, 4, 12)
    simulation.do(act.LoseDisk(0))
    simulation.finish()


def test_a_location_that_lost_everything_gets_the_base(tmp_path: Path) -> None:
    simulation = Simulation(2, tmp_path)
    run(simulation, 12, 0)
    simulation.do(act.LoseCopy(0))
    run(simulation, 4, 12)
    simulation.do(act.Upkeep(0))
    simulation.do(act.LoseDisk(0))
    simulation.do(act.Step(0))
    engine = simulation.drivers[0].open()
    assert engine.history.base is not None and engine.last == 15
    replica = engine._durability._places.replicas[0]
    assert isinstance(replica.read_segment(replica.segments()[0])[0], Folded)
    simulation.finish()


def test_a_source_that_is_opened_again_is_told_the_fold_once(tmp_path: Path) -> None:
    simulation = Simulation(2, tmp_path)
    run(simulation, 12, 0)
    simulation.do(act.Kill(0))
    told: list[Offer] = []
    engine = simulation.drivers[0].open()
    source = engine.declared.sources["orders"]
    source.advance = told.append  # type: ignore[method-assign]
    engine._told.advanced.clear()
    engine._intake.catch_up()
    base = engine.history.base
    assert base is not None and told[0] == {"first": 0, "after": base.epoch + 1}
    assert len(told) == engine.last - base.epoch + 1


@pytest.mark.parametrize("kind", ["stat", "list"])
def test_an_epoch_after_which_layers_cannot_be_listed_counts_and_the_next_one_folds(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulation = Simulation(2, tmp_path)
    run(simulation, 12, 0)
    engine = simulation.drivers[0].open()
    fold, failed = engine._folding.maybe, 0

    def without_listing() -> bool:
        nonlocal failed
        with faults(Plan((Fault(kind, 1, "EACCES", FOREVER),)), under=[simulation.world.local(0)]) as layer:
            folded = fold()
            failed += len(layer.injected)
        return folded

    assert engine.history.base is not None
    before = engine.history.base.epoch
    with monkeypatch.context() as patch:
        patch.setattr(engine._folding, "maybe", without_listing)
        run(simulation, 8, 12)
    assert failed and engine.last == 19, "each step returned"
    assert engine.history.base.epoch == before, "nothing was folded"
    run(simulation, 1, 20)
    assert engine.history.base.epoch > before
    simulation.finish()
