"""The commands, end to end: a flow is run, then looked at from outside, without Spark."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import holdfast
from holdfast.cli import app
from holdfast.errors import EpochUnavailable, MemberLost, UnknownName
from holdfast.inspect.describe import describe
from holdfast.inspect.open_log import read
from holdfast.log.working_directory import LogDirectory

SOURCE = """
import holdfast as hf
flow = hf.Flow("rates", log={log!r}, partitions=2)
flow.source("r", hf.rate(1000, keys=20, epochs={epochs}))
flow.view("totals", "SELECT key, count(*) AS n FROM r GROUP BY key")
flow.view("top", "SELECT key, n FROM totals ORDER BY n DESC, key LIMIT 3")
"""


def invoke(*arguments: str | Path) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [str(one) for one in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, object]]]:
    """A log of three epochs, and the JSON lines of its run."""
    home = tmp_path_factory.mktemp("run")
    (home / "app.py").write_text(SOURCE.format(log=str(home / "log"), epochs=3))
    code, out, _ = invoke("run", home / "app.py", "--until", "idle", "--json")
    assert code == 0
    return home / "log", [json.loads(line) for line in out.splitlines() if line.startswith("{")]


def test_a_run_prints_one_json_line_per_epoch(ran: tuple[Path, list[dict[str, object]]]) -> None:
    _, lines = ran
    assert [line["epoch"] for line in lines] == [0, 1, 2]
    assert all(line["flow"] == "rates" and line["rows_in"] == 1000 for line in lines)


def test_explain_draws_the_dataflow_of_a_log(ran: tuple[Path, list[dict[str, object]]], tmp_path: Path) -> None:
    log, _ = ran
    code, out, _ = invoke("explain", log, "--view", "totals")
    assert code == 0 and "aggregate by key: count(*)" in out and "exchange per epoch" in out
    assert "rows, " in out and "cost of the change" in out and "shared with top" in out
    assert "first 3" not in out
    code, out, _ = invoke("explain", log, "--format", "json")
    assert code == 0 and set(json.loads(out)["views"]) == {"totals", "top"}
    for kind, start in (("svg", "<svg"), ("html", "<!doctype html>")):
        code, _, said = invoke("explain", log, "--format", kind, "-o", tmp_path / f"flow.{kind}")
        assert code == 0 and "written to" in said
        text = (tmp_path / f"flow.{kind}").read_text()
        assert text.startswith(start) and "first 3 by n desc, key" in text
    code, _, said = invoke("explain", log, "--view", "totls")
    assert code == 1 and "did you mean 'totals'?" in said


def test_a_flow_that_was_run_goes_on_where_it_was(ran: tuple[Path, list[dict[str, object]]], tmp_path: Path) -> None:
    log, _ = ran
    (tmp_path / "app.py").write_text(SOURCE.format(log=str(log), epochs=3))
    code, out, _ = invoke("run", tmp_path / "app.py", "--until", "idle")
    assert code == 0 and "0 epochs" in out


def test_status_says_what_the_log_holds(ran: tuple[Path, list[dict[str, object]]]) -> None:
    code, out, _ = invoke("status", ran[0])
    assert code == 0
    for word in ("rates", "totals", "top", "key bigint, n bigint", "epoch 0"):
        assert word in out
    found = json.loads(invoke("status", ran[0], "--json")[1])
    assert found["epoch"] == 2 and found["running"] is None and found["collections"]["top"]["earliest"] == 0
    assert found["bytes"] > 0 and all(trace["layers"] for trace in found["traces"])


def test_reading_shows_the_rows_in_the_order_of_the_view(ran: tuple[Path, list[dict[str, object]]]) -> None:
    code, out, _ = invoke("read", ran[0], "top", "--format", "json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0 and len(rows) == 3
    everything = read(ran[0], "totals").to_pylist()
    assert sum(row["n"] for row in everything) == 3000
    assert rows == sorted(everything, key=lambda row: (-row["n"], row["key"]))[:3]
    assert "top: 3 rows" in invoke("read", ran[0], "top")[1]


def test_reading_as_of_an_epoch_and_in_every_format_gives_the_same_rows(
    ran: tuple[Path, list[dict[str, object]]], tmp_path: Path
) -> None:
    for at in range(3):
        rows = read(ran[0], "totals", at)
        assert sum(rows["n"].to_pylist()) == 1000 * (at + 1)
        _, text, _ = invoke("read", ran[0], "totals", "--at", str(at), "--format", "csv")
        assert [
            {key: int(value) for key, value in row.items()} for row in csv.DictReader(io.StringIO(text))
        ] == rows.to_pylist()
        path = tmp_path / f"{at}.parquet"
        assert invoke("read", ran[0], "totals", "--at", str(at), "--format", "parquet", "-o", path)[0] == 0
        assert pq.read_table(path).equals(rows)
    assert len(invoke("read", ran[0], "totals", "--format", "json", "--limit", "2")[1].splitlines()) == 2


def test_looking_needs_no_spark(ran: tuple[Path, list[dict[str, object]]]) -> None:
    code = (
        "import sys; from holdfast.cli import app\n"
        f"try: app(['read', {str(ran[0])!r}, 'top'])\n"
        "except SystemExit: pass\n"
        "assert 'pyspark' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=60, env=environment())


def test_a_log_in_use_can_be_read_and_says_who_uses_it(ran: tuple[Path, list[dict[str, object]]]) -> None:
    held = LogDirectory.open(ran[0], "rates", create=False, exclusive=True)
    try:
        assert f"by process {os.getpid()}" in invoke("status", ran[0])[1]
        assert describe(ran[0])["running"]["pid"] == os.getpid()
        assert invoke("read", ran[0], "top")[0] == 0
    finally:
        held.close()


def test_layers_of_an_epoch_that_never_completed_are_not_read(ran: tuple[Path, list[dict[str, object]]]) -> None:
    log = LogDirectory.open(ran[0])
    before = read(ran[0], "totals")
    directory = log.trace_path(log.read_collections()["collections"]["totals"]["fingerprint"], "rows")
    layer = next(path for path in directory.iterdir() if path.suffix == ".arrow")
    rest = layer.name.split("-")[2:]
    stale = directory / "-".join([f"{3:012d}", f"{3:012d}", *rest])
    stale.write_bytes(b"garbage")
    try:
        assert read(ran[0], "totals").equals(before)
        assert describe(ran[0])["epoch"] == 2
    finally:
        stale.unlink()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("read", "LOG", "topp"), 1, "keeps no view 'topp'; did you mean 'top'?"),
        (("read", "LOG", "top", "--at", "3"), 1, "there is no epoch 3; epochs 0 to 2 are complete"),
        (("read", "LOG", "top", "--at", "-1"), 2, "--at"),
        (("read", "LOG", "top", "--format", "parquet"), 2, "give --output FILE"),
        (("read", "LOG", "top", "--output", "x"), 2, "a table is for the terminal"),
        (("read", "LOG", "top", "--format", "xml"), 2, "xml"),
        (("read", "LOG", "top", "--format", "csv", "-o", "/nowhere/x"), 1, "/nowhere"),
        (("status", "/nowhere/log"), 1, "/nowhere/log: it does not exist"),
        (("run", "/nowhere/app.py"), 1, "there is no such file"),
        (("run",), 2, "Missing argument"),
    ],
)
def test_a_mistake_is_one_message_and_an_exit_code(
    ran: tuple[Path, list[dict[str, object]]], arguments: tuple[str, ...], code: int, message: str
) -> None:
    found, out, problem = invoke(*(str(ran[0]) if one == "LOG" else one for one in arguments))
    assert found == code and message in problem and out == ""
    assert "Traceback" not in problem


def test_a_flow_that_terminates_because_of_a_loss_has_a_status_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(path: Path) -> None:
        raise MemberLost("flow 'rates': executor 3 on host-b was lost", member="3")

    monkeypatch.setattr("holdfast.terminal.app.load_flow", lost)
    code, _, problem = invoke("run", "app.py")
    assert code == 4 and "executor 3 on host-b was lost" in problem


def test_the_functions_behind_raise_what_the_commands_print(ran: tuple[Path, list[dict[str, object]]]) -> None:
    with pytest.raises(UnknownName):
        read(ran[0], "nope")
    with pytest.raises(EpochUnavailable):
        read(ran[0], "top", 99)


def test_a_log_whose_flow_never_ran_an_epoch_says_so(tmp_path: Path) -> None:
    log = LogDirectory.open(tmp_path / "log", "new", create=True, exclusive=True)
    view = {"kind": "view", "fields": [["a", "int"]], "fingerprint": "f", "key": []}
    log.write_collections({"collections": {"v": view}, "operators": {"f": "log"}})
    log.close()
    assert "none yet" in invoke("status", tmp_path / "log")[1]
    assert "no epoch is complete yet" in invoke("read", tmp_path / "log", "v")[2]


def test_the_version_is_printed() -> None:
    assert invoke("--version")[:2] == (0, f"holdfast {holdfast.__version__}\n")


def environment() -> dict[str, str]:
    source = str(Path(holdfast.__file__).parent.parent)
    return {**os.environ, "PYTHONPATH": source, "PYSPARK_PYTHON": sys.executable}


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_a_run_that_is_told_to_stop_finishes_its_epoch_and_ends_well(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "app.py").write_text(SOURCE.format(log=str(tmp_path / "log"), epochs=None))
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast.cli", "run", str(tmp_path / "app.py"), "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(), start_new_session=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        first = process.stdout.readline()
        # As a terminal does it: Ctrl-C goes to every process of the group, Spark's JVM and workers included.
        (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
        out, problem = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 0, problem
    assert "Traceback" not in problem
    printed = [json.loads(line)["epoch"] for line in (first + out).splitlines()]
    found = describe(tmp_path / "log")
    assert printed == list(range(found["epoch"] + 1)) and found["running"] is None
    assert sum(read(tmp_path / "log", "totals")["n"].to_pylist()) == 1000 * len(printed)


@pytest.mark.slow
def test_a_run_shows_what_is_logged_once(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"id": [1]}), tmp_path / "in" / "a.parquet")
    shutil.copy2(tmp_path / "in" / "a.parquet", tmp_path / "in" / "b.parquet")  # it counts, and is spoken of
    (tmp_path / "app.py").write_text(
        f"""
import holdfast as hf
flow = hf.Flow("copies", log={str(tmp_path / "log")!r}, partitions=1)
flow.source("t", hf.files({str(tmp_path / "in")!r}, schema="id long", max_files_per_epoch=1))
flow.view("v", "SELECT id FROM t")
"""
    )
    command = [sys.executable, "-m", "holdfast.cli", "run", str(tmp_path / "app.py"), "--until", "idle", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=300)
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["epoch"] for line in done.stdout.splitlines()] == [0, 1]
    said = [line for line in done.stderr.splitlines() if "is a copy of or link to" in line]
    assert len(said) == 1 and said[0].startswith("holdfast: file '"), done.stderr
