"""Builds that are broken on purpose are caught by runs on files that fail."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from holdfast.connectors.changelog import Changelog
from holdfast.errors import HoldfastError
from holdfast.testing import Fault, Plan, faults, simulate_faults
from holdfast.testing.simulator.faulty_files import FaultyRun, FaultySimulation
from holdfast.testing.simulator.world import Broken


def reopened(root: Path) -> FaultySimulation:
    """A flow that is opened again while its changelogs cannot be listed."""
    simulation = FaultySimulation(FaultyRun(0, Plan(())), root)
    for _ in range(3):
        simulation.do("feed")
        simulation.do("step")
    simulation.check_files()
    simulation.do("kill")
    with faults(Plan((Fault("list", 1, "EACCES", 2),)), under=[root / "out"]), suppress(HoldfastError):
        simulation.do("step")
    return simulation


def test_a_changelog_that_removes_what_it_cannot_read_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reopened(tmp_path / "right").check_files()
    real: Callable[..., Any] = Changelog.open

    def hasty(self: Changelog, *args: Any) -> Any:
        try:
            return real(self, *args)
        except (HoldfastError, OSError):
            for epoch in range(20):
                (self.path / f"epoch-{epoch:012d}.parquet").unlink(missing_ok=True)
            return real(self, *args)

    monkeypatch.setattr(Changelog, "open", hasty)
    with pytest.raises(Broken, match="was whole, and is gone"):
        reopened(tmp_path / "wrong").check_files()


def test_a_sink_that_takes_a_failed_commit_for_done_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Plan(tuple(Fault("link", number, "ENOSPC") for number in range(3, 600, 3)))
    assert simulate_faults(0, plan=plan).broken is None

    def careless(real: Callable[..., Any]) -> Callable[..., None]:
        def commit(self: Changelog, *args: Any) -> None:
            try:
                real(self, *args)
            except (HoldfastError, OSError):
                return

        return commit

    for name in ("commit", "commit_parts"):
        monkeypatch.setattr(Changelog, name, careless(getattr(Changelog, name)))
    assert simulate_faults(0, plan=plan).broken is not None
