"""What takes its time is said: at a prompt from the third second on, and by whoever shows a flow."""

from __future__ import annotations

import io
import threading
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.reporting import activity
from holdfast.reporting.activity import Activity, doing, now


def test_a_line_appears_after_a_moment_and_is_gone_when_it_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activity, "QUIET", 0.05)
    monkeypatch.setattr(activity, "_EVERY", 0.01)
    stream = io.StringIO()
    with doing("flow 'shop'", "filling spend", 3) as one:
        one.advance()
        showing = threading.Thread(target=activity.show, args=(stream,))
        showing.start()
        time.sleep(0.2)
    showing.join()
    lines = stream.getvalue().split("\r")
    assert "flow 'shop': filling spend (1 of 3), 0 s" in lines
    assert not lines[-1].strip() and not lines[-2].strip(), "the line is wiped"


def test_what_is_over_soon_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activity, "_EVERY", 0.01)
    stream = io.StringIO()
    with doing("flow 'shop'", "epoch 3"):
        showing = threading.Thread(target=activity.show, args=(stream,))
        showing.start()
        time.sleep(0.1)
    showing.join()
    assert not stream.getvalue()


def test_the_innermost_is_what_goes_on() -> None:
    with doing("flow 'shop'", "opening the log"):
        with doing("flow 'shop'", "fetching layers"):
            found = now()
            assert found is not None and found.what == "fetching layers"
        found = now()
        assert found is not None and found.what == "opening the log" and now(60.0) is None


def test_a_flow_says_what_it_does(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    told = Activity.__init__

    def noted(self: Activity, subject: str, what: str, total: int | None = None) -> None:
        said.append(f"{subject}: {what}")
        told(self, subject, what, total)

    monkeypatch.setattr(Activity, "__init__", noted)
    with hf.Flow("shop", log=tmp_path, spark=spark, partitions=1) as flow:
        t = flow.input("t", "k long")
        flow.view("v", "SELECT k FROM t")
        t.insert([(1,)])
        flow.step()
        flow.view("w", "SELECT count(*) AS n FROM t")
        flow.step()
    assert said[:2] == ["flow 'shop': opening the log", "flow 'shop': epoch 0"]
    assert "flow 'shop': filling w" in said
