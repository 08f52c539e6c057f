"""What durability costs, in one run: flows with one location and with two replicas, beside one that keeps no durable
copy.

They take turns, in blocks that have rounds of copying in them; the first block of each does not count (the JVM compiles
what is called often). In *latency* a file is due every half second, with two replicas: copying has what the epochs
leave of the machine. In *throughput* epochs run back to back, with one location: they leave it nothing. Copying lags
behind the epochs; how far, and how long it takes to catch up when they stop, is the price, and is printed too.
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
from ready_files import ReadyFiles
from rich.console import Console
from rich.table import Table
from turns import block, come_to_rest, median_ms, p95_ms, rounds

ALLOWED = 1.03
"""The median of an epoch with two replicas, by that of one without durability."""

KEPT = 0.95
"""The least share of the throughput without durability."""

VOLATILE, ONE, TWO = "volatile", "one location", "two replicas"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--every", type=float, default=0.5, help="seconds from one epoch to the next")
    parser.add_argument("--rounds", type=int, default=12, help="blocks of each flow that count")
    parser.add_argument("--seconds", type=float, default=12, help="length of a block")
    parser.add_argument("--warm-up", type=int, default=4, help="epochs at the beginning of a block that do not count")
    arguments = parse(parser, keys=20_000, rows=2_000, rounds=1, seconds=2, every=0.1)
    home = Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
    try:
        return report(arguments, measure(arguments, home))
    finally:
        shutil.rmtree(home, ignore_errors=True)


class Side:
    """A flow and its input, and how copying does beside its epochs."""

    def __init__(self, spark: Any, home: Path, arguments: argparse.Namespace, **options: Any) -> None:
        self._spark = spark
        self._ours = Ours(spark, home, **options)
        self._files = ReadyFiles(self._ours.input, arguments.keys, arguments.rows)
        self._arguments = arguments
        self.lags: list[int] = []
        self.catching_up: list[float] = []
        self.shipped, self.shipping = 0, 0.0
        self._files.put_every_key()
        self._ours.flow.step()
        for _ in range(2 * arguments.warm_up):
            self._epoch()
        come_to_rest(spark, self._ours)

    def _epoch(self) -> float:
        self._files.prepare()
        self._files.put()
        epoch = self._ours.flow.step()
        assert epoch.epoch is not None
        self._files.taken(epoch.epoch)
        return epoch.seconds

    def block(self, every: float) -> tuple[list[float], float]:
        """The seconds of each epoch of a block, and the epochs per second from its beginning to its end."""
        before, started = self._ours.flow.status().durability.shipped, time.perf_counter()
        for _ in range(self._arguments.warm_up):
            self._epoch()
        began = time.perf_counter()
        times = block(self._epoch, self._arguments.seconds, 0, every)
        rate = len(times) / (time.perf_counter() - began)
        state = self._ours.flow.status().durability
        durable = state.strategy != "gap"
        if durable:
            self.lags.append(state.unsafe.epochs)
            self.shipped += state.shipped - before
            self.shipping += time.perf_counter() - started
        rest = come_to_rest(self._spark, self._ours)
        if durable:
            self.catching_up.append(rest)
        self._files.forget_all()
        return times, rate

    def close(self) -> None:
        self._ours.close()


def measure(arguments: argparse.Namespace, home: Path) -> dict[str, Any]:
    """What blocks of each flow took, paced and back to back."""
    spark = session()
    two = [home / "a", home / "b"]
    sides = {
        VOLATILE: Side(spark, home / "volatile", arguments, strategy="volatile"),
        ONE: Side(spark, home / "one", arguments),
        TWO: Side(spark, home / "two", arguments, log=two, min_replicas=2, local=home / "two" / "local"),
    }
    times: dict[str, list[float]] = {}
    rates: dict[str, list[float]] = {}
    for number, name in enumerate(rounds([VOLATILE, TWO], 1 + arguments.rounds)):
        took, _ = sides[name].block(arguments.every)
        if number >= 2:
            times.setdefault(name, []).extend(took)
    for number, name in enumerate(rounds([VOLATILE, ONE], 1 + arguments.rounds)):
        _, rate = sides[name].block(0.0)
        if number >= 2:
            rates.setdefault(name, []).append(rate)
    copying = {
        name: {
            "bytes per second": side.shipped / side.shipping,
            "most epochs behind": max(side.lags),
            "seconds to catch up": statistics.median(side.catching_up),
        }
        for name, side in sides.items()
        if side.lags
    }
    for side in sides.values():
        side.close()
    spark.stop()
    return {
        "latency": {
            name: {"epochs": len(own), "median_ms": median_ms(own), "p95_ms": p95_ms(own)}
            for name, own in times.items()
        },
        "throughput": {name: arguments.rows * statistics.median(own) for name, own in rates.items()},
        "copying": copying,
    }


def report(arguments: argparse.Namespace, found: dict[str, Any]) -> int:
    latency, throughput = found["latency"], found["throughput"]
    ratio = latency[TWO]["median_ms"] / latency[VOLATILE]["median_ms"]
    kept = throughput[ONE] / throughput[VOLATILE]
    met = ratio <= ALLOWED and kept >= KEPT
    if arguments.json:
        print(json.dumps({**found, "ratio": ratio, "kept": kept, "met": met}))
        return 0 if met else 1
    console = Console()
    table = Table(title=f"{arguments.rows:,}-row epochs over {arguments.keys:,} keys")
    for heading in ("", f"every {arguments.every * 1000:,.0f} ms: median", "95 %", "back to back: rows/s"):
        table.add_column(heading, justify="right" if heading else "left")
    for name in (VOLATILE, ONE, TWO):
        paced = [f"{latency[name][part]:.1f} ms" if name in latency else "–" for part in ("median_ms", "p95_ms")]
        table.add_row(name, *paced, f"{throughput[name]:,.0f}" if name in throughput else "–")
    console.print(table)
    for name, copying in found["copying"].items():
        console.print(
            f"{name}: {copying['bytes per second'] / 1e6:.1f} MB/s copied meanwhile; at the end of a block the safe "
            f"point was {copying['most epochs behind']} epochs behind at most, and was the last epoch "
            f"{copying['seconds to catch up']:.1f} s after it"
        )
    console.print(
        f"an epoch with two replicas: {ratio:.3f} of one without durability (at most {ALLOWED:.2f}); the throughput "
        f"with one location: {kept:.3f} (at least {KEPT:.2f}): {'met' if met else 'NOT MET'}"
    )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
