"""A cluster leaves nothing behind, whatever becomes of the process that made it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from holdfast.testing.cluster import MARK, Cluster
from holdfast.testing.processes import marked, wait_gone

_MAKES_ONE = """
import time
from holdfast.testing.cluster import Cluster
cluster = Cluster(workers=1, cores=1)
print(cluster.mark, flush=True)
time.sleep(600)
"""


def test_processes_die_with_the_one_that_made_the_cluster() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    maker = subprocess.Popen([sys.executable, "-c", _MAKES_ONE], stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert maker.stdout is not None
        mark = maker.stdout.readline().strip()
        assert len(marked(MARK, mark)) == 2  # a master and a worker
    finally:
        maker.send_signal(signal.SIGKILL)
        maker.wait()
    assert wait_gone(MARK, mark, 10.0) == []


def test_a_worker_that_is_killed_takes_its_directory_along() -> None:
    with Cluster(workers=2, cores=1) as cluster:
        (cluster.local(0) / "layer").write_text("…")
        cluster.kill_worker(0)
        assert not cluster.local(0).exists() and cluster.local(1).exists()
        assert len(cluster.processes()) == 2  # the master, and the other worker
        assert cluster.add_worker() == 2
    assert marked(MARK, cluster.mark) == []
