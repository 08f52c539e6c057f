"""Rewinds at random, among crashes, losses, edits and branches: every sink and every view is what its history says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.connectors.input import Input
from holdfast.operators.aggregate import Aggregate, Call
from holdfast.plan.nodes import Field, Source
from holdfast.runtime.declaration import ConnectorProgress
from holdfast.runtime.engine import Engine
from holdfast.runtime.prepared_flow import PreparedFlow
from holdfast.testing.simulator import actions as act
from holdfast.testing.simulator import run
from holdfast.testing.simulator.run import Simulation
from holdfast.testing.simulator.runner import SimulatedRunner
from holdfast.trace.name import ALL
from tests.guarantees.engines import VIEWS, Life

from .seeds import check


def test_flows_that_are_rewound_come_to_the_rows_of_their_input() -> None:
    check([0, 2, 64], rewinds=True)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 400, 20))
def test_flows_of_many_seeds_that_are_rewound_come_to_the_rows_of_their_input(first: int) -> None:
    check(range(first, first + 20), rewinds=True)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 60, 20))
@pytest.mark.parametrize("on_loss", ["replay", "continue"])
def test_rewinds_where_members_keep_layers_of_their_own(first: int, on_loss: str) -> None:
    check(range(first, first + 20), rewinds=True, scattered=True, on_loss=on_loss)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 60, 20))
def test_branches_are_fed_rewinds_too(first: int) -> None:
    check(range(first, first + 20), rewinds=True, branches=True)


def test_an_approximate_view_after_a_rewind_has_the_rows_of_the_clock_that_it_went_back_to() -> None:
    """Seed 31, shrunk: a member is lost while a rewind is delivered; ``live`` has rows that come and go with time."""
    losing = act.LoseMemberAt(1089772356, "sink.after_commit", 1)
    actions = [
        act.Feed(3729559074), act.Step(0), act.Step(0), act.Edit(0, 1), *[act.Step(0)] * 4, act.Feed(3409733951),
        act.Upkeep(0), act.Feed(3908820772), act.Step(0), losing, act.Rewind(0, 771985903),
    ]  # fmt: skip
    failure = run(31, actions, scattered=True, on_loss="continue")
    assert failure is None, str(failure)


def test_input_that_is_taken_again_is_not_released_before(tmp_path: Path) -> None:
    simulation = Simulation(2, tmp_path)
    for number in range(5):
        simulation.world.feed("orders", [((number, number % 12, 7), 1)])
        simulation.do(act.Step(0))
    engine = simulation.drivers[0].open()
    engine.rewind(1, "", {})
    for _ in range(3):
        simulation.do(act.Upkeep(0))
        engine._release()
    assert engine.safe == 5 and simulation.world.forgotten["orders"] <= 2
    while not engine.step().idle:
        simulation.do(act.Upkeep(0))
    simulation.do(act.Upkeep(0))
    engine._release()
    assert simulation.world.forgotten["orders"] == 5
    simulation.finish()


def _counted(life: Life) -> Counter[tuple[int, ...]]:
    """What the sink of the counts was given, added up."""
    total: Counter[tuple[int, ...]] = Counter()
    for *row, diff in life.given.rows:
        total[tuple(row)] += diff
    return +total


def _ordered(root: Path, epochs: int, upkeep: Callable[[Life, int], object]) -> Life:
    """A flow over rows that it cannot read again but from its log, one row in each epoch; it retains two epochs."""
    life = Life(root, hf.nosync(), view="ordered", locations=2, retain=2)
    for number in range(epochs):
        life.world.feed("orders", [((number, number % 2, 10), 1)])
        life.step(upkeep=False)
        upkeep(life, number)
    return life


def test_input_that_is_owed_is_taken_again_after_the_loss_of_the_host(tmp_path: Path) -> None:
    """One location has the epochs one by one, the other one only all together: that would do for the last epoch."""
    life = _ordered(tmp_path, 10, lambda life, number: life.open().upkeep() if number == 9 else None)
    life.open().rewind(3, "a test", {})
    life.open().make_safe()
    life.die()
    life.open(life.prepared(1))
    for _ in range(6):
        life.step()
    life.finish()
    assert _counted(life) == Counter({(0, 5): 1, (1, 5): 1})


def test_input_of_a_source_that_no_view_reads_any_more_is_taken_again_without_being_read(tmp_path: Path) -> None:
    """A view that is declared later is given it; before, each step failed."""
    life = Life(tmp_path, hf.nosync(), view="passed")
    life.run(3, upkeep=False)
    life.open().rewind(0, "a test", {})
    life.die()
    other = replace(life.prepared().declared, views={"ordered": VIEWS["ordered"]}, sinks=[])
    without = Engine(PreparedFlow(other, SimulatedRunner(life.world, 2)), ConnectorProgress())
    assert [without.step().epoch for _ in range(3)] == [4, 5, None]
    without.abandon()
    life.finish()
    assert _counted(life) == Counter({(1, 1): 1, (2, 0): 1, (3, 1): 1})


def test_the_columns_of_an_input_change_only_when_none_of_its_rows_is_to_be_taken_again(tmp_path: Path) -> None:
    """The log with the new columns is made of the rows that are there: it does not tell what the undone epochs took."""
    life = Life(tmp_path, hf.nosync())
    declared = life.prepared().declared

    def opened(*fields: Field) -> tuple[Input, Engine]:
        rows = Input("rows", fields)
        view = Aggregate(Source("rows", fields), ("a",), (Call("n", "count", (), "bigint"),))
        own = replace(declared, sources={"rows": rows}, views={"v": view}, sinks=[])
        return rows, Engine(PreparedFlow(own, SimulatedRunner(life.world, 2)), ConnectorProgress())

    before = (Field("a", "bigint"),)
    rows, engine = opened(*before)
    for number in range(3):
        rows.insert([(number % 2,)])
        engine.step()
    engine.rewind(0, "a test", {})
    engine.close()
    with pytest.raises(hf.SchemaChanged, match=r"before \(a bigint\).*to be taken again.*status\(\)\.owed is 0"):
        opened(*before, Field("b", "bigint"))
    _, engine = opened(*before)
    while not engine.step().idle:
        pass
    engine.close()
    rows, engine = opened(*before, Field("b", "bigint"))
    rows.insert([(1, 1)])
    engine.step()
    kept, at = engine.views.readable("v", None)
    assert sorted(zip(*kept.rows(0, ALL, at).to_pydict().values(), strict=True)) == [(0, 2), (1, 2)]
    engine.close()


def test_a_rewind_that_only_the_layers_of_the_host_can_make_is_refused(tmp_path: Path) -> None:
    life = _ordered(tmp_path, 40, lambda life, number: life.open()._durability.upkeep())
    with pytest.raises(hf.EpochUnavailable, match="epoch 1 any more: what source 'orders' gave") as error:
        life.open().rewind(1, "a test", {})
    earliest = error.value.fields["earliest"]
    assert isinstance(earliest, int) and earliest <= 37
    life.open().rewind(earliest, "a test", {})
    life.open().make_safe()
    life.die()
    life.open(life.prepared(1))
    life.finish()
    assert _counted(life) == Counter({(0, 20): 1, (1, 20): 1})
