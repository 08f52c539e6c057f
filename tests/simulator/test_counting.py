"""What a background round sees while an epoch is being counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.testing.simulator.run import Simulation


@pytest.fixture
def simulation(tmp_path: Path) -> Iterator[Simulation]:
    simulation = Simulation(0, tmp_path)
    yield simulation
    simulation.finish()


def _around(owner: Any, name: str, work: Callable[[], None], patch: pytest.MonkeyPatch) -> None:
    """Do ``work`` before each call of a method and after it."""
    inner = getattr(owner, name)

    def call(*arguments: Any, **named: Any) -> Any:
        work()
        result = inner(*arguments, **named)
        work()
        return result

    patch.setattr(owner, name, call)


def test_a_round_that_begins_while_an_epoch_is_counted_finds_it_in_the_chain_or_nowhere(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = simulation.drivers[0].open()
    durability = engine._durability
    seen: list[tuple[int, int]] = []

    def round_now() -> None:
        durability.upkeep()
        assert durability.failure is None and durability.damaged == []
        seen.append((engine.history.last, engine._state.epochs.chain().end))

    with monkeypatch.context() as patch:
        _around(engine._state.epochs, "complete", round_now, patch)
        _around(engine.history, "append", round_now, patch)
        for epoch in range(3):
            simulation.world.feed("orders", [((10 * epoch + n, n, 5 * n + 1), 1) for n in range(4)])
            assert engine.step().epoch == epoch
    assert len(seen) == 12
    assert [pair for pair in seen if pair[0] > pair[1]] == [], "the history is never longer than the chain"
    durability.upkeep()
    assert durability.safe == engine.last == 2
    assert engine.recovery.epochs == [], "nothing was taken for lost"
