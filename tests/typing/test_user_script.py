"""A user's script passes pyright in strict mode, and what it must not write does not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
SCRIPT = (HERE / "user_script.py").read_text()


def _found(directory: Path, script: str) -> list[dict[str, Any]]:
    """What pyright says of a script that is checked as user_script.py is."""
    (directory / "user_script.py").write_text(script)
    config = json.loads((HERE / "pyrightconfig.json").read_text())
    config["extraPaths"] = [str((HERE / path).resolve()) for path in config["extraPaths"]]
    config["stubPath"] = str(HERE / config["stubPath"])
    (directory / "pyrightconfig.json").write_text(json.dumps(config))
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable]
    done = subprocess.run([*command, "-p", str(directory)], capture_output=True, text=True, timeout=300)
    said: dict[str, Any] = json.loads(done.stdout)
    assert said["summary"]["filesAnalyzed"] == 1, done.stdout + done.stderr
    return [each for each in said["generalDiagnostics"] if each["severity"] == "error"]


def test_a_users_script_passes_strict_type_checking(tmp_path: Path) -> None:
    assert [(each["range"]["start"]["line"] + 1, each["message"]) for each in _found(tmp_path, SCRIPT)] == []


@pytest.mark.parametrize(
    ("right", "wrong", "rule"),
    [
        ('strategy: hf.Strategy = "nosync"', 'strategy: hf.Strategy = "no-sync"', "reportAssignmentType"),
        ('identity="content"', 'identity="contents"', "reportArgumentType"),
        ("status.durability\n", "status.durabilty\n", "reportAttributeAccessIssue"),
        ("durability.unsafe.bytes", 'durability.unsafe["bytes"]', "reportIndexIssue"),
        ("epoch: int, change: pa.Table, lineage: bytes", "epoch: str, change: pa.Table, lineage: bytes",
         "reportIncompatibleMethodOverride"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_users_script_is_found(tmp_path: Path, right: str, wrong: str, rule: str) -> None:
    assert right in SCRIPT
    assert rule in {each["rule"] for each in _found(tmp_path, SCRIPT.replace(right, wrong))}
