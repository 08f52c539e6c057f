"""Views are right when the hash is weak, so that different keys meet in every operator.

The hash is weakened by an environment variable, which Spark's workers must inherit: hence a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys, tempfile
from pathlib import Path
from holdfast.spark.session import local_builder
from holdfast.trace.hashing import hash_columns
import pyarrow as pa
from tests.oracle.check import check
assert len(set(hash_columns([pa.array(range(1000))]).tolist())) <= 4, "the hash is not weak"
interpreted = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
spark = local_builder(2).config(map=interpreted).getOrCreate()
for numbers in (range(180, 190), range(200, 210)):
    check(spark, Path(tempfile.mkdtemp(dir=sys.argv[1])), numbers)
"""


@pytest.mark.slow  # (in `make test`: tests/operators, with weak hashes)
def test_views_equal_the_batch_result_when_hashes_collide(tmp_path: Path) -> None:
    environment = {**os.environ, "HOLDFAST_WEAK_HASH": "2", "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], env=environment, cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-4000:]
