"""The library that has calls of real processes fail: it reaches Python, Arrow's C++ and what they start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.testing import Fault, Plan
from holdfast.testing.faulty import shim
from holdfast.testing.faulty.plan import FOREVER, KINDS

pytestmark = pytest.mark.skipif(shim.missing() is not None, reason=str(shim.missing()))

CALLS = {
    "open": "open(file).read()",
    "create": "open(new, 'w')",
    "read": "open(file).read()",
    "write": "open(new, 'w').write('x' * 10_000)",
    "sync": "os.fsync(os.open(file, os.O_RDONLY))",
    "truncate": "os.ftruncate(os.open(new, os.O_RDWR | os.O_CREAT), 0)",
    "map": "pa.memory_map(file)",
    "stat": "os.stat(file)",
    "list": "os.listdir(place)",
    "mkdir": "os.mkdir(new)",
    "remove": "os.unlink(file)",
    "rename": "os.replace(file, new)",
    "link": "os.link(file, new)",
    "lock": "fcntl.flock(os.open(file, os.O_RDONLY), fcntl.LOCK_SH)",
}
ARROW = {
    "open": "pq.read_schema(table)",
    "read": "pq.read_schema(table)",
    "create": "pq.write_table(pa.table({'n': [1]}), new)",
    "write": "pq.write_table(pa.table({'n': [1]}), new)",
}
SCRIPT = """
import fcntl, os, sys
import pyarrow as pa, pyarrow.parquet as pq
place = sys.argv[1]
file, new, table = place + "/file", place + "/new", place + "/table"
sys.stdin.readline()
for line in sys.argv[2:]:
    try:
        eval(line)
        print("done")
    except OSError as error:
        print("failed")
    sys.stdout.flush()
    sys.stdin.readline()
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> shim.Shim:
    return shim.Shim(tmp_path_factory.mktemp("shim"))


def test_calls_of_python_and_of_arrow_fail_while_it_is_armed(library: shim.Shim, tmp_path: Path) -> None:
    place = tmp_path / "failing"
    place.mkdir()
    calls = [*CALLS.items(), *ARROW.items()]
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(place), *(call for _, call in calls)],
        env={**os.environ, **library.environment}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
    )  # fmt: skip
    assert process.stdin and process.stdout
    said = {}
    for kind, call in calls:
        (place / "file").write_text("x")
        pq.write_table(pa.table({"n": [1]}), place / "table")
        (place / "new").unlink(missing_ok=True)
        library.arm(Plan((Fault(kind, 1, "EIO", FOREVER),)), [place])
        process.stdin.write("\n")
        said[kind, call] = process.stdout.readline().strip()
        library.disarm()
    process.stdin.close()
    process.wait(30)
    assert set(said.values()) == {"failed"}, said
    assert {line.split()[1] for line in library.failed} == set(KINDS)


def test_calls_are_counted_over_all_processes(library: shim.Shim, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    library.arm(Plan((Fault("open", 3, "EMFILE"),)), [tmp_path])
    codes = [
        subprocess.run(["cat", tmp_path / "file"], env={**os.environ, **library.environment}, capture_output=True)
        for _ in range(4)
    ]
    assert [code.returncode for code in codes] == [0, 0, 1, 0]
    assert b"Too many open files" in codes[2].stderr
    assert library.counts["open"] == 4
    library.disarm()
