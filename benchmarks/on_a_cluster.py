"""Holdfast and Structured Streaming on a cluster, batch by batch, in one run.

The cluster is a real one on this machine (`holdfast.testing.Cluster`): a standalone Spark master, two workers and six
executors, each a process of its own. Each worker keeps the layers of its own partitions (``HOLDFAST_LOCAL``), and the
log has one location. Both sides use the same session and read the same files, one file per epoch, in turns; each time
the other one begins. Structured Streaming has the settings of `against_structured_streaming`.

- *totals*: a count and a sum per key, over 1,000,000 keys, in epochs of 50,000 rows.
- *best visitor*: the AMPLab benchmark's join, aggregate and top-1 (`holdfast/demo/query.py`), in epochs of 50,000
  visits.

Holdfast's time is all of ``flow.step()``, Structured Streaming's the ``triggerExecution`` of its progress report. At
the end both sides must have the same rows. Where Holdfast's milliseconds go is read from ``epoch.timings`` and from
Spark's event log (`where_time_goes`), where those of Structured Streaming go from its ``durationMs``. All are medians,
so a column does not add up to its total.

The exit status is 1 if the median epoch of Holdfast is slower than that of Structured Streaming.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from against_structured_streaming import STREAMING
from data import SCHEMA, parse, write_rows
from rich.console import Console
from rich.table import Table
from where_time_goes import epochs_as_jobs

import holdfast as hf
from holdfast.demo.amplab import RANKINGS, USERVISITS, Generator, Sizes
from holdfast.demo.query import QUERY, VIEW
from holdfast.testing.cluster import Cluster

OURS, THEIRS = "Holdfast", "Structured Streaming"
TOTALS = "SELECT key, count(*) AS n, sum(value) AS total FROM events GROUP BY key"


class Stream:
    """The Structured Streaming side: a query over a stream of files, named ``source``, and over fixed tables."""

    def __init__(
        self, spark: Any, home: Path, text: str, source: str, schema: str, mode: str, partitions: int, **tables: Path
    ) -> None:
        self.input = home / "stream"
        self.input.mkdir()
        own = spark.newSession()
        for key, value in {**STREAMING, "spark.sql.shuffle.partitions": str(partitions)}.items():
            own.conf.set(key, value)
        for name, directory in tables.items():
            own.read.parquet(str(directory)).createOrReplaceTempView(name)
        stream = own.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(self.input))
        stream.createOrReplaceTempView(source)
        writer = own.sql(text).writeStream.outputMode(mode).format("noop")
        self._query = writer.option("checkpointLocation", str(home / "checkpoint")).start()

    def take(self, file: Path) -> dict[str, float]:
        """Run a batch. Return its ``durationMs``."""
        put(file, self.input)
        self._query.processAllAvailable()
        batches = [progress for progress in self._query.recentProgress if progress["numInputRows"] > 0]
        return {what: float(spent) for what, spent in batches[-1]["durationMs"].items()}

    def close(self) -> None:
        self._query.stop()


class Flow:
    """The Holdfast side: a view over the same files and tables."""

    def __init__(
        self, spark: Any, home: Path, name: str, text: str, source: str, schema: str, **tables: tuple[Path, str]
    ) -> None:
        self.input = home / "flow"
        self.input.mkdir()
        self.flow = hf.Flow(name, log=home / "log", local=home / "work", spark=spark)
        for table, (directory, columns) in tables.items():
            self.flow.source(table, hf.files(directory, schema=columns))
        self.flow.source(source, hf.files(self.input, schema=schema))
        self.flow.view("view", text)

    def take(self, file: Path) -> tuple[float, hf.Epoch]:
        """Run an epoch. Return the seconds of ``flow.step()``, and its result."""
        put(file, self.input)
        began = time.perf_counter()
        epoch = self.flow.step()
        return time.perf_counter() - began, epoch


@dataclass
class Measured:
    """A workload's epochs: of Holdfast in seconds and as results, of Structured Streaming as ``durationMs``."""

    name: str
    flow: str
    ours: list[tuple[float, hf.Epoch]] = field(default_factory=list)
    theirs: list[dict[str, float]] = field(default_factory=list)

    def milliseconds(self) -> dict[str, list[float]]:
        return {
            OURS: [1000 * seconds for seconds, _ in self.ours],
            THEIRS: [batch["triggerExecution"] for batch in self.theirs],
        }

    @property
    def ratio(self) -> float:
        """The median of Holdfast by that of Structured Streaming."""
        took = self.milliseconds()
        return statistics.median(took[OURS]) / statistics.median(took[THEIRS])

    def breakdown(self, event_log: Path) -> dict[str, float]:
        """Where the milliseconds of a median epoch of Holdfast go."""
        return epochs_as_jobs(event_log, self.flow, self.ours)

    def their_breakdown(self) -> dict[str, float]:
        names = dict.fromkeys(what for batch in self.theirs for what in batch)
        return {what: statistics.median(batch.get(what, 0.0) for batch in self.theirs) for what in names}


