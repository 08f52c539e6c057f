"""Branches that are made at random epochs, fed and removed, in flows that crash at every step of it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from holdfast.coordinator import copy_plan
from holdfast.errors import Fenced, LogDamaged
from holdfast.log.branch_location import BranchLocation
from holdfast.runtime.engine import Engine
from holdfast.testing.simulator import actions as act
from holdfast.testing.simulator import run
from holdfast.testing.simulator.branching import feed, opened
from holdfast.testing.simulator.run import Simulation
from holdfast.testing.simulator.world import bag_of
from holdfast.trace.name import ALL

from .seeds import check


def test_branches_come_to_the_rows_of_the_main_line() -> None:
    check(range(4), branches=True)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(4, 204, 10))
def test_branches_of_many_seeds_come_to_the_rows_of_the_main_line(first: int) -> None:
    check(range(first, first + 10), branches=True)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 40, 10))
def test_branches_whose_layers_are_kept_by_members_come_to_the_rows_of_the_main_line(first: int) -> None:
    check(range(first, first + 10), branches=True, scattered=True)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 60, 10))
def test_branches_of_flows_that_go_on_without_lost_members_come_to_the_rows_of_the_main_line(first: int) -> None:
    check(range(first, first + 10), branches=True, scattered=True, on_loss="continue")


def test_a_member_that_is_lost_after_a_promotion_was_edited_costs_no_sink_its_place() -> None:
    """Seed 40 of the test above, shrunk. The edit takes the promotion back, so the log before it is filled as of the
    last epoch; a sink that cannot tell what it has needs it as of the epoch before, which the copies alone have."""
    actions = [
        act.Step(1),
        act.MakeBranch(0, 914052453),
        act.PromoteBranch(0, 862959371),
        act.Edit(0, 0),
        act.MakeBranch(0, 3111622756),
        act.LoseMembers(198357109, 1, 1),
    ]
    failure = run(40, actions, scattered=True)
    assert failure is None, str(failure)


STEPS = [
    "branches.unnaming", "branches.unnaming:2", "branches.unnamed", "branches.removing", "branches.removing:2",
    "branches.removed", "round.before_removal", "round.before_removal:2",
]  # fmt: skip
"""All that is done when a branch is removed, and what it held with it."""


@pytest.mark.parametrize(
    ("mark", "scattered"),
    [
        pytest.param(
            mark, scattered, marks=[] if (mark, scattered) == ("branches.removing:2", True) else pytest.mark.slow
        )
        for mark in STEPS
        for scattered in (False, True)
    ],
)
def test_a_crash_in_any_step_of_removal_leaves_what_branches_need_and_nothing_else(
    tmp_path: Path, mark: str, scattered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two branches from an old epoch; one of them is removed. Copies are merged meanwhile, so that both hold layers
    that the main line needs no more."""
    monkeypatch.setattr(copy_plan, "COMPACT_FROM", 3)
    simulation = Simulation(2, tmp_path, scattered=scattered)

    def epochs(first: int, last: int) -> None:
        for number in range(first, last):
            simulation.world.feed("orders", [((number, number % 12, 7), 1)])
            simulation.do(act.Step(0))
            simulation.do(act.Upkeep(0))

    epochs(0, 8)
    engine = simulation.drivers[0].open()
    engine.make_branch("kept", 7)
    engine.make_branch("removed", 7)
    epochs(8, 24)
    engine = simulation.drivers[0].open()
    held = _referred(engine, "kept")
    assert held and held <= _blobs(simulation), "nothing that a branch needs is gone"
    name, _, times = mark.partition(":")
    simulation.do(act.CrashAt(0, name, int(times or 1)))
    simulation._drive(0, lambda driver: driver.open().branches.remove("removed"))
    epochs(24, 28)
    engine, before = simulation.drivers[0].open(), engine
    assert engine is not before, "it has crashed"
    if any(each.name == "removed" for each in engine.branches.listed()):
        assert name == "branches.unnaming", "a place still said that it is there"
        assert _referred(engine, "removed") <= _blobs(simulation), "so all that it needs is there"
        engine.branches.remove("removed")
    epochs(28, 32)
    engine = simulation.drivers[0].open()
    assert held <= _blobs(simulation), "nothing that the other branch needs is gone"
    for _ in range(2):
        simulation.do(act.Upkeep(0))
    left = {path for path in _blobs(simulation) if "removed" in path}
    assert left == set() and not (engine.declared.local / "branches" / "removed").exists()
    for place in simulation.world.members.values() if scattered else ():
        assert not list(place.glob("*/branches/removed"))
    branch = opened(simulation.world, engine, "kept", 2)
    assert feed(branch, engine, engine.last)
    for view in simulation.world.flow:
        rows = [bag_of(each.views.readable(view, None)[0].rows(0, ALL, engine.last)) for each in (branch, engine)]
        assert rows[0] == rows[1], view
    branch.close()
    engine.branches.remove("kept")
    epochs(32, 36)
    assert not {path for path in _blobs(simulation) if path.startswith("branches")}
    assert not held & _blobs(simulation), "what it alone had held is gone"
    simulation.finish()


