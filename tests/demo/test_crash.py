"""``holdfast demo crash``, smaller than it is shown, on a real cluster: every version does what it should."""

from __future__ import annotations

import io
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from rich.console import Console
from typer.testing import CliRunner

from holdfast.cli import app
from holdfast.demo import crash
from holdfast.demo.crash import Version
from holdfast.demo.stage import DemoPlan
from holdfast.testing.processes import marked, wait_gone

pytestmark = pytest.mark.slow  # the scenes of tests/cluster, once more, as the demo shows them

MARK = "HOLDFAST_TEST_OF_CTRL_C"
SMALL = DemoPlan(scale=0.005, executors=2, files=8, pace=0.05)
NAMES = ["no fault tolerance", "terminate", "continue", "replay", "replay, driver killed"]


@pytest.fixture(scope="module")
def versions() -> Iterator[dict[str, Version]]:
    said: list[str] = []
    found = crash.crash_versions(SMALL, said.append)
    assert [version.name for version in found] == NAMES
    assert all(any(text.startswith(f"{name}: ") for text in said) for name in NAMES)  # progress
    yield {version.name: version for version in found}


def test_without_fault_tolerance_there_is_no_answer(versions: dict[str, Version]) -> None:
    version = versions["no fault tolerance"]
    assert version.answer is None and version.right, version


def test_terminate_stops_and_names_the_executor(versions: dict[str, Version]) -> None:
    version = versions["terminate"]
    assert version.answer is None and version.right, version
    assert "stopped" in version.happened and "after executor" in version.happened


def test_the_coverage_of_continue_is_what_was_really_lost(versions: dict[str, Version]) -> None:
    version = versions["continue"]
    assert version.missing == version.really_lost != ()
    assert version.right, version  # the answer is the one over the files that are left
    total = SMALL.files + 2
    assert version.coverage.startswith(f"{total - len(version.missing)} of {total} partitions, ")


def test_replay_is_exact_when_an_executor_dies_and_when_the_driver_does(versions: dict[str, Version]) -> None:
    for name in ("replay", "replay, driver killed"):
        version = versions[name]
        assert version.exact and version.right and version.answer, version
    assert versions["replay"].answer == versions["replay, driver killed"].answer
    assert versions["replay"].really_lost


def test_the_table_has_a_row_per_version(versions: dict[str, Version], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crash, "crash_versions", lambda plan, say: list(versions.values()))
    output = io.StringIO()
    assert crash.run_crash_demo(Console(file=output, width=200), scale=0.005, as_json=False)
    for name in NAMES:
        assert name in output.getvalue()


def test_a_version_that_did_not_do_what_it_should_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Version("replay", "was not hit", [("1.2.3.4", 1.0, 2.0)], "", False, False, 1.0)
    monkeypatch.setattr(crash, "crash_versions", lambda plan, say: [wrong])
    found = CliRunner().invoke(app, ["demo", "crash", "--json"])
    assert found.exit_code == 1
    assert json.loads(found.stdout)["versions"][0]["happened"] == "was not hit"
    assert not json.loads(found.stdout)["right"]


def test_ctrl_c_ends_it_and_leaves_no_process() -> None:
    mark = secrets.token_hex(8)
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast.cli", "demo", "crash", "--scale", "0.005"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), MARK: mark},
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell may have it ignored
    )
    try:
        assert process.stdout is not None
        assert "starting a cluster" in process.stdout.readline()
        deadline = time.monotonic() + 60.0
        while not any("Worker" in word for one in marked(MARK, mark) for word in one.command):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.wait(60.0) == 130
    finally:
        process.kill()
        process.wait()
    assert wait_gone(MARK, mark, 30.0) == []
