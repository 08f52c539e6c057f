"""A machine without Java: one sentence that says what to do, and no trace of Spark's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import holdfast as hf

flow = hf.Flow("shop", log="log")
flow.input("t", "id long")
try:
    flow.view("v", "SELECT id FROM t")
except hf.SparkNotStarted as error:
    print(error)
"""


def test_without_java_the_error_says_where_it_was_looked_for_and_what_to_install(tmp_path: Path) -> None:
    environment = {**os.environ, "JAVA_HOME": str(tmp_path / "nowhere")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
    )
    assert (
        f"none was found: JAVA_HOME is {tmp_path}/nowhere, where there is no bin/java; install Java 17" in done.stdout
    )
    assert "Traceback" not in done.stderr
