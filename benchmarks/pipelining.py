"""A backlog of files, drained with and without reading ahead: rows per second, and the latency of an epoch.

One flow keeps a count and a sum per key, and writes every change to a changelog. It drains blocks of files, one file
per epoch. In turns the input of the next epoch is read while an epoch is committed, and is not. So both sides have the
same session, state, background work and machine. What is compared: the rows per second of blocks, and the seconds of
epochs (`Epoch.seconds`, from poll to result). The goal: more rows, and a latency that is at most 3 % higher.
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
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from data import SCHEMA, parse, session, write_rows
from rich.console import Console
from rich.table import Table
from turns import median_ms, p95_ms

import holdfast as hf
from holdfast.spark import epoch_job, resident_task

QUERY = "SELECT key, count(*) AS n, sum(value) AS total FROM input WHERE value < 900 GROUP BY key"
SIDES = ("ahead", "as it comes")
ALLOWED = 0.03


@dataclass
class Measured:
    """What one side took."""

    speeds: list[float] = field(default_factory=list)
    """Rows per second, of each block."""

    latencies: list[float] = field(default_factory=list)
    """The median seconds of an epoch, of each block."""

    seconds: list[float] = field(default_factory=list)
    """Of each epoch."""


class Backlog:
    """A flow over a directory of files, each of which is an epoch."""

    def __init__(self, spark: object, home: Path, keys: int, rows: int) -> None:
        self._input = home / "input"
        self._input.mkdir(parents=True)
        self._random = np.random.default_rng(5)
        self._keys, self._rows, self._files = keys, rows, 0
        self.flow = hf.Flow("backlog", log=home / "log", spark=spark)  # type: ignore[arg-type]
        self.flow.source("input", hf.files(self._input, schema=SCHEMA, max_files_per_epoch=1))
        self.flow.view("totals", QUERY).sink("totals", hf.changelog(home / "totals"))
        self._write(self._random.permutation(keys))
        self.flow.step()

    def _write(self, keys: np.ndarray) -> None:
        self._files += 1
        write_rows(self._input / f"{self._files:06d}.parquet", keys, self._random)

    def drain(self, side: str, epochs: int) -> tuple[float, list[float]]:
        """Drain so many files. Return the rows per second, and the seconds of the epochs but the first: its input was
        not read ahead."""
        os.environ[epoch_job._AHEAD] = "1" if side == "ahead" else "0"
        for _ in range(epochs):
            self._write(self._random.integers(0, self._keys, self._rows))
        done: list[hf.Epoch] = []
        began = time.perf_counter()
        self.flow.run(until="idle", on_epoch=done.append)
        took = time.perf_counter() - began
        assert len(done) == epochs
        return epochs * self._rows / took, [each.seconds for each in done[1:]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--rows", type=int, nargs="+", default=[50_000, 200_000], help="rows of an epoch")
    parser.add_argument("--block", type=int, default=12, help="epochs of a turn")
    parser.add_argument("--turns", type=int, default=20, help="turns of each side")
    arguments = parse(parser, keys=20_000, rows=[2_000], block=4, turns=2)
    resident_task._ALONE = 0.0  # there is no other flow
    home = Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
    try:
        found = {rows: measure(arguments, home / str(rows), rows) for rows in arguments.rows}
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return report(arguments, found)


def measure(arguments: argparse.Namespace, home: Path, rows: int) -> dict[str, Measured]:
    backlog = Backlog(session(), home, arguments.keys, rows)
    found = {side: Measured() for side in SIDES}
    with backlog.flow:
        for side in SIDES:  # a warm-up
            backlog.drain(side, arguments.block)
        for turn in range(arguments.turns):
            for side in SIDES if turn % 2 else SIDES[::-1]:
                speed, seconds = backlog.drain(side, arguments.block)
                found[side].speeds.append(speed)
                found[side].latencies.append(statistics.median(seconds))
                found[side].seconds += seconds
    return found


def report(arguments: argparse.Namespace, found: dict[int, dict[str, Measured]]) -> int:
    """Print the table; 1 if reading ahead makes an epoch later by more than is allowed, or brings nothing."""
    table = Table(title=f"a backlog over {arguments.keys:,} keys, load {os.getloadavg()[0]:.1f}")
    for column in ("rows of an epoch", "side", "rows/s", "ratio", "median ms", "ratio", "95 %"):
        table.add_column(column, justify="left" if column == "side" else "right")
    figures = {}
    met = True
    for rows, sides in found.items():
        plain = sides["as it comes"]
        for side, own in sides.items():
            speed = _ratio(own.speeds, plain.speeds)
            latency = _ratio(own.latencies, plain.latencies)
            met &= side != "ahead" or (speed > 1.0 and latency <= 1 + ALLOWED)
            figures[f"{rows} {side}"] = {
                "rows_per_second": statistics.median(own.speeds),
                "speed": speed,
                "median_ms": median_ms(own.seconds),
                "latency": latency,
            }
            table.add_row(
                f"{rows:,}",
                side,
                f"{statistics.median(own.speeds):,.0f}",
                f"{speed:.3f}",
                f"{median_ms(own.seconds):.1f}",
                f"{latency:.3f}",
                f"{p95_ms(own.seconds):.1f}",
            )
    if arguments.json:
        print(json.dumps({**figures, "met": met}))
    else:
        Console().print(table)
    return 0 if met else 1


def _ratio(own: list[float], plain: list[float]) -> float:
    """The median of the ratios of two blocks that followed each other: the machine's noise is in both."""
    return statistics.median(one / other for one, other in zip(own, plain, strict=True))


if __name__ == "__main__":
    sys.exit(main())
