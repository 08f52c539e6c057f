"""Holdfast and Structured Streaming on a keyed count and sum, batch by batch, in one run.

Both read the same Parquet files, one file per batch, in the same Spark session, turn by turn: so whatever else the
machine does, it does to both. Structured Streaming has what its users give it: the RocksDB state store with changelog
checkpointing and checkpoint format 2, a block cache of 512 MB, the counting of rows off (it reads before each write),
adaptive execution off, as many shuffle partitions as cores, and its output thrown away.
Its time is the ``triggerExecution`` of its own progress report; Holdfast's is all of ``flow.step()``.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from data import SCHEMA, parse, session, write_rows
from rich.console import Console
from rich.table import Table
from where_time_goes import epoch_breakdown

import holdfast as hf

STREAMING = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    "spark.sql.streaming.stateStore.rocksdb.blockCacheSizeMB": "512",
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
    "spark.sql.adaptive.enabled": "false",
}


class Streaming:
    """The Structured Streaming side."""

    def __init__(self, spark: Any, directory: Path) -> None:
        self.input = directory / "input"
        self.input.mkdir(parents=True)
        own = spark.newSession()
        for key, value in STREAMING.items():
            own.conf.set(key, value)
        own.conf.set("spark.sql.shuffle.partitions", str(os.cpu_count()))
        frame = own.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(self.input))
        counted = frame.groupBy("key").agg({"*": "count", "value": "sum"})
        self.query = (
            counted.writeStream.outputMode("update").format("noop")
            .option("checkpointLocation", str(directory / "checkpoint")).start()
        )  # fmt: skip

    def take(self, file: Path) -> float:
        shutil.copy(file, self.input / f".{file.name}")
        (self.input / f".{file.name}").rename(self.input / file.name)
        self.query.processAllAvailable()
        batches = [p for p in self.query.recentProgress if p["numInputRows"] > 0]
        return float(batches[-1]["durationMs"]["triggerExecution"]) / 1000

    def close(self) -> None:
        self.query.stop()


class Ours:
    """The Holdfast side. ``options`` are the flow's, such as another log."""

    def __init__(self, spark: Any, directory: Path, *, input: Path | None = None, **options: Any) -> None:
        self.input = input or directory / "input"
        self.input.mkdir(parents=True, exist_ok=True)
        self.flow = hf.Flow("benchmark", spark=spark, **{"log": directory / "log", **options})
        self.flow.source("events", hf.files(str(self.input), format="parquet", schema=SCHEMA))
        self.flow.view("totals", "SELECT key, count(*) AS n, sum(value) AS total FROM events GROUP BY key")
        self.epochs: list[hf.Epoch] = []

    def take(self, file: Path) -> float:
        shutil.copy(file, self.input / f".{file.name}")
        (self.input / f".{file.name}").rename(self.input / file.name)
        epoch = self.flow.step()
        self.epochs.append(epoch)
        return epoch.seconds

    def close(self) -> None:
        self.flow.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--small", type=int, default=50_000, help="rows of a small batch")
    parser.add_argument("--large", type=int, default=1_000_000, help="rows of a large batch")
    parser.add_argument("--batches", type=int, default=40, help="small batches that are measured")
    parser.add_argument("--large-batches", type=int, default=8)
    parser.add_argument("--warm-up", type=int, default=12)
    arguments = parse(parser, keys=20_000, small=2_000, large=20_000, batches=4, large_batches=2, warm_up=2)
    home = Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
    try:
        spark = session(home / "events")
        random = np.random.default_rng(1)
        sides = {"structured streaming": Streaming(spark, home / "ss"), "holdfast": Ours(spark, home / "hf")}
        times: dict[str, dict[str, list[float]]] = {name: {"small": [], "large": []} for name in sides}

        def batch(number: int, keys: np.ndarray, size: str | None) -> None:
            file = home / f"batch-{number:06d}.parquet"
            write_rows(file, keys, random)
            for name, side in sides.items():
                seconds = side.take(file)
                if size is not None:
                    times[name][size].append(seconds)
            file.unlink()

        batch(0, random.permutation(arguments.keys), None)
        for number in range(arguments.warm_up):
            batch(1 + number, random.integers(0, arguments.keys, arguments.small), None)
        for number in range(arguments.batches):
            batch(1000 + number, random.integers(0, arguments.keys, arguments.small), "small")
        batch(2000, random.integers(0, arguments.keys, arguments.large), None)
        for number in range(arguments.large_batches):
            batch(2001 + number, random.integers(0, arguments.keys, arguments.large), "large")
        first = 1 + arguments.warm_up
        measured = sides["holdfast"].epochs[first : first + arguments.batches]
        for side in sides.values():
            side.close()
        spark.stop()
        report(arguments, times, epoch_breakdown(home / "events", measured))
    finally:
        shutil.rmtree(home, ignore_errors=True)


def report(arguments: argparse.Namespace, times: dict[str, Any], breakdown: dict[str, float]) -> None:
    rows = {}
    for name, sizes in times.items():
        small, large = sorted(sizes["small"]), sizes["large"]
        rows[name] = {
            "median_ms": statistics.median(small) * 1000,
            "p99_ms": small[min(len(small) - 1, int(0.99 * len(small)))] * 1000,
            "rows_per_second": arguments.large / statistics.median(large),
        }
    ours, theirs = rows["holdfast"], rows["structured streaming"]
    latency = ours["median_ms"] / theirs["median_ms"]
    throughput = ours["rows_per_second"] / theirs["rows_per_second"]
    if arguments.json:
        print(
            json.dumps(
                {"sides": rows, "latency_ratio": latency, "throughput_ratio": throughput, "breakdown_ms": breakdown}
            )
        )
        return
    console = Console()
    table = Table(title=f"keyed count and sum, {arguments.keys:,} keys")
    for heading in ("", f"{arguments.small:,} rows: median", "p99", f"{arguments.large:,} rows: rows/s"):
        table.add_column(heading, justify="left" if not heading else "right")
    for name, row in rows.items():
        table.add_row(name, f"{row['median_ms']:.0f} ms", f"{row['p99_ms']:.0f} ms", f"{row['rows_per_second']:,.0f}")
    console.print(table)
    console.print(f"median: {latency:.2f} of Structured Streaming's")
    console.print(f"throughput: {throughput:.1f} times Structured Streaming's")
    where = Table(title="where the milliseconds of a small epoch go (medians)")
    where.add_column("what")
    where.add_column("ms", justify="right")
    for what, spent in breakdown.items():
        where.add_row(what, f"{spent:.1f}")
    console.print(where)


if __name__ == "__main__":
    main()
