"""Every benchmark of `make bench` runs to its end, and prints what a program can read."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NAMES = re.search(r"^BENCHMARKS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1].split()


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_quick_run_ends_well(name: str) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / f"{name}.py"), "--quick", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    # 1: a goal was not met. In a run that is so short, that says nothing.
    assert done.returncode in (0, 1), done.stderr
    assert json.loads(done.stdout.strip().rpartition("\n")[2]), done.stderr


@pytest.mark.slow
def test_what_a_flow_keeps_does_not_grow_with_its_epochs() -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "growth.py"), "--quick", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    figures = json.loads(done.stdout.strip().rpartition("\n")[2])
    growing = {name: figure for name, figure in figures.items() if figure[3]}
    assert not growing, done.stderr


@pytest.mark.slow
def test_the_first_result_comes_soon_after_plain_sparks_first_python_task() -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "first_result.py"), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"more than 1.3 times as long: {done.stdout}{done.stderr}"
