"""The memory of the flow of `against_structured_streaming`: whether it grows with the epochs, and beside its peers.

First 5,000 small epochs over 1,000,000 keys, with merging and copying beside them; input that is safe is removed. The
memory of the driver, the JVM and the Python workers, their open files and threads, and the files of the log are printed
at a fifth of the run, in the middle and at the end. What goes up and down between two merges is measured several times:
the least of each counts. None may be larger at the end than at a fifth, but for what `SLACK` allows.

Then the peaks over the same epochs of 50,000 rows: Holdfast, Structured Streaming, and DuckDB, which computes the query
anew each time. Each side is in a process of its own, and the peak is that of the process with all its children.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
from against_structured_streaming import Ours, Streaming
from data import parse, session
from memory import Peak, by_kind, open_files, threads
from ready_files import ReadyFiles
from rich.console import Console
from rich.table import Table

SLACK = {"driver": 1.1, "JVM": 1.25, "workers": 1.25, "open files": 1.1, "threads": 1.1, "files of the log": 1.25}
"""How much larger a figure may be at the end. The JVM collects garbage when it has to."""

FEW = 20
"""What a count may grow by in any case."""

MB = 1_000_000
LOOKS, PAUSE = 8, 25
"""How often a figure is measured, and so many epochs apart."""

SIDES = ("Holdfast", "Structured Streaming", "DuckDB, anew")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--epochs", type=int, default=5_000)
    parser.add_argument("--rows", type=int, default=1_000, help="rows of a small epoch")
    parser.add_argument("--peer-epochs", type=int, default=60)
    parser.add_argument("--peer-rows", type=int, default=50_000)
    parser.add_argument("--side", choices=SIDES, help="only the peak of this side, in this process")
    quick = {"keys": 20_000, "epochs": 1_000, "rows": 100, "peer_epochs": 3, "peer_rows": 2_000}
    arguments = parse(parser, **quick)
    home = Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
    try:
        if arguments.side:
            print(json.dumps(peak_of(arguments, home)))
            return 0
        figures = over_time(arguments, home)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return report(arguments, figures, {side: peak_elsewhere(side) for side in SIDES})


# -- over time ---------------------------------------------------------------------------------------------------------


def over_time(arguments: argparse.Namespace, home: Path) -> dict[int, dict[str, float]]:
    """Number of an epoch → the figures around it."""
    spark = session()
    side = Ours(spark, home)
    files = ReadyFiles(side.input, arguments.keys, arguments.rows)
    files.put_every_key()
    side.flow.step()
    moments = (arguments.epochs // 5, arguments.epochs // 2, arguments.epochs)
    found: dict[int, dict[str, float]] = {}
    for number in range(1, arguments.epochs + 1):
        files.put()
        epoch = side.flow.step().epoch
        assert epoch is not None
        files.taken(epoch)
        if number % PAUSE == 0:
            files.forget(side.flow.status().durability.safe)
        for moment in moments:
            if moment - LOOKS * PAUSE < number <= moment and (moment - number) % PAUSE == 0:
                now, before = measured(home / "log"), found.get(moment, {})
                found[moment] = {name: min(figure, before.get(name, figure)) for name, figure in now.items()}
    side.close()
    spark.stop()
    return found


def measured(log: Path) -> dict[str, float]:
    """What is there now."""
    memory = {name: bytes / MB for name, bytes in by_kind().items()}
    kept = sum(len(names) for _, _, names in os.walk(log))
    return {**memory, "open files": open_files(), "threads": threads(), "files of the log": kept}


def allowed(name: str, early: float) -> float:
    return early * SLACK[name] + FEW


# -- beside its peers --------------------------------------------------------------------------------------------------


def peak_elsewhere(side: str) -> dict[str, float]:
    """The peak of a side, in a process of its own."""
    command = [sys.executable, *sys.argv, "--side", side]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.strip().rpartition("\n")[2])
    return found


def peak_of(arguments: argparse.Namespace, home: Path) -> dict[str, float]:
    """The peak of one side in MB, and the median of its epochs in seconds."""
    with Peak(whole=True) as peak:
        take, close = started(arguments.side, home)
        files = ReadyFiles(home / "input", arguments.keys, arguments.peer_rows)
        files.put_every_key()
        take()
        took = []
        for _ in range(arguments.peer_epochs):
            files.put()
            began = time.perf_counter()
            take()
            took.append(time.perf_counter() - began)
        close()
    return {"MB": peak.bytes / MB, "median": sorted(took)[len(took) // 2]}


def started(side: str, home: Path) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """A side that is ready: what takes the file that was put in place last, and what ends it."""
    if side == "Holdfast":
        ours = Ours(spark := session(), home)
        return ours.flow.step, lambda: (ours.close(), spark.stop())
    if side == "Structured Streaming":
        theirs = Streaming(spark := session(), home)
        return theirs.query.processAllAvailable, lambda: (theirs.close(), spark.stop())
    (home / "input").mkdir()
    database = duckdb.connect()
    text = f"SELECT key, count(*), sum(value) FROM '{home}/input/*.parquet' GROUP BY key"
    return lambda: database.execute(text).to_arrow_table(), database.close


# -- the table ---------------------------------------------------------------------------------------------------------


def report(
    arguments: argparse.Namespace, figures: dict[int, dict[str, float]], peaks: dict[str, dict[str, float]]
) -> int:
    early, *_, late = figures.values()
    growing = [name for name in early if late[name] > allowed(name, early[name])]
    if arguments.json:
        print(json.dumps({"figures": figures, "growing": growing, "peaks": peaks, "met": not growing}))
        return int(bool(growing))
    console = Console()
    table = Table(title=f"{arguments.epochs:,} epochs of {arguments.rows:,} rows over {arguments.keys:,} keys")
    for heading in ("", *(f"epoch {moment:,}" for moment in figures), "allowed", ""):
        table.add_column(heading, justify="right" if heading else "left")
    for name in early:
        unit = " MB" if name in ("driver", "JVM", "workers") else ""
        cells = [f"{figure[name]:,.0f}{unit}" for figure in figures.values()]
        verdict = "[red]grows[/]" if name in growing else "flat"
        table.add_row(name, *cells, f"{allowed(name, early[name]):,.0f}{unit}", verdict)
    console.print(table)
    table = Table(title=f"{arguments.peer_epochs} epochs of {arguments.peer_rows:,} rows over {arguments.keys:,} keys")
    for heading in ("", "peak", "median epoch"):
        table.add_column(heading, justify="right" if heading else "left")
    for side, peak in peaks.items():
        table.add_row(side, f"{peak['MB']:,.0f} MB", f"{1000 * peak['median']:,.0f} ms")
    console.print(table)
    console.print(f"nothing grows: {'NOT MET: ' + ', '.join(growing) if growing else 'met'}")
    return int(bool(growing))


if __name__ == "__main__":
    sys.exit(main())
