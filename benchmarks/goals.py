"""The speed that Holdfast wants, and the speed that it has, beside Structured Streaming and DuckDB in one run.

Two workloads, each with one file per epoch, and in turns, so that whatever else the machine does, it does to all:

- *totals*: a count and a sum per key, over 1,000,000 keys. Epochs of 50,000 rows, of 1,000,000 rows (without a sink and
  with a changelog), and of one row, which code pushes.
- *best visitor*: the AMPLab benchmark's join, aggregate and top-1 (`holdfast/demo/query.py`), in epochs of 50,000
  visits. (2,000,000 visits in all; most are dropped by the filter.)

Structured Streaming is set up as in `against_structured_streaming`; it takes no single pushed rows. DuckDB computes the
same query anew over all files so far, each time. The exit status is 1 if a goal is missed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow.parquet as pq
from against_structured_streaming import Ours, Streaming
from data import parse, session, write_rows
from rich.console import Console
from rich.table import Table

import holdfast as hf
from holdfast.demo.amplab import RANKINGS, USERVISITS, Generator, Sizes
from holdfast.demo.query import QUERY, VIEW

OURS, WITH_SINK, STREAMING, DUCK = "Holdfast", "Holdfast, with a changelog", "Structured Streaming", "DuckDB, anew"


@dataclass
class Row:
    """A line of the table: what every side took, in seconds, and the goal."""

    name: str
    goal: str
    met: Callable[[list[float]], bool]
    """Whether the seconds of Holdfast's epochs meet the goal."""

    rows: int | None = None
    """The rows of an epoch, if the line is about rows per second."""

    judged: str = OURS
    seconds: dict[str, list[float]] = field(default_factory=dict)

    def text(self, side: str) -> str:
        took = self.seconds.get(side)
        if not took:
            return "–"
        if self.rows is not None:
            return f"{self.rows / statistics.median(took) / 1000:,.0f}k rows/s"
        return f"{1000 * statistics.median(took):.0f} / {1000 * share(took, 0.99):.0f} ms"


def share(took: list[float], part: float) -> float:
    """The time within which this part of the epochs ended."""
    return sorted(took)[min(len(took) - 1, int(part * len(took)))]


def within(median: float, late: float) -> Callable[[list[float]], bool]:
    return lambda took: statistics.median(took) <= median and share(took, 0.99) <= late


def put(file: Path, directory: Path) -> None:
    """Copy a file into a directory, at once."""
    hidden = directory / f".{file.name}"
    shutil.copy(file, hidden)
    hidden.rename(directory / file.name)


