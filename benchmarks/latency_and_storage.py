"""The latency of an epoch over fast storage and over slow, in one run: it should be the same.

A keyed count and sum, as in ``against_structured_streaming.py``, with 0, 10, 100 and 1,000 ms added to every operation
on the log's location. An epoch's worth of rows comes every half second, whatever the flow does: all of them have the
same to do in the same time. (Back to back, what is measured is how processors are shared with copying: the flow that
copies later is faster for a while, and so has more to copy.) The flows take turns in one session, another one first
each time, so that a machine that is faster now and slower then is so for all of them. Blocks are several rounds of
copying long, also over the slowest storage: in shorter ones, much of its copying would be done between them. Then the
same ones with the strategy ``synchronous-log``, which makes each epoch safe before it is over: that is what waiting for
storage costs.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from against_structured_streaming import Ours
from data import parse, session
from rich.console import Console
from rich.table import Table
from turns import Feed, block, come_to_rest, median_ms, p95_ms, rounds

from holdfast.store.location import LocalLocation
from holdfast.testing.unreliable import Unreliable

DELAYS = (0, 10, 100, 1000)
STRATEGIES = ("nosync", "synchronous-log")
ALLOWED = 0.10
_UNTIL_WARM = 8
"""Epochs of each flow before the first block: the JVM compiles what is called often."""

_WAITING = 12.0
"""A block of epochs that wait for storage has all its copying in it, however short it is."""

Side = tuple[str, int]
"""A strategy, and the milliseconds of an operation on storage."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--every", type=float, default=0.5, help="seconds from one epoch to the next")
    parser.add_argument("--rounds", type=int, default=3, help="blocks of each flow; synchronous ones have one")
    parser.add_argument("--seconds", type=float, default=25, help="length of a block")
    parser.add_argument("--warm-up", type=int, default=2, help="epochs at the beginning of a block that do not count")
    arguments = parse(parser, keys=20_000, rows=2_000, rounds=1, seconds=2, every=0.1)
    home = Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
    try:
        times = measure(arguments, home)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return report(arguments, times)


def measure(arguments: argparse.Namespace, home: Path) -> dict[Side, list[float]]:
    """Seconds per epoch of each flow."""
    spark = session()
    feed = Feed(home, arguments.keys, arguments.rows, seed=3)
    names: list[Side] = [(strategy, delay) for strategy in STRATEGIES for delay in DELAYS]
    times: dict[Side, list[float]] = {name: [] for name in names}
    storages: dict[Side, Unreliable] = {}
    sides: dict[Side, Ours] = {}
    for strategy, delay in names:
        place = home / f"{strategy}-{delay}"
        storage = Unreliable(LocalLocation(place / "log"), delay=delay / 1000)
        storages[strategy, delay] = storage
        sides[strategy, delay] = Ours(spark, place, log=storage, local=place / "local", strategy=strategy)
    for (strategy, _), side in sides.items():
        feed.every_key(side)
        for _ in range(_UNTIL_WARM if strategy == "nosync" else 0):
            feed.epoch(side)
    for name, side in sides.items():
        come_to_rest(spark, side, storages[name])
    ours, waiting = names[: len(DELAYS)], names[len(DELAYS) :]
    for name in [*rounds(ours, arguments.rounds), *waiting]:
        side = sides[name]
        # A warm-up is nothing to epochs that wait for slow storage: they take seconds each.
        warm_up = 0 if name in waiting and name[1] >= 100 else arguments.warm_up
        seconds = min(arguments.seconds, _WAITING) if name in waiting else arguments.seconds
        times[name] += block(lambda side=side: feed.epoch(side), seconds, warm_up, arguments.every)
        come_to_rest(spark, side, storages[name])
    for side in sides.values():
        side.close()
    spark.stop()
    return times


def report(arguments: argparse.Namespace, times: dict[Side, list[float]]) -> int:
    rows: list[dict[str, Any]] = []
    for delay in DELAYS:
        row: dict[str, Any] = {"delay_ms": delay}
        for strategy in STRATEGIES:
            own, fastest = times[strategy, delay], times[strategy, DELAYS[0]]
            row[strategy] = {
                "epochs": len(own),
                "median_ms": median_ms(own),
                "p95_ms": p95_ms(own),
                "ratio": median_ms(own) / median_ms(fastest),
            }
        rows.append(row)
    ratios = [row["nosync"]["ratio"] for row in rows]
    least, most = min(ratios) - 1, max(ratios) - 1
    met = max(-least, most) < ALLOWED
    if arguments.json:
        print(json.dumps({"delays": rows, "least": least, "most": most, "met": met}))
        return 0 if met else 1
    console = Console()
    table = Table(title=f"{arguments.rows:,} rows every {arguments.every * 1000:,.0f} ms, over {arguments.keys:,} keys")
    for heading in ("storage", "nosync\nmedian", "\np95", "\nratio", "synchronous-log\nmedian", "\nratio"):
        table.add_column(heading, justify="right")
    for row in rows:
        ours, waiting = row["nosync"], row["synchronous-log"]
        table.add_row(
            f"+ {row['delay_ms']:,} ms",
            f"{ours['median_ms']:,.0f} ms",
            f"{ours['p95_ms']:,.0f} ms",
            f"{ours['ratio']:.2f}",
            f"{waiting['median_ms']:,.0f} ms",
            f"{waiting['ratio']:.2f}",
        )
    console.print(table)
    console.print(
        f"nosync medians, against storage without delay: {least:+.0%} to {most:+.0%} "
        f"(less than {ALLOWED:.0%} either way): {'met' if met else 'NOT MET'}"
    )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
