"""A cluster leaves nothing behind, whatever becomes of the process that made it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from holdfast.testing.cluster import MARK, Cluster
from holdfast.testing.processes import marked, wait_gone

_MAKES_ONE = """
import time
from holdfast.testing.cluster import Cluster

def sleeps(handle):
    spark = handle.session()
    spark.sparkContext.parallelize([0], 1).foreach(lambda _: time.sleep(600))

cluster = Cluster(workers=1, cores=1)
cluster.driver(sleeps)
cluster.wait_for_executors(1)
# Silent ones notice nothing, and cannot end by themselves.
cluster.pause(0)
print(cluster.mark, cluster.directory, flush=True)
time.sleep(600)
"""


def test_processes_die_with_the_one_that_made_the_cluster() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    maker = subprocess.Popen([sys.executable, "-c", _MAKES_ONE], stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert maker.stdout is not None
        mark, directory = maker.stdout.readline().split()
        assert len(marked(MARK, mark)) >= 5  # master, worker, driver, its JVM, executor
    finally:
        maker.send_signal(signal.SIGKILL)
        maker.wait()
    assert wait_gone(MARK, mark, 30.0) == []
    deadline = time.monotonic() + 30.0
    while Path(directory).exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(directory).exists()


def test_a_worker_that_is_killed_takes_its_directory_along() -> None:
    with Cluster(workers=2, cores=1) as cluster:
        (cluster.local(0) / "layer").write_text("…")
        cluster.kill_worker(0)
        assert not cluster.local(0).exists() and cluster.local(1).exists()
        assert len(cluster.processes()) == 2  # the master, and the other worker
        assert cluster.add_worker() == 2
    assert marked(MARK, cluster.mark) == []
    assert not cluster.directory.exists()
