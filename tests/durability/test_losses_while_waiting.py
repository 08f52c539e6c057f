"""A member that is lost, with layers of which there is no copy, while the flow waits for copies of just these layers:
they are computed again meanwhile. Else it would wait for ever."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

import holdfast as hf
from durability.simulated import Shop
from holdfast.coordinator.retention import Bound
from holdfast.foundation import failpoints
from holdfast.runtime.engine import Engine
from holdfast.testing.memory import MemoryLocation


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    shop = Shop(tmp_path)
    shop.world.scatter(3)
    return shop


@pytest.fixture(autouse=True)
def _ends() -> Iterator[None]:
    """No test here waits for ever, should the flow: the process is ended after a minute."""
    import faulthandler

    faulthandler.dump_traceback_later(60, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()
    failpoints.hook = None


def _lose(shop: Shop, engine: Engine) -> None:
    """All that keep anything; one that has nothing is left."""
    for member in set(engine._runner.owners()):
        shop.world.lose_member(member)
    assert shop.world.members


def _at(mark: str, disaster: Callable[[], None]) -> Callable[[str], None]:
    """A hook: a disaster when the driver comes to a mark, once."""

    def reached(name: str) -> None:
        if name == mark:
            failpoints.hook = None
            disaster()

    return reached


def test_a_step_that_waits_until_its_epoch_is_safe_computes_again_what_is_lost_meanwhile(shop: Shop) -> None:
    engine = shop.open([MemoryLocation()], strategy=hf.synchronous_log())
    shop.run(engine, 3, upkeep=False)
    failpoints.hook = _at("epoch.complete", lambda: _lose(shop, engine))
    shop.run(engine, 1, upkeep=False)
    assert engine.safe == engine.last == 3 and engine.recovery.epochs == [3]
    shop.check(engine)
    shop.run(engine, 2, upkeep=False)
    shop.check(engine)
    engine.close()


def test_a_step_that_waits_for_room_computes_again_what_is_lost_meanwhile(shop: Shop) -> None:
    engine = shop.open([MemoryLocation()], bound=Bound(epochs=2))
    shop.run(engine, 3, upkeep=False)

    @contextmanager
    def meanwhile() -> Iterator[None]:
        engine.meanwhile = nullcontext
        _lose(shop, engine)
        yield

    engine.meanwhile = meanwhile
    shop.run(engine, 1, upkeep=False)
    assert engine.last == 3 and engine.recovery.epochs == [0, 1, 2]
    shop.check(engine)
    engine.close()


def test_whoever_waits_for_safety_beside_epochs_is_told_that_something_was_lost(shop: Shop) -> None:
    engine = shop.open([MemoryLocation()])
    shop.run(engine, 3, upkeep=False)
    _lose(shop, engine)
    assert engine.wait_safe(None, 10.0, lambda: True) < engine.last and engine.is_hindered
    engine.unhinder()
    assert not engine.is_hindered and engine.recovery.epochs == [0, 1, 2]
    assert engine.wait_safe(None, 10.0, lambda: True) == engine.last
    shop.check(engine)
    engine.close()


def test_a_flow_that_goes_on_without_what_it_lost_does_not_wait_for_it(shop: Shop) -> None:
    engine = shop.open([MemoryLocation()], strategy=hf.synchronous_log(), on_loss="continue")
    shop.run(engine, 3, upkeep=False)
    failpoints.hook = _at("epoch.complete", lambda: shop.world.lose_member(engine._runner.owners()[0]))
    shop.run(engine, 1, upkeep=False)
    assert engine.approximate is not None and engine.safe == 2
    shop.run(engine, 1, upkeep=False)
    engine.repair()
    assert engine.approximate is None and engine.safe == engine.last == 4
    shop.check(engine)
    engine.close()
