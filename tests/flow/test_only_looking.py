"""Looking touches nothing: a flow that is explained, planned or asked how it stands is not opened, also beside a driver
that runs it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.errors import LogForeign
from holdfast.inspect.flow_plan import PlannedChange

SUM = "SELECT k, sum(x) AS s FROM t GROUP BY k"


def _files(root: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in sorted(root.rglob("*"))}


def _declared(spark: SparkSession, root: Path, **views: str) -> tuple[hf.Flow, hf.Source]:
    flow = hf.Flow("looked at", log=root / "log", spark=spark, partitions=1)
    t = flow.input("t", "k long, x long")
    for name, query in views.items():
        flow.view(name, query)
    return flow, t


def test_looking_at_a_flow_that_never_ran_makes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    flow, _ = _declared(spark, tmp_path, v=SUM)
    status = flow.status()
    assert (status.epoch, status.open, status.running) == (-1, False, None)
    assert list(status.views) == ["v"] and status.durability.safe == -1
    assert "sum" in flow.explain("v") and flow.drawing().views
    assert flow.plan().adds == ["v", "t"] or set(flow.plan().adds) == {"v", "t"}
    assert "it has not run yet" in str(flow.plan())
    assert flow._engine is None and not (tmp_path / "log").exists()


def test_a_plan_says_what_is_added_rebuilt_and_dropped_and_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    flow, t = _declared(spark, tmp_path, same=SUM, edited=SUM.replace("sum", "max"), gone="SELECT k FROM t")
    t.insert([(1, 2), (3, 4)])  # type: ignore[attr-defined]
    flow.step()
    flow.wait_safe()
    running = flow.status()
    flow.close()
    before = _files(tmp_path)
    again, _ = _declared(
        spark, tmp_path, same=SUM, edited=SUM.replace("sum", "min"), new="SELECT s, count(*) AS n FROM same GROUP BY s"
    )
    plan = again.plan()
    assert (plan.adds, plan.rebuilds, plan.drops) == (["new"], ["edited"], ["gone"])
    assert set(plan.keeps) == {"same", "t"} and plan.epoch == 0 and plan.running is None and not plan.empty
    reads = {change.name: change.reads for change in plan.changes}
    assert reads["edited"] == ("input 't'",) and reads["new"] == ("view 'same'",)
    size = {change.name: change.bytes for change in plan.changes}
    assert size["edited"] > 0 and size["new"] > 0 and size["gone"] == size["same"] == 0
    assert re.search(r"^  rebuilds edited \(reads input 't' again: [\d.]+ k?B\)$", str(plan), re.M)
    assert "adds new (reads view 'same' again" in str(plan) and "drops gone" in str(plan)
    status = again.status()
    assert status.epoch == running.epoch == 0 and not status.open and running.open
    assert status.durability.safe == running.durability.safe == 0
    assert status.views["same"].operator == running.views["same"].operator
    assert "min" in again.explain("edited")
    assert again._engine is None and _files(tmp_path) == before
    again.step()
    assert again.plan().empty and "nothing changes" in str(again.plan())
    again.close()


def test_a_flow_that_another_driver_runs_is_looked_at_and_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    import subprocess
    import sys
    import textwrap

    flow, t = _declared(spark, tmp_path, v=SUM)
    t.insert([(1, 2)])  # type: ignore[attr-defined]
    flow.step()
    flow.wait_safe()
    looking = textwrap.dedent(f"""
        import sys
        from holdfast.inspect.unopened_flow import look_at
        from holdfast.log.location import open_location
        log = look_at("looked at", [open_location({str(tmp_path / "log")!r})], None)
        print(len(log.history()), log.driver() is not None, sorted(log.kept["collections"]))
    """)
    said = subprocess.run([sys.executable, "-c", looking], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["1", "True", "['t',", "'v']"]
    t.insert([(1, 3)])  # type: ignore[attr-defined]
    assert flow.step().epoch == 1
    assert [row.s for row in flow.read("v").collect()] == [5]
    flow.close()


def test_the_log_of_another_flow_is_said_to_be_one(spark: SparkSession, tmp_path: Path) -> None:
    flow, _ = _declared(spark, tmp_path, v=SUM)
    with flow:
        flow.step()
    other = hf.Flow("other", log=tmp_path / "log", spark=spark)
    with pytest.raises(LogForeign, match="belongs to flow 'looked at', not to 'other'"):
        other.status()


def test_a_plan_says_sizes_in_the_unit_that_fits() -> None:
    rebuilt = PlannedChange("s", "view", "rebuilds", ("input 't'",), 12_000_000_000)
    assert str(rebuilt) == "rebuilds s (reads input 't' again: 12.0 GB)"
    assert str(PlannedChange("s", "view", "rebuilds", ("source 'f'",))) == "rebuilds s (reads source 'f' again)"
