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

MISTAKES = {
    "strategy": ('hf.StrategyName = "nosync"', 'hf.StrategyName = "no-sync"', "reportAssignmentType"),
    "choice": ('identity="content"', 'identity="contents"', "reportArgumentType"),
    "attribute": ("status.durability\n", "status.durabilty\n", "reportAttributeAccessIssue"),
    "index": ("durability.unsafe.bytes", 'durability.unsafe["bytes"]', "reportIndexIssue"),
    "frozen": ("    if status.clock is", "    status.epoch = 3\n    if status.clock is", "reportAttributeAccessIssue"),
    "hook": ("epoch: int, change: pa.Table, l", "epoch: str, change: pa.Table, l", "reportIncompatibleMethodOverride"),
}  # fmt: skip
"""What is right, what is wrong, and by which rule that is found."""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """The errors that pyright finds in the script, and in the script with each of the mistakes; in one run."""
    directory = tmp_path_factory.mktemp("scripts")
    (directory / "right.py").write_text(SCRIPT)
    for name, (right, wrong, _) in MISTAKES.items():
        assert right in SCRIPT
        (directory / f"{name}.py").write_text(SCRIPT.replace(right, wrong))
    config = json.loads((HERE / "pyrightconfig.json").read_text())
    config["include"] = ["*.py"]
    config["extraPaths"] = [str((HERE / path).resolve()) for path in config["extraPaths"]]
    config["stubPath"] = str(HERE / config["stubPath"])
    (directory / "pyrightconfig.json").write_text(json.dumps(config))
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable]
    done = subprocess.run([*command, "-p", str(directory)], capture_output=True, text=True, timeout=300)
    said: dict[str, Any] = json.loads(done.stdout)
    assert said["summary"]["filesAnalyzed"] == 1 + len(MISTAKES), done.stdout + done.stderr
    errors: dict[str, list[dict[str, Any]]] = {"right": [], **{name: [] for name in MISTAKES}}
    for each in said["generalDiagnostics"]:
        if each["severity"] == "error":
            errors[Path(each["file"]).stem].append(each)
    return errors


def test_a_users_script_passes_strict_type_checking(found: dict[str, list[dict[str, Any]]]) -> None:
    assert [(each["range"]["start"]["line"] + 1, each["message"]) for each in found["right"]] == []


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_a_users_script_is_found(found: dict[str, list[dict[str, Any]]], name: str) -> None:
    assert MISTAKES[name][2] in {each["rule"] for each in found[name]}