def test_what_members_keep_of_branches_goes_with_them(tmp_path: Path) -> None:
    """Of a branch of a branch, too, and of one that a crash has cut off."""
    simulation = Simulation(2, tmp_path, scattered=True)
    simulation.world.elsewhere = 0.0

    def kept() -> set[str]:
        found = [path for place in simulation.world.members.values() for path in place.glob("**/branches/*")]
        return {path.name for path in found}

    for number in range(4):
        simulation.world.feed("orders", [((number, number % 12, 7), 1)])
        simulation.do(act.Step(0))
        simulation.do(act.Upkeep(0))
    engine = simulation.drivers[0].open()
    engine.make_branch("first", 3)
    first = opened(simulation.world, engine, "first", 2)
    first.make_branch("second", 3)
    first.close()
    assert kept() == {"first", "second"}
    assert [(each.name, each.bytes > 0) for each in engine.branches.listed()] == [("first", True)]
    engine.branches.remove("first")
    assert kept() == set()
    simulation.do(act.CrashAt(0, "branches.linked", 1))
    simulation._drive(0, lambda driver: driver.open().make_branch("cut", 3))
    assert kept() == {"cut"} and simulation.drivers[0].engine is None
    assert simulation.drivers[0].open().branches.listed() == () and kept() == set()
    simulation.finish()


def _referred(engine: Engine, name: str) -> set[str]:
    """The layers of the main line that a branch refers to."""
    return {
        each.path
        for location in engine.declared.locations
        for each in BranchLocation(location, name).references().values()
    }


def _blobs(simulation: Simulation) -> set[str]:
    return {path for store in simulation.world.stores for path in store.snapshot()}


def _steps(simulation: Simulation, host: int, *numbers: int) -> None:
    for number in numbers:
        simulation.world.feed("orders", [((number, number % 12, 7), 1)])
        simulation.do(act.Step(host))
        simulation.do(act.Upkeep(host))


@pytest.mark.parametrize("ran", [False, True])
def test_a_branch_that_another_host_has_removed_stays_removed(tmp_path: Path, ran: bool) -> None:
    """Seeds 63 and 64 of flows that go on without lost members. The working directory of a driver before still has the
    name, and the log of the branch if it ``ran`` there."""
    simulation = Simulation(2, tmp_path, scattered=True)
    _steps(simulation, 0, *range(3))
    simulation.drivers[0].open().make_branch("gone", 1)
    _steps(simulation, 1, 3)
    if ran:
        engine = simulation.drivers[1].open()
        branch = opened(simulation.world, engine, "gone", 2)
        assert feed(branch, engine, engine.last)
        branch.close()
    simulation.do(act.Kill(1))
    simulation.do(act.Kill(0))
    simulation.drivers[0].open().branches.remove("gone")
    simulation.do(act.Kill(0))
    assert (simulation.world.local(1) / "branches" / "gone" / "branch.json").exists()
    assert simulation.drivers[1].open().branches.listed() == ()
    assert not {path for path in _blobs(simulation) if path.startswith("branches")}
    assert not (simulation.world.local(1) / "branches" / "gone").exists()
    simulation.finish()


