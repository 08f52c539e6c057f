"""The cost of an epoch over much state and over little, in one run: a count and a sum per key over 20,000,000 keys and
over 100,000.

The two flows take turns in one session, with epochs of 50,000 random rows, and of 10,000. If the cost follows the
change and not the state, the ratio is near 1. It is not quite the same change: 50,000 random rows have 50,000 different
keys of 20,000,000, and 39,000 of 100,000. So a third line has as many different keys on both sides. The goal is on
random rows.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import TypeAlias

import numpy as np
from against_structured_streaming import Ours
from data import parse, session, write_rows
from rich.console import Console
from rich.table import Table
from turns import come_to_rest

ALLOWED = 1.3

PIECE = 2_000_000
"""The most rows of an epoch that fills a flow."""

Took: TypeAlias = dict[str, list[float]]
"""Part of an epoch → the seconds of each epoch. The part "all" is the whole epoch."""


class Side:
    """A flow over so many keys."""

    def __init__(self, spark: object, home: Path, keys: int) -> None:
        self.keys = keys
        self._home = home
        self._flow = Ours(spark, home / str(keys))
        self._random = np.random.default_rng(keys)
        self._files = 0
        every = self._random.permutation(keys)
        for begin in range(0, keys, PIECE):
            self._take(every[begin : begin + PIECE])
        come_to_rest(spark, self._flow)

    def _take(self, keys: np.ndarray) -> None:
        self._files += 1
        file = self._home / f"{self.keys}-{self._files:06d}.parquet"
        write_rows(file, keys, self._random)
        self._flow.take(file)
        file.unlink()
        (self._flow.input / file.name).unlink()

    def epoch(self, rows: int, different: bool, took: Took) -> None:
        """An epoch of random keys, ``different`` ones or not."""
        keys = self._random.integers(0, self.keys, rows)
        if different:
            keys = self._random.choice(self.keys, rows, replace=False, shuffle=False)
        self._take(keys)
        epoch = self._flow.epochs[-1]
        for part, seconds in {"all": epoch.seconds, **epoch.timings}.items():
            took.setdefault(part, []).append(seconds)

    def layers(self) -> int:
        return sum(trace.layers for trace in self._flow.flow.status().traces)

    def close(self) -> None:
        self._flow.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small-state", type=int, default=100_000, help="keys")
    parser.add_argument("--large-state", type=int, default=20_000_000, help="keys")
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--fewer-rows", type=int, default=10_000)
    parser.add_argument("--epochs", type=int, default=100, help="of each kind and flow that are measured")
    parser.add_argument("--warm-up", type=int, default=20)
    arguments = parse(parser, small_state=10_000, large_state=100_000, rows=1_000, fewer_rows=500, epochs=6, warm_up=3)
    home = Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
    try:
        return report(arguments, *measured(arguments, home))
    finally:
        shutil.rmtree(home, ignore_errors=True)


def measured(arguments: argparse.Namespace, home: Path) -> tuple[dict[str, list[Took]], list[int]]:
    """Line → what the epochs of the small and of the large side took. And how many layers each side has in the end."""
    spark = session()
    sides = [Side(spark, home, keys) for keys in (arguments.small_state, arguments.large_state)]
    kinds = {
        f"{arguments.rows:,} random rows": (arguments.rows, False),
        f"{arguments.fewer_rows:,} random rows": (arguments.fewer_rows, False),
        f"{arguments.rows:,} different keys": (arguments.rows, True),
    }
    found: dict[str, list[Took]] = {line: [{}, {}] for line in kinds}
    for line, (rows, different) in kinds.items():
        for number in range(arguments.warm_up + arguments.epochs):
            for side, took in zip(sides, found[line], strict=True):
                side.epoch(rows, different, took if number >= arguments.warm_up else {})
    layers = [side.layers() for side in sides]
    for side in sides:
        side.close()
    spark.stop()
    return found, layers


def report(arguments: argparse.Namespace, found: dict[str, list[Took]], layers: list[int]) -> int:
    medians = {
        line: [{part: 1000 * statistics.median(took) for part, took in side.items()} for side in sides]
        for line, sides in found.items()
    }
    ratios = {line: large["all"] / small["all"] for line, (small, large) in medians.items()}
    first = next(iter(ratios))
    met = ratios[first] <= ALLOWED
    if arguments.json:
        print(json.dumps({"medians, ms": medians, "ratios": ratios, "layers": layers, "met": met}))
        return 0 if met else 1
    console = Console()
    table = Table(title="median epochs; the layers of the state: " + ", ".join(map(str, layers)))
    small, large = (f"{keys:,} keys" for keys in (arguments.small_state, arguments.large_state))
    for heading in ("", small, large, "ratio"):
        table.add_column(heading, justify="right" if heading else "left")
    for line, (few, many) in medians.items():
        table.add_row(line, f"{few['all']:.1f} ms", f"{many['all']:.1f} ms", f"{ratios[line]:.2f}")
        for part in few.keys() - {"all"}:
            table.add_row(f"  {part}", f"{few[part]:.1f} ms", f"{many.get(part, 0.0):.1f} ms", "")
    console.print(table)
    console.print(f"{first}: {ratios[first]:.2f} (at most {ALLOWED}): {'met' if met else 'NOT MET'}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
