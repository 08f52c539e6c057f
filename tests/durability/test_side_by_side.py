"""Locations are written side by side: the safe point follows whichever have an epoch, and waits for no other."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from holdfast.coordinator.claim import Claim
from holdfast.errors import StoreError
from holdfast.guarantees.strategy import PAUSE
from holdfast.log.replica import Replica
from holdfast.testing import Unreliable
from holdfast.testing.memory import MemoryLocation

from .simulated import Shop

SLOW = 1.5
"""Seconds per operation."""


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def test_the_safe_point_does_not_wait_for_the_slowest_location(shop: Shop) -> None:
    slow = Unreliable(MemoryLocation("slow"))
    engine = shop.open([slow, MemoryLocation("fast")], threads=True, sinks=False)
    slow.delay = SLOW
    try:
        for epoch in range(3):
            started = time.monotonic()
            shop.run(engine, 1, upkeep=False)
            assert engine.wait_safe(epoch, 30) == epoch
            assert time.monotonic() - started < SLOW, "less than one operation of the slow one"
        shop.run(engine, 1, upkeep=False)
        assert shop.world.forgotten["orders"] > 0, "input is released, too"
    finally:
        slow.delay = 0.0
        engine.close()


def test_a_location_that_fails_makes_nobody_wait_for_the_others(shop: Shop) -> None:
    away = Unreliable(MemoryLocation("away"))
    engine = shop.open([away, MemoryLocation("here")], threads=True, sinks=False)
    away.fail_before = 1.0
    started = time.monotonic()
    for epoch in range(4):
        shop.run(engine, 1, upkeep=False)
        assert engine.wait_safe(epoch, 30) == epoch
    assert time.monotonic() - started < 4 * PAUSE, "rounds at the good one are made at once, not after a pause each"
    away.fail_before = 0.0
    engine.close()


def test_the_safe_point_waits_for_as_many_as_are_required(shop: Shop) -> None:
    away = Unreliable(MemoryLocation("away"))
    engine = shop.open([MemoryLocation("one"), away, MemoryLocation("two")], min_replicas=3, sinks=False)
    away.fail_before = 1.0
    shop.run(engine, 1)
    assert engine.safe == -1
    away.fail_before = 0.0
    engine.upkeep()
    assert engine.safe == 0
    engine.close()


def test_input_is_released_only_when_the_locations_that_count_were_asked_for_their_claims(shop: Shop) -> None:
    here, away = MemoryLocation("here"), Unreliable(MemoryLocation("away"), only="list")
    engine = shop.open([here, away], min_replicas=2, sinks=False)
    shop.run(engine, 1)
    assert engine._durability.cleared == engine.safe == 0
    Replica(away.location).claim(Claim(99, "f" * 16), {})
    shop.run(engine, 1)
    assert engine.safe == 1, "both have it"
    assert engine._durability.cleared == 0, "and one says that another driver has taken over"


def test_a_flow_that_waits_says_which_location_it_waits_for(shop: Shop) -> None:
    away = Unreliable(MemoryLocation("away"))
    engine = shop.open([MemoryLocation("here"), away], min_replicas=2, threads=True, sinks=False)
    away.fail_before = 1.0
    shop.run(engine, 1, upkeep=False)
    with pytest.raises(StoreError, match=r"epoch 0 is not safe after .*memory:away"):
        engine.wait_safe(0, 0.5)
    away.fail_before = 0.0
    engine.close()
