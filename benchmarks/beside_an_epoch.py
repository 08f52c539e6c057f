"""What work beside epochs costs them, by the priority of the thread that does it: none, one tenth of the weight of
others, the least weight there is, and the idle class (`holdfast/priority.py`). One process that never stops, of each
kind, in turns of a few epochs. Linux only."""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from against_structured_streaming import Ours
from data import parse, session
from rich.console import Console
from rich.table import Table
from turns import Feed, median_ms

_LOAD = """
import os, sys
import numpy as np
match sys.argv[1]:
    case "idle class":
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    case niceness:
        os.setpriority(os.PRIO_PROCESS, 0, int(niceness.split()[1]))
numbers = np.random.default_rng(1).integers(0, 2**63, (250_000, 4))
with open(sys.argv[2], "wb") as file:
    while True:
        file.seek(0)
        file.write(numbers[np.argsort(numbers[:, 0])].tobytes())
"""
"""Much like a merge: it sorts, moves rows, and writes them."""

KINDS = ("nothing", "nice 10", "nice 19", "idle class")


class Loads:
    """A process of each kind, stopped."""

    def __init__(self, home: Path) -> None:
        self._processes = {
            kind: subprocess.Popen([sys.executable, "-c", _LOAD, kind, str(home / kind)]) for kind in KINDS[1:]
        }
        time.sleep(1.0)  # they have set their priority
        for process in self._processes.values():
            process.send_signal(signal.SIGSTOP)

    @contextmanager
    def running(self, kind: str) -> Iterator[None]:
        """One of them runs."""
        process = self._processes.get(kind)
        if process is not None:
            process.send_signal(signal.SIGCONT)
            time.sleep(0.2)
        yield
        if process is not None:
            process.send_signal(signal.SIGSTOP)

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--pause", type=float, default=0.15, help="seconds from one epoch to the next")
    parser.add_argument("--turns", type=int, default=30)
    parser.add_argument("--epochs", type=int, default=3, help="epochs in a turn")
    parser.add_argument("--warm-up", type=int, default=30)
    arguments = parse(parser, keys=20_000, rows=2_000, turns=2, warm_up=2)
    if sys.platform != "linux":
        sys.exit("beside_an_epoch: only Linux has an idle class")
    home = Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
    loads = Loads(home)
    try:
        times = measure(arguments, home, loads)
    finally:
        loads.close()
        shutil.rmtree(home, ignore_errors=True)
    medians = {kind: median_ms(own) for kind, own in times.items()}
    if arguments.json:
        print(json.dumps({"median_ms": medians}))
        return
    table = Table(title=f"epochs of {arguments.rows:,} rows over {arguments.keys:,} keys, volatile")
    for heading in ("beside them", "epochs", "median", "more"):
        table.add_column(heading, justify="left" if heading == "beside them" else "right")
    for kind, median in medians.items():
        more = f"{(median / medians['nothing'] - 1) * 100:+.0f} %" if kind != "nothing" else ""
        table.add_row(kind, str(len(times[kind])), f"{median:.0f} ms", more)
    Console().print(table)


def measure(arguments: argparse.Namespace, home: Path, loads: Loads) -> dict[str, list[float]]:
    """Seconds per epoch, by what went on beside it."""
    spark = session()
    feed = Feed(home, arguments.keys, arguments.rows, seed=4)
    side = Ours(spark, home / "flow", strategy="volatile")
    feed.every_key(side)
    for _ in range(arguments.warm_up):
        feed.epoch(side)
    times: dict[str, list[float]] = {kind: [] for kind in KINDS}
    shuffled = random.Random(arguments.turns)
    for _ in range(arguments.turns):
        for kind in shuffled.sample(KINDS, len(KINDS)):
            with loads.running(kind):
                for _ in range(arguments.epochs):
                    times[kind].append(feed.epoch(side))
                    time.sleep(arguments.pause)
    side.close()
    spark.stop()
    return times


if __name__ == "__main__":
    main()
