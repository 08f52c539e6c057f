"""Branches that are made at random epochs, fed and removed, in flows that crash at every step of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.testing.simulator import actions as act
from holdfast.testing.simulator.run import Simulation

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
