"""The commands, end to end: a flow is run, then looked at from outside, without Spark."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
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


class Run:
    """``holdfast run`` of an app, in a process and a process group of its own; its epochs are read as they come."""

    def __init__(self, home: Path, source: str, *options: str) -> None:
        self.home, self.log = home, home / "log"
        self.app = home / "app.py"
        self.app.write_text(source)
        self.epochs: list[int] = []
        self.problems = ""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "holdfast.cli", "run", str(self.app), "--json", *options],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(), start_new_session=True,
        )  # fmt: skip
        self._readers = [
            threading.Thread(target=read, daemon=True) for read in (self._read_epochs, self._read_problems)
        ]
        for reader in self._readers:
            reader.start()

    def _read_epochs(self) -> None:
        assert self.process.stdout is not None
        self.epochs.extend(json.loads(line)["epoch"] for line in self.process.stdout)

    def _read_problems(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.problems += line

    def wait_for(self, reached: Callable[[], bool]) -> None:
        until = time.monotonic() + 120
        while not reached():
            assert self.process.poll() is None, self.problems
            assert time.monotonic() < until, self.problems
            time.sleep(0.02)

    def wait_for_more(self, epochs: int = 2) -> None:
        """Return after so many more epochs; the first of them may have begun before."""
        enough = len(self.epochs) + epochs
        self.wait_for(lambda: len(self.epochs) >= enough)

    def interrupt(self) -> None:
        """As a terminal does it: Ctrl-C goes to every process of the group, Spark's JVM and workers included."""
        os.killpg(self.process.pid, signal.SIGINT)

    def end(self) -> int:
        """The status with which the process ends by itself."""
        status = self.process.wait(timeout=120)
        for reader in self._readers:
            reader.join(10)
        return status

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


@pytest.fixture(scope="module")
def runs() -> Iterator[list[Run]]:
    found: list[Run] = []
    yield found
    for run in found:
        run.kill()


@pytest.fixture
def endless(runs: list[Run], tmp_path: Path) -> Run:
    """A flow that runs and serves its metrics; the tests share it until one of them ends it."""
    if not runs or runs[-1].process.poll() is not None:
        source = SOURCE.format(log=str(tmp_path / "log"), epochs=None)
        runs.append(Run(tmp_path, source, "--metrics", f"127.0.0.1:{free_port()}"))
    runs[-1].wait_for_more(1)
    return runs[-1]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_an_app_is_planned_and_explained_while_another_driver_runs_it_and_nothing_changes(
    endless: Run, tmp_path: Path
) -> None:
    driver = describe(endless.log)["running"]
    edited = tmp_path / "edited.py"
    kept = SOURCE.format(log=str(endless.log), epochs=None).replace("LIMIT 3", "LIMIT 2")
    edited.write_text(kept.replace('flow.view("totals"', 'flow.view("sums"').replace("FROM totals", "FROM sums"))
    code, out, problem = invoke("plan", edited)
    assert code == 0, problem
    assert "a driver runs it" in out and "adds sums" in out and "rebuilds top" in out and "drops totals" in out
    without = tmp_path / "without.py"
    without.write_text("\n".join(line for line in endless.app.read_text().splitlines() if '"top"' not in line))
    code, out, problem = invoke("explain", without)
    assert code == 0 and "view totals(key, n)" in out and "view top" not in out, problem
    endless.wait_for_more()
    assert not endless.problems and describe(endless.log)["running"] == driver
    assert set(describe(endless.log)["collections"]) == {"totals", "top"}
    assert read(endless.log, "top").num_rows == 3


