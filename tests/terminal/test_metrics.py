"""Numbers for Prometheus: what is served is what the documents name, and what the flow is."""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.errors import ArgumentError
from holdfast.results.metrics import NAMES, Metrics
from holdfast.terminal.metrics import served

ROOT = Path(__file__).parent.parent.parent


def test_the_documents_and_the_dashboard_name_the_metrics_that_there_are() -> None:
    page = (ROOT / "docs/metrics.md").read_text()
    assert re.findall(r"^\| `(\w+)` \| (\w+) \|", page, re.M) == [(name, kind) for name, (kind, _) in NAMES.items()]
    board = json.loads((ROOT / "examples/grafana/dashboard.json").read_text())
    used = {name for panel in board["panels"] for name in re.findall(r"holdfast_\w+", panel["targets"][0]["expr"])}
    assert used <= NAMES.keys() and len(board["panels"]) == 10


def test_metrics_are_served_while_a_flow_runs(spark: SparkSession, tmp_path: Path) -> None:
    with hf.Flow('sh"op', log=tmp_path / "log", spark=spark, partitions=1) as flow:
        t = flow.input("t", "k long")
        flow.view("v", "SELECT k FROM t").sink("v", hf.changelog(tmp_path / "out"))
        metrics = Metrics(flow.name, flow.status)
        t.insert([(1,), (2,)])
        metrics.add(flow.step())
        t.insert([(3,)])
        with served(metrics, "127.0.0.1:0") as address, urllib.request.urlopen(f"http://{address}/metrics") as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            text = answer.read().decode()
    found = dict(re.findall(r'^(\w+)\{flow="sh\\"op"(?:,[^}]*)?\} (\S+)$', text, re.M))
    assert found["holdfast_epoch"] == "0" and found["holdfast_rows_in_total"] == "2"
    assert found["holdfast_rows_changed_total"] == "2" and found["holdfast_source_waiting"] == "1"
    assert found["holdfast_sink_epoch"] == "0" and found["holdfast_exact"] == "1"
    assert found.keys() <= NAMES.keys()
    assert all(f"# TYPE {name} {NAMES[name][0]}\n" in text for name in found)


def test_an_address_that_is_none_is_refused(spark: SparkSession) -> None:
    metrics = Metrics("f", lambda: pytest.fail("nobody asks"))
    with pytest.raises(ArgumentError, match="expected an address such as ':9090'"), served(metrics, "here"):
        pass
