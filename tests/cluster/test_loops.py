"""Rounds of loops as Spark jobs on a real cluster, whose executors are killed in the middle of them."""

from __future__ import annotations

import pytest

from cluster import loop_scenes
from holdfast.testing.cluster import Cluster


@pytest.mark.slow
def test_executors_that_are_killed_in_rounds_cost_nothing_but_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_ROUNDS", "jobs")
    with Cluster(workers=2, cores=1, memory=512) as cluster:
        driver = cluster.driver(loop_scenes.killed_in_rounds, 2, 10)
        try:
            seen = driver.result(540.0)
        finally:
            print(driver.output)
    print(seen)
    assert seen["killed"] >= 10 and seen["right"] == 2 * seen["epochs"]
    assert seen["paths"]["rounds"] >= 5, "most epochs went on with jobs, in spite of the losses"
    assert seen["left"] == []