def put(file: Path, directory: Path) -> None:
    """Copy a file into a directory, at once."""
    hidden = directory / f".{file.name}"
    shutil.copy(file, hidden)
    hidden.rename(directory / file.name)


def in_turns(measured: Measured, flow: Flow, stream: Stream, file: Path, number: int, warm_up: int) -> None:
    """Give a file to both sides; the epochs after the first ``warm_up`` ones count."""
    turns: list[Callable[[], None]] = [
        lambda: measured.ours.append(flow.take(file)),
        lambda: measured.theirs.append(stream.take(file)),
    ]
    for turn in turns if number % 2 else turns[::-1]:
        turn()
    file.unlink()
    if number < warm_up:
        measured.ours.clear()
        measured.theirs.clear()


def totals(spark: Any, home: Path, arguments: argparse.Namespace) -> Measured:
    home.mkdir()
    random = np.random.default_rng(1)
    measured = Measured(f"totals, {arguments.rows:,} rows", "totals")
    flow = Flow(spark, home, measured.flow, TOTALS, "events", SCHEMA)
    stream = Stream(spark, home, TOTALS, "events", SCHEMA, "update", arguments.partitions)
    for number in range(1 + arguments.warm_up + arguments.epochs):
        file = home / f"rows-{number:06d}.parquet"
        first = number == 0  # every key once
        keys = random.permutation(arguments.keys) if first else random.integers(0, arguments.keys, arguments.rows)
        write_rows(file, keys, random)
        in_turns(measured, flow, stream, file, number, 1 + arguments.warm_up)
    rows = flow.flow.sql("SELECT count(*), sum(n), sum(total) FROM view").collect()
    files = spark.read.schema(SCHEMA).parquet(str(flow.input))
    meant = files.selectExpr("count(DISTINCT key)", "count(*)", "sum(value)").collect()
    assert [tuple(row) for row in rows] == [tuple(row) for row in meant], f"the view has {rows}, Spark says {meant}"
    stream.close()
    flow.flow.close()
    return measured


def best_visitor(spark: Any, home: Path, arguments: argparse.Namespace) -> Measured:
    home.mkdir()
    generator = Generator(Sizes.of(arguments.scale, 40))
    rankings = home / "rankings"
    rankings.mkdir()
    pq.write_table(generator.rankings(), rankings / "all.parquet")
    measured = Measured(f"best visitor, {generator.sizes.visits // 40:,} visits", "best")
    flow = Flow(spark, home, measured.flow, QUERY, "uservisits", USERVISITS, rankings=(rankings, RANKINGS))
    stream = Stream(
        spark, home, QUERY, "uservisits", USERVISITS, "complete", arguments.partitions, rankings=rankings
    )  # fmt: skip
    warm_up = min(1 + arguments.warm_up, 40 - 1)
    for number in range(min(40, warm_up + arguments.epochs)):
        file = home / f"visits-{number:03d}.parquet"
        pq.write_table(generator.visits(), file)
        in_turns(measured, flow, stream, file, number, warm_up)
    spark.read.parquet(str(rankings)).createOrReplaceTempView("rankings")
    spark.read.schema(USERVISITS).parquet(str(flow.input)).createOrReplaceTempView("uservisits")
    held, meant = flow.flow.read("view").collect(), spark.sql(QUERY).collect()
    assert _rounded(held) == _rounded(meant), f"{VIEW} has {held}, Spark says {meant}"
    stream.close()
    flow.flow.close()
    return measured


