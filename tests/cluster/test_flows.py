"""Flows on a real cluster whose workers have directories of their own: executors, workers and the driver are killed,
and the output is that of a run without."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from amounts import times
from cluster import scenes
from holdfast.testing.cluster import MARK, Cluster, Driver
from holdfast.testing.processes import marked

EPOCHS = 7
RIGHT = {"cities": True, "top": True}


def _wait_for_epoch(driver: Driver, root: Path, epoch: int) -> None:
    deadline = time.monotonic() + 120.0
    progress = root / "progress"
    while not progress.exists() or int(progress.read_text() or -1) < epoch:
        assert driver.running and time.monotonic() < deadline, driver.output
        time.sleep(0.02)


def test_output_is_exact_when_executors_workers_and_the_driver_are_killed() -> None:
    with Cluster(workers=3, cores=1, memory=512) as cluster:
        root = cluster.directory / "killed"
        driver = cluster.driver(scenes.shop_flow, "killed", EPOCHS, 3, 0.2, True)
        _wait_for_epoch(driver, root, 0)
        cluster.kill_executor(0)
        _wait_for_epoch(driver, root, 1)
        cluster.kill_worker(0)  # with its layers; while that is made up for, an executor is killed
        cluster.add_worker()
        _wait_for_epoch(driver, root, 3)
        cluster.kill_worker(1)
        cluster.kill_worker(2)
        cluster.add_worker()
        _wait_for_epoch(driver, root, 4)
        cluster.kill_driver(driver)
        seen = cluster.driver(scenes.shop_flow, "killed", EPOCHS, 1, 0.0).result(150.0)
        assert seen["epoch"] == EPOCHS - 1
        assert seen["right"] == {**RIGHT, "drawn": True}, "and of each row the sink saw one draw and one answer"
        assert seen["heard"][0].initial
    assert marked(MARK, cluster.mark) == []


@pytest.mark.slow
def test_a_worker_that_is_drained_costs_no_epoch() -> None:
    with Cluster(workers=3, cores=1, memory=512) as cluster:
        seen = cluster.driver(scenes.drained, 3).result(300.0)
    assert seen["member"] in seen["kept"] and seen["member"] not in seen["after"]
    assert sorted(each for some in seen["after"].values() for each in some) == list(range(8))
    for each in (seen["done"], seen["recovery"]):
        assert each.epochs == () and each.filled is None, "nothing is computed again"
    assert seen["done"].layers_fetched + seen["done"].layers_handed + seen["done"].layers_reused > 0
    assert seen["cancelled"] == [], "nobody needed it when it was stopped, so no epoch was ended for it"
    assert seen["right"] == RIGHT


@pytest.mark.slow
def test_a_worker_that_spark_decommissions_hands_over_first_and_costs_no_epoch() -> None:
    with Cluster(workers=3, cores=1, memory=512) as cluster:
        driver = cluster.driver(scenes.decommissioned, 3)
        try:
            seen = driver.result(300.0)
        finally:
            print(driver.output)
    print(
        f"handed over after {seen['handed']:.1f} s, executor gone after {seen['gone']:.1f} s; epochs: median "
        f"{statistics.median(seen['seconds']):.2f} s, longest {max(seen['seconds'][1:]):.2f} s"
    )
    assert seen["member"] in seen["kept"] and seen["member"] not in seen["after"]
    assert 0 < seen["handed"] < seen["gone"], "it kept nothing any more when its executor ended"
    assert seen["recomputed"] == [] and seen["filled"] is None, "nothing is computed again"
    assert seen["right"] == RIGHT and seen["counts"]


@pytest.mark.slow
def test_the_number_of_partitions_follows_the_workers(tmp_path: Path) -> None:
    with Cluster(workers=2, cores=1, memory=512) as cluster:
        driver = cluster.driver(scenes.following, 2, str(tmp_path / "more"))
        deadline = time.monotonic() + 120.0
        while not (tmp_path / "more").exists():
            assert driver.running and time.monotonic() < deadline, driver.output
            time.sleep(0.1)
        cluster.add_worker()
        seen = driver.result(300.0)
    assert seen["partitions"] == [2, 3] and seen["recomputed"] == [], "nothing is computed again"
    assert seen["right"] == RIGHT


@pytest.mark.slow
def test_a_driver_takes_over_on_a_cluster_and_one_that_wakes_up_stops() -> None:
    """Two drivers under a lease, with layers on workers that neither can see."""
    with Cluster(workers=2, cores=2, executors_per_worker=2, memory=512) as cluster:
        root = cluster.directory / "led"
        first = cluster.driver(scenes.led, "first", EPOCHS, 2, 0.3)
        _wait_for_epoch(first, root / "first", 0)
        second = cluster.driver(scenes.led, "second", EPOCHS, 2, 0.3)
        _wait_for_epoch(first, root / "first", 3)
        cluster.pause_driver(first)
        _wait_for_epoch(second, root / "second", 5)
        cluster.resume_driver(first)
        with pytest.raises((hf.Fenced, hf.LeaseLost)):
            first.result(60.0)
        seen = second.result(60.0)
        found = seen["recovery"].epoch
        assert found >= 3, "what the first put out counts"
        assert (seen["done"], seen["right"]) == (EPOCHS - 1 - found, RIGHT)
    assert marked(MARK, cluster.mark) == []


@pytest.mark.slow
def test_files_of_another_filesystem_are_fetched_to_a_directory_that_executors_see() -> None:
    with Cluster(workers=2, cores=1, memory=512) as cluster:
        seen = cluster.driver(scenes.fetched_files).result(150.0)
    assert "give fetch_to='…', a directory that all of them see" in seen["refused"]
    assert seen["rows"] == [1, 2] and seen["left"] == []


def _random(seeds: list[int]) -> None:
    with Cluster(workers=3, cores=1, memory=512) as cluster:
        driver = cluster.driver(scenes.random_kills, 3, seeds)
        wanted, added = cluster.directory / "wanted", 0
        deadline = time.monotonic() + 60.0 * len(seeds)
        while driver.running and time.monotonic() < deadline:
            while wanted.exists() and added < int(wanted.read_text() or 0):
                cluster.add_worker()
                added += 1
            time.sleep(0.05)
        found = driver.result(1.0)
        print(driver.output)
        assert [seed for seed, right, _ in found if not right] == []
        assert sum(kills for _, _, kills in found) > len(seeds) // 2
        assert added
    assert marked(MARK, cluster.mark) == []


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, times(20), 20))
def test_output_is_exact_under_random_kills(first: int) -> None:
    _random(list(range(first, first + 20)))


@pytest.mark.slow
def test_members_come_and_go() -> None:
    """One cluster: a worker that stands still; then one that is lost, one that comes, and a flow that stops at a
    loss."""
    with Cluster(workers=4, cores=1, memory=512) as cluster:
        _check_straggling(cluster.driver(scenes.straggling, 4).result(180.0))
        driver = cluster.driver(scenes.come_and_go, 4)
        deadline = time.monotonic() + 180.0
        while not (cluster.directory / "join").exists():
            assert driver.running and time.monotonic() < deadline, driver.output
            time.sleep(0.05)
        cluster.add_worker()
        seen = driver.result(180.0)
        print(seen)  # for whoever reads the output of a test that failed
        _check_lost(seen)
        _check_joined(seen)
        _check_terminated(seen["terminated"])
    assert marked(MARK, cluster.mark) == []


@pytest.mark.slow
def test_a_flow_goes_on_with_what_is_left_until_it_is_repaired() -> None:
    with Cluster(workers=3, cores=1, memory=512) as cluster:
        seen = cluster.driver(scenes.continued, 3).result(240.0)
        print(seen)  # for whoever reads the output of a test that failed
        _check_continued(seen)
    assert marked(MARK, cluster.mark) == []


def _check_continued(seen: dict[str, Any]) -> None:
    member, partitions = seen["lost"]
    assert seen["repair of nothing"] is None and [epoch.approximate for epoch in seen["exact"]] == [None] * 3
    said = seen["said"]
    assert [(epoch.epoch, epoch.approximate.since) for epoch in seen["epochs"]] == [(3, 3), (4, 3)]
    assert (said.members, list(said.lost)) == ((member,), partitions)
    assert (said.coverage.partitions, said.coverage.partitions_total) == (8 - len(partitions), 8)
    assert 0 < said.coverage.rows < said.coverage.rows_total
    assert said.views == ("cities", "top", "counts") and said.sources == ("orders", "pushed", "users")
    assert seen["status"].approximate == said and seen["status"].epoch == 4
    (branch,) = seen["branches"]
    assert (branch.root, branch.approximate) == (2, True) and branch.bytes > 0 and seen["no branches"] == ()
    assert seen["left over"] == []
    assert all(view.approximate for view in seen["status"].views.values())
    assert seen["history"] == 3 and seen["sinks"] == dict.fromkeys(RIGHT, 2), "nothing after the loss"
    found, left, exact = seen["counts"]
    assert found == left and left < exact and seen["changes"] > 0
    assert seen["after"] is None and seen["repair"].repaired == (3, 4)
    assert all(list(some) == partitions for some in seen["repair"].partitions.values())
    assert seen["right"] == RIGHT and seen["all counts"][0] == seen["all counts"][1]
    assert seen["all sinks"] == dict.fromkeys(RIGHT, 4)
    assert [(epoch.epoch, epoch.approximate) for epoch in seen["went on"]] == [(5, None)]


def _check_lost(seen: dict[str, Any]) -> None:
    """Only what was the lost worker's own and in no copy is computed again, by several survivors."""
    before, recovery = seen["before"].placement, seen["recovery"]
    lost = before.members[seen["member"]]
    assert len(before.members) == 4 and len(lost) == 2
    assert seen["before"].durability.safe == 1
    assert recovery.epochs == (2, 3)
    assert recovery.filled is None
    assert recovery.partitions and all(list(some) == lost for some in recovery.partitions.values())
    assert len(recovery.members) >= 2 and seen["member"] not in recovery.members
    assert recovery.layers_fetched >= len(recovery.partitions) * len(lost)
    kept = seen["after"].placement.members
    assert sorted(len(some) for some in kept.values()) == [2, 3, 3]
    assert before.tasks >= 2 * 8 and before.local >= 0.95 * before.tasks
    assert seen["right"] == RIGHT


def _check_joined(seen: dict[str, Any]) -> None:
    kept = seen["joined"].placement.members
    assert sorted(len(some) for some in kept.values()) == [2, 2, 2, 2]
    assert seen["joining"].epochs == () and seen["joining"].filled is None, "nothing is computed again"
    assert seen["right again"] == RIGHT and seen["counts"]
    tasks = seen["joined"].placement
    assert tasks.local >= 0.95 * tasks.tasks


def _check_straggling(seen: dict[str, Any]) -> None:
    assert seen["slow"] in seen["before"].members
    assert seen["slow"] not in seen["while"].members, "its partitions are kept by others"
    assert sum(map(len, seen["while"].members.values())) == 4
    assert seen["while"].tasks - seen["while"].local > seen["before"].tasks - seen["before"].local
    assert seen["right"] == RIGHT


def _check_terminated(seen: dict[str, Any]) -> None:
    assert "flow 'shop': executor" in seen["text"] and "was lost" in seen["text"], seen["text"]
    assert f"epochs up to {seen['fields']['epoch']} are done" in seen["text"]
    assert seen["seconds"] < 2.0
    assert seen["went_on"] == seen["fields"]["epoch"] + 1
