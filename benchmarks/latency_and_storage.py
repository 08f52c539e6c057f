"""The latency of an epoch over fast storage and over slow, in one run: it should be the same.

A keyed count and sum, as in ``against_structured_streaming.py``, in flows that have 0, 10, 100 and 1,000 ms added to
every operation on their log's location. They take turns epoch by epoch, in another order each time, so that whatever
the machine does, it does to all of them. (The medians of two blocks of epochs of the same flow, minutes apart, may
differ by more than the 10 % in question: these machines are noisy.) Copying goes on beside the epochs of all, so what
is measured is what the storage's latency does to an epoch; what copying takes of the processors is the question of
``cost_of_durability.py``. A control, a second flow over storage without delay, says how far two medians differ by
chance.

Then the same flows with the strategy ``synchronous-log``, which makes each epoch safe before it is over: that is what
waiting for storage costs.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from against_structured_streaming import Ours
from data import parse, session
from rich.console import Console
from rich.table import Table
from turns import Feed, in_turn, median_ms, p95_ms

from holdfast.log.location import LocalLocation
from holdfast.testing.unreliable import Unreliable

DELAYS = (0, 10, 100, 1000)
NOSYNC, SYNCHRONOUS, CONTROL = "nosync", "synchronous-log", "control"
ALLOWED = 0.10

_WAITING_TURNS = 8
"""Turns of the flows that wait for storage: their epochs take seconds, and differ little."""

Side = tuple[str, int]
"""A strategy, and the milliseconds of an operation on storage."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--every", type=float, default=0.5, help="seconds from one epoch to the next")
    parser.add_argument("--turns", type=int, default=180, help="epochs of each flow")
    parser.add_argument("--warm-up", type=int, default=12, help="epochs of each flow before those that count")
    arguments = parse(parser, keys=20_000, rows=2_000, turns=10, warm_up=2, every=0.1)
    home = Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
    try:
        times, lags = measure(arguments, home)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return report(arguments, times, lags)


def measure(arguments: argparse.Namespace, home: Path) -> tuple[dict[Side, list[float]], dict[Side, float]]:
    """Seconds per epoch of each flow; how many epochs its safe point was behind, in the median."""
    spark = session()
    feed = Feed(home, arguments.keys, arguments.rows, seed=3)
    lags: dict[Side, list[int]] = {}

    def sides(strategy: str, names: list[Side]) -> dict[Side, Ours]:
        found = {}
        for name in names:
            place = home / "-".join(map(str, name))
            storage = Unreliable(LocalLocation(place / "log"), delay=name[1] / 1000)
            found[name] = Ours(spark, place, log=storage, local=place / "local", strategy=strategy)
            feed.every_key(found[name])
        return found

    def epoch(name: Side, side: Ours) -> float:
        seconds = feed.epoch(side)
        lags.setdefault(name, []).append(side.flow.status().durability.unsafe.epochs)
        return seconds

    def measured(some: dict[Side, Ours], turns: int, warm_up: int) -> dict[Side, list[float]]:
        times = in_turn({name: partial(epoch, name, some[name]) for name in some}, turns, warm_up, arguments.every)
        for side in some.values():
            side.close()
        return times

    times = measured(
        sides(NOSYNC, [(CONTROL, 0), *((NOSYNC, delay) for delay in DELAYS)]), arguments.turns, arguments.warm_up
    )
    waiting = sides(SYNCHRONOUS, [(SYNCHRONOUS, delay) for delay in DELAYS])
    times |= measured(waiting, min(arguments.turns, _WAITING_TURNS), 1)
    spark.stop()
    return times, {name: statistics.median(own) for name, own in lags.items()}


def report(arguments: argparse.Namespace, times: dict[Side, list[float]], lags: dict[Side, float]) -> int:
    rows: dict[Side, dict[str, Any]] = {}
    for (strategy, delay), own in times.items():
        fastest = times[SYNCHRONOUS if strategy == SYNCHRONOUS else NOSYNC, 0]
        rows[strategy, delay] = {
            "delay_ms": delay,
            "epochs": len(own),
            "median_ms": median_ms(own),
            "p95_ms": p95_ms(own),
            "ratio": median_ms(own) / median_ms(fastest),
            "lag_epochs": lags[strategy, delay],
        }
    ratios = [rows[NOSYNC, delay]["ratio"] for delay in DELAYS]
    least, most = min(ratios) - 1, max(ratios) - 1
    met = max(-least, most) < ALLOWED
    if arguments.json:
        strategies = {
            strategy: [row for name, row in rows.items() if name[0] == strategy]
            for strategy in (NOSYNC, SYNCHRONOUS, CONTROL)
        }
        print(json.dumps({**strategies, "least": least, "most": most, "met": met}))
        return 0 if met else 1
    console = Console()
    table = Table(title=f"{arguments.rows:,} rows every {arguments.every * 1000:,.0f} ms, over {arguments.keys:,} keys")
    for heading in ("storage", "nosync\nmedian", "\np95", "\nratio", "\nbehind", "synchronous-log\nmedian", "\nratio"):
        table.add_column(heading, justify="right")
    for delay in DELAYS:
        ours, waiting = rows[NOSYNC, delay], rows[SYNCHRONOUS, delay]
        table.add_row(f"+ {delay:,} ms", *_cells(ours), f"{waiting['median_ms']:,.0f} ms", f"{waiting['ratio']:.2f}")
    table.add_row("control: + 0 ms", *_cells(rows[CONTROL, 0]), "", "")
    console.print(table)
    console.print("behind: epochs that were not safe in storage yet, in the median")
    console.print(
        f"nosync medians, against storage without delay: {least:+.1%} to {most:+.1%} "
        f"(less than {ALLOWED:.0%} either way): {'met' if met else 'NOT MET'}"
    )
    return 0 if met else 1


def _cells(row: dict[str, Any]) -> tuple[str, str, str, str]:
    return f"{row['median_ms']:,.0f} ms", f"{row['p95_ms']:,.0f} ms", f"{row['ratio']:.2f}", f"{row['lag_epochs']:.0f}"


if __name__ == "__main__":
    sys.exit(main())
