"""What durability costs an epoch, in one run: a flow with two replicas, and the same one that keeps no durable copy.

The two take turns, in blocks that have rounds of copying in them; the first block of each does not count (the JVM
compiles what is called often). Copying has what the epochs leave of the machine, so it lags behind them; how far, and
how long it takes to catch up when they stop, is the price, and is printed too.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from against_structured_streaming import Ours
from data import parse, session
from rich.console import Console
from rich.table import Table
from turns import Feed, block, come_to_rest, median_ms, p95_ms, rounds

ALLOWED = 1.10


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--every", type=float, default=0.5, help="seconds from one epoch to the next")
    parser.add_argument("--rounds", type=int, default=12, help="blocks of each flow that count")
    parser.add_argument("--seconds", type=float, default=12, help="length of a block")
    parser.add_argument("--warm-up", type=int, default=4, help="epochs at the beginning of a block that do not count")
    arguments = parse(parser, keys=20_000, rows=2_000, rounds=2, seconds=3, every=0.1)
    home = Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
    try:
        times, copying = measure(arguments, home)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return report(arguments, times, copying)


def measure(arguments: argparse.Namespace, home: Path) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Seconds per epoch of each flow, and how copying did meanwhile."""
    spark = session()
    feed = Feed(home, arguments.keys, arguments.rows, seed=4)
    replicas = [home / "a", home / "b"]
    sides = {
        "volatile": Ours(spark, home / "volatile", strategy="volatile"),
        "two replicas": Ours(spark, home / "durable", log=replicas, min_replicas=2, local=home / "durable" / "local"),
    }
    times: dict[str, list[float]] = {name: [] for name in sides}
    lags: list[int] = []
    catching_up: list[float] = []
    shipped, shipping = 0, 0.0
    for side in sides.values():
        feed.every_key(side)
        for _ in range(2 * arguments.warm_up):
            feed.epoch(side)
    come_to_rest(spark, sides["two replicas"])

    def epoch(side: Ours) -> float:
        seconds = feed.epoch(side)
        state = side.flow.status().durability
        if state.strategy != "gap":
            lags.append(state.unsafe.epochs)
        return seconds

    for number, name in enumerate(rounds(list(sides), 1 + arguments.rounds)):
        side = sides[name]
        if number == len(sides):
            times = {name: [] for name in sides}
        before, started = side.flow.status().durability.shipped, time.perf_counter()
        times[name] += block(lambda side=side: epoch(side), arguments.seconds, arguments.warm_up, arguments.every)
        if name != "volatile":
            shipped += side.flow.status().durability.shipped - before
            shipping += time.perf_counter() - started
        rest = come_to_rest(spark, side)
        if name != "volatile":
            catching_up.append(rest)
    for side in sides.values():
        side.close()
    spark.stop()
    copying = {
        "bytes_per_second": shipped / shipping,
        "mean_lag_epochs": statistics.mean(lags),
        "max_lag_epochs": max(lags),
        "catching_up_seconds": statistics.median(catching_up),
    }
    return times, copying


def report(arguments: argparse.Namespace, times: dict[str, list[float]], copying: dict[str, float]) -> int:
    rows: dict[str, dict[str, Any]] = {
        name: {"epochs": len(own), "median_ms": median_ms(own), "p95_ms": p95_ms(own)} for name, own in times.items()
    }
    ratio = rows["two replicas"]["median_ms"] / rows["volatile"]["median_ms"]
    met = ratio <= ALLOWED
    if arguments.json:
        print(json.dumps({"sides": rows, "ratio": ratio, "copying": copying, "met": met}))
        return 0 if met else 1
    console = Console()
    table = Table(title=f"{arguments.rows:,} rows every {arguments.every * 1000:,.0f} ms, over {arguments.keys:,} keys")
    for heading in ("", "epochs", "median", "p95"):
        table.add_column(heading, justify="right" if heading else "left")
    for name, row in rows.items():
        table.add_row(name, str(row["epochs"]), f"{row['median_ms']:.0f} ms", f"{row['p95_ms']:.0f} ms")
    console.print(table)
    console.print(
        f"copied meanwhile: {copying['bytes_per_second'] / 1e6:.1f} MB/s; the safe point lagged "
        f"{copying['mean_lag_epochs']:.1f} epochs on average, {copying['max_lag_epochs']} at most, and was the last "
        f"epoch {copying['catching_up_seconds']:.1f} s after it"
    )
    console.print(
        f"an epoch with two replicas: {ratio:.2f} of one without durability (at most {ALLOWED:.2f}): "
        f"{'met' if met else 'NOT MET'}"
    )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