def test_the_working_directory_of_the_last_driver_keeps_branches_when_all_locations_are_lost(tmp_path: Path) -> None:
    simulation = Simulation(2, tmp_path)
    _steps(simulation, 0, 0, 1)
    simulation.drivers[0].open().make_branch("kept", 1)
    for number in range(2, 5):
        simulation.do(act.Close(0))
        for store in simulation.world.stores:
            store.lose()
        _steps(simulation, 0, number)
        assert [each.name for each in simulation.drivers[0].open().branches.listed()] == ["kept"]
    simulation.finish()
    assert simulation.branches == 1, "it was fed, and came to the rows of the main line"


def test_a_branch_that_was_removed_does_not_come_back_in_place_of_a_new_one_of_its_name(tmp_path: Path) -> None:
    """A location is away while the first one is removed, and knows it alone when it is back."""
    simulation = Simulation(2, tmp_path)
    _steps(simulation, 0, *range(3))
    simulation.drivers[0].open().make_branch("same", 1)
    old = {path for path in simulation.world.stores[2].snapshot() if path.startswith("branches/same/lineage/")}
    simulation.do(act.Close(0))
    simulation.do(act.Weather(2, 1.0, 0.0, 0.0))
    simulation.drivers[0].open().branches.remove("same")
    _steps(simulation, 0, 3)
    simulation.drivers[0].open().make_branch("same", 3)
    simulation.do(act.Close(0))
    simulation.do(act.Weather(2, 0.0, 0.0, 0.0))
    assert [each.root for each in simulation.drivers[0].open().branches.listed()] == [3]
    assert old and not old & simulation.world.stores[2].snapshot().keys()
    simulation.finish()
    assert simulation.branches == 1


def test_a_place_where_a_removal_failed_in_the_middle_is_emptied_for_a_new_branch_of_the_name(tmp_path: Path) -> None:
    simulation = Simulation(2, tmp_path)
    _steps(simulation, 0, *range(3))
    simulation.drivers[0].open().make_branch("same", 1)
    store, local = simulation.world.stores[2], simulation.world.local(0) / "branches" / "same"
    old = {path: data for path, data in store.snapshot().items() if path.startswith("branches/same/lineage/")}
    stash = (local / "lineage" / "log.jsonl").read_bytes()
    simulation.drivers[0].open().branches.remove("same")
    _steps(simulation, 0, 3)
    simulation.drivers[0].open().make_branch("same", 3)
    simulation.do(act.Close(0))
    for path in store.snapshot():
        if path.startswith("branches/same/"):
            store.remove(path)
    for path, data in old.items():
        store.write(path, data)
    (local / "branch.json").unlink()
    (local / "lineage" / "log.jsonl").write_bytes(stash)
    simulation.drivers[0].open()
    assert old and not old.keys() & store.snapshot().keys()
    assert (local / "branch.json").exists() and not (local / "lineage" / "log.jsonl").exists()
    simulation.finish()
    assert simulation.branches == 1


