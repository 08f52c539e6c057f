"""Drivers that stand by for each other, as real processes: three run one flow, and the leader is killed, then paused.

One story, since starting three drivers is what takes time. The flow joins, aggregates and ranks, and commits to two
transactional sinks. What they hold in the end must be what the input says, each epoch once, whoever ran it.
"""

from __future__ import annotations

import json
import os
import queue
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import pytest

import holdfast
from holdfast.connectors.changelog import delivered
from holdfast.inspect.describe import describe
from holdfast.testing.processes import die_with_parent
from holdfast.testing.zookeeper import ZooKeeperServer, zookeeper
from tests.durability.test_killed_processes import changelog, check_chain, check_same, database, write_input

APP = Path(__file__).with_name("flow.py")
BATCHES = 400
PATIENCE = 180.0
TIMEOUT = "4s"
"""Of the lease: more than a busy machine lets a driver wait."""


class Driver:
    """``holdfast run … --lease … --json``, in a session of its own."""

    def __init__(self, root: Path, name: str, lease: str) -> None:
        self._said = root.parent / f"{name}.stderr"
        own = {
            "HOLDFAST_TEST_ROOT": str(root),
            "PYTHONPATH": os.pathsep.join([str(Path(holdfast.__file__).parents[1]), str(APP.parents[2])]),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": "--conf spark.driver.memory=1g pyspark-shell",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "TZ": "UTC",
        }
        command = [sys.executable, "-m", "holdfast.cli", "run", str(APP), "--json", "--interval", "0.02"]
        with open(self._said, "wb") as said:
            self.process = subprocess.Popen(
                [*command, "--lease", lease, "--lease-timeout", TIMEOUT],
                env={**os.environ, **own},
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
                start_new_session=True,
                preexec_fn=die_with_parent(),
            )
        self.pid = self.process.pid
        self.epochs: list[int] = []
        self._events: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        assert self.process.stdout is not None
        threading.Thread(target=self._listen, args=(self.process.stdout,), daemon=True).start()

    def _listen(self, lines: IO[str]) -> None:
        for line in lines:
            with suppress(ValueError):
                said = json.loads(line)
                if "event" in said:
                    self._events.put(said)
                else:
                    self.epochs.append(said["epoch"])

    def event(self, *wanted: str) -> dict[str, Any]:
        """The next event of one of these kinds."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                said = self._events.get(timeout=max(0.01, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no {wanted} came:\n{self.errors()}") from None
            if said["event"] in wanted:
                return said

    def errors(self) -> str:
        return self._said.read_text(errors="replace")[-3000:]

    def members(self) -> list[int]:
        """The processes of its session: itself, Spark's JVM, Python workers."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with suppress(OSError):
                    state, _, _, session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
                    if int(session) == self.pid and state != "Z":
                        found.append(int(entry.name))
        return found

    def signal(self, number: signal.Signals) -> None:
        for pid in self.members():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def end(self) -> None:
        self.signal(signal.SIGKILL)
        self.process.wait()


