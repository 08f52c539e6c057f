"""What the tests of seeds share: run them, and say of a failing one how to see it again."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from holdfast.guarantees.strategy import Strategy
from holdfast.testing import shrink, simulate
from holdfast.testing.simulator.run import LENGTH


def check(
    seeds: Iterable[int],
    *,
    scattered: bool = False,
    on_loss: str = "replay",
    strategy: Strategy | None = None,
    branches: bool = False,
    length: int = LENGTH,
    rewinds: bool = False,
    drains: bool = False,
) -> None:
    """No row is lost, duplicated or wrong in the runs of these seeds, each of ``length`` actions and more."""
    for seed in seeds:
        failure = simulate(
            seed,
            length,
            scattered=scattered,
            on_loss=on_loss,
            strategy=strategy,
            branches=branches,
            rewinds=rewinds,
            drains=drains,
        )
        if failure is not None:
            shortest = shrink(seed, failure, scattered=scattered, on_loss=on_loss, strategy=strategy)
            more = ", scattered=True" if scattered else ""
            more += f", on_loss={on_loss!r}" if on_loss != "replay" else ""
            more += f", strategy={strategy}" if strategy is not None else ""
            more += ", branches=True" if branches else ""
            more += ", rewinds=True" if rewinds else ""
            more += ", drains=True" if drains else ""
            again = f"holdfast.testing.simulate({seed}, {length}{more})"
            pytest.fail(f"seed {seed}: {shortest}\n({again} shows it again)")
