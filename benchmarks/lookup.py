"""Looking up one key among many, while epochs run: in the flow's process, and from another one without Spark.

A flow keeps a sum per key over ``--keys`` keys, and takes 1,000 changed rows per epoch without a pause. Meanwhile one
key after the other is looked up by ``flow.lookup``, and by a second process by ``hf.open_log(…)``, which refreshes
before each look-up. Beside them, over the same keys: a Spark job over ``flow.table``, and DuckDB over a Parquet file of
the view's rows, sorted by nothing in particular, as a table would be that is written once per refresh. It fails if the
medians are not below 5 ms and 20 ms.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow.parquet as pq
from data import SCHEMA, parse, session, write_rows
from rich.console import Console
from rich.table import Table

import holdfast as hf

HERE, OUTSIDE = 5.0, 20.0
"""Milliseconds that the median may take."""

VIEW = "SELECT key, count(*) AS n, sum(value) AS total FROM rows GROUP BY key"

READER = """
import json, random, sys, time
import holdfast as hf
log, keys, seconds = hf.open_log(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
chance, taken, epochs = random.Random(2), [], set()
for _ in range(20):
    log.lookup("totals", key=chance.randrange(keys))
end = time.monotonic() + seconds
while time.monotonic() < end:
    key = chance.randrange(keys)
    started = time.perf_counter()
    log.refresh()
    found = log.lookup("totals", key=key)
    taken.append(time.perf_counter() - started)
    epochs.add(found.epoch)
    assert len(found) == 1
    time.sleep(0.005)
print(json.dumps({"taken": taken, "epochs": len(epochs)}))
"""


def timed(work: Callable[[int], Any], keys: int, *, seconds: float = 0.0, times: int = 0) -> list[float]:
    """How long each call takes with random keys, with a little pause between them: so many, or so long."""
    random = np.random.default_rng(1)
    taken: list[float] = []
    end = time.monotonic() + seconds
    while len(taken) < times or time.monotonic() < end:
        key = int(random.integers(keys))
        started = time.perf_counter()
        work(key)
        taken.append(time.perf_counter() - started)
        time.sleep(0.005)
    return taken


def measure(given: argparse.Namespace, root: Path) -> dict[str, tuple[list[float], int]]:
    """What was measured → seconds of each look-up, and over how many epochs they were."""
    spark = session()
    source = root / "in"
    source.mkdir()
    random = np.random.default_rng(0)
    for number, keys in enumerate(np.array_split(random.permutation(given.keys), 5)):
        write_rows(source / f"{number}.parquet", keys, random)
    flow = hf.Flow("lookup", log=root / "log", spark=spark)
    flow.source("rows", hf.files(source, format="parquet", schema=SCHEMA))
    flow.view("totals", VIEW)
    flow.step()
    fed, stopping = [0], threading.Event()

    def feed() -> None:
        while not stopping.is_set():
            write_rows(source / f"more{fed[0]}.parquet", random.integers(0, given.keys, 1000), random)
            fed[0] += 1
            flow.step()

    feeding = threading.Thread(target=feed, daemon=True)
    feeding.start()
    found: dict[str, tuple[list[float], int]] = {}

    def over(work: Callable[[int], Any], **bounds: Any) -> tuple[list[float], int]:
        first = fed[0]
        taken = timed(work, given.keys, **bounds)
        return taken, fed[0] - first

    def one(key: int) -> None:
        assert len(flow.lookup("totals", key=key)) == 1

    try:
        timed(one, given.keys, times=20)
        found["flow.lookup"] = over(one, seconds=given.seconds)
        found["flow.lookup of 100 keys"] = over(
            lambda key: flow.lookup("totals", [(key + each) % given.keys for each in range(100)]),
            seconds=given.seconds / 2,
        )
        command = [sys.executable, "-c", READER, str(root / "log"), str(given.keys), str(given.seconds)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        said = json.loads(done.stdout)
        found["hf.open_log, refresh and lookup"] = said["taken"], said["epochs"]
        table = flow.table("totals")
        found["a Spark job"] = over(lambda key: table.where(table.key == key).collect(), times=given.jobs)
    finally:
        stopping.set()
        feeding.join()
    rows = root / "totals.parquet"
    with hf.open_log(root / "log") as log:
        pq.write_table(log.arrow("totals"), rows)
    flow.close()
    spark.stop()
    connection = duckdb.connect()

    def scan(key: int) -> None:
        assert len(connection.execute(f"SELECT * FROM '{rows}' WHERE key = {key}").fetchall()) == 1

    found["DuckDB over Parquet, no epochs beside it"] = timed(scan, given.keys, times=50), 0
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=5_000_000)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--jobs", type=int, default=10, help="Spark jobs")
    given = parse(parser, keys=50_000, seconds=2.0, jobs=3)
    with tempfile.TemporaryDirectory() as directory:
        found = measure(given, Path(directory))
    shown = {
        name: {
            "median": statistics.median(taken) * 1e3,
            "p99": float(np.quantile(taken, 0.99)) * 1e3,
            "longest": max(taken) * 1e3,
            "times": len(taken),
            "epochs": epochs,
        }
        for name, (taken, epochs) in found.items()
    }
    least = shown["flow.lookup"]["median"]
    table = Table(title=f"one key of {given.keys:,}")
    for column in ("", "median ms", "99 % ms", "longest ms", "look-ups", "epochs meanwhile", "times flow.lookup"):
        table.add_column(column, justify="left" if not column else "right")
    for name, one in shown.items():
        table.add_row(
            name,
            f"{one['median']:.2f}",
            f"{one['p99']:.1f}",
            f"{one['longest']:.0f}",
            f"{one['times']:,}",
            f"{one['epochs']:,}",
            f"{one['median'] / least:.1f}",
        )
    Console(stderr=given.json, width=150).print(table)
    if given.json:
        print(json.dumps(shown))
    outside = shown["hf.open_log, refresh and lookup"]["median"]
    return int(least >= HERE or outside >= OUTSIDE)


if __name__ == "__main__":
    sys.exit(main())
