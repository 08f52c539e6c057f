"""Real flows on Spark whose files fail, in every process: after each the flow opens and is exact."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from holdfast.testing.faulty import shim

REAL = Path(__file__).with_name("real.py")
pytestmark = pytest.mark.skipif(shim.missing() is not None, reason=str(shim.missing()))


@pytest.mark.slow
@pytest.mark.parametrize(("first", "count"), [(0, 2), (100, 12), (200, 12), (300, 12)])
def test_a_flow_on_spark_whose_files_failed_is_exact(tmp_path: Path, first: int, count: int) -> None:
    control = tmp_path / "control"
    control.mkdir()
    library = shim.Shim(control)
    own = {"PYTHONPATH": str(Path(holdfast.__file__).parents[1]), "PYSPARK_PYTHON": sys.executable, "TZ": "UTC"}
    done = subprocess.run(
        [sys.executable, str(REAL), str(tmp_path / "flows"), str(control), str(first), str(count)],
        env={**os.environ, **own, **library.environment, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=120 + 60 * count,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("seed ")]
    print("\n".join(lines))
    assert len(lines) == count, done.stderr[-4000:]
    wrong = [line for line in done.stdout.splitlines() if line.startswith(("seed", "plan")) and "exact" not in line]
    assert not wrong, "\n".join(wrong)
    assert sum(int(line.split()[2]) for line in lines) > 0, "no call failed: nothing was tested"
