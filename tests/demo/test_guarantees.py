"""`holdfast demo guarantees` shows each type of recovery, as it was predicted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_the_demo_shows_each_type_of_recovery_as_it_was_predicted() -> None:
    command = Path(sys.executable).parent / "holdfast"
    done = subprocess.run([command, "demo", "guarantees", "--json"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["right"]
    shown = {each["recovery"]: f"{each['before']} | {each['after']}" for each in said["versions"]}
    assert shown["precise"] == "t1 t2 t3 | t4 t5 t6"
    assert shown["gap"] == "t1 t2 t3 | t5 t6"
    assert shown["rollback-repeating"] == "t1 t2 t3 | t3 t4 t5 t6"
    assert shown["rollback-convergent"] == "t1 t2 t3 | t′1 t1 t′2 t2 t′3 t3 t4 t5 t6"
    assert shown["rollback-divergent"].endswith("t′4 t′5 t′6")