def timed(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


# -- totals ------------------------------------------------------------------------------------------------------------


def totals(spark: Any, home: Path, arguments: argparse.Namespace) -> list[Row]:
    """Epochs of three sizes over one state."""
    random = np.random.default_rng(1)
    database = duckdb.connect()
    plain, sunk = Ours(spark, home / "plain"), Ours(spark, home / "sunk")
    sunk.flow.sink("totals", hf.changelog(home / "out"))
    sides = {OURS: plain, WITH_SINK: sunk, STREAMING: Streaming(spark, home / "streaming")}
    text = f"SELECT key, count(*), sum(value) FROM '{plain.input}/*.parquet' GROUP BY key"
    small = Row(f"totals, {arguments.small:,} rows", "80 / 160 ms", within(0.08, 0.16))
    large = [
        Row(f"totals, {arguments.large:,} rows", "2,000k rows/s", _fast(arguments), arguments.large),
        Row("… with a sink", "2,000k rows/s", _fast(arguments), arguments.large, WITH_SINK),
    ]

    def batch(name: str, keys: np.ndarray, *rows: Row) -> None:
        file = home / f"{name}.parquet"
        write_rows(file, keys, random)
        for side, each in sides.items():
            seconds = each.take(file)
            for row in rows:
                row.seconds.setdefault(side, []).append(seconds)
        for row in rows[:1]:
            row.seconds.setdefault(DUCK, []).append(timed(lambda: database.execute(text).to_arrow_table()))
        file.unlink()

    batch("first", random.permutation(arguments.keys))
    for number in range(arguments.warm_up):
        batch(f"warm-{number:04d}", random.integers(0, arguments.keys, arguments.small))
    for number in range(arguments.epochs):
        batch(f"small-{number:04d}", random.integers(0, arguments.keys, arguments.small), small)
    batch("large-warm", random.integers(0, arguments.keys, arguments.large))
    for number in range(arguments.large_epochs):
        batch(f"large-{number:04d}", random.integers(0, arguments.keys, arguments.large), *large)
    for each in sides.values():
        each.close()
    database.close()
    return [small, *large, single_rows(spark, home / "pushed", arguments)]


def _fast(arguments: argparse.Namespace) -> Callable[[list[float]], bool]:
    return lambda took: arguments.large / statistics.median(took) >= 2_000_000


def single_rows(spark: Any, home: Path, arguments: argparse.Namespace) -> Row:
    """Epochs of one pushed row."""
    random, row = np.random.default_rng(2), Row("totals, one row", "15 / 60 ms", within(0.015, 0.06))
    with hf.Flow("pushed", log=home, spark=spark) as flow:
        events = flow.input("events", "key bigint, value bigint")
        flow.view("totals", "SELECT key, count(*) AS n, sum(value) AS total FROM events GROUP BY key")
        events.insert([(int(key), 1) for key in random.permutation(min(arguments.keys, 100_000))])
        flow.step()
        for number in range(-arguments.warm_up, 5 * arguments.epochs):
            events.insert([(int(random.integers(arguments.keys)), 1)])
            seconds = timed(flow.step)
            if number >= 0:
                row.seconds.setdefault(OURS, []).append(seconds)
    return row


# -- best visitor ------------------------------------------------------------------------------------------------------


def best_visitor(spark: Any, home: Path, arguments: argparse.Namespace) -> Row:
    generator = Generator(Sizes.of(arguments.scale, 40))
    rankings = home / "rankings"
    visits = {side: home / side.replace(" ", "") for side in (OURS, STREAMING)}
    for directory in (rankings, *visits.values()):
        directory.mkdir(parents=True)
    pq.write_table(generator.rankings(), rankings / "all.parquet")
    flow = hf.Flow("best", log=home / "log", spark=spark)
    flow.source("rankings", hf.files(rankings, schema=RANKINGS))
    flow.source("uservisits", hf.files(visits[OURS], schema=USERVISITS))
    flow.view(VIEW, QUERY)
    query = _streaming(spark, rankings, visits[STREAMING], home / "checkpoint")
    database = duckdb.connect()
    text = QUERY.replace("FROM rankings", f"FROM '{rankings}/*.parquet'")
    text = text.replace("JOIN uservisits", f"JOIN '{visits[OURS]}/*.parquet'")
    row = Row(f"best visitor, {generator.sizes.visits // 40:,} visits", "100 ms", within(0.1, float("inf")))
    for number in range(40):
        file = home / f"visits-{number:03d}.parquet"
        pq.write_table(generator.visits(), file)
        put(file, visits[OURS])
        put(file, visits[STREAMING])
        took = {OURS: flow.step().seconds, STREAMING: _batch(query)}
        took[DUCK] = timed(lambda: database.execute(text).fetchall())
        if number >= min(arguments.warm_up, 20):
            for side, seconds in took.items():
                row.seconds.setdefault(side, []).append(seconds)
        file.unlink()
    held = [tuple(each) for each in flow.read(VIEW).collect()]
    meant = database.execute(text).fetchall()
    assert held == meant, f"the view has {held}, DuckDB says {meant}"
    query.stop()
    flow.close()
    database.close()
    return row


def _streaming(spark: Any, rankings: Path, visits: Path, checkpoint: Path) -> Any:
    from against_structured_streaming import STREAMING as SETTINGS

    own = spark.newSession()
    for key, value in SETTINGS.items():
        own.conf.set(key, value)
    own.conf.set("spark.sql.shuffle.partitions", str(spark.sparkContext.defaultParallelism))
    own.read.parquet(str(rankings)).createOrReplaceTempView("rankings")
    stream = own.readStream.schema(USERVISITS).option("maxFilesPerTrigger", 1).parquet(str(visits))
    stream.createOrReplaceTempView("uservisits")
    writer = own.sql(QUERY).writeStream.outputMode("complete").format("noop")
    return writer.option("checkpointLocation", str(checkpoint)).start()


def _batch(query: Any) -> float:
    query.processAllAvailable()
    batches = [progress for progress in query.recentProgress if progress["numInputRows"] > 0]
    return float(batches[-1]["durationMs"]["triggerExecution"]) / 1000


# -- the table ---------------------------------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--small", type=int, default=50_000, help="rows of a small epoch")
    parser.add_argument("--large", type=int, default=1_000_000, help="rows of a large epoch")
    parser.add_argument("--epochs", type=int, default=100, help="small epochs that are measured")
    parser.add_argument("--large-epochs", type=int, default=6)
    parser.add_argument("--warm-up", type=int, default=12)
    parser.add_argument("--scale", type=float, default=1.0, help="1: 2,000,000 visits")
    arguments = parse(parser, keys=5_000, small=500, large=5_000, epochs=3, large_epochs=2, warm_up=2, scale=0.002)
    home = Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
    try:
        spark = session()
        (home / "totals").mkdir()
        rows = [*totals(spark, home / "totals", arguments), best_visitor(spark, home / "best", arguments)]
        spark.stop()
    finally:
        shutil.rmtree(home, ignore_errors=True)
    missed = [row.name for row in rows if not row.met(row.seconds[row.judged])]
    if arguments.json:
        print(json.dumps({row.name: {"seconds": row.seconds, "met": row.name not in missed} for row in rows}))
        return int(bool(missed))
    table = Table("median / 99 % of epochs", "goal", OURS, WITH_SINK, STREAMING, DUCK, "met")
    for row in rows:
        sides = [row.text(side) for side in (OURS, WITH_SINK, STREAMING, DUCK)]
        table.add_row(row.name, row.goal, *sides, "no" if row.name in missed else "yes")
    Console(width=150).print(table)
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
