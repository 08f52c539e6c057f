"""What a running flow shows, and how the command line finds the flow. No Spark here."""

from __future__ import annotations

import io
import json
import logging
import re
import sys
from pathlib import Path

import pytest
from rich.console import Console

from holdfast.errors import DeclarationError, UnknownName
from holdfast.reporting.activity import doing
from holdfast.reporting.redaction import logger
from holdfast.results.flow_results import (
    DurabilityStatus,
    Epoch,
    Latency,
    MaintenanceStatus,
    SinkStatus,
    SourceStatus,
    Status,
    Unsafe,
)
from holdfast.terminal.app import load_flow
from holdfast.terminal.events import events_shown
from holdfast.terminal.live import Jsonl, Lines, Progress, Screen, beginning


def epoch(number: int, rows: int = 100, seconds: float = 0.1) -> Epoch:
    return Epoch(number, {"top": 2}, rows, seconds)


def test_rates_are_taken_over_the_last_seconds_only() -> None:
    progress = Progress()
    progress._started = 0.0
    for number in range(100):
        progress.add(epoch(number, rows=10), now=float(number))
    per_second, rows = progress.rates(now=99.0)
    assert per_second == pytest.approx(1.0, rel=0.05)
    assert rows == pytest.approx(10.0, rel=0.05)
    assert progress.rates(now=1000.0) == (0.0, 0.0), "an idle flow has no rate"


def test_latency_is_median_and_p99() -> None:
    progress = Progress()
    assert progress.latency() == (0.0, 0.0)
    for number in range(100):
        progress.add(epoch(number, seconds=5.0 if number >= 98 else 0.1))
    assert progress.latency() == (0.1, 5.0)
    assert progress.summary() == "100 epochs, 10,000 rows in; median 100 ms, p99 5,000 ms per epoch"


def test_the_screen_says_epoch_rates_latency_and_what_waits() -> None:
    progress = Progress()
    assert list(_rows(progress)) == ["epoch", "epochs/s", "rows/s", "latency", "waiting", "uptime"]
    progress.add(epoch(7))
    progress.waiting = {"visits": 12, "rankings": 0, "clock": None}
    found = _rows(progress)
    assert found["epoch"] == "7" and found["latency"] == "median 100 ms   p99 100 ms"
    assert found["waiting"] == "visits 12" and found["view top"] == "2 rows changed"
    assert float(found["epochs/s"].replace(",", "")) > 0 and float(found["rows/s"].replace(",", "")) > 0


def test_the_screen_says_what_is_safe_and_at_risk_how_far_sinks_are_and_since_when_it_runs() -> None:
    progress = Progress()
    progress._started -= 3 * 3600 + 25 * 60 + 7
    progress.stands(status(safe=1200, unsafe=Unsafe(34, 5_600_000)))
    found = _rows(progress)
    assert found["safe"] == "epoch 1,200" and found["at risk"] == "34 epochs, 5.6 MB"
    assert found["waiting"] == "visits 3" and found["sinks"] == "top (epoch 1233), all (epoch 1230)"
    assert found["uptime"] == "3:25:07"
    progress.stands(status(safe=-1, unsafe=Unsafe(0, 0)))
    found = _rows(progress)
    assert found["safe"] == "-" and found["at risk"] == "nothing"


def test_the_screen_says_what_takes_its_time_and_for_how_long() -> None:
    with doing("flow 'rates'", "epoch 0: filling 3 views") as filling:
        assert "now" not in _rows(Progress()), "what is over soon is not shown"
        filling.since -= 12
        assert _rows(Progress())["now"] == "epoch 0: filling 3 views, 12 s"


def test_a_run_says_whether_it_begins_or_where_it_goes_on() -> None:
    assert beginning("rates", -1) == "rates: begins"
    assert beginning("rates", 1218) == "rates: goes on after epoch 1,218"


def _rows(progress: Progress) -> dict[str, str]:
    """What the screen shows, line by line: the name in front, and what stands behind it."""
    console = Console(width=100, record=True, force_terminal=True, file=io.StringIO())
    console.print(Screen(console, "rates", progress)._table())
    title, *lines = console.export_text().splitlines()
    assert title.strip() == "flow rates"
    return dict(re.split(r" {2,}", line.strip(), maxsplit=1) for line in lines)


def status(safe: int, unsafe: Unsafe) -> Status:
    durability = DurabilityStatus("nosync", safe, safe, {}, (), unsafe, False, 0.0, 0, False, None)
    return Status(
        flow="rates",
        log="log",
        epoch=1233,
        views={},
        sources={"visits": SourceStatus(3), "clock": SourceStatus(None)},
        sinks=(SinkStatus("top", "Changelog", 1233), SinkStatus("all", "Foreach", 1230)),
        traces=(),
        latency=Latency(),
        partitions=1,
        maintenance=MaintenanceStatus(),
        durability=durability,
    )