def _rounded(rows: list[Any]) -> list[tuple[Any, ...]]:
    """Rows, with doubles to nine digits: Spark adds them in any order."""
    return [tuple(float(f"{each:.9g}") if isinstance(each, float) else each for each in row) for row in rows]


def share(took: list[float], part: float) -> float:
    """The time within which this part of the epochs ended."""
    return sorted(took)[min(len(took) - 1, int(part * len(took)))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--rows", type=int, default=50_000, help="rows of an epoch of totals")
    parser.add_argument("--scale", type=float, default=1.0, help="of best visitor; 1: 50,000 visits per epoch")
    parser.add_argument("--epochs", type=int, default=40, help="epochs that are measured, of each workload")
    parser.add_argument("--warm-up", type=int, default=12)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--executors", type=int, default=3, help="of each worker, with one core each")
    parser.add_argument("--memory", type=int, default=768, help="of an executor, in MB")
    parser.add_argument("--partitions", type=int, help="Structured Streaming's shuffle partitions; else one per core")
    arguments = parse(parser, keys=5_000, rows=500, scale=0.002, epochs=3, warm_up=2, memory=512)
    executors = arguments.workers * arguments.executors
    arguments.partitions = arguments.partitions or executors
    home = Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
    event_log = home / "events"
    event_log.mkdir()
    settings = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": event_log.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }
    try:
        with Cluster(
            arguments.workers,
            cores=arguments.executors,
            executors_per_worker=arguments.executors,
            memory=arguments.memory,
            settings=settings,
        ) as cluster:
            spark = cluster.session()
            cluster.wait_for_executors(executors)
            while spark.sparkContext.defaultParallelism < executors:
                time.sleep(0.05)
            measured = [run(spark, home / run.__name__, arguments) for run in (totals, best_visitor)]
            spark.stop()
        report(measured, event_log, as_json=arguments.json)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return int(any(each.ratio > 1 for each in measured))


def report(measured: list[Measured], event_log: Path, *, as_json: bool) -> None:
    spent = {each.name: each.breakdown(event_log) for each in measured}
    if as_json:
        said = {
            each.name: {
                "milliseconds": each.milliseconds(),
                "ratio": each.ratio,
                "holdfast_ms": spent[each.name],
                "structured_streaming_ms": each.their_breakdown(),
                "paths": sorted({epoch.path for _, epoch in each.ours}),
            }
            for each in measured
        }
        print(json.dumps({"load": os.getloadavg(), **said}))
        return
    console = Console(width=130)
    table = Table("median / 99 % of epochs", OURS, THEIRS, "ratio of medians")
    for each in measured:
        sides = [f"{statistics.median(own):.0f} / {share(own, 0.99):.0f} ms" for own in each.milliseconds().values()]
        table.add_row(each.name, *sides, f"{each.ratio:.2f}")
    console.print(table)
    _shown(console, f"{OURS}: where the milliseconds go", {each.name: spent[each.name] for each in measured})
    _shown(console, f"{THEIRS}: durationMs", {each.name: each.their_breakdown() for each in measured})
    console.print(f"load of the machine at the end: {os.getloadavg()[0]:.1f} in the last minute")


def _shown(console: Console, title: str, columns: dict[str, dict[str, float]]) -> None:
    table = Table("what, in ms (medians)", *columns, title=title)
    for what in dict.fromkeys(what for column in columns.values() for what in column):
        table.add_row(what, *(f"{column[what]:.1f}" if what in column else "–" for column in columns.values()))
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
