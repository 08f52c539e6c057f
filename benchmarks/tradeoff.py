"""What each strategy costs while nothing fails, against what a crash costs: steady-state overhead × recovery time.

One workload: files of random keys, an aggregate by key, a receiver that drops rows whose id it has. Each strategy, and
each interval of those that have one, runs it in a process of its own, which is killed (SIGKILL) after an epoch; a
second process recovers and works off what has arrived meanwhile. `active_standby` has its second process from the
beginning: it waits for the lease, and follows.

Before the kill: time per epoch (mean), latency of an epoch (median, 99th percentile), rows per second, bytes copied to
the log, space held.
After it: seconds to the first new output and to having caught up (from when the flow is opened, with Spark warm; for a
standby from the kill), epochs and rows computed again, rows that the receiver dropped as duplicates.

    python benchmarks/tradeoff.py --out docs/tradeoff       writes tradeoff.csv, .svg and .png
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shutil
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from data import SCHEMA, parse, session, write_rows
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

import holdfast as hf

WARM_UP = 5
LEASE = 2.0


def variants(quick: bool) -> dict[str, hf.Strategy]:
    """Name → strategy: all of them, and a sweep of the intervals."""
    found = {
        "nosync": hf.nosync(),
        "synchronous_log": hf.synchronous_log(),
        "upstream_backup": hf.upstream_backup(8),
        "active_standby": hf.active_standby(),
        "gap": hf.gap(),
    }
    for every in (4,) if quick else (2, 8, 32):
        found[f"aligned_snapshot({every})"] = hf.aligned_snapshot(every)
        found[f"passive_standby({every})"] = hf.passive_standby(every)
    return found


@dataclass
class Measured:
    """One strategy."""

    strategy: str
    mean_ms: float = 0.0
    median_ms: float = 0.0
    p99_ms: float = 0.0
    rows_per_second: float = 0.0
    bytes_copied: int = 0
    space: int = 0
    first_output_s: float = 0.0
    caught_up_s: float = 0.0
    epochs_again: int = 0
    rows_again: int = 0
    duplicates: int = 0
    missing_epochs: int = 0


# -- in the processes that are killed ---------------------------------------------------------------------------------


class Receiver:
    """A table with a unique id; it counts what it dropped, and when it took something new."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "received.db"
        self._said = directory / "received.jsonl"
        with closing(sqlite3.connect(self._path)) as database, database:
            database.execute("PRAGMA journal_mode=WAL")
            database.execute("CREATE TABLE IF NOT EXISTS received (id TEXT PRIMARY KEY)")

    def __call__(self, epoch: int, change: pa.Table) -> None:
        ids = [(each,) for each in change.column("_id").to_pylist()]
        with closing(sqlite3.connect(self._path, timeout=60)) as database, database:
            before = database.total_changes
            database.executemany("INSERT OR IGNORE INTO received VALUES (?)", ids)
            new = database.total_changes - before
        with open(self._said, "a") as file:
            file.write(json.dumps({"at": time.time(), "epoch": epoch, "rows": len(ids), "new": new}) + "\n")


def live(directory: Path, name: str, quick: bool, role: str) -> None:
    """Run the flow. It says when it is open and after each epoch how it stands, in a file of its own."""
    spark = session()
    spark.range(1).count()
    flow = hf.Flow(
        "tradeoff", directory / "log", spark, 2, local=directory / f"local-{'a' if role != 'standby' else 'b'}",
        strategy=variants(quick)[name], retain=4,
    )  # fmt: skip
    flow.source("rows", hf.files(directory / "rows", schema=SCHEMA, max_files_per_epoch=1))
    flow.view("totals", "SELECT key, sum(value) AS total, count(*) AS n FROM rows GROUP BY key")
    flow.sink("totals", hf.foreach(Receiver(directory), ids=True))
    with open(directory / f"{role}.jsonl", "a", buffering=1) as file:

        def say(**what: object) -> None:
            file.write(json.dumps({"at": time.time(), **what}) + "\n")

        def tell(result: hf.Epoch) -> None:
            if not result.idle:
                say(epoch=result.epoch, seconds=result.seconds, shipped=flow.status().durability.shipped)

        say(opening=True)
        if role == "first" and name != "active_standby":
            flow.run(on_epoch=tell)
        elif name == "active_standby":
            flow.run(lease=f"file://{directory / 'lease'}", lease_timeout=LEASE, on_epoch=tell)
        else:
            flow.open()
            recovery = flow.last_recovery
            assert recovery is not None
            say(replayed=recovery.epochs_replayed, missing=len(getattr(recovery, "missing", ())))
            flow.run(on_epoch=tell)