def test_lines_come_at_most_once_a_second() -> None:
    progress = Progress()
    console = Console(width=200, record=True, file=io.StringIO())
    with Lines(console, "rates", progress) as lines:
        for number in range(50):
            progress.add(epoch(number))
            lines.shown(epoch(number))
    assert console.export_text().count("\n") == 1


def test_json_lines_hold_the_epoch(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress()
    progress.waiting = {"visits": 3}
    with Jsonl(Console(), "rates", progress) as lines:
        progress.add(epoch(4))
        lines.shown(epoch(4))
    line = json.loads(capsys.readouterr().out)
    assert (
        line["flow"] == "rates" and line["epoch"] == 4 and line["rows_in"] == 100 and line["waiting"] == {"visits": 3}
    )


@pytest.fixture(autouse=True)
def clean_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))


def write(path: Path, text: str) -> Path:
    path.write_text(f"import holdfast as hf\n{text}\n")
    return path


DECLARED = "hf.Flow('one', log='{}')"


def test_the_one_flow_of_a_file_is_found_by_whatever_name(tmp_path: Path) -> None:
    path = write(tmp_path / "a.py", f"x = {DECLARED.format(tmp_path)}\ny = x")
    assert load_flow(path).name == "one"


@pytest.mark.parametrize("name", ["build", "main"])
def test_a_function_may_build_the_flow(tmp_path: Path, name: str) -> None:
    assert load_flow(write(tmp_path / "a.py", f"def {name}(): return {DECLARED.format(tmp_path)}")).name == "one"


def test_a_file_beside_it_can_be_imported_and_main_blocks_are_not_run(tmp_path: Path) -> None:
    (tmp_path / "names_of_flows.py").write_text("NAME = 'beside'")
    text = (
        "import names_of_flows\nf = hf.Flow(names_of_flows.NAME, log='x')\nif __name__ == '__main__': raise SystemExit"
    )
    assert load_flow(write(tmp_path / "a.py", text)).name == "beside"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"it declares no flow; expected something like `flow = hf\.Flow"),
        ("a = hf.Flow('a', log='a'); b = hf.Flow('b', log='b')", r"several flows \(a, b\)"),
        ("def build(): return 5", r"build\(\) must return a Flow, found int"),
        ("x = 1 +", "line 2: invalid syntax"),
        ("\nx = nothing", "line 3: NameError: name 'nothing' is not defined"),
        ("import gone_module", "line 2: ModuleNotFoundError"),
        ("def main():\n    return 1 / 0", "line 3: ZeroDivisionError"),
    ],
)
def test_a_file_without_a_usable_flow_says_why(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        load_flow(write(tmp_path / "a.py", text))


@pytest.mark.parametrize("build", [False, True])
def test_an_error_of_a_declaration_says_its_line_in_the_users_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, build: bool
) -> None:
    lines = ["f = hf.Flow('a', log='x')", "f.input('t', 'id long')", "f.view('v', 'SELECT idd FROM t')"]
    text = "def build():\n    " + "\n    ".join([*lines, "return f"]) if build else "\n".join(lines)
    write(tmp_path / "a.py", text)
    monkeypatch.chdir(tmp_path)
    line = 5 if build else 4
    for path in (tmp_path / "a.py", Path("a.py")):
        with pytest.raises(UnknownName, match=rf"column 'idd' not found.*\(a\.py, line {line}\)$") as raised:
            load_flow(path)
        assert raised.value.fields["app_line"] == line and raised.value.fields["line"] == 1


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match=r"gone\.py: there is no such file"):
        load_flow(tmp_path / "gone.py")


def test_an_event_is_one_line_on_stderr(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # pytest's own: a program that sets up nothing has none
    with events_shown():
        logger("holdfast.tests").warning("flow '%s' waits for storage", "shop", extra={"flow": "shop"})
        logger("holdfast.tests").info("not for everybody")
    assert capsys.readouterr() == ("", "holdfast: flow 'shop' waits for storage\n")


def test_an_event_that_the_users_own_logging_shows_is_not_shown_twice(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [logging.StreamHandler(sys.stderr)])
    with events_shown():
        logger("holdfast.tests").warning("waits")
    assert capsys.readouterr().err == "waits\n"


def test_an_event_is_printed_above_the_live_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    drawn = io.StringIO()
    console = Console(file=drawn, force_terminal=True, width=60)
    with events_shown(), Screen(console, "shop", Progress()):
        logger("holdfast.tests").warning("waits for storage")
    assert drawn.getvalue().count("holdfast: waits for storage") == 1


def test_one_of_a_thing_is_not_several() -> None:
    progress = Progress()
    progress.add(epoch(0, rows=1))
    assert progress.summary().startswith("1 epoch, 1 row in; ")
