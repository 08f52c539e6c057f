"""A flow that runs under a lease, in this process, on the tests' Spark."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.errors import DeclarationError, Fenced, LeaseLost
from holdfast.inspect.open_log import read
from holdfast.runtime import prepared_flow
from holdfast.spark.epoch_job import EpochJob
from holdfast.standby.events import LeaseEvent
from holdfast.standby.file_lease import FileLease


@pytest.fixture(autouse=True)
def warm_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """How fast the first epoch is does not matter here; the benchmark takes the time of that."""
    monkeypatch.setattr(prepared_flow, "_RUNS", 1)


class FlakyLease(FileLease):
    """A lease that is lost when a test says so: its holder is not sure from then on, and soon finds out."""

    def __init__(self, directory: Path, timeout: float) -> None:
        super().__init__(directory, timeout)
        self._renewing = threading.Lock()
        self._gone = False

    def lose(self) -> None:
        with self._renewing:
            self._gone = True
            self.cut_off()

    def renew(self) -> None:
        with self._renewing:
            if self._gone:
                raise LeaseLost("lease: it went to somebody else", lease=self.url)
            super().renew()


def declare(spark: Any, home: Path, epochs: int) -> hf.Flow:
    flow = hf.Flow("led", log=home / "log", spark=spark, partitions=2)
    flow.source("r", hf.rate(100, keys=5, epochs=epochs))
    flow.view("totals", "SELECT key, count(*) AS n FROM r GROUP BY key")
    return flow.sink("totals", hf.changelog(home / "out"))


def test_flows_that_run_with_a_lease_go_on_from_each_other(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[LeaseEvent] = []
    in_one_task: list[int] = []
    whole = EpochJob._whole

    def counted(job: EpochJob, items: list[tuple[str, bytes]]) -> Any:
        in_one_task.append(len(items))
        return whole(job, items)

    monkeypatch.setattr(EpochJob, "_whole", counted)
    monkeypatch.setenv("HOLDFAST_PATH", "task")
    lease = (tmp_path / "lease").as_uri()
    first, second = declare(spark, tmp_path, 2), declare(spark, tmp_path, 5)
    assert first.run(until="idle", lease=lease, on_lease=events.append) == 2
    assert [event.event for event in events] == ["preparing", "acquired", "leading", "released"]
    assert events[2].epoch == -1 and events[2].seconds["open"] > 0
    in_one_task.clear()
    second.prepare()
    assert in_one_task == [0] and len(events) == 4
    # It was given back, so the next need not wait; and it was not touched before that.
    assert second.run(until="idle", lease=lease, lease_timeout="60m", on_lease=events.append) == 3
    assert len(in_one_task) == 4 and all(in_one_task[1:])  # small epochs from the first on: it is warm
    assert events[6].to_dict()["epoch"] == 1 and "after epoch 1" in str(events[6])
    assert sum(read(tmp_path / "log", "totals")["n"].to_pylist()) == 500
    assert second.status().epoch == 4
    second.open()  # without the lease, as ever
    with pytest.raises(DeclarationError, match="it is open already, without a lease"):
        second.run(lease=lease)
    first.close(), second.close()


def test_a_flow_that_loses_its_lease_stops_before_the_next_epoch_counts(spark: Any, tmp_path: Path) -> None:
    lease, events = FlakyLease(tmp_path / "lease", 1.0), list[LeaseEvent]()
    flow = declare(spark, tmp_path, 20)

    def lose(epoch: hf.Epoch) -> None:
        if epoch.epoch == 3:
            lease.lose()

    with pytest.raises(LeaseLost, match="it went to somebody else") as raised:
        flow.run(until="idle", lease=lease, on_epoch=lose, on_lease=events.append)
    assert [event.event for event in events] == ["preparing", "acquired", "leading", "lost"]
    assert isinstance(raised.value, Fenced)
    flow.close()
    after = declare(spark, tmp_path, 20)
    assert after.status().epoch == 3 and after.run(until="idle") == 16
    assert sum(row.n for row in after.read("totals").collect()) == 2000
    after.close()


def test_a_flow_that_is_told_to_stop_while_it_waits_never_touches_the_log(spark: Any, tmp_path: Path) -> None:
    held = FileLease(tmp_path / "lease", 60.0)
    held.connect()
    assert held.acquire()
    flow = declare(spark, tmp_path, 2)
    said: list[str] = []

    def told(event: LeaseEvent) -> None:
        said.append(str(event))
        if event.event == "standby":
            flow.stop()

    assert flow.run(lease=held.url, on_lease=told) == 0
    assert said[1].startswith("standby: waiting for the lease (held by pid ")
    assert not (tmp_path / "log").exists() and not (tmp_path / "out").exists()
    held.release()
    flow.close()
