"""Flows that go on with what is left when members are lost with their layers, and are repaired later.

First a search: random losses, epochs, repairs and crashes of the driver, with the simulator's usual disasters (which
checks after every step that views which can be approximate are so in the way that they must be, and at the end that
views and sinks are exact) and without. Then what was decided, case by case.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.connectors.source import Offer, Part
from holdfast.continuing import ContinuingEngine
from holdfast.errors import EpochUnavailable, InputError, SinkError
from holdfast.maintenance import Maintenance
from holdfast.testing.simulator import actions as act
from holdfast.testing.simulator import run
from holdfast.testing.simulator.actions import CONTINUING, Action
from holdfast.testing.simulator.approximate import check_approximate
from holdfast.testing.simulator.model import expected
from holdfast.testing.simulator.run import Simulation
from holdfast.testing.simulator.world import SimulatedSource, bag_of
from holdfast.trace.name import ALL
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


@pytest.mark.parametrize("start", range(0, 60, 10))
def test_nothing_is_lost_duplicated_or_wrong_after_the_repair(start: int) -> None:
    for seed in range(start, start + 10):
        failure = run(seed, _schedule(seed), scattered=True, on_loss="continue")
        assert failure is None, f"seed {seed}: {failure}"


@pytest.mark.slow
@pytest.mark.parametrize("start", range(60, 2060, 100))
def test_nothing_is_lost_duplicated_or_wrong_after_many_repairs(start: int) -> None:
    for seed in range(start, start + 100):
        failure = run(seed, _schedule(seed), scattered=True, on_loss="continue")
        assert failure is None, f"seed {seed}: {failure}"


@pytest.mark.parametrize("start", range(0, 20, 10))
def test_nothing_is_lost_duplicated_or_wrong_when_anything_else_goes_wrong(start: int) -> None:
    check(range(start, start + 10), scattered=True, on_loss="continue")
