"""What takes its time is said: at a prompt from the third second on, and by whoever shows a flow."""

from __future__ import annotations

import io
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.inspect.verify import verify
from holdfast.reporting import activity
from holdfast.reporting.activity import Activity, doing, now
from notebook_kernel import client_of, prepare


def test_a_line_appears_after_a_moment_and_is_gone_when_it_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activity, "QUIET", 0.05)
    monkeypatch.setattr(activity, "_EVERY", 0.01)
    stream = io.StringIO()
    with doing("flow 'shop'", "filling spend", 3) as one:
        one.advance()
        showing = threading.Thread(target=activity.show, args=(activity.TerminalLine(stream), activity._ended))
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
        showing = threading.Thread(target=activity.show, args=(activity.TerminalLine(stream), activity._ended))
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


class _Watched(NotebookClient):
    """Notes what is displayed below each cell."""

    def process_message(self, msg: Any, cell: Any, cell_index: int) -> Any:
        if msg["msg_type"] in ("display_data", "update_display_data"):
            notes.append((cell_index, msg["content"]["data"]["text/html"]))
        return super().process_message(msg, cell, cell_index)


notes: list[tuple[int, str]] = []


def test_in_a_notebook_progress_is_shown_below_the_cell_that_waits_and_is_gone_when_it_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(tmp_path, monkeypatch)
    cells = (
        "import time; from holdfast.reporting import activity; activity.QUIET, activity._EVERY = 0.2, 0.05",
        "with activity.doing('flow <x>', 'filling v', 3) as one:\n    time.sleep(0.5); one.advance(); time.sleep(0.5)",
        "with activity.doing('flow y', 'opening the log'):\n    time.sleep(0.5)",
        "with activity.doing('flow z', 'epoch 3'):\n    pass",
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    client = client_of(notebook, Path(__file__).parent.parent.parent, _Watched)
    with client.setup_kernel():
        for index, cell in enumerate(notebook.cells):
            client.execute_cell(cell, index)
    assert {index for index, _ in notes} == {1, 2}
    filling = "flow &lt;x&gt;: filling v"
    assert notes[0] == (1, f'<div><progress value="0" max="3"></progress> {filling} (0 of 3), 0 s</div>')
    assert any('<progress value="1" max="3">' in text and "(1 of 3)" in text for _, text in notes)
    assert (2, "<div>flow y: opening the log, 0 s</div>") in notes
    for cell in notebook.cells[1:3]:
        assert [output.data["text/html"] for output in cell.outputs] == [""]


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """All that is said to go on, in its order; of how many parts it is, if it has some."""
    found: list[str] = []
    told = Activity.__init__

    def noted(self: Activity, subject: str, what: str, total: int | None = None) -> None:
        found.append(f"{subject}: {what}" + (f" ({total})" if total else ""))
        told(self, subject, what, total)

    monkeypatch.setattr(Activity, "__init__", noted)
    return found


def _shop(spark: SparkSession, root: Path) -> tuple[hf.Flow, hf.Input]:
    flow = hf.Flow("shop", log=root / "log", local=root / "local", spark=spark, partitions=1)
    t = flow.input("t", "k long")
    flow.view("v", "SELECT k FROM t")
    flow.view("w", "SELECT count(*) AS n FROM t")
    return flow, t


def test_a_flow_says_what_it_does(spark: SparkSession, tmp_path: Path, said: list[str]) -> None:
    with hf.Flow("shop", log=tmp_path, spark=spark, partitions=1) as flow:
        t = flow.input("t", "k long")
        flow.view("v", "SELECT k FROM t")
        t.insert([(1,)])
        flow.step()
        flow.view("w", "SELECT count(*) AS n FROM t")
        flow.step()
    assert said[:2] == ["flow 'shop': opening the log", "flow 'shop': epoch 0: filling 1 view"]
    assert "flow 'shop': epoch 1" in said
    assert "flow 'shop': filling w (1)" in said


def test_recovery_replay_verify_and_repair_say_that_they_go_on(
    spark: SparkSession, tmp_path: Path, said: list[str]
) -> None:
    flow, t = _shop(spark, tmp_path)
    with flow:
        for k in range(3):
            t.insert([(k,)])
            flow.step()
            flow.wait_safe()
    shutil.rmtree(tmp_path / "local")

    said.clear()
    flow, _ = _shop(spark, tmp_path)
    with flow:
        assert flow.read("w").collect()[0].n == 3 and flow.last_recovery.layers_fetched
    assert said[:2] == ["flow 'shop': opening the log", "flow 'shop': fetching layers from the log's locations"]

    shutil.rmtree(tmp_path / "local")
    for layer in (tmp_path / "log" / "layers").glob("*.acc/000000000002-*"):
        layer.unlink()
    said.clear()
    flow, _ = _shop(spark, tmp_path)
    with flow:
        assert flow.read("w").collect()[0].n == 3 and flow.last_recovery.epochs_replayed == 1
        flow.wait_safe()
    assert "flow 'shop': computing epochs again (1)" in said

    for layer in (tmp_path / "log" / "layers").glob("*.acc/000000000001-*"):
        layer.write_bytes(b"damaged")
    said.clear()
    checked: list[tuple[int, int]] = []
    report = verify([tmp_path / "local", tmp_path / "log"], True, lambda done, total: checked.append((done, total)))
    assert report.ok and any(finding.repaired for finding in report.findings)
    assert all(0 < done <= total for done, total in checked) and any(done == total for done, total in checked)
    assert said == ["log of flow 'shop': filling places (3)"]
