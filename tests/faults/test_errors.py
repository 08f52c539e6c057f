"""What a flow says when its files fail."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from holdfast.errors import LogError
from holdfast.testing import Fault, Plan, faults
from holdfast.testing.faulty.plan import FOREVER
from holdfast.testing.simulator.faulty import FaultyRun, FaultySimulation


@pytest.mark.parametrize(
    ("kind", "error"), [("stat", "ESTALE"), ("list", "EMFILE"), ("open", "EIO"), ("create", "EMFILE")]
)
def test_an_error_of_the_file_system_about_the_log_is_an_error_of_holdfast(
    tmp_path: Path, kind: str, error: str
) -> None:
    simulation = FaultySimulation(FaultyRun(0, Plan(())), tmp_path)
    simulation.do("feed")
    simulation.do("step")
    simulation.do("feed")
    with faults(Plan((Fault(kind, 1, error, FOREVER),)), under=[tmp_path / "a"]), pytest.raises(LogError) as raised:
        simulation.do("step")
    assert raised.value.fields["errno"] == getattr(errno, error)
    assert str(tmp_path / "a") in str(raised.value.fields["path"])
    simulation.finish()
