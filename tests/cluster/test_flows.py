"""Flows on a real cluster: executors, workers and the driver are killed, and the output is that of a run without."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from cluster import scenes
from holdfast.testing.cluster import MARK, Cluster, Driver
from holdfast.testing.processes import marked

EPOCHS = 12


def _wait_for_epoch(driver: Driver, root: Path, epoch: int) -> None:
    deadline = time.monotonic() + 120.0
    progress = root / "progress"
    while not progress.exists() or int(progress.read_text() or -1) < epoch:
        assert driver.running and time.monotonic() < deadline, driver.output
        time.sleep(0.02)


def test_output_is_exact_when_executors_workers_and_the_driver_are_killed() -> None:
    with Cluster(workers=3, cores=1, memory=512) as cluster:
        root = cluster.directory / "killed"
        driver = cluster.driver(scenes.shop_flow, "killed", EPOCHS, 3, 0.2)
        _wait_for_epoch(driver, root, 1)
        cluster.kill_executor(0)
        cluster.kill_executor(0)  # while the first is being made up for
        _wait_for_epoch(driver, root, 3)
        cluster.kill_worker(0)
        cluster.add_worker()
        _wait_for_epoch(driver, root, 5)
        cluster.kill_worker(1)
        cluster.kill_worker(2)
        cluster.add_worker()
        _wait_for_epoch(driver, root, 7)
        cluster.kill_driver(driver)
        seen = cluster.driver(scenes.shop_flow, "killed", EPOCHS, 1, 0.0).result(120.0)
        assert seen["epoch"] == EPOCHS - 1
        assert seen["right"] == {"cities": True, "top": True}
        assert seen["heard"][0].initial
    assert marked(MARK, cluster.mark) == []


def _random(seeds: list[int]) -> None:
    with Cluster(workers=2, cores=2, executors_per_worker=2, memory=512) as cluster:
        found = cluster.driver(scenes.random_kills, 4, seeds).result(60.0 * len(seeds))
        assert [seed for seed, right, _ in found if not right] == []
        assert sum(kills for _, _, kills in found) > len(seeds) // 2


def test_output_is_exact_under_random_kills() -> None:
    _random(list(range(10)))


@pytest.mark.slow
def test_output_is_exact_under_many_random_kills() -> None:
    _random(list(range(10, 110)))


def test_a_flow_that_terminates_says_who_was_lost_and_how_far_it_came() -> None:
    with Cluster(workers=2, cores=1, memory=512) as cluster:
        text, seconds, fields = cluster.driver(scenes.terminated, 2).result(120.0)
        assert "flow 'shop': executor" in text and "was lost" in text, text
        assert f"epochs up to {fields['epoch']} are done" in text
        assert seconds < 3.0


def test_losing_a_worker_recomputes_only_what_was_its_own_and_in_no_copy() -> None:
    with Cluster(workers=4, cores=1, memory=512) as cluster:
        seen = cluster.driver(scenes.lost_worker, 4).result(150.0)
    recovery = seen["recovery"]
    assert len(set(seen["owners"])) == 4 and len(seen["lost"]) == 2
    assert seen["right"] == {"cities": True, "top": True} and seen["read"]
    assert all(epoch > seen["safe"] for epoch in recovery.epochs)
    assert all(set(partitions) <= set(seen["lost"]) for partitions in recovery.partitions.values())
    assert recovery.layers_fetched > 0
    if recovery.epochs:
        assert len(recovery.members) >= 2
    assert seen["misplaced"] <= 0.05 * seen["tasks"]
