"""A DataFrame that somebody holds keeps reading what it read at first, however the log is merged meanwhile."""

from __future__ import annotations

import gc
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.runtime.merging import Merging
from holdfast.spark import local_rows
from holdfast.trace import pins


def _settled(flow: hf.Flow) -> None:
    """Wait until merging has caught up."""
    engine = flow._engine
    assert engine is not None
    lanes, deadline = [lane.background for lane in engine._maintenance._lanes], time.monotonic() + 30
    while any(lane.busy or lane._wanted.is_set() for lane in lanes) and time.monotonic() < deadline:
        time.sleep(0.02)


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Merge soon, so that few epochs do; and have tasks read the rows, however few there are."""
    monkeypatch.setattr(Merging, "tolerated", 2)
    monkeypatch.setattr(local_rows, "MOST_ROWS", -1)


def test_a_frame_held_for_many_epochs_reads_what_it_read_at_first(
    spark: SparkSession, tmp_path: Path, eager: None
) -> None:
    with hf.Flow("held", log=tmp_path / "log", spark=spark, partitions=1) as flow:
        t = flow.input("t", "k long, x long")
        flow.view("v", "SELECT k, sum(x) AS s FROM t GROUP BY k")

        def push(number: int) -> None:
            t.insert([(number % 3, number)])
            flow.step()
            _settled(flow)

        for number in range(4):
            push(number)
        frames: dict[str, Any] = {
            "now": flow.read("v"),
            "as of": flow.read("v", at=1),
            "changes": flow.changes("v", since=2),
            "all changes": flow.changes("v"),
            "derived": flow.read("v").filter("k < 2").selectExpr("k", "s * 2 AS twice"),
        }
        gc.collect()  # of the derived one only the plan is left
        before = {name: sorted(map(tuple, frame.collect())) for name, frame in frames.items()}
        for number in range(4, 14):
            push(number)
        assert flow.status().maintenance.merges > 0
        for _ in range(2):
            assert {name: sorted(map(tuple, frame.collect())) for name, frame in frames.items()} == before
        flow.view("w", "SELECT s FROM v")  # opens the flow again
        push(14)
        assert frames["now"].count() == len(before["now"])
        engine = flow._engine
        assert engine is not None
        directory = engine._flow.log_of("v").directory
        assert pins.held(directory, -1)
        frames.clear()
        deadline = time.monotonic() + 20
        while pins.held(directory, -1) and time.monotonic() < deadline:
            gc.collect()
            spark._jvm.System.gc()  # type: ignore[union-attr]
        assert not pins.held(directory, -1), "nobody reads, and layers are kept"


def test_pins_are_given_up_when_they_are_further_back_than_what_is_retained() -> None:
    alive = [True]
    pins.hold("somewhere", pins.Pin(3, 5), lambda: alive[0])
    pins.hold("somewhere", pins.Pin(4, 9), lambda: True)
    assert pins.held("somewhere", 0) == (pins.Pin(3, 5), pins.Pin(4, 9))
    assert pins.held("somewhere", 5) == (pins.Pin(5, 5), pins.Pin(5, 9))
    alive[0] = False
    assert pins.held("somewhere", 0) == (pins.Pin(4, 9),)
    assert pins.held("somewhere", 10) == ()
    assert "somewhere" not in pins._held
