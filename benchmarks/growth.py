"""What grows with the number of epochs: nothing may. The engine, with real files, over a simulated Spark.

A flow takes one small file per epoch while a thousand wait; the user removes files that are safe long since. Every so
often this measures what a flow keeps: in the driver's memory, in its working directory, in each copy, in its changelog,
and how long it takes to open. Then: what an epoch of many files writes, how often an idle flow lists its source, what
commits carry while storage is away, and (on Spark) what an outside function's answers leave behind. It fails if a
figure of the last part of the run is larger than one of the first, beyond what noise explains.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import shutil
import sys
import tempfile
import time
import warnings
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from holdfast.connectors.changelog import changelog
from holdfast.connectors.files import files
from holdfast.coordinator.durability_settings import DurabilitySettings
from holdfast.coordinator.retention import Bound, Retention
from holdfast.errors import HoldfastError
from holdfast.guarantees.strategies import NoSync
from holdfast.log.location import LocalLocation
from holdfast.runtime.declaration import ConnectorProgress, Declaration
from holdfast.runtime.engine import Engine
from holdfast.runtime.prepared_flow import PreparedFlow
from holdfast.testing import Plan, faults
from holdfast.testing.simulator.model import VIEWS, plans
from holdfast.testing.simulator.runner import SimulatedRunner
from holdfast.testing.simulator.world import World
from holdfast.testing.unreliable import Unreliable
from holdfast.trace.layer import forget_all

FLOW = ("buyers", "spend")
ROWS = 4
"""Rows per file."""


@dataclass(frozen=True)
class Line:
    """A figure at two moments, and how much of it is allowed at the second."""

    name: str
    early: float
    late: float
    unit: str
    allowed: float

    @property
    def grows(self) -> bool:
        return self.late > self.allowed


class Subject:
    """A flow on files, driven without Spark."""

    def __init__(self, root: Path, retain: int, per_epoch: int | None = 1) -> None:
        self.root, self._retain, self._per_epoch = root, retain, per_epoch
        self.world = World(2, root)
        self.world.flow = FLOW
        self.stores = [Unreliable(LocalLocation(root / place)) for place in "ab"]
        self.fed = 0
        self.safe_files = 0
        for name in ("in", "out/spend", "out/buyers"):
            (root / name).mkdir(parents=True, exist_ok=True)
        self.engine = self.open()

    def open(self) -> Engine:
        declared = Declaration(
            name="growing",
            local=self.root / "local",
            locations=tuple(self.stores),
            sources={
                "orders": files(self.root / "in", "parquet", "id long, user long, amount long", self._per_epoch),
                "users": files(self.root / "in", "parquet", "user long, city long"),
            },
            views=plans(FLOW),
            texts={view: VIEWS[view] for view in FLOW},
            sinks=[(view, changelog(self.root / "out" / view, compact=16)) for view in FLOW],
            settings=DurabilitySettings(
                NoSync(), 2, Bound(), Retention(epochs=self._retain), fold=max(8, self._retain // 2)
            ),
        )
        return Engine(PreparedFlow(declared, SimulatedRunner(self.world, 1)), ConnectorProgress())

    def feed(self, count: int) -> None:
        """Files arrive, in time order. Users come again and again: what is kept stays as large as it is."""
        for _ in range(count):
            numbers = range(self.fed * ROWS, self.fed * ROWS + ROWS)
            # Every fourth file changes no total: its epoch is one in which nothing is to be said.
            amounts = [0 if self.fed % 4 == 3 else number % 7 for number in numbers]
            table = pa.table({"id": list(numbers), "user": [number % 50 for number in numbers], "amount": amounts})
            path = self.root / "in" / f"{self.fed:09d}.parquet"
            pq.write_table(table, path)
            os.utime(path, ns=(self.fed, self.fed))
            self.fed += 1

    def forget(self, before: int) -> None:
        """The user removes input that is safe long since."""
        for number in range(self.safe_files, before):
            with suppress(FileNotFoundError):
                (self.root / "in" / f"{number:09d}.parquet").unlink()
        self.safe_files = max(self.safe_files, before)

    def reopen(self) -> float:
        self.engine.close()
        forget_all()
        began = time.perf_counter()
        self.engine = self.open()
        return time.perf_counter() - began

    def measured(self) -> dict[str, float]:
        """What is there now."""
        give_back()
        local, copies, out = (
            sizes(self.root / "local"), [*sizes(self.root / "a"), *sizes(self.root / "b")], sizes(self.root / "out"),
        )  # fmt: skip
        stash = sizes(self.root / "local" / "lineage")
        return {
            "driver: memory": resident() / 1e6,
            "driver: objects": sys.getallocatedblocks() / 1e3,
            "driver: epochs of lineage": len(held(self.engine)),
            "local: files": len(local),
            "local: bytes": sum(local) / 1e3,
            "local: bytes of lineage per epoch": sum(stash) / (self.engine.last + 1),
            "copies: files": len(copies),
            "copies: bytes": sum(copies) / 1e3,
            "changelogs: files": len(out),
            "changelogs: bytes per epoch": sum(out) / (self.engine.last + 1),
        }


UNITS = {
    "driver: memory": "MB", "driver: memory at its peak": "MB", "driver: objects": "thousand",
    "driver: epochs of lineage": "", "local: files": "", "local: bytes": "kB",
    "local: bytes of lineage per epoch": "", "copies: files": "", "copies: bytes": "kB", "changelogs: files": "",
    "changelogs: bytes per epoch": "", "opening": "ms", "an epoch": "ms",
}  # fmt: skip


def held(engine: Engine) -> range:
    """The epochs whose lineage the driver holds."""
    return range(engine.history.first, len(engine.history))


def sizes(directory: Path) -> list[int]:
    found = []
    for at, _, names in os.walk(directory):
        for name in names:
            with suppress(FileNotFoundError):
                found.append(os.stat(os.path.join(at, name)).st_size)
    return found


def give_back() -> None:
    """Have the allocators return to the system what they hold and nobody uses: that is as much as was once in use at
    the same time, and where it lay is chance. Python's own cannot be told to, and keeps a few MB. What is in use is
    counted by "driver: objects", whatever the allocators do."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    with suppress(OSError, AttributeError):  # another C library than glibc
        ctypes.CDLL(None).malloc_trim(0)


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def peak() -> int:
    """The most memory since `forget_peak`: what folding or opening needs for a moment counts, too."""
    with open("/proc/self/status") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith("VmHWM:"))


