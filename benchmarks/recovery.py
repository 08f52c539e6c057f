"""What a recovery does, by how much was lost; and what space a long history takes, against a fresh copy.

One flow with two replicas, killed again and again: all its local layers are lost while the last 0, 1, 4 or 16 epochs
were on no replica, since both of them failed. The recovery should compute those epochs again, and no others. The
lineage survives, as it does in a sink. A flow that lost nothing is opened beside them: what opening costs anyway.

In the end the replicas hold a long history of changes of the same keys. Beside them another flow takes all the input in
one epoch: the space of its replica is the space of the live data.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from against_structured_streaming import Ours
from data import parse, session
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from turns import Feed, come_to_rest, rounds

from holdfast.log.location import LocalLocation
from holdfast.results.flow_results import Recovery
from holdfast.testing.unreliable import Unreliable

LOST = (None, 0, 1, 4, 16)
"""How many of the last epochs are lost with the local layers; None: nothing at all is lost."""

PHASES = ("lineage", "look", "fetch", "replay")
ALLOWED_SPACE = 4.0


@dataclass(frozen=True)
class Opening:
    """One recovery."""

    done: Recovery
    seconds: float


class Killed:
    """The flow that loses its local layers."""

    def __init__(self, spark: Any, home: Path, feed: Feed, retain: int) -> None:
        self.storages = [Unreliable(LocalLocation(home / name)) for name in ("a", "b")]
        self.local = home / "local"
        self._spark, self._home, self._feed, self._retain = spark, home, feed, retain
        self.side = self._open()

    def _open(self) -> Ours:
        return Ours(self._spark, self._home, log=self.storages, min_replicas=2, retain=self._retain, local=self.local)

    def run(self, epochs: int, safe_every: int) -> list[float]:
        """Epochs that become safe, in many small steps: that is what leaves many files to be compacted."""
        times = []
        for number in range(epochs):
            times.append(self._feed.epoch(self.side))
            if (number + 1) % safe_every == 0:
                self.side.flow.wait_safe()
        self.side.flow.wait_safe()
        return times

    def kill(self, lost: int | None) -> Opening:
        """Lose the local layers, with the last ``lost`` epochs on no replica, and open the flow again."""
        for storage in self.storages:
            storage.fail_before = 1.0
        for _ in range(lost or 0):
            self._feed.epoch(self.side)
        last = self.side.flow.status().epoch
        self.side.close()
        if lost is not None:
            for trace in (self.local / "traces").iterdir():
                shutil.rmtree(trace)
        for storage in self.storages:
            storage.fail_before = 0.0
        self.side = self._open()
        started = time.perf_counter()
        found = self.side.flow.open().status().epoch
        seconds = time.perf_counter() - started
        done = self.side.flow.last_recovery
        if found != last or done is None:
            raise SystemExit(f"the flow was at epoch {last}, and is at {found} after its recovery")
        return Opening(done, seconds)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=2, help="recoveries of each kind")
    parser.add_argument("--epochs", type=int, default=12, help="epochs before each recovery")
    parser.add_argument("--safe-every", type=int, default=4, help="wait for the replicas after so many epochs")
    parser.add_argument("--retain", type=int, default=8, help="epochs back at which the view can be read")
    arguments = parse(parser, keys=20_000, rows=400, rounds=1, epochs=4)
    home = Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
    try:
        spark = session()
        feed = Feed(home, arguments.keys, arguments.rows, seed=5)
        killed = Killed(spark, home / "killed", feed, arguments.retain)
        openings, epoch = recover(arguments, feed, killed)
        space = compare_space(spark, home, killed, arguments.retain)
        spark.stop()
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return report(arguments, openings, epoch, space)


def recover(arguments: argparse.Namespace, feed: Feed, killed: Killed) -> tuple[dict[int | None, list[Opening]], float]:
    """The recoveries of each kind, and the seconds of an ordinary epoch."""
    feed.every_key(killed.side)
    openings: dict[int | None, list[Opening]] = {lost: [] for lost in LOST}
    times: list[float] = []
    for lost in rounds(LOST, arguments.rounds):
        times += killed.run(arguments.epochs, arguments.safe_every)
        openings[lost].append(killed.kill(lost))
    killed.run(arguments.epochs, arguments.safe_every)
    return openings, statistics.median(times)


def compare_space(spark: Any, home: Path, killed: Killed, retain: int) -> dict[str, dict[str, Any]]:
    """Bytes and files of each replica after all this, and of a replica that was written at once."""
    come_to_rest(spark, killed.side)
    place = home / "fresh"
    fresh = Ours(
        spark, place, input=killed.side.input, log=LocalLocation(place / "a"), retain=retain, local=place / "local"
    )
    fresh.flow.run(until="idle")
    come_to_rest(spark, fresh)
    sums = [side.flow.read("totals").selectExpr("sum(n)", "sum(total)").first() for side in (killed.side, fresh)]
    if sums[0] != sums[1]:
        raise SystemExit(f"the flow that was killed and the fresh one differ: {sums[0]}, {sums[1]}")
    space = {
        name: held(path, side.flow.status().epoch + 1)
        for name, path, side in (
            ("a", home / "killed" / "a", killed.side),
            ("b", home / "killed" / "b", killed.side),
            ("fresh copy", place / "a", fresh),
        )
    }
    killed.side.close()
    fresh.close()
    return space


def held(place: Path, epochs: int) -> dict[str, Any]:
    """What is in a log location."""
    return {
        "epochs": epochs,
        "bytes": _size(place),
        "layers": _size(place / "layers"),
        "lineage": _size(place / "lineage"),
        "files": {trace.name: len(list(trace.iterdir())) for trace in sorted((place / "layers").iterdir())},
    }


def _size(place: Path) -> int:
    return sum(path.stat().st_size for path in place.rglob("*") if path.is_file())


def report(
    arguments: argparse.Namespace,
    openings: dict[int | None, list[Opening]],
    epoch: float,
    space: dict[str, dict[str, Any]],
) -> int:
    rows = [_medians(lost, some, epoch) for lost, some in openings.items()]
    exact = all(opening.done.epochs_replayed == (lost or 0) for lost, some in openings.items() for opening in some)
    fresh = space["fresh copy"]["bytes"]
    factor = max(row["bytes"] for row in space.values()) / fresh
    small = factor <= ALLOWED_SPACE
    met = exact and small
    if arguments.json:
        result = {"recoveries": rows, "epoch_ms": epoch * 1000, "space": space, "space_factor": factor, "met": met}
        print(json.dumps(result))
        return 0 if met else 1
    console = Console()
    table = Table(
        title=f"recovery of {arguments.keys:,} keys: local layers and the last epochs lost (seconds)",
        box=SIMPLE,
        pad_edge=False,
    )
    for heading in ("lost", "epochs\nagain", "layers\nback", "MB\nback", *PHASES, "total"):
        table.add_column(heading, justify="left" if heading == "lost" else "right")
    for row in rows:
        lost = row["lost"]
        table.add_row(
            "nothing" if lost is None else f"local + {lost}",
            f"{row['epochs_replayed']:g}",
            f"{row['layers_fetched']:g}",
            f"{row['bytes_fetched'] / 1e6:.1f}",
            *(f"{row['seconds'][phase]:.2f}" for phase in PHASES),
            f"{row['total']:.2f}",
        )
    console.print(table)
    table = Table(title=f"space, with the last {arguments.retain} epochs readable", box=SIMPLE, pad_edge=False)
    for heading in (
        "replica",
        "epochs",
        "MB",
        "of them\nlayers",
        "of them\nlineage",
        "of a fresh\ncopy",
        "files\nper trace",
    ):
        table.add_column(heading, justify="left" if heading == "replica" else "right")
    for name, row in space.items():
        sizes = [f"{row[what] / 1e6:.2f}" for what in ("bytes", "layers", "lineage")]
        files = ", ".join(str(count) for count in row["files"].values())
        table.add_row(name, f"{row['epochs']:,}", *sizes, f"{row['bytes'] / fresh:.2f}", files)
    console.print(table)
    console.print(
        f"an epoch of {arguments.rows:,} rows takes {epoch * 1000:.0f} ms; again in a recovery, "
        f"{rows[-1]['replay_ratio']:.2f} of it (of the last {rows[-1]['lost']})"
    )
    console.print(f"replayed what was lost, and nothing else: {'met' if exact else 'NOT MET'}")
    console.print(f"space: {factor:.2f} of a fresh copy (at most {ALLOWED_SPACE:g}): {'met' if small else 'NOT MET'}")
    return 0 if met else 1


def _medians(lost: int | None, openings: list[Opening], epoch: float) -> dict[str, Any]:
    done = [opening.done for opening in openings]
    replay = statistics.median(one.seconds.get("replay", 0.0) for one in done)
    return {
        "lost": lost,
        "epochs_replayed": statistics.median(one.epochs_replayed for one in done),
        "layers_fetched": statistics.median(one.layers_fetched for one in done),
        "bytes_fetched": statistics.median(one.bytes_fetched for one in done),
        "seconds": {phase: statistics.median(one.seconds.get(phase, 0.0) for one in done) for phase in PHASES},
        "total": statistics.median(opening.seconds for opening in openings),
        "replay_ratio": replay / (lost * epoch) if lost else None,
    }


if __name__ == "__main__":
    sys.exit(main())
