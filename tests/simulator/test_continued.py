"""Flows that go on with what is left when members are lost with their layers, and are repaired later.

First a search: random losses, epochs, repairs and crashes of the driver, with the simulator's usual disasters (which
checks after every step that views which can be approximate are so in the way that they must be, and at the end that
views and sinks are exact) and without. Then what was decided, case by case.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from amounts import times
from holdfast.connectors.source import Offer, Part
from holdfast.errors import DeclarationError, EpochUnavailable, InputError, StoreError
from holdfast.inspect.branching import list_branches
from holdfast.runtime.engine import Engine
from holdfast.runtime.merging import Merging
from holdfast.testing.simulator import actions as act
from holdfast.testing.simulator import run
from holdfast.testing.simulator.actions import CONTINUING, Action
from holdfast.testing.simulator.approximate import check_approximate
from holdfast.testing.simulator.branching import feed, opened
from holdfast.testing.simulator.model import expected
from holdfast.testing.simulator.run import Simulation
from holdfast.testing.simulator.world import SimulatedSource, bag_of
from holdfast.trace.name import ALL
from logged import logged
from simulator.seeds import check

PARTITIONS = 8


def _schedule(seed: int) -> list[Action]:
    """Epochs, and now and then a loss, a repair, a crash."""
    chance = random.Random(f"{seed} continued")
    found: list[Action] = [act.LoseMembers(0, 0, 2 if seed % 4 == 0 else 0)]  # one alone is nothing to lose

    def epochs(count: int) -> None:
        for _ in range(count):
            found.append(act.Feed(chance.getrandbits(32)))
            found.append(act.Step(0))
            if chance.random() < 0.3:
                found.append(act.Upkeep(0))

    def loss() -> Action:
        if chance.random() < 0.7:
            return act.LoseMembers(chance.getrandbits(32), 1, 1)
        return act.LoseMemberAt(chance.getrandbits(32), chance.choice(CONTINUING), chance.choice((1, 2, 3, 5)))

    epochs(chance.randrange(1, 4))
    for _ in range(chance.randrange(1, 4)):
        found.append(loss())
        epochs(chance.randrange(1, 5))
        if chance.random() < 0.4:
            found.append(loss())
            epochs(chance.randrange(0, 3))
        if chance.random() < 0.2:
            found.append(act.SinkWeather(chance.choice((0.0, 0.3))))
        if chance.random() < 0.3:
            found.append(act.Damage(0, chance.getrandbits(32), chance.random() < 0.5))
        if chance.random() < 0.4:
            found.append(act.CrashAt(0, chance.choice(CONTINUING), chance.choice((1, 1, 2, 3))))
        found.append(chance.choice((act.Repair(0), act.Repair(0), act.Repair(0), act.Close(0), act.Kill(0))))
        epochs(chance.randrange(0, 2))
    return found


@pytest.mark.parametrize("start", range(0, 10, 10))
def test_nothing_is_lost_duplicated_or_wrong_after_the_repair(start: int) -> None:
    for seed in range(start, start + 10):
        failure = run(seed, _schedule(seed), scattered=True, on_loss="continue")
        assert failure is None, f"seed {seed}: {failure}"


def test_a_member_that_is_lost_in_a_repair_whose_epochs_ask_outside_has_the_epoch_begin_again() -> None:
    failure = run(337, _schedule(337), scattered=True, on_loss="continue")
    assert failure is None, f"{failure}"


@pytest.mark.slow
@pytest.mark.parametrize("start", range(20, 20 + times(400), 50))
def test_nothing_is_lost_duplicated_or_wrong_after_many_repairs(start: int) -> None:
    for seed in range(start, start + 50):
        failure = run(seed, _schedule(seed), scattered=True, on_loss="continue")
        assert failure is None, f"seed {seed}: {failure}"


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, 10, 10))
def test_nothing_is_lost_duplicated_or_wrong_when_anything_else_goes_wrong(start: int) -> None:
    check(range(start, start + 10), scattered=True, on_loss="continue")


# -- case by case ---------------------------------------------------------------------------------------------------


@pytest.fixture
def simulation(tmp_path: Path) -> Iterator[Simulation]:
    """Four members, eight partitions, and no task that runs elsewhere; ``placed`` and ``cities`` over a join."""
    yield from _simulation(5, tmp_path)


@pytest.fixture
def counting(tmp_path: Path) -> Iterator[Simulation]:
    """The same with ``buyers`` and ``spend``, whose operators all have one key."""
    yield from _simulation(2, tmp_path)


def _simulation(seed: int, root: Path) -> Iterator[Simulation]:
    simulation = Simulation(seed, root, scattered=True, on_loss="continue")
    while len(simulation.world.members) < 4:
        simulation.world.add_member()
    simulation.world.elsewhere = 0.0
    simulation.drivers[0].partitions = PARTITIONS
    yield simulation
    for driver in simulation.drivers:
        driver.die()


def _engine(simulation: Simulation) -> Engine:
    return simulation.drivers[0].open()


def _run(simulation: Simulation, epochs: int) -> Engine:
    engine = _engine(simulation)
    for _ in range(epochs):
        _feed(simulation)
        simulation.do(act.Step(0))
    return engine


def _feed(simulation: Simulation) -> None:
    """One batch of orders, of all users, some of which go again; the first time users, too."""
    world, chance = simulation.world, simulation.world.random
    if not world.feeds["users"]:
        world.feed("users", [((user, user % 4), 1) for user in range(12)])
    gone = chance.sample(sorted(world.rows["orders"]), min(3, len(world.rows["orders"])))
    come = [((chance.randrange(1000), user, chance.randrange(-50, 100)), 1) for user in range(12)]
    world.feed("orders", [*come, *((row, -1) for row in gone)])


def _lose(simulation: Simulation, which: int = 0) -> tuple[str, list[int]]:
    """Lose a member; its name, and its partitions."""
    owners = _engine(simulation)._runner.owners()
    name = sorted(set(owners) & simulation.world.members.keys())[which]
    simulation.world.lose_member(name)
    return name, [number for number, owner in enumerate(owners) if owner == name]


def _commits(simulation: Simulation) -> set[int]:
    return {len(commits) for commits in simulation.world.commits.values()}


def test_epochs_go_on_without_what_was_lost_and_say_so(counting: Simulation) -> None:
    engine = _run(counting, 3)
    assert engine.approximate is None and engine.status().approximate is None
    member, partitions = _lose(counting)
    _feed(counting)
    with logged("goes on without what it lost: approximate since epoch 3: 6 of 8 partitions"):
        epoch = engine.step()
    said = epoch.approximate
    assert said is not None and epoch.epoch == 3
    assert (said.since, said.members, list(said.lost)) == (3, (member,), partitions)
    assert (said.coverage.partitions, said.coverage.partitions_total) == (6, 8)
    assert said.views == ("buyers", "spend") and said.sources == ("orders",)
    assert engine.approximate == said and engine.last == 3
    status = engine.status()
    assert status.approximate == said and status.epoch == 3
    assert all(view.approximate for view in status.views.values())
    assert epoch.to_dict()["approximate"]["coverage"]["partitions"] == 6
    assert check_approximate(engine, counting.world) == 2
    assert len(engine.history) == 3, "the exact history stands still"
    assert _commits(counting) == {3}, "sinks are given nothing"
    counting.finish()


def test_the_rows_that_are_left_are_counted(counting: Simulation) -> None:
    engine = _run(counting, 3)
    before = {view: bag_of(engine.views.readable(view, None)[0].rows(0, ALL, 2)) for view in counting.world.flow}
    _lose(counting)
    assert engine.step().idle
    coverage = engine.approximate.coverage  # type: ignore[union-attr]
    left = sum(sum(bag_of(engine.views.readable(view, 2)[0].rows(0, ALL, 2)).values()) for view in before)
    assert coverage.rows == left < (coverage.rows_total or 0)
    assert coverage.rows_total == sum(sum(bag.values()) for bag in before.values())
    assert coverage.bytes is None, "the copies do not hold all of it"


def test_the_bytes_that_are_left_are_known_if_the_copies_hold_all(counting: Simulation) -> None:
    engine = _run(counting, 3)
    engine.upkeep()
    assert engine.safe == 2
    _lose(counting)
    assert engine.step().idle
    coverage = engine.approximate.coverage  # type: ignore[union-attr]
    assert 0 < (coverage.bytes or 0) < (coverage.bytes_total or 0)


def test_rows_are_not_counted_that_were_there_before_the_driver(counting: Simulation) -> None:
    _run(counting, 2)
    counting.do(act.Kill(0))
    engine = _run(counting, 1)
    _lose(counting)
    assert engine.step().approximate.coverage.rows_total is None  # type: ignore[union-attr]


def test_a_repair_brings_back_what_was_lost_and_runs_the_epochs_again(simulation: Simulation) -> None:
    _run(simulation, 3)
    simulation.do(act.Upkeep(0))
    engine = _run(simulation, 1)
    _, partitions = _lose(simulation)
    _run(simulation, 3)
    assert (engine.last, len(engine.history), _commits(simulation)) == (6, 4, {4})
    recovery = engine.repair()
    assert recovery is not None and recovery is engine.recovery
    assert recovery.epochs == [3], "what no copy holds of the lost partitions"
    assert all(some == partitions for some in recovery.partitions.values())
    assert recovery.layers_fetched > 0 and recovery.repaired == [4, 5, 6]
    assert engine.approximate is None and (engine.last, len(engine.history)) == (6, 7)
    assert _commits(simulation) == {7}
    bags, clock = simulation.world.upto(simulation.whole(engine.history)), engine.history[-1].clock
    for view in simulation.world.flow:
        found = bag_of(engine.views.readable(view, None)[0].rows(0, ALL, 6))
        assert found == expected(view, bags["orders"], bags["users"], clock), view
    assert _branch_directories(simulation) == set()
    simulation.finish()


def test_the_repaired_epochs_took_what_they_had_taken_at_the_clock_that_they_had(simulation: Simulation) -> None:
    _run(simulation, 2)
    _lose(simulation)
    engine = _run(simulation, 3)
    assert engine._state.branch is not None
    before = engine._state.branch.history[2:]
    engine.repair()
    again = engine.history[2:]
    assert [(one.epoch, one.offers, one.clock) for one in again] == [
        (one.epoch, one.offers, one.clock) for one in before
    ]
    assert not {one.digest for one in again} & {one.digest for one in before}
    simulation.finish()


def test_a_repair_of_what_is_exact_does_nothing(simulation: Simulation) -> None:
    engine = _run(simulation, 2)
    recovery = engine.recovery
    assert engine.repair() is None
    assert engine.recovery is recovery


def test_another_loss_leaves_more_out(counting: Simulation) -> None:
    _run(counting, 3)
    _, first = _lose(counting)
    engine = _run(counting, 2)
    _, second = _lose(counting)
    _run(counting, 2)
    said = engine.approximate
    assert said is not None and (said.since, len(said.members)) == (3, 2)
    assert list(said.lost) == sorted({*first, *second}), "what was inherited is not to be lost again"
    assert check_approximate(engine, counting.world) == 2
    assert engine.repair().repaired == [3, 4, 5, 6]  # type: ignore[union-attr]
    counting.finish()


def test_a_loss_in_the_middle_of_an_epoch_begins_a_branch_with_it(counting: Simulation) -> None:
    engine = _run(counting, 3)
    counting.do(act.LoseMemberAt(4, "task: epoch", 5))
    _run(counting, 1)
    assert engine.approximate is not None and engine.approximate.since == 3 and engine.last == 3
    counting.do(act.LoseMemberAt(9, "task: epoch", 4))
    _run(counting, 1)
    assert engine.last == 4 and len(engine.approximate.members) == 2
    assert check_approximate(engine, counting.world) == 2
    counting.finish()


def test_a_member_that_joins_takes_its_share_after_the_repair(counting: Simulation) -> None:
    engine = _run(counting, 3)
    _lose(counting)
    _run(counting, 1)
    counting.world.add_member()
    _run(counting, 1)
    assert len(set(engine._runner.owners())) == 3
    engine.repair()
    _run(counting, 20)
    assert len(set(engine._runner.owners())) == 4
    counting.finish()


def test_when_nothing_is_left_the_flow_repairs_itself(counting: Simulation) -> None:
    _run(counting, 3)
    _lose(counting)
    engine = _run(counting, 1)
    counting.world.add_member()
    for name in sorted(counting.world.members)[:-1]:
        counting.world.lose_member(name)
    assert len(counting.world.members) == 1
    _run(counting, 1)
    assert engine.approximate is None and engine.last == 4
    assert engine.recovery.repaired == [3]
    counting.finish()


def test_reading_finds_out_that_something_was_lost(counting: Simulation) -> None:
    engine = _run(counting, 3)
    _lose(counting)
    kept, last = engine.views.readable("spend", None)
    assert last == 2 and engine.approximate is not None and engine.approximate.since == 3
    assert check_approximate(engine, counting.world) == 2
    assert kept.rows(0, ALL, 2).num_rows > 0


def test_a_branch_may_be_long(counting: Simulation) -> None:
    engine = _run(counting, 3)
    _lose(counting)
    for _ in range(3):
        _run(counting, Merging.tolerated + 1)
        engine.upkeep()
    assert engine._continuing.branch is not None and engine._continuing.branch.maintenance.merges > 0
    assert check_approximate(engine, counting.world) == 2
    engine.repair()
    counting.finish()


def test_a_driver_that_dies_while_approximate_loses_nothing_exact(simulation: Simulation) -> None:
    _run(simulation, 3)
    _lose(simulation)
    _run(simulation, 2)
    simulation.do(act.Kill(0))
    engine = _engine(simulation)
    assert engine.last == 2 and engine.approximate is None
    assert _branch_directories(simulation) == set()
    simulation.finish()


@pytest.mark.parametrize("mark", ["repair.recovered", "repair.before_epoch", "epoch.complete", "sink.after_commit"])
def test_a_driver_that_dies_in_the_middle_of_a_repair_loses_nothing(simulation: Simulation, mark: str) -> None:
    _run(simulation, 2)
    _lose(simulation)
    _run(simulation, 3)
    simulation.do(act.CrashAt(0, mark, 1 if mark == "repair.recovered" else 2))
    simulation.do(act.Repair(0))
    assert simulation.drivers[0].engine is None, "it died"
    simulation.finish()


def test_a_repair_that_fails_goes_on_where_it_was(counting: Simulation) -> None:
    _run(counting, 2)
    _lose(counting)
    engine = _run(counting, 3)
    sinks = [sink for _, sink in engine.declared.sinks]
    for sink in sinks:
        sink.failing = 1.0  # type: ignore[attr-defined]
    with pytest.raises(StoreError):
        engine.repair()
    assert engine.approximate is not None and engine.approximate.since == 2
    assert len(engine.history) == 3, "the epoch counts, and the sink lacks it"
    _run(counting, 1)
    assert engine.last == 5 and check_approximate(engine, counting.world) == 2
    for sink in sinks:
        sink.failing = 0.0  # type: ignore[attr-defined]
    recovery = engine.repair()
    assert recovery is not None and recovery.repaired == [3, 4, 5]
    assert _commits(counting) == {6}
    counting.finish()


def test_closing_repairs_first(simulation: Simulation) -> None:
    _run(simulation, 2)
    _lose(simulation)
    engine = _run(simulation, 2)
    simulation.do(act.Close(0))
    assert engine.recovery.repaired == [2, 3]
    assert _commits(simulation) == {4}
    simulation.finish()


def test_an_approximate_epoch_does_not_become_safe_and_nobody_waits_for_it(simulation: Simulation) -> None:
    engine = _run(simulation, 2)
    _lose(simulation)
    _run(simulation, 2)
    engine.upkeep()
    with pytest.raises(EpochUnavailable, match=r"epoch 3 does not become safe before flow.repair\(\): .* 6 of 8"):
        engine.wait_safe(None, None)
    assert engine.safe < 2 and simulation.world.forgotten["orders"] == 0
    engine.repair()
    assert engine.wait_safe(None, 5.0) == 3


def _branch_directories(simulation: Simulation) -> set[str]:
    """What members have of branches."""
    return {path.name for place in simulation.world.members.values() for path in place.glob("*/branches/*")}


def test_the_flow_goes_on_with_a_branch_that_is_listed_and_goes_with_the_repair(counting: Simulation) -> None:
    engine = _run(counting, 3)
    assert engine.branches.listed() == ()
    _lose(counting)
    _run(counting, 1)
    (branch,) = engine.branches.listed()
    assert (branch.root, branch.digest, branch.approximate) == (2, engine.history[2].digest, True)
    assert branch.name.startswith("approximate-2-") and _branch_directories(counting) == {branch.name}
    _run(counting, 2)
    (later,) = engine.branches.listed()
    assert later.bytes > branch.bytes > 0, "what its epochs have written"
    log = engine.declared.local
    (seen,) = list_branches([log])
    assert (seen["name"], seen["root"], seen["approximate"]) == (branch.name, 2, True), "by any other process, too"
    assert engine._state.copies.branches == {branch.name: 2}, "what came since its root is kept"
    with pytest.raises(DeclarationError, match=r"flow.repair\(\) ends it"):
        engine.make_branch(branch.name, None)
    with pytest.raises(DeclarationError, match=r"flow.repair\(\) ends it"):
        engine.branches.remove(branch.name)
    engine.repair()
    assert engine.branches.listed() == () and engine._state.copies.branches == {}
    assert _branch_directories(counting) == set() and list_branches([log]) == []
    assert not (log / "branches" / branch.name).exists()
    counting.finish()


def test_a_flow_that_goes_on_without_members_has_its_other_branches_still(counting: Simulation) -> None:
    engine = _run(counting, 3)
    engine.upkeep()
    engine.make_branch("whole", 1)
    _lose(counting)
    _run(counting, 2)
    assert [(each.name[:5], each.root, each.approximate) for each in engine.branches.listed()] == [
        ("whole", 1, False),
        ("appro", 2, True),
    ]
    counting.do(act.Kill(0))
    engine = _engine(counting)
    assert [each.name for each in engine.branches.listed()] == ["whole"], "the other one went with its driver"
    assert _branch_directories(counting) <= {"whole"}
    _lose(counting)
    _run(counting, 2)
    engine.repair()
    branch = opened(counting.world, engine, "whole", 2)
    assert feed(branch, engine, engine.last)
    for view in counting.world.flow:
        found = [bag_of(each.views.readable(view, None)[0].rows(0, ALL, engine.last)) for each in (branch, engine)]
        assert found[0] == found[1], view
    branch.close()
    counting.finish()


def test_a_branch_that_is_asked_for_meanwhile_begins_with_everything(counting: Simulation) -> None:
    """It is made when the flow is repaired, of an epoch that was approximate, too."""
    engine = _run(counting, 3)
    _lose(counting)
    _run(counting, 2)
    assert engine.approximate is not None and engine.last == 4
    assert engine.make_branch("whole", 4).root == 4
    assert engine.approximate is None and [each.name for each in engine.branches.listed()] == ["whole"]
    branch = opened(counting.world, engine, "whole", 2)
    bags, clock = counting.world.upto(counting.whole(engine.history)), engine.history[-1].clock
    for view in counting.world.flow:
        found = bag_of(branch.views.readable(view, None)[0].rows(0, ALL, 4))
        assert found == expected(view, bags["orders"], bags["users"], clock), view
    branch.close()
    counting.finish()


def test_without_layers_of_their_own_members_lose_nothing(tmp_path: Path) -> None:
    simulation = Simulation(2, tmp_path, scattered=False, on_loss="continue")
    engine = _run(simulation, 3)
    assert engine.approximate is None and engine.repair() is None
    simulation.finish()


class Pushed(SimulatedSource):
    """Rows that are nowhere but in the log once an epoch took them."""

    replayable = False

    def parts(self, offer: Offer) -> list[Part]:
        if offer["after"] <= self._next:
            raise InputError("these rows are not held any more")
        return super().parts(offer)


def test_pushed_rows_that_only_approximate_epochs_took_survive(
    counting: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_module("holdfast.testing.simulator.run"), "SimulatedSource", Pushed)
    engine = _run(counting, 3)
    _lose(counting)
    _run(counting, 2)
    _lose(counting)
    _run(counting, 2)
    recovery = engine.repair()
    assert recovery is not None and recovery.repaired == [3, 4, 5, 6]
    bags, clock = counting.world.upto(counting.whole(engine.history)), engine.history[-1].clock
    for view in counting.world.flow:
        found = bag_of(engine.views.readable(view, None)[0].rows(0, ALL, 6))
        assert found == expected(view, bags["orders"], bags["users"], clock), view


def test_a_repair_that_leaves_an_epoch_out_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Engine, "_run_exactly", lambda self, taken: None)
    assert any(run(seed, _schedule(seed), scattered=True, on_loss="continue") for seed in range(20))
