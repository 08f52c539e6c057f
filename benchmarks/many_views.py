"""What views cost that a change does not reach: 200 views over 10 sources beside a flow with only the views reached.

Every source has its share of the views: keyed aggregates, filters, joins with the next source, and top-k. In each
epoch one source gets a few rows, which reach the views over that source and the joins of the source before it. The
second flow has these views alone. The flows take turns in one session, in another order each time, so that the noise of
the machine and the background work of both hit both alike. If a view that a change does not reach cost nothing, the
ratio would be 1. The exit status is 1 if the ratio of the medians is above 1.5.
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
from pathlib import Path
from typing import Any

import numpy as np
from data import parse, session
from goals import share
from rich.console import Console
from rich.table import Table
from turns import in_turn

import holdfast as hf

GOAL = 1.5
SCHEMA = "key bigint, value bigint"
ALL, REACHED = "all views", "views reached"


def views(sources: int, count: int) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Name → (query, the sources that it reads), as many as ``count``."""
    found = {}
    for number in range(count):
        source, turn = number % sources, number // sources
        after = (source + 1) % sources
        of, other = f"s{source}", f"s{after}"
        reads: tuple[int, ...] = (source,)
        match turn % 5:
            case 0:
                query = (
                    f"SELECT key, count(*) AS n, sum(value) AS total FROM {of} WHERE value % 97 <> {turn} GROUP BY key"
                )
            case 1:
                query = f"SELECT key % {100 + turn} AS bucket, max(value) AS most FROM {of} GROUP BY key % {100 + turn}"
            case 2:
                query = f"SELECT key, value FROM {of} WHERE value > {10 * turn}"
            case 3:
                query = (
                    f"SELECT a.key, a.value, b.value AS other FROM {of} a JOIN {other} b ON a.key = b.key "
                    f"WHERE a.value % 53 <> {turn}"
                )
                reads = (source, after)
            case _:
                query = f"SELECT key, value FROM {of} ORDER BY value DESC, key LIMIT {10 + turn}"
        found[f"v{number:03d}"] = (query, reads)
    return found


class Side:
    """A flow with some of the views. Only the sources that these read are declared."""

    def __init__(self, spark: Any, home: Path, name: str, some: dict[str, tuple[str, tuple[int, ...]]]) -> None:
        self.flow = hf.Flow(name, log=home / name, spark=spark)
        read = sorted({source for _, reads in some.values() for source in reads})
        self.inputs = {source: self.flow.input(f"s{source}", SCHEMA) for source in read}
        for view, (query, _) in some.items():
            self.flow.view(view, query)

    def fill(self, rows: int) -> None:
        for source, one in self.inputs.items():
            random = np.random.default_rng(source)
            one.insert(
                list(zip(random.permutation(rows).tolist(), random.integers(0, 1000, rows).tolist(), strict=True))
            )
        self.flow.step()

    def epochs(self, changed: int, keys: int, rows: int) -> Callable[[], float]:
        """A function that runs one epoch with a few rows of one source, and returns its seconds."""
        random = np.random.default_rng(1)

        def run() -> float:
            some = zip(random.integers(0, keys, rows).tolist(), random.integers(0, 1000, rows).tolist(), strict=True)
            self.inputs[changed].insert(list(some))
            began = time.perf_counter()
            self.flow.step()
            return time.perf_counter() - began

        return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--views", type=int, default=200)
    parser.add_argument("--sources", type=int, default=10)
    parser.add_argument("--keys", type=int, default=1_000, help="rows of each source to begin with")
    parser.add_argument("--rows", type=int, default=20, help="rows of an epoch")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--warm-up", type=int, default=20)
    parser.add_argument("--every", type=float, default=0.1, help="seconds from the beginning of an epoch to the next")
    arguments = parse(parser, views=40, keys=100, epochs=6, warm_up=3)
    home = Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
    try:
        spark = session()
        every = views(arguments.sources, arguments.views)
        reached = {name: each for name, each in every.items() if 0 in each[1]}
        sides = {ALL: Side(spark, home, "all", every), REACHED: Side(spark, home, "reached", reached)}
        for side in sides.values():
            side.fill(arguments.keys)
        epochs = {name: side.epochs(0, arguments.keys, arguments.rows) for name, side in sides.items()}
        times = in_turn(epochs, arguments.epochs, arguments.warm_up, arguments.every)
        for side in sides.values():
            side.flow.close()
        spark.stop()
        result = report(arguments, times, {ALL: len(every), REACHED: len(reached)})
    finally:
        shutil.rmtree(home, ignore_errors=True)
    sys.exit(0 if result <= GOAL else 1)


def report(arguments: argparse.Namespace, times: dict[str, list[float]], counts: dict[str, int]) -> float:
    """Print the times, and return the ratio of the medians."""
    median = {name: 1000 * statistics.median(own) for name, own in times.items()}
    late = {name: 1000 * share(own, 0.99) for name, own in times.items()}
    ratio, more = median[ALL] / median[REACHED], median[ALL] - median[REACHED]
    each = more / max(1, counts[ALL] - counts[REACHED])
    if arguments.json:
        sides = {name: {"views": counts[name], "median_ms": median[name], "p99_ms": late[name]} for name in times}
        print(json.dumps({"sides": sides, "ratio": ratio, "more_ms": more, "each_ms": each}))
        return ratio
    console = Console()
    table = Table(title=f"{arguments.rows} rows of one of {arguments.sources} sources, an epoch")
    for heading in ("", "views", "median", "99 %"):
        table.add_column(heading, justify="right" if heading else "left")
    for name in times:
        table.add_row(name, str(counts[name]), f"{median[name]:.1f} ms", f"{late[name]:.1f} ms")
    console.print(table)
    console.print(
        f"ratio {ratio:.2f} (at most {GOAL}); {more:.1f} ms more, "
        f"{1000 * each:.0f} µs for each view that the change does not reach"
    )
    return ratio


if __name__ == "__main__":
    main()