def forget_peak() -> None:
    with suppress(OSError), open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def over_time(root: Path, epochs: int, waiting: int, retain: int, say: Console) -> list[Line]:
    """The long run: every figure at a third of it, and at its end."""
    subject = Subject(root, retain)
    subject.feed(waiting)
    early: dict[str, float] = {}
    now: dict[str, float] = {}
    window = epochs // 12
    spent: deque[float] = deque(maxlen=window)  # what is measured must not grow by measuring
    for number in range(epochs):
        subject.feed(1)
        began = time.perf_counter()
        result = subject.engine.step()
        spent.append(time.perf_counter() - began)
        assert not result.idle
        if number % 5 == 4:
            subject.engine.upkeep()
        if number % 100 == 99:
            subject.forget(subject.engine.safe - retain)
        # What is folded and merged goes up and down: its peak in a window counts.
        if number in (epochs // 3 - window, epochs - window):
            give_back()
            forget_peak()
        watched = epochs // 3 - window <= number < epochs // 3 or number >= epochs - window
        if watched and number % max(1, window // 16) == 0:
            now = {name: max(figure, now.get(name, 0.0)) for name, figure in subject.measured().items()}
        if number + 1 in (epochs // 3, epochs):
            now["an epoch"] = 1000 * sum(spent) / window
            now["opening"] = 1000 * min(subject.reopen() for _ in range(3))
            now["driver: memory at its peak"] = peak() / 1e6
            early, now = (now, {}) if number + 1 < epochs else (early, now)
        if number % max(1, epochs // 20) == 0:
            figures = ", ".join(f"{name} {figure:,.0f}" for name, figure in subject.measured().items())
            say.print(f"epoch {number}: {figures}", highlight=False, soft_wrap=True)
    subject.engine.close()
    forget_all()
    # The clock of the machine is not ours: times may double, and more.
    slack = {"an epoch": 2.0, "opening": 3.0}
    slack |= dict.fromkeys(("driver: memory", "driver: memory at its peak", "driver: objects"), 1.1)
    return [Line(name, early[name], now[name], UNITS[name], early[name] * slack.get(name, 1.25) + 2) for name in UNITS]


def footers(root: Path, count: int) -> Line:
    """An epoch of many files writes what an epoch of few writes, but for a record of which files there were."""
    written = []
    for number, many in enumerate((10, count)):
        subject = Subject(root / str(number), 100, None)
        subject.feed(10)
        subject.engine.step()
        before = sum(sizes(subject.root / "local" / "traces"))
        subject.feed(many)
        subject.engine.step()
        written.append((sum(sizes(subject.root / "local" / "traces")) - before) / 1e3)
        subject.engine.close()
        forget_all()
    # Rows are kept by the input's log; offers, by nobody but the lineage.
    rows = 64 * ROWS * (count - 10) / 1e3
    return Line(f"layers of an epoch of 10 and of {count:,} files", written[0], written[1], "kB", written[0] * 2 + rows)


def away(root: Path, epochs: int) -> list[Line]:
    """While storage is away each commit carries what is not durable: once, not again and again."""
    subject = Subject(root, 100)
    subject.feed(epochs + 20)
    for _ in range(10):
        subject.engine.step()
        subject.engine.upkeep()
    for store in subject.stores:
        store.fail_before = 1.0
    carried = []
    for number in range(epochs):
        before = sum(sizes(root / "out"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            subject.engine.step()
            if number % 10 == 9:
                subject.engine.upkeep()
        carried.append(sum(sizes(root / "out")) - before)
    tenth = max(1, epochs // 10)
    first, last = sum(carried[:tenth]) / tenth / 1e3, sum(carried[-tenth:]) / tenth / 1e3
    for store in subject.stores:
        store.fail_before = 0.0
    with suppress(HoldfastError):
        subject.engine.close()
    forget_all()
    return [Line("a commit while storage is away", first, last, "kB", first * 3 + 2)]


def idle(seconds: float, root: Path) -> Line:
    """Listings of the source by a flow that has nothing to do, in the first second and in the last."""
    import threading

    import holdfast as hf

    (root / "in").mkdir(parents=True)
    flow = hf.Flow("idle", log=root / "log", partitions=1)
    flow.source("orders", hf.files(root / "in", "parquet", "id long, user long, amount long"))
    flow.view("spend", VIEWS["spend"])
    flow.step()
    with faults(Plan(()), under=[root / "in"], record=True) as layer:
        thread = threading.Thread(target=flow.run)
        began = time.monotonic()
        thread.start()
        seen: list[int] = []
        while time.monotonic() - began < seconds:
            time.sleep(1.0)
            seen.append(layer.counts["list"])
        flow.stop()
        thread.join(30)
    flow.close()
    rates = [now - before for before, now in zip([0, *seen], seen, strict=False)]
    tail = rates[len(rates) // 2 :]
    # One listing a second, however long nothing comes, is what a user who waits for a file will bear.
    return Line("listings per second of an idle flow", float(rates[0]), sum(tail) / len(tail), "", 1.5)


def answers(root: Path, epochs: int) -> list[Line]:
    """On Spark: an outside function answers for rows that come and go again."""
    import holdfast as hf

    flow = hf.Flow(
        "answers", log=[root / "a", root / "b"], min_replicas=2, local=root / "local", partitions=1, retain=10
    )
    orders = flow.input("orders", "id long, city string")
    flow.udf("look_up", hf.nondeterministic(lambda city: f"{city} {time.time_ns()}"), "string")
    flow.view("asked", "SELECT id, look_up(city) AS place FROM orders")
    flow.sink("asked", hf.changelog(root / "out"))
    # Answers go when their epochs are folded, 256 at a time: what is there goes up and down, and each half has a peak.
    # Only what is safe is folded, and copies are made in rounds, five seconds apart: how many epochs fit between two of
    # them is a matter of speed. So all epochs are made safe before the one that is measured.
    peaks: list[dict[str, float]] = [{}, {}]
    for number in range(epochs):
        if number:
            orders.delete([(each, f"city {each}") for each in range(20 * number - 20, 20 * number)])
        orders.insert([(each, f"city {each}") for each in range(20 * number, 20 * number + 20)])
        flow.step()
        if number % 10 == 8:
            flow.wait_safe()
        if number % 10 == 9:
            engine = flow._engine
            assert engine is not None
            kept = sum(len(json.dumps(engine.history[each].answers or {})) for each in held(engine))
            stash = sum(sizes(root / "local" / "lineage"))
            now = {"answers in the driver": kept / 1e3, "answers and lineage on disk": stash / 1e3}
            half = peaks[2 * number // epochs]
            half |= {name: max(figure, half.get(name, 0.0)) for name, figure in now.items()}
    flow.close()
    early, late = peaks
    return [Line(name, early[name], late[name], "kB", early[name] * 1.25 + 2) for name in late]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=20_000)
    parser.add_argument("--waiting", type=int, default=1_000)
    parser.add_argument("--quick", action="store_true", help="a few hundred epochs")
    parser.add_argument("--no-spark", action="store_true", help="leave out what needs Spark")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    epochs, waiting = (360, 50) if given.quick else (given.epochs, given.waiting)
    say = Console(stderr=True)
    # In memory, where there is such a place: a sync that takes no time.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    home = Path(tempfile.mkdtemp(prefix="holdfast-growth-", dir=memory))
    try:
        lines = over_time(home / "long", epochs, waiting, max(20, epochs // 40), say)
        lines.append(footers(home / "footers", 500 if given.quick else 5_000))
        lines += away(home / "away", 60 if given.quick else 400)
        if not given.no_spark:
            lines.append(idle(6 if given.quick else 20, home / "idle"))
            if not given.quick:  # 256 epochs are folded at a time: fewer say nothing
                lines += answers(home / "answers", 900)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    table = Table(title=f"{epochs:,} epochs, {waiting:,} files waiting: what a flow keeps")
    for name in ("", f"early ({epochs // 3:,} epochs)", "late", "", "allowed", ""):
        table.add_column(name, justify="left" if not name else "right")
    for line in lines:
        verdict = "[red]grows[/]" if line.grows else "flat"
        table.add_row(line.name, f"{line.early:,.1f}", f"{line.late:,.1f}", line.unit, f"{line.allowed:,.1f}", verdict)
    Console(stderr=given.json).print(table)
    if given.json:
        print(json.dumps({line.name: [line.early, line.late, line.unit, line.grows] for line in lines}))
    return int(any(line.grows for line in lines))


if __name__ == "__main__":
    sys.exit(main())