class Feed:
    """Puts one batch after the other into the flow's directory, as they are taken: the first at once, the others from
    `begin` to `finish`."""

    def __init__(self, home: Path) -> None:
        self.root = home / "flow"
        self._all = home / "input"
        write_input(self._all, BATCHES, random.Random(4))
        shutil.copytree(self._all / "users", self.root / "users")
        (self.root / "orders").mkdir()
        self._stop = threading.Event()
        self._put(0)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def begin(self) -> None:
        self._thread.start()

    def finish(self) -> int:
        """How many there were."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()
        return len(list((self.root / "orders").glob("[0-9]*.json")))

    def _run(self) -> None:
        for number in range(1, BATCHES):
            while number > epochs_at(self.root) + 2:
                if self._stop.wait(0.02):
                    return
            if self._stop.is_set():
                return
            self._put(number)

    def _put(self, number: int) -> None:
        file, to = self._all / "orders" / f"{number:06d}.json", self.root / "orders"
        shutil.copy(file, to / f".{file.name}")
        os.rename(to / f".{file.name}", to / file.name)


@pytest.fixture
def feed(tmp_path: Path) -> Iterator[Feed]:
    feed = Feed(tmp_path)
    yield feed
    feed.finish()


@pytest.fixture
def server() -> Iterator[ZooKeeperServer]:
    with zookeeper() as running:
        yield running


def test_a_standby_goes_on_when_the_leader_is_killed_or_stalls(
    tmp_path: Path, feed: Feed, server: ZooKeeperServer
) -> None:
    root, lease = feed.root, f"zk://{server.address}/flows/killed"
    drivers = [Driver(root, f"driver{number}", lease) for number in range(3)]
    try:
        first = leader_of(drivers)
        standing = [driver for driver in drivers if driver is not first]
        for driver in standing:
            assert driver.event("standby")["holder"]["pid"] == first.pid
        running = describe([root / "local", root / "a"])["running"]
        assert running["pid"] == first.pid and running["lease"] == lease
        feed.begin()
        grown(root, epochs_at(root) + 5)

        first.signal(signal.SIGKILL)
        killed, before = time.monotonic(), epochs_at(root)
        second = leader_of(standing)
        grown(root, before + 1)
        print(f"killed; the next epoch was committed after {time.monotonic() - killed:.2f} s")
        (third,) = (driver for driver in standing if driver is not second)
        assert third.event("standby")["holder"]["pid"] == second.pid
        grown(root, before + 5)

        pause(second, root)
        stopped, before = time.monotonic(), epochs_at(root)
        assert third.event("leading")["epoch"] >= before - 1
        grown(root, before + 3)
        print(f"paused; three epochs were committed after {time.monotonic() - stopped:.2f} s")
        second.signal(signal.SIGCONT)
        assert second.process.wait(PATIENCE) == 3, second.errors()
        assert second.event("lost", "released")["event"] == "lost"
        lines = [line for line in second.errors().splitlines() if line.startswith("holdfast: ")]
        (said,) = lines
        assert "another driver has taken over" in said and f"process {third.pid} on" in said
        # Spark's own processes complain in the terminal when they end; the driver does not.
        assert "holdfast/cli.py" not in second.errors()

        given = feed.finish()
        eventually(lambda: offered(root) == given, "all input is taken")
        third.process.send_signal(signal.SIGTERM)
        assert third.process.wait(PATIENCE) == 0, third.errors()
        assert third.event("released")
        for driver in drivers:
            eventually(lambda driver=driver: not driver.members(), "no process is left behind")
    finally:
        for driver in drivers:
            driver.end()

    check(tmp_path, root, given)
    # Who was killed may have committed an epoch that it did not come to tell of; nobody told of one twice.
    told = [epoch for driver in (first, second, third) for epoch in driver.epochs]
    assert len(told) == len(set(told)) and told == sorted(told)


def pause(driver: Driver, root: Path) -> None:
    """Stop a driver, but not within a transaction of SQLite: that would lock everybody out, whoever leads."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        driver.signal(signal.SIGSTOP)
        database = sqlite3.connect(root / "top.db", timeout=0.0, isolation_level=None)
        try:
            database.execute("BEGIN IMMEDIATE")
            database.execute("ROLLBACK")
            return
        except sqlite3.OperationalError:
            driver.signal(signal.SIGCONT)
            time.sleep(0.01)
        finally:
            database.close()
    raise AssertionError("it is always within a transaction")


def epochs_at(root: Path) -> int:
    return delivered(root / "out") + 1


def check(home: Path, root: Path, given: int) -> None:
    """Both sinks have each epoch once, in one chain, and hold what a run without crashes would have delivered."""
    found = changelog(root / "out"), database(root / "top.db")
    check_chain(found[1].commits)
    check_same(*found)
    calm = home / "calm"
    expected = write_input(calm, given, random.Random(4))
    for number in range(given):
        name = f"{number:06d}.json"
        assert (calm / "orders" / name).read_text() == (root / "orders" / name).read_text()
    assert found[0].rows == expected["cities"] and found[1].rows == expected["top"]


def leader_of(some: list[Driver]) -> Driver:
    """The one of them that leads first."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        for driver in some:
            with suppress(queue.Empty):
                said = driver._events.get_nowait()
                if said["event"] == "leading":
                    return driver
                if said["event"] == "standby":
                    driver._events.put(said)
        time.sleep(0.02)
    raise AssertionError("nobody leads:\n" + "\n".join(driver.errors() for driver in some))


def offered(root: Path) -> int:
    """How many batches the sinks have seen."""
    from holdfast.coordinator.lineage import from_lines

    with sqlite3.connect(root / "top.db") as opened:
        carried = opened.execute("SELECT lineage FROM commits").fetchall()
    opened.close()
    lineages = [lineage for (lines,) in carried for lineage in from_lines(bytes(lines))]
    return max((lineage.offers.get("orders", {}).get("to", 0) for lineage in lineages), default=0)


def grown(root: Path, epochs: int) -> None:
    eventually(lambda: epochs_at(root) >= epochs, f"{epochs} epochs")


def eventually(what: Callable[[], bool], name: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < deadline, name
        time.sleep(0.02)
