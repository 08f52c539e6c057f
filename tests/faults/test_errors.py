"""What a flow says when its files fail."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from holdfast.errors import HoldfastError
from holdfast.testing import Fault, Plan, faults, simulate_faults
from holdfast.testing.faulty.plan import FOREVER, SHORT
from holdfast.testing.simulator.faulty_files import FaultyRun, FaultySimulation


@pytest.mark.parametrize(("kind", "error"), [("stat", "ESTALE"), ("list", "EMFILE")])
def test_no_bare_error_about_the_log_leaves_a_flow_that_is_opened(tmp_path: Path, kind: str, error: str) -> None:
    simulation = FaultySimulation(FaultyRun(0, Plan(())), tmp_path)
    for _ in range(2):
        simulation.do("feed")
        simulation.do("step")
    number, met = 0, True
    while met and number < 12:
        number += 1
        simulation.do("kill")
        with faults(Plan((Fault(kind, number, error),)), under=[tmp_path / "a" / "traces"]) as layer:
            # An OSError would pass.
            with suppress(HoldfastError):
                simulation.do("step")
            met = bool(layer.injected)
    assert number > 1, "no call failed"
    simulation.finish()


def test_a_location_that_has_everything_gets_the_next_roster_too() -> None:
    """Two copies came late, and the first one, which had everything, had no round any more: nothing became safe."""
    plan = Plan(
        (Fault("link", 4, "EIO"), Fault("list", 10, "EACCES", 2), Fault("read", 9, SHORT, FOREVER),
         Fault("truncate", 2, "ENOSPC"), Fault("mkdir", 23, "EACCES", 30))
    )  # fmt: skip
    assert simulate_faults(363, plan=plan).broken is None
