"""How long a flow stands still when its driver is killed: a warm standby takes over, or a cold process is started.

Real processes on this machine, each with a local Spark of its own: one leads, one stands by with the same lease. The
leader is killed (kill -9), and the time is taken until the next epoch is committed at the sink (a changelog); then a
new standby is started, and when it is warm, the next leader is killed. Beside it: a single driver without a lease is
killed, and the same command started again at once.

    python benchmarks/takeover.py [--kills 5] [--timeout 2s] [--lease zk] [--quick] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Any

from data import parse
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

import holdfast
from holdfast.connectors.changelog import delivered
from holdfast.testing.processes import die_with_parent

ALLOWED = 5.0
"""Seconds from the kill to the next commit, in the median."""

PATIENCE = 120.0

APP = """
import time
import holdfast as hf

class Paced(type(hf.rate(1))):
    '''So many rows every tenth of a second.'''
    _due = 0.0

    def poll(self):
        return super().poll() if time.monotonic() >= self._due else None

    def advance(self, offer):
        self._due = time.monotonic() + 0.1
        super().advance(offer)

flow = hf.Flow("takeover", log={log!r}, partitions=2)
flow.source("events", Paced({rows}, {keys}, 7, None))
flow.source("names", hf.rate({keys}, keys={keys}, seed=3, epochs=1))
flow.view("totals", "SELECT key, count(*) AS n, sum(value) AS total FROM events GROUP BY key")
flow.view("named", "SELECT n.id, t.n, t.total FROM totals t JOIN names n ON t.key = n.id WHERE n.id < 100")
flow.sink("named", hf.changelog({out!r}))
"""

PHASES = ("detect", "open", "first epoch")


class Driver:
    """``holdfast run``, as a process, and what it says, with the time when it did."""

    def __init__(self, app: Path, *options: str) -> None:
        own = {
            "PYTHONPATH": str(Path(holdfast.__file__).parents[1]),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": "--conf spark.driver.memory=1g pyspark-shell",
            "TZ": "UTC",
        }
        command = [sys.executable, "-m", "holdfast.cli", "run", str(app), "--json", "--interval", "0.02", *options]
        self._process = subprocess.Popen(
            command,
            env={**os.environ, **own},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
            preexec_fn=die_with_parent(),
        )
        self._said: queue.SimpleQueue[tuple[float, dict[str, Any]]] = queue.SimpleQueue()
        assert self._process.stdout is not None
        threading.Thread(target=self._listen, args=(self._process.stdout,), daemon=True).start()

    def _listen(self, lines: IO[str]) -> None:
        for line in lines:
            with suppress(ValueError):
                self._said.put((time.monotonic(), json.loads(line)))

    def wait_for(self, event: str) -> tuple[float, dict[str, Any]]:
        """When it said so, and what. ``"epoch"``: the next epoch."""
        deadline = time.monotonic() + PATIENCE
        while True:
            at, said = self._said.get(timeout=max(0.01, deadline - time.monotonic()))
            if said.get("event", "epoch") == event:
                return at, said

    def kill(self) -> float:
        """Kill the driver, as a host kills a process. When that was."""
        at = time.monotonic()
        self._process.kill()
        self._process.wait()
        return at

    def end(self) -> None:
        """Nothing of it is left."""
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with suppress(OSError):
                    if int((entry / "stat").read_text().rpartition(")")[2].split()[3]) == self._process.pid:
                        os.kill(int(entry.name), signal.SIGKILL)
        with suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()


def next_commit(out: Path, before: int) -> float:
    """When the epoch after ``before`` is there."""
    deadline = time.monotonic() + PATIENCE
    while delivered(out) <= before:
        if time.monotonic() > deadline:
            raise SystemExit("no epoch was committed after the leader was killed")
        time.sleep(0.002)
    return time.monotonic()


def last_commit(out: Path) -> int:
    return delivered(out)


def epochs_run(out: Path, count: int) -> None:
    """Wait for so many more."""
    deadline, upto = time.monotonic() + PATIENCE, last_commit(out) + count
    while last_commit(out) < upto:
        if time.monotonic() > deadline:
            raise SystemExit("the flow does not go on")
        time.sleep(0.02)


def warm(home: Path, app: Path, lease: str, kills: int, timeout: str, drivers: list[Driver]) -> list[dict[str, float]]:
    """Kill the leader again and again; a standby takes over each time."""
    out = home / "out"
    options = ("--lease", lease, "--lease-timeout", timeout)
    leader = start(drivers, app, *options)
    leader.wait_for("leading")
    found = []
    for _ in range(kills):
        standby = start(drivers, app, *options)
        standby.wait_for("standby")
        epochs_run(out, 20)
        killed = leader.kill()
        before = last_commit(out)
        done = next_commit(out, before)
        acquired, _ = standby.wait_for("acquired")
        opened, said = standby.wait_for("leading")
        found.append(
            {
                "total": done - killed,
                "detect": acquired - killed,
                "open": opened - acquired,
                "first epoch": done - opened,
                **{name: spent for name, spent in said["seconds"].items() if name.startswith("open: ")},
            }
        )
        leader.end()
        leader = standby
    leader.end()
    return found


def cold(home: Path, app: Path, kills: int, drivers: list[Driver]) -> list[dict[str, float]]:
    """Kill a driver that has no standby, and start it again at once."""
    out = home / "out"
    driver = start(drivers, app)
    driver.wait_for("epoch")
    found = []
    for _ in range(kills):
        epochs_run(out, 20)
        killed = driver.kill()
        before = last_commit(out)
        again = start(drivers, app)
        found.append({"total": next_commit(out, before) - killed})
        driver.end()
        driver = again
    driver.end()
    return found


def start(drivers: list[Driver], app: Path, *options: str) -> Driver:
    drivers.append(Driver(app, *options))
    return drivers[-1]


def write_app(home: Path, arguments: argparse.Namespace) -> Path:
    home.mkdir()
    app = home / "app.py"
    settings = {"log": str(home / "log"), "out": str(home / "out"), "rows": arguments.rows, "keys": arguments.keys}
    app.write_text(APP.format(**settings))
    return app


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=5, help="of leaders with a standby")
    parser.add_argument("--restarts", type=int, default=3, help="kills of a driver without a standby")
    parser.add_argument("--timeout", default="2s", help="the lease's timeout")
    parser.add_argument("--lease", choices=("file", "zk"), default="file", help="where the lease is kept")
    parser.add_argument("--rows", type=int, default=2_000, help="per epoch")
    parser.add_argument("--keys", type=int, default=10_000)
    arguments = parse(parser, kills=1, restarts=1)
    home = Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
    drivers: list[Driver] = []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that nothing is left behind
    with ExitStack() as ending:
        ending.callback(shutil.rmtree, home, ignore_errors=True)
        ending.callback(lambda: [driver.end() for driver in drivers])
        lease = (home / "lease").as_uri()
        if arguments.lease == "zk":
            from holdfast.testing.zookeeper import zookeeper

            lease = f"zk://{ending.enter_context(zookeeper(tick=0.25)).address}/takeover"
        app = write_app(home / "warm", arguments)
        taken = warm(home / "warm", app, lease, arguments.kills, arguments.timeout, drivers)
        app = write_app(home / "cold", arguments)
        restarted = cold(home / "cold", app, arguments.restarts, drivers)
    return report(arguments, taken, restarted)


def report(
    arguments: argparse.Namespace, taken: Sequence[dict[str, float]], restarted: Sequence[dict[str, float]]
) -> int:
    median = statistics.median(one["total"] for one in taken)
    again = statistics.median(one["total"] for one in restarted)
    met = median < ALLOWED
    if arguments.json:
        print(json.dumps({"takeovers": taken, "restarts": restarted, "median": median, "cold": again, "met": met}))
        return 0 if met else 1
    console = Console()
    table = Table(
        title=f"from kill -9 to the next committed epoch, in seconds (lease: {arguments.lease}, {arguments.timeout})",
        box=SIMPLE,
        pad_edge=False,
    )
    for heading in ("", "kills", "median", "worst", *PHASES):
        table.add_column(heading, justify="left" if not heading else "right")
    phases = [f"{statistics.median(one[phase] for one in taken):.2f}" for phase in PHASES]
    for name, some, rest in (("warm standby", taken, phases), ("cold restart", restarted, ["", "", ""])):
        totals = [one["total"] for one in some]
        table.add_row(name, str(len(some)), f"{statistics.median(totals):.2f}", f"{max(totals):.2f}", *rest)
    console.print(table)
    console.print(f"a warm standby takes {median / again:.2f} of the time of a cold restart")
    verdict = "met" if met else "NOT MET"
    console.print(f"takeover: median {median:.2f} s (less than {ALLOWED:g} s): {verdict}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
