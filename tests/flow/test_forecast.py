"""The forecast of a crash on a running flow: measured, written beside the log, and shown from outside."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import holdfast as hf
from holdfast.cli import app
from holdfast.inspect.describe import describe
from holdfast.runtime import engine
from holdfast.spark.runner import SparkRunner

from ..durability.shop import SOON


def test_what_a_crash_would_cost_is_known_inside_and_outside(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_SINK_PAUSE", 0.1)  # rates are measured every half a minute
    flow = hf.Flow("told", log=tmp_path / "copy", local=tmp_path / "work", spark=spark, partitions=2)
    orders = flow.input("orders", "user long, amount long")
    flow.view("spend", "SELECT user, sum(amount) AS total FROM orders GROUP BY user")
    assert flow.status().crash_now == ()
    for number in range(4):
        orders.insert([(user, number) for user in range(1000)])
        flow.step()
        flow.wait_safe()
    deadline = time.monotonic() + SOON
    while "layer" not in _rates(tmp_path / "work") and time.monotonic() < deadline:
        orders.insert([(1, 1)])
        flow.step()
        flow.wait_safe()
    assert (
        {"start", "epoch", "replay", "layer", "byte"}
        <= _rates(tmp_path / "work").keys()
        == _rates(tmp_path / "copy").keys()
    )
    driver, host, location = flow.status().crash_now
    assert (driver.what, host.what, location.what) == ("driver", "driver's host", f"location {tmp_path / 'copy'}")
    assert driver.seconds > location.seconds > 0 and driver.bytes == driver.epochs == host.epochs == 0
    assert 0 < host.bytes <= sum(path.stat().st_size for path in (tmp_path / "copy").rglob("*.parquet"))
    assert host.seconds > driver.seconds and host.parts["fetch"] > 0
    assert not (tmp_path / "work" / "probe").exists()
    rates = flow._started()._rates.rates
    assert rates.replay is not None and rates.epoch is not None and rates.replay > rates.epoch, (
        "an epoch that is computed again is a job, and cannot be told over a socket"
    )
    flow.close()
    found = describe([tmp_path / "work", tmp_path / "copy"])["crash_now"]
    assert [each["what"] for each in found][:2] == ["driver", "driver's host"] and found[1]["bytes"] > 0
    shown = CliRunner().invoke(app, ["status", str(tmp_path / "work"), str(tmp_path / "copy")], terminal_width=200)
    assert "if the driver is lost" in shown.output and "first output after" in shown.output


def test_rates_are_measured_again_after_a_job_that_failed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, seconds in (("_SINK_PAUSE", 0.05), ("_WARM", 0.0), ("_APART", 0.0)):
        monkeypatch.setattr(engine, name, seconds)
    run, failed = SparkRunner.tasks, list[str]()

    def failing(self: SparkRunner, what: str, *given: Any, **named: Any) -> Any:
        if what == "measuring" and not failed:
            failed.append(what)
            raise RuntimeError("the session has ended")
        return run(self, what, *given, **named)

    monkeypatch.setattr(SparkRunner, "tasks", failing)
    with hf.Flow("measured", log=tmp_path / "log", spark=spark, partitions=2) as flow:
        orders = flow.input("orders", "user long, amount long")
        flow.view("spend", "SELECT user, sum(amount) AS total FROM orders GROUP BY user")
        deadline = time.monotonic() + SOON
        while "replay" not in _rates(tmp_path / "log") and time.monotonic() < deadline:
            orders.insert([(1, 1)])
            flow.step()
            flow.wait_safe()
        assert failed and "replay" in _rates(tmp_path / "log")


def test_a_flow_that_was_only_opened_says_what_a_crash_would_cost_where_no_rate_was_left(
    spark: SparkSession, tmp_path: Path
) -> None:
    for rows in ([(1, 1)], []):
        flow = hf.Flow("told", log=tmp_path / "log", spark=spark, partitions=2)
        orders = flow.input("orders", "user long, amount long")
        flow.view("spend", "SELECT user, sum(amount) AS total FROM orders GROUP BY user")
        if rows:
            orders.insert(rows)
            flow.step()
            flow.wait_safe()
        assert flow.read("spend").count() == 1
        flow.close()
        if rows:
            for file in tmp_path.rglob("rates.json"):
                file.unlink()
    assert [each["what"] for each in describe([tmp_path / "log"])["crash_now"]][:2] == ["driver", "driver's host"]


def _rates(place: Path) -> dict[str, float]:
    file = place / "rates.json"
    found: dict[str, float] = json.loads(file.read_text()) if file.exists() else {}
    return found
