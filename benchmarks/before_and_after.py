"""The epochs of this checkout beside those of earlier revisions, turn by turn in one run.

Each revision is checked out into a directory of its own and runs in a process of its own, with a Spark session of its
own; only one of them works at a time, a block of epochs each, so that whatever else the machine does, it does to all.
The workload is that of `against_structured_streaming`: a keyed count and sum over files, durable with one location.

    python benchmarks/before_and_after.py HEAD~20 v0.1          this checkout, and two earlier ones
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
from contextlib import suppress
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
OURS = "this checkout"
ALLOWED = 1.05


class Side:
    """A process that runs the epochs of one revision when it is told to."""

    def __init__(self, name: str, tree: Path, home: Path, keys: int) -> None:
        self.name = name
        self._log = home.with_suffix(".log")
        paths = os.pathsep.join(str(tree / part) for part in ("src", "benchmarks"))
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__, "--work", str(home), "--keys", str(keys)],
            env={**os.environ, "PYTHONPATH": paths, "PYSPARK_PYTHON": sys.executable},
            cwd=tree,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log.open("w"),
            text=True,
        )

    def epochs(self, rows: int, count: int) -> list[float]:
        """The seconds of so many epochs of so many rows each."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps([rows, count]) + "\n")
            self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("["):
                return [float(each) for each in json.loads(line)]
        raise RuntimeError(f"{self.name}: the process ended with {self._process.wait()}: {self._log.read_text()}")

    def close(self) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait(60)


def work(home: Path, keys: int) -> None:
    """In the process of a side: run epochs as asked. The modules are those of the revision."""
    from against_structured_streaming import Ours
    from data import session, write_rows

    home.mkdir(parents=True)
    side, random, files = Ours(session(), home), np.random.default_rng(7), 0
    for line in sys.stdin:
        rows, count = json.loads(line)
        seconds = []
        for _ in range(count):
            files += 1
            drawn = random.permutation(keys) if files == 1 else random.integers(0, keys, rows)
            file = home / f"batch-{files:06d}.parquet"
            write_rows(file, drawn, random)
            seconds.append(side.take(file))
            file.unlink()
        print(json.dumps(seconds), flush=True)
    side.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revisions", nargs="*", default=["HEAD"], help="what to compare this checkout with")
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--rows", type=int, default=50_000, help="rows of an epoch")
    parser.add_argument("--large", type=int, default=1_000_000, help="rows of a large epoch")
    parser.add_argument("--block", type=int, default=8, help="epochs of a turn")
    parser.add_argument("--rounds", type=int, default=10, help="turns of each side that count")
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work is not None:
        work(arguments.work, arguments.keys)
        return 0
    home = Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
    trees = {OURS: ROOT}
    try:
        for number, revision in enumerate(arguments.revisions):
            trees[revision] = home / f"tree-{number}"
            subprocess.run(["git", "clone", "-q", str(ROOT), str(trees[revision])], check=True)
            subprocess.run(["git", "checkout", "-q", _hash(revision)], cwd=trees[revision], check=True)
            _compile(trees[revision])
        return report(arguments, measured(arguments, trees, home))
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _compile(tree: Path) -> None:
    """Build the compiled part of a revision, if it has one, as an installation would."""
    for source in (tree / "src").rglob("_inner_loops.c"):
        headers = sysconfig.get_path("include")
        built = str(source.with_suffix(".abi3.so"))
        subprocess.run(["cc", "-O3", "-shared", "-fPIC", "-I", headers, str(source), "-o", built], check=True)


def _hash(revision: str) -> str:
    asked = ["git", "rev-parse", f"{revision}^{{commit}}"]
    return subprocess.run(asked, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def measured(
    arguments: argparse.Namespace, trees: dict[str, Path], home: Path
) -> dict[str, tuple[list[float], list[float]]]:
    """Name → the seconds of small epochs, and of large ones."""
    sides = [
        Side(name, tree, home / f"side-{number}", arguments.keys) for number, (name, tree) in enumerate(trees.items())
    ]
    found: dict[str, tuple[list[float], list[float]]] = {side.name: ([], []) for side in sides}
    try:
        for side in sides:
            side.epochs(arguments.rows, 13)
        for turn in range(arguments.rounds):
            for side in sides[turn % len(sides) :] + sides[: turn % len(sides)]:
                # The first epoch of a turn wakes the process up.
                found[side.name][0].extend(side.epochs(arguments.rows, 1 + arguments.block)[1:])
        for side in sides:
            side.epochs(arguments.large, 1)
        for turn in range(4):
            for side in sides[turn % len(sides) :] + sides[: turn % len(sides)]:
                found[side.name][1].extend(side.epochs(arguments.large, 2))
    finally:
        for side in sides:
            side.close()
    return found


def report(arguments: argparse.Namespace, found: dict[str, tuple[list[float], list[float]]]) -> int:
    """Print the table; 1 if this checkout is slower than one before it by more than is allowed."""
    table = Table(title=f"epochs over {arguments.keys:,} keys")
    for column in (
        "",
        f"{arguments.rows:,} rows: median ms",
        "90 %",
        f"{arguments.large:,} rows: rows/s",
        "ratio of medians",
    ):
        table.add_column(column, justify="left" if not column else "right")
    ours = statistics.median(found[OURS][0])
    slower = False
    for name, (small, large) in found.items():
        median = statistics.median(small)
        slower |= ours > ALLOWED * median
        table.add_row(
            name,
            f"{1000 * median:.0f}",
            f"{1000 * statistics.quantiles(small, n=10)[-1]:.0f}",
            f"{arguments.large / statistics.median(large):,.0f}",
            f"{ours / median:.2f}",
        )
    Console().print(table)
    return int(slower)


if __name__ == "__main__":
    sys.exit(main())
