"""The engine on files that fail, seed by seed: `holdfast.testing.simulate_faults`."""

from __future__ import annotations

import pytest

from holdfast.testing import simulate_faults


def check(seeds: range) -> None:
    failed = 0
    for seed in seeds:
        run = simulate_faults(seed)
        assert run.broken is None, f"{run}\n(holdfast.testing.simulate_faults({seed}) shows it again)"
        failed += run.injected
    assert failed, "no call failed: nothing was tested"


@pytest.mark.parametrize("start", range(0, 15, 15))
def test_a_flow_whose_files_failed_is_exact(start: int) -> None:
    check(range(start, start + 15))


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, 2_000, 100))
def test_a_flow_whose_files_failed_is_exact_in_many_runs(start: int) -> None:
    check(range(start, start + 100))
