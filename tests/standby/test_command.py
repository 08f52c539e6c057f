"""``holdfast run --lease``, before Spark is started; and what ``holdfast status`` says of who leads. No Spark here."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from holdfast.cli import app
from holdfast.log.working_directory import LogDirectory
from holdfast.standby.events import LeaseEvent
from holdfast.standby.lease import Holder
from holdfast.terminal.live import Jsonl, Progress

FLOW = """
import holdfast as hf
flow = hf.Flow("rates", log={log!r})
flow.source("r", hf.rate(1000, keys=20))
flow.view("totals", "SELECT key, count(*) AS n FROM r GROUP BY key")
"""


def invoke(*arguments: str | Path) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [str(one) for one in arguments], env={"COLUMNS": "200"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--lease", "shared/path"], 1, "lease 'shared/path': expected file:///shared/path or zk://host:port/path"),
        (["--lease", "file:///{home}/app.py"], 1, "it is a file; a lease is a directory"),
        (["--lease", "file:///{home}/app.py/lease"], 1, "a part of the path is a file, not a directory"),
        (["--lease", "file:///{home}/lease", "--lease-timeout", "soon"], 1, "from 200ms to 60m, such as '2s', not"),
        (["--lease", "zk://127.0.0.1:2181/flows", "--lease-timeout", "2m"], 1, "must be 40s at most, not 120s"),
        (["--lease-timeout", "2s"], 2, "give --lease, too"),
    ],
)
def test_a_lease_that_cannot_be_used_is_refused_at_once(
    tmp_path: Path, options: list[str], code: int, message: str
) -> None:
    (tmp_path / "app.py").write_text(FLOW.format(log=str(tmp_path / "log")))
    given = [option.replace("/{home}", str(tmp_path)) for option in options]
    ended, _, said = invoke("run", tmp_path / "app.py", *given)
    assert ended == code and message in " ".join(said.split())
    assert not (tmp_path / "log").exists()


def test_status_says_who_leads(tmp_path: Path) -> None:
    log = LogDirectory.open(tmp_path, "flow", create=True, exclusive=True, lease="file:///shared/flow")
    code, said, _ = invoke("status", tmp_path)
    said = " ".join(said.split())
    assert code == 0
    assert f"yes, by process {os.getpid()} on " in said and "which leads by file:///shared/flow" in said
    code, said, _ = invoke("status", tmp_path, "--json")
    assert json.loads(said)["running"]["lease"] == "file:///shared/flow"
    log.close()
    assert "leads by" not in invoke("status", tmp_path)[1]


def test_events_of_the_lease_are_json_lines(capsys: pytest.CaptureFixture[str]) -> None:
    event = LeaseEvent("standby", "file:///shared/flow", Holder(7, "host", 1.0))
    Jsonl(None, "rates", Progress()).told(event)  # type: ignore[arg-type]  # it prints no other way
    said = json.loads(capsys.readouterr().out)
    assert said.pop("at") > 0
    assert said == {
        "flow": "rates",
        "event": "standby",
        "lease": "file:///shared/flow",
        "holder": {"pid": 7, "host": "host", "since": 1.0},
    }
