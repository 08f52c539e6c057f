"""Network partitions on a real cluster whose nodes are network namespaces: links are cut and healed, one way and both,
and the output is that of a run without. Nothing hangs for longer than it takes to notice. (A short scene of every run
is in ``standby/test_partitions.py``: a leader that is cut off from its lease.)"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from cluster import partition_scenes as scenes
from holdfast.testing.cluster import MARK, Cluster, Driver
from holdfast.testing.network import why_not
from holdfast.testing.processes import marked
from holdfast.testing.zookeeper import zookeeper

RIGHT = {"cities": True, "top": True}
RECOVERY = 30.0
"""Seconds that a recovery may take once a loss was noticed, on a machine that is busy with other tests."""

pytestmark = pytest.mark.skipif(why_not() is not None, reason=f"no network namespaces: {why_not()}")


def _check(seen: scenes.Seen) -> None:
    assert seen.right == RIGHT, seen
    assert max(seen.seconds) < scenes.DETECTION + RECOVERY, seen


def _run(cuts: list[list[scenes.Cut]]) -> list[scenes.Seen]:
    with Cluster(workers=3, cores=1, memory=512, namespaces=True) as cluster:
        driver = cluster.driver(scenes.partitioned, 3, cuts, name="driver")
        found: list[scenes.Seen] = driver.result(120.0 + 120.0 * len(cuts))
        print(driver.output)
    assert marked(MARK, cluster.mark) == []
    for seen in found:
        _check(seen)
    return found


@pytest.mark.slow
def test_a_worker_that_is_cut_off_is_lost_and_comes_back() -> None:
    (seen,) = _run([[("driver", "worker-1", True), ("worker-0", "worker-1", True), ("worker-2", "worker-1", True)]])
    assert seen.lost == 1


@pytest.mark.slow
def test_links_between_driver_and_workers_are_cut_one_way_and_both() -> None:
    _run([[("driver", "worker-0", False)], [("worker-1", "driver", False)], [("driver", "worker-2", True)]])


@pytest.mark.slow
def test_links_between_workers_are_cut_one_way_and_both() -> None:
    _run([[("worker-0", "worker-1", False)], [("worker-1", "worker-2", True)]])


@pytest.mark.slow
def test_links_of_the_master_are_cut() -> None:
    _run([[("driver", "master", True)], [("master", "worker-0", True)]])


def _wait_for(path: Path, driver: Driver, seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not path.exists():
        assert driver.running and time.monotonic() < deadline, driver.output
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.parametrize("both", [True, False])
def test_a_leader_that_is_cut_off_from_its_lease_stops_and_another_takes_over(both: bool) -> None:
    with (
        Cluster(workers=2, cores=2, executors_per_worker=2, memory=512, namespaces=True) as cluster,
        zookeeper(tick=0.5, node=cluster.node("zookeeper")) as server,
    ):
        lease, root = f"zk://{server.address}/flows/shop", cluster.directory / "led"
        first = cluster.driver(scenes.led, "first", 40, lease, 0.3, name="first")
        _wait_for(root / "first" / "progress", first)
        second = cluster.driver(scenes.led, "second", 40, lease, 0.0, name="second")
        _wait_for(root / "second" / "standby", second)
        cluster.cut("first", "zookeeper", both=both)
        at = time.time()
        _wait_for(root / "second" / "leading", second)
        cluster.heal()
        old, new = first.result(90.0), second.result(180.0)
        print(old, new)
        assert "another driver has taken over" in old["error"] or "lease" in old["error"], "whichever it saw first"
        assert old["times"]["last epoch"] < new["times"]["leading"], "never two at once"
        assert new["times"]["acquired"] - at < 3.0 + 20.0
        assert new["right"] == RIGHT
    assert marked(MARK, cluster.mark) == []


def test_namespaces_and_their_processes_are_gone_after_a_test_that_failed() -> None:
    with pytest.raises(RuntimeError, match="on purpose"), Cluster(workers=0, namespaces=True) as cluster:
        node = cluster.node("lonely")
        assert node.asked(cluster_port(cluster)) is None  # the master is on a node of its own
        assert cluster.network.node("master").asked(cluster_port(cluster)) is not None
        raise RuntimeError("on purpose")
    assert marked(MARK, cluster.mark) == [] and not Path(f"/proc/{node.pid}").exists()


def cluster_port(cluster: Cluster) -> int:
    return int(cluster.master.rpartition(":")[2])