# -- in the process that kills ----------------------------------------------------------------------------------------


class Run:
    """One strategy, killed once."""

    def __init__(self, name: str, directory: Path, arguments: argparse.Namespace) -> None:
        self._name, self._directory, self._arguments = name, directory, arguments
        self._random = np.random.default_rng(7)
        self._files = 0
        (directory / "rows").mkdir(parents=True)

    def measured(self) -> Measured:
        arguments, found = self._arguments, Measured(self._name)
        follows = self._name == "active_standby"
        self._feed(arguments.epochs // 2 if follows else arguments.epochs)
        with self._process("first", f"epoch.complete:{arguments.epochs - 1}") as first:
            second = None
            if follows and self._leads(first):
                second = self._process("standby")
                while second.poll() is None and not self._lines("standby"):
                    time.sleep(0.05)
                time.sleep(10 * LEASE)  # it has seen the leader, and follows
                self._feed(arguments.epochs - arguments.epochs // 2)
            try:
                code = first.wait(arguments.patience)
                killed = time.time()
                if code != -signal.SIGKILL:
                    raise RuntimeError(f"{self._name}: the first process ended with {code}: {self._said('first')}")
                _end(first)
                found.space = _space(self._directory / "log") + _space(self._directory / "local-a")
                self._steady(found)
                before = len(self._lines("received"))
                self._feed(arguments.backlog)
                role = "standby" if follows else "second"
                second = second or self._process(role)
                self._recovered(found, role, killed, before)
            finally:
                if second is not None:
                    _end(second)
        return found

    def _leads(self, first: subprocess.Popen[bytes]) -> bool:
        """Wait until the first process has run an epoch: the second must not take the lease before it."""
        while first.poll() is None and not any("epoch" in line for line in self._lines("first")):
            time.sleep(0.05)
        return first.poll() is None

    def _feed(self, count: int) -> None:
        for _ in range(count):
            self._files += 1
            keys = self._random.integers(0, self._arguments.keys, self._arguments.rows)
            write_rows(self._directory / "rows" / f"{self._files:06d}.parquet", keys, self._random)

    def _process(self, role: str, crash: str | None = None) -> subprocess.Popen[bytes]:
        environment = {key: value for key, value in os.environ.items() if key != "HOLDFAST_CRASH_AT"}
        if crash is not None:
            environment["HOLDFAST_CRASH_AT"] = crash
        quick = ["--quick"] if self._arguments.quick else []
        log = open(self._directory / f"{role}.log", "wb")  # noqa: SIM115  # the process has it
        return subprocess.Popen(
            [sys.executable, __file__, *quick, "--live", str(self._directory), "--name", self._name, "--role", role],
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def _lines(self, name: str) -> list[dict[str, Any]]:
        path = self._directory / f"{name}.jsonl"
        if not path.exists():
            return []
        return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]

    def _said(self, role: str) -> str:
        return (self._directory / f"{role}.log").read_text(errors="replace")[-1500:]

    def _steady(self, found: Measured) -> None:
        told = [line for line in self._lines("first") if "epoch" in line]
        if self._name == "active_standby":
            told = told[self._arguments.epochs // 2 :]  # since the standby follows; before that, it was waited for
        seconds = sorted(line["seconds"] for line in told[WARM_UP:])
        found.median_ms = 1000 * statistics.median(seconds)
        found.p99_ms = 1000 * seconds[int(0.99 * (len(seconds) - 1))]
        spent = told[-1]["at"] - told[WARM_UP - 1]["at"]
        found.mean_ms = 1000 * spent / len(seconds)
        found.rows_per_second = self._arguments.rows * len(seconds) / spent
        found.bytes_copied = told[-1]["shipped"]

    def _recovered(self, found: Measured, role: str, killed: float, before: int) -> None:
        """Wait until all that was fed has been taken."""
        deadline = time.monotonic() + self._arguments.patience
        last = self._files - (1 if self._name == "gap" else 0)
        while True:
            received = self._lines("received")
            told = [line for line in self._lines(role) if "epoch" in line]
            if told and told[-1]["epoch"] >= last - 1 - (self._name == "gap"):
                break
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self._name}: it does not catch up: {self._said(role)}")
            time.sleep(0.05)
        lines = self._lines(role)
        begun = killed if role == "standby" else next(line["at"] for line in lines if "opening" in line)
        fresh = [line for line in received[before:] if line["new"]]
        found.first_output_s = fresh[0]["at"] - begun
        found.caught_up_s = told[-1]["at"] - begun
        found.epochs_again = next((line["replayed"] for line in lines if "replayed" in line), 0)
        found.missing_epochs = next((line["missing"] for line in lines if "missing" in line), 0)
        found.rows_again = found.epochs_again * self._arguments.rows
        found.duplicates = sum(line["rows"] - line["new"] for line in received)


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _space(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file()) if directory.exists() else 0


def picture(found: list[Measured], out: Path) -> list[Path]:
    """Overhead × recovery time, one point per strategy, intervals joined by a line."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7.5, 5))
    families: dict[str, list[Measured]] = {}
    for each in found:
        families.setdefault(each.strategy.partition("(")[0], []).append(each)
    for family, some in families.items():
        some.sort(key=lambda each: int(each.strategy.partition("(")[2].rstrip(")") or 0))
        axes.plot([each.mean_ms for each in some], [each.first_output_s for each in some], "o-", label=family)
        for each in some:
            text = each.strategy.partition("(")[2].rstrip(")")
            axes.annotate(text, (each.mean_ms, each.first_output_s), xytext=(5, 5), textcoords="offset points")
    axes.set_xlabel("steady state: time per epoch, waiting included (ms, mean)")
    axes.set_ylabel("after a crash: seconds to the first new output")
    axes.set_title("Overhead against recovery, by strategy (numbers: epochs between copies)")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    paths = [out.with_suffix(".svg"), out.with_suffix(".png")]
    for path in paths:
        figure.savefig(path, dpi=120)
    return paths


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--rows", type=int, default=10_000, help="rows of an epoch")
    parser.add_argument("--epochs", type=int, default=50, help="until the kill")
    # So many that the longest interval (32) has an end in them: output that is held leaves then.
    parser.add_argument("--backlog", type=int, default=16, help="epochs that arrive while it is down")
    parser.add_argument("--patience", type=float, default=300.0)
    parser.add_argument("--only", nargs="*", help="these strategies alone")
    parser.add_argument("--out", type=Path, help="write a CSV file and pictures here, without the suffix")
    for hidden in ("--live", "--name", "--role"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    arguments = parse(parser, keys=2_000, rows=500, epochs=14, backlog=3)
    if arguments.live is not None:
        live(Path(arguments.live), arguments.name, arguments.quick, arguments.role)
        return
    console = Console(stderr=arguments.json, width=None if sys.stdout.isatty() else 130)
    found: list[Measured] = []
    failed = False
    for name in variants(arguments.quick):
        if arguments.only and name.partition("(")[0] not in arguments.only:
            continue
        home = Path(tempfile.mkdtemp(prefix="holdfast-tradeoff-"))
        try:
            try:
                found.append(Run(name, home / "run", arguments).measured())
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                console.print(f"{name}: {error}", style="red", markup=False, highlight=False)
                failed = True
                continue
            console.print(
                f"{name}: {found[-1].median_ms:.0f} ms, recovered in {found[-1].first_output_s:.1f} s", style="dim"
            )
        finally:
            shutil.rmtree(home, ignore_errors=True)
    _print(console, found)
    if arguments.out is not None:
        with open(arguments.out.with_suffix(".csv"), "w", newline="") as file:
            writer = csv.DictWriter(file, list(asdict(found[0])))
            writer.writeheader()
            writer.writerows({key: round(value, 3) if isinstance(value, float) else value
                              for key, value in asdict(each).items()} for each in found)  # fmt: skip
        for path in picture(found, arguments.out):
            console.print(f"wrote {path}", style="dim")
    if arguments.json:
        print(json.dumps({each.strategy: asdict(each) for each in found}))
    if failed:
        sys.exit(1)


def _print(console: Console, found: list[Measured]) -> None:
    table = Table("strategy", "mean", "median", "p99", "rows/s", "copied", "space", "first new", "caught up",
                  "again", "dups", box=SIMPLE)  # fmt: skip
    for column in table.columns[1:]:
        column.justify = "right"
    base = next((each.mean_ms for each in found if each.strategy == "nosync"), None)
    for each in found:
        ratio = "" if base is None else f" ({each.mean_ms / base:.2f}×)"
        table.add_row(
            each.strategy, f"{each.mean_ms:.0f} ms{ratio}", f"{each.median_ms:.0f} ms", f"{each.p99_ms:.0f} ms",
            f"{each.rows_per_second:,.0f}",
            f"{each.bytes_copied / 1e6:.1f} MB", f"{each.space / 1e6:.1f} MB", f"{each.first_output_s:.1f} s",
            f"{each.caught_up_s:.1f} s", f"{each.epochs_again}", f"{each.duplicates:,}",
        )  # fmt: skip
    console.print(table)


if __name__ == "__main__":
    main()
