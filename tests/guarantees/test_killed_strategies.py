"""Strategies on real Spark, in real processes that are really killed: what they come back with, and what a sink got."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import holdfast
import holdfast as hf
from holdfast.testing import classify
from holdfast.testing.processes import die_with_parent

APP = Path(__file__).with_name("killed_app.py")
PATIENCE = 180.0
BATCHES = 7


def start(root: Path, *arguments: str, crash_at: str = "") -> subprocess.Popen[str]:
    own = {
        "PYTHONPATH": str(Path(holdfast.__file__).parents[1]),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        **({"HOLDFAST_CRASH_AT": crash_at} if crash_at else {}),
    }
    return subprocess.Popen(
        [sys.executable, str(APP), str(root), *arguments],
        env={**os.environ, **own},
        stdout=subprocess.PIPE,
        stderr=open(root / "stderr", "ab"),
        text=True,
        start_new_session=True,
        preexec_fn=die_with_parent(),
    )


def end(process: subprocess.Popen[str]) -> None:
    """Kill what is left of a driver: Spark's JVM, too."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(PATIENCE)


def life(root: Path, strategy: str, sink: str, crash_at: str = "") -> dict[str, Any]:
    """One life of the flow; what it said, by the first word of the line."""
    process = start(root, strategy, sink, crash_at=crash_at)
    try:
        out, _ = process.communicate(timeout=PATIENCE)
    finally:
        end(process)
    assert process.returncode == (-signal.SIGKILL if crash_at else 0), (root / "stderr").read_text()[-3000:]
    said = [line.partition(" ") for line in out.splitlines()]
    return {word: json.loads(rest) for word, _, rest in said if word in ("open", "held")}


def feed(root: Path, first: int, after: int) -> None:
    (root / "in").mkdir(exist_ok=True)
    for number in range(first, after):
        hidden = root / "in" / f".{number:03d}"
        pq.write_table(pa.table({"id": [2 * number, 2 * number + 1], "part": [0, number % 2]}), hidden)
        os.rename(hidden, root / "in" / f"{number:03d}.parquet")


def given(root: Path, sink: str) -> list[tuple[int, int]]:
    """The rows that the sink was given, in order."""
    if sink == "append":
        file = root / "given"
        return [tuple(json.loads(line)) for line in file.read_text().splitlines()] if file.exists() else []
    files = sorted((root / "out").glob("epoch-*.parquet"))
    return [(row["id"], row["_diff"]) for file in files for row in pq.read_table(file).to_pylist()]


STORIES = [
    # strategy, sink, where it dies, the epoch that it comes back to, epochs computed again, epochs missing
    ("hf.aligned_snapshot(3, output='early')", "append", "sink.after_commit:5", 2, [], []),
    ("hf.aligned_snapshot(3, output='early')", "changelog", "sink.after_commit:5", 2, [], []),
    ("hf.aligned_snapshot(3)", "changelog", "epoch.complete:5", 2, [], []),
    ("hf.aligned_snapshot(3)", "append", "sink.after_commit:5", 5, [], []),
    ("hf.passive_standby(3)", "changelog", "sink.after_commit:5", 4, None, []),
    ("hf.upstream_backup()", "append", "sink.after_commit:5", 4, [0, 1, 2, 3, 4], []),
    ("hf.gap()", "append", "epoch.ran:5", 3, [], [4]),
    ("hf.gap()", "changelog", "epoch.ran:5", 3, [], [4]),
    ("hf.synchronous_log()", "append", "sink.after_commit:5", 4, [], []),
    ("hf.nosync()", "append", "sink.after_commit:5", 4, [], []),
]


@pytest.mark.slow
@pytest.mark.parametrize(("strategy", "sink", "mark", "epoch", "again", "missing"), STORIES)
def test_a_killed_flow_does_what_its_strategy_says_and_its_output_what_was_predicted(
    tmp_path: Path, strategy: str, sink: str, mark: str, epoch: int, again: list[int] | None, missing: list[int]
) -> None:
    feed(tmp_path, 0, BATCHES)
    life(tmp_path, strategy, sink, mark)
    before = given(tmp_path, sink)
    said = life(tmp_path, strategy, sink)
    assert said["open"]["epoch"] == epoch and said["open"]["missing"] == missing, said
    assert again is None or said["open"]["epochs"] == again, said
    rows = [(number, 1) for number in range(2 * BATCHES)]
    found = classify(before, given(tmp_path, sink)[len(before) :], rows)
    kind = hf.SinkKind.APPEND if sink == "append" else hf.SinkKind.TRANSACTIONAL
    predicted = hf.predict([hf.OperatorClass.REPEATABLE], eval(strategy), kind)
    assert found.recovery is predicted.recovery, (str(found), str(predicted))
    if predicted.recovery is not hf.RecoveryType.GAP:
        assert sum(said["held"].values()) == 2 * BATCHES, "the views themselves are exact"


@pytest.fixture
def drivers() -> Iterator[list[subprocess.Popen[str]]]:
    some: list[subprocess.Popen[str]] = []
    yield some
    for process in some:
        end(process)


@pytest.mark.slow
def test_an_active_standby_goes_on_with_the_state_that_it_has(
    tmp_path: Path, drivers: list[subprocess.Popen[str]]
) -> None:
    feed(tmp_path, 0, 3)
    lease = f"file://{tmp_path}/lease"
    first = start(tmp_path, "hf.active_standby()", "changelog", lease, "host1")
    drivers.append(first)
    until(first, lambda word, said: word == "epoch" and said["epoch"] == 2)
    second = start(tmp_path, "hf.active_standby()", "changelog", lease, "host2")
    drivers.append(second)
    until(second, lambda word, said: said == "standby")
    time.sleep(10)  # it has the lineage of three epochs from the log, and runs them
    end(first)
    killed = time.monotonic()
    feed(tmp_path, 3, 4)
    said = until(second, lambda word, said: word == "epoch")
    print(f"the next epoch was complete after {time.monotonic() - killed:.2f} s")
    assert said == {"epoch": 3, "followed": 2, "replayed": [], "fetched": 0}, said
    rows = [(number, 1) for number in range(8)]
    assert sorted(given(tmp_path, "changelog")) == rows, "each once"


def until(process: subprocess.Popen[str], wanted: Any) -> Any:
    """What a driver says that was waited for."""
    assert process.stdout is not None
    for line in process.stdout:
        word, _, rest = line.strip().partition(" ")
        if word in ("lease", "epoch"):
            said = json.loads(rest) if word == "epoch" else rest
            if wanted(word, said):
                return said
    raise AssertionError("it ended")