@pytest.mark.parametrize("back", [0.0, 86_400.0])
def test_a_new_branch_is_newer_than_a_removed_one_of_its_name_although_the_clock_went_back(
    tmp_path: Path, back: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulation = Simulation(2, tmp_path)
    _steps(simulation, 0, *range(3))
    simulation.drivers[0].open().make_branch("same", 1)
    simulation.do(act.Close(0))
    simulation.do(act.Weather(2, 1.0, 0.0, 0.0))
    simulation.drivers[0].open().branches.remove("same")
    now = time.time()
    with monkeypatch.context() as patched:
        patched.setattr(time, "time", lambda: now - back)
        simulation.drivers[0].open().make_branch("same", 2)
    simulation.do(act.Close(0))
    simulation.do(act.Weather(2, 0.0, 0.0, 0.0))
    assert [each.root for each in simulation.drivers[0].open().branches.listed()] == [2]
    simulation.finish()


def test_a_branch_whose_log_is_lost_is_not_opened_as_an_empty_flow(tmp_path: Path) -> None:
    simulation = Simulation(2, tmp_path)
    _steps(simulation, 0, *range(3))
    engine = simulation.drivers[0].open()
    engine.make_branch("emptied", 1)
    for store in simulation.world.stores:
        for path in store.snapshot():
            if path.startswith("branches/emptied/lineage/"):
                store.remove(path)
    (engine.declared.local / "branches" / "emptied" / "lineage" / "log.jsonl").unlink()
    with pytest.raises(LogDamaged, match="begins with the epochs up to 1 of the flow, and its log has none of them"):
        opened(simulation.world, engine, "emptied", 2)
    simulation.do(act.Close(0))
    assert simulation.drivers[0].open().branches.listed() == ()
    simulation.finish()


def test_a_driver_that_was_overtaken_removes_no_branch(tmp_path: Path) -> None:
    simulation = Simulation(2, tmp_path)
    _steps(simulation, 0, *range(3))
    before = simulation.drivers[0].open()
    before.make_branch("kept", 1)
    _steps(simulation, 1, 3)
    with pytest.raises(Fenced):
        before.branches.remove("kept")
    with pytest.raises(Fenced):
        before.make_branch("another", 1)
    simulation.do(act.Kill(0))
    assert [each.name for each in simulation.drivers[0].open().branches.listed()] == ["kept"]
    simulation.finish()


@pytest.mark.parametrize("on_loss", ["replay", "continue"])
def test_a_member_that_is_lost_while_a_branch_is_fed_is_replaced(tmp_path: Path, on_loss: str) -> None:
    """Seeds 95 and 102 of flows that go on without lost members: a branch does not go on without them."""
    simulation = Simulation(2, tmp_path, scattered=True, on_loss=on_loss)
    _steps(simulation, 0, 0, 1)
    engine = simulation.drivers[0].open()
    engine.make_branch("fed", 1)
    _steps(simulation, 0, 2, 3)
    branch = opened(simulation.world, engine, "fed", 3)
    simulation.do(act.LoseMemberAt(1, "task: epoch", 2))
    simulation._drive(0, lambda driver: feed(branch, engine, engine.last))
    assert simulation.losing is None and branch.last == engine.last and branch.approximate is None
    branch.close()
    simulation.finish()


def test_rows_that_members_keep_are_fed_to_a_branch_with_other_partitions(tmp_path: Path) -> None:
    """Seeds 83, 87, 90 and 97 with rewinds. What is taken again after a rewind is read from the log of its source; the
    branch has its partitions on other members than the main line."""
    simulation = Simulation(2, tmp_path, scattered=True)
    simulation.drivers[0].partitions = 4
    _steps(simulation, 0, 0, 1)
    engine = simulation.drivers[0].open()
    engine.make_branch("fed", 1)
    _steps(simulation, 0, 2, 3)
    engine.rewind(2, "simulated", {})
    _steps(simulation, 0, 4, 5)
    simulation.do(act.LoseMembers(1, 1, 1))
    branch = opened(simulation.world, engine, "fed", 3)
    assert any(record.again is not None for record in engine.history)
    assert [each.epoch for each in engine.history if engine.reads_members(each)] == [
        each.epoch for each in engine.history if each.again is not None
    ]
    assert feed(branch, engine, engine.last)
    branch.close()
    simulation.finish()
    assert simulation.branches == 1


def test_input_and_lineage_since_the_root_are_kept_until_the_branch_is_removed(tmp_path: Path) -> None:
    simulation = Simulation(2, tmp_path)
    for number in range(30):
        simulation.world.feed("orders", [((number, number % 12, 7), 1)])
        simulation.do(act.Step(0))
        if number == 9:
            simulation.drivers[0].open().branches.make("held", 8)
        simulation.do(act.Upkeep(0))
    engine = simulation.drivers[0].open()
    assert engine.history.first <= 8 and simulation.world.forgotten["orders"] <= 9
    engine.branches.remove("held")
    for number in range(30, 34):
        simulation.world.feed("orders", [((number, number % 12, 7), 1)])
        simulation.do(act.Step(0))
        simulation.do(act.Upkeep(0))
    assert engine.history.first > 20 and simulation.world.forgotten["orders"] > 20
    simulation.finish()