def test_a_run_serves_its_metrics_at_the_address_that_it_is_given(endless: Run) -> None:
    address = endless.process.args[-1]  # type: ignore[index]  # a list, as we gave it
    before = len(endless.epochs)
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    epoch = int(re.findall(r'^holdfast_epoch\{flow="rates"\} (\S+)$', text, re.M)[0])
    rows = float(re.findall(r'^holdfast_rows_in_total\{flow="rates"\} (\S+)$', text, re.M)[0])
    assert epoch >= before - 1 and rows >= 1000 * before


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_a_run_that_is_told_to_stop_finishes_its_epoch_and_ends_well(endless: Run, number: signal.Signals) -> None:
    endless.interrupt() if number == signal.SIGINT else endless.process.terminate()
    assert endless.end() == 0, endless.problems
    assert "Traceback" not in endless.problems
    assert ("holdfast: stopping after this epoch" in endless.problems) == (number == signal.SIGINT)
    found = describe(endless.log)
    assert endless.epochs == list(range(found["epoch"] + 1)) and found["running"] is None
    assert sum(read(endless.log, "totals")["n"].to_pylist()) == 1000 * len(endless.epochs)


STUCK = """
import os, time
def stuck(n):
    if n > 100:
        open({begun!r}, "a").close()
        time.sleep(300)
    return n
flow.udf("stuck", stuck, "long")
flow.view("slow", "SELECT key, stuck(n) AS n FROM totals")
"""


def test_a_second_ctrl_c_stops_a_run_at_once(runs: list[Run], tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    source = SOURCE.format(log=str(tmp_path / "log"), epochs=None) + STUCK.format(begun=str(begun))
    run = Run(tmp_path, source)
    runs.append(run)
    run.wait_for(begun.exists)
    run.interrupt()
    run.wait_for(lambda: "stopping after this epoch" in run.problems)
    told = time.monotonic()
    run.interrupt()
    assert run.end() == 130, run.problems
    assert time.monotonic() - told < 30, "the epoch would take 300 s"
    assert run.problems.split("\n") == ["", "holdfast: stopping after this epoch; Ctrl-C again stops at once", ""]
    found = describe(tmp_path / "log")
    assert found["epoch"] == len(run.epochs) - 1 and found["running"] is None


def test_a_run_that_meets_a_bad_file_says_so_in_few_lines_and_without_java(runs: list[Run], tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "bad.parquet").write_bytes(b"PAR1 is how it begins, and the rest is not there")
    source = f"""
import holdfast as hf
flow = hf.Flow("files", log={str(tmp_path / "log")!r}, partitions=1)
flow.source("t", hf.files({str(tmp_path / "in")!r}, format="parquet", schema="id long"))
flow.view("v", "SELECT id FROM t")
"""
    run = Run(tmp_path, source, "--until", "idle")
    runs.append(run)
    assert run.end() == 1 and not run.epochs
    assert "bad.parquet" in run.problems and len(run.problems.splitlines()) <= 3, run.problems
    assert not re.search(r"Traceback|Exception|\bat (org|java|scala)\.|WARN|ERROR", run.problems), run.problems


@pytest.mark.slow
def test_on_a_terminal_one_line_says_that_spark_starts(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(SOURCE.format(log=str(tmp_path / "log"), epochs=2))
    main, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast.cli", "run", str(tmp_path / "app.py"), "--until", "idle"],
        stdin=terminal, stdout=terminal, stderr=terminal, env={**environment(), "TERM": "xterm", "COLUMNS": "120"},
        start_new_session=True,
    )  # fmt: skip
    os.close(terminal)
    shown = b""
    with suppress(OSError):  # that is how the end of a terminal is told
        while part := os.read(main, 65536):
            shown += part
    os.close(main)
    assert process.wait(timeout=60) == 0, shown
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
    starting, begun, rest = text.partition("rates: begins")
    assert begun and "rates: 2 epochs, 2,000 rows in" in rest
    assert "flow 'rates': starting Spark, 0 s" in starting and "flow 'rates': starting Spark, 1 s" in starting
    drawn = re.compile(r". (starting Spark, and reading .*|flow '?rates'?: (starting Spark|opening the log)), \d+ s")
    other = [line for line in re.split(r"[\r\n]+", starting) if line.strip() and not drawn.fullmatch(line.strip())]
    assert not other, "one line is drawn again and again in its place"
    assert not re.search(r"WARN|incubator|native-hadoop|log4j", text), text


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
