"""Small epochs on several members that keep layers of their own: few tasks, which read the sources themselves."""

from __future__ import annotations

import pytest

from cluster import small_scenes as scenes
from holdfast.task.packed_tasks import READ_BY_ALL
from holdfast.testing.cluster import MARK, Cluster
from holdfast.testing.processes import marked

pytestmark = pytest.mark.slow  # (in `make test`: operators/test_whole.py and simulator/test_scattered_layers.py)


def test_a_small_epoch_has_a_task_for_each_member_and_stage_and_no_stage_of_readers() -> None:
    with Cluster(workers=2, cores=2, executors_per_worker=2, memory=512) as cluster:
        driver = cluster.driver(scenes.small_epochs, 4)
        seen = driver.result(300.0)
        print(seen)
    assert marked(MARK, cluster.mark) == []
    _, *small, large, after = seen["tasks"]  # with the first come the jobs of a flow that is opened
    assert small == [(3, 6)] * 3
    assert large[1] > 8, "tasks that find too much give up, and the epoch runs with a stage of readers"
    assert after[0] == 4 and after[1] > 3 * 8, "the next epoch is expected to be as large as the last"
    assert seen["arrived"] == [220, 200, 250, 200, 2 * READ_BY_ALL + 1, 1], "each row counts once"
