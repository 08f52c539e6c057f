"""Simulations on a real disk that fails: the engine, with log directories, source files and changelogs that are files.

A seed draws a flow, a list of actions (rows arrive, epochs run, background work runs, drivers die or are stopped, a
copy or the local directory is lost), and a plan of faults for all file operations. What must hold:

* every error raised is an error of Holdfast, and a step that raised has not happened, or says that it has;
* when the flow is opened again, it has every epoch whose step returned, and no other epoch, except maybe the one in
  which the driver died;
* no file of a source, and no whole file of a changelog, is ever removed or changed;
* when the faults end, the flow opens and takes the remaining input, and every view and changelog is exact and safe.

The file is long because the actions and the checks after them share the state of one run.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.connectors.changelog import changelog
from holdfast.connectors.changelog_files import DataFile, data_files, listed
from holdfast.connectors.files import files
from holdfast.connectors.source import Offer, Part, Source
from holdfast.coordinator.durability_settings import DurabilitySettings
from holdfast.coordinator.retention import Bound, Retention
from holdfast.errors import HoldfastError, InputError
from holdfast.foundation import failpoints
from holdfast.guarantees.strategies import NoSync
from holdfast.log.location import LocalLocation
from holdfast.plan.nodes import Field
from holdfast.runtime.declaration import ConnectorProgress, Declaration
from holdfast.runtime.engine import Engine
from holdfast.runtime.prepared_flow import PreparedFlow
from holdfast.testing.faulty.layer import Faults, faults
from holdfast.testing.faulty.plan import Plan
from holdfast.testing.quiet_logs import quiet_logs
from holdfast.testing.simulator.actions import MARKS
from holdfast.testing.simulator.model import ORDERS, START, VIEWS, Bag, expected, left, plans, without_draws
from holdfast.testing.simulator.run import Crash
from holdfast.testing.simulator.runner import SimulatedRunner
from holdfast.testing.simulator.world import Broken, Change, World, bag_of, difference
from holdfast.trace.layer import forget_all
from holdfast.trace.name import ALL

LENGTH = 24
_PLACES = ("a", "b", "c")
_MIN_REPLICAS = 2
_ACTIONS = {
    "feed": 7.0,
    "step": 9.0,
    "upkeep": 5.0,
    "kill": 0.7,
    "crash": 0.7,
    "close": 0.7,
    "lose": 0.5,
    "lose local": 0.3,
}


class NumberedFiles(Source):
    """A source of files ``000000.json``, …, each a list of rows and diffs."""

    fields: tuple[Field, ...] = ORDERS
    retracts = True

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._next = 0

    def poll(self) -> Offer | None:
        upto = self._next
        try:
            while upto < self._next + 2 and (self._directory / _numbered(upto)).exists():
                upto += 1
        except OSError as error:
            raise InputError(f"files {self._directory}: {error.strerror}", path=str(self._directory)) from error
        return {"first": self._next, "after": upto} if upto > self._next else None

    def advance(self, offer: Offer) -> None:
        self._next = offer["after"]

    def parts(self, offer: Offer) -> list[Part]:
        return [NumberedFile(str(self._directory / _numbered(each))) for each in range(offer["first"], offer["after"])]


@dataclass(frozen=True)
class NumberedFile:
    """One file of `NumberedFiles`, as a part."""

    path: str

    def read(self, schema: pa.Schema) -> Iterator[pa.Table]:
        try:
            changes = json.loads(Path(self.path).read_bytes())
        except OSError as error:
            raise InputError(f"file {self.path}: {error.strerror}", path=self.path) from error
        columns = [pa.array([row[place] for row, _ in changes], type=kind.type) for place, kind in enumerate(schema)]
        yield pa.table([*columns, pa.array(np.array([diff for _, diff in changes]))], names=[*schema.names, "_diff"])


@dataclass
class FaultyRun:
    """The record of a run, for reports."""

    seed: int
    plan: Plan
    broken: str | None = None
    """The rule that was broken; None if the run was correct."""

    actions: list[str] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    """Errors raised, by type; all of them were allowed."""

    injected: int = 0
    epochs: int = 0
    counts: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        met = f"{self.injected} calls failed; plan: {self.plan}"
        return f"seed {self.seed}: {self.broken or 'exact'}\n{met}\nafter {', '.join(self.actions)}"


class FaultySimulation:
    """One flow on files that fail."""

    def __init__(self, run: FaultyRun, root: Path) -> None:
        self.run = run
        self.root = root
        self.world = World(run.seed, root)
        self.chance = random.Random(f"faulty {run.seed}")
        self.compact = 2 if run.seed % 2 else None
        """How many files of a changelog are compacted into one. None: no compaction."""

        self.engine: Engine | None = None
        self.layer: Faults | None = None
        self.last = -1
        """The last epoch that counts, as far as the driver reported."""

        self.crashed = False
        """Whether the driver died during an action: one more epoch may count than was reported."""

        self.dying: tuple[str, int] | None = None
        """(mark, n): the driver dies when it reaches the mark for the n-th time."""

        self.kept: dict[Path, bytes] = {}
        """Complete files of the user → digest of their content."""

        for name in ("orders", "users", *(f"out/{view}" for view in self.world.flow)):
            (root / name).mkdir(parents=True)

    # -- the flow -----------------------------------------------------------------------------------------------------

    def open(self) -> Engine:
        if self.engine is None:
            world = self.world
            users = files(self.root / "users", schema="user bigint, city bigint", max_files_per_epoch=2)
            declared = Declaration(
                name="simulated",
                local=self.root / "a",
                locations=tuple(LocalLocation(self.root / place) for place in _PLACES),
                sources={"orders": NumberedFiles(self.root / "orders"), "users": users},
                views=plans(world.flow),
                texts={view: VIEWS[view] for view in world.flow},
                sinks=[(view, changelog(self.root / "out" / view, compact=self.compact)) for view in world.flow],
                settings=DurabilitySettings(NoSync(), _MIN_REPLICAS, Bound(), Retention(epochs=2), fold=2),
                expiring=left(world.flow),
            )
            runner = SimulatedRunner(world, world.random.choice((1, 2, 2, 3)))
            self.engine = Engine(PreparedFlow(declared, runner), ConnectorProgress())
            if not self.last <= self.engine.last <= self.last + self.crashed:
                raise Broken(f"epoch {self.last} was the last that counted, and the flow opens with {self.engine.last}")
            self.last, self.crashed = self.engine.last, False
        return self.engine

    def step(self) -> None:
        engine = self.open()
        before = engine.last
        try:
            engine.step()
        except HoldfastError as error:
            if engine.last != before and not error.fields.get("complete"):
                raise Broken(f"a step raised, and epoch {engine.last} counts: {error}") from error
            raise
        finally:
            self.last = engine.last

    def die(self) -> None:
        if self.engine is not None:
            with suppress(OSError):
                self.engine.abandon()
            forget_all()
        self.engine = None

    def close(self) -> None:
        engine, self.engine = self.engine, None
        if engine is not None:
            try:
                engine.close()
            finally:
                forget_all()

    def reached(self, mark: str) -> None:
        if self.dying is not None and self.dying[0] == mark:
            self.dying = (mark, self.dying[1] - 1)
            if not self.dying[1]:
                self.dying = None
                raise Crash(mark)

    # -- what happens -------------------------------------------------------------------------------------------------

    def do(self, action: str) -> None:
        if action == "feed":
            self._feed()
        elif action == "step":
            self.step()
        elif action == "upkeep" and self.engine is not None:
            self.engine.upkeep()
        elif action == "kill":
            self.die()
        elif action == "crash":
            self.dying = (self.chance.choice(MARKS), self.chance.choice((1, 1, 2, 3)))
        elif action == "close":
            self.close()
        elif action.startswith("lose"):
            self._lose(action)

    def _feed(self) -> None:
        chance, world = self.chance, self.world
        if chance.random() < 0.3:
            users = [(chance.randrange(12), chance.randrange(4)) for _ in range(3)]
            world.feed("users", [(row, 1) for row in users])
            table = pa.table({"user": [row[0] for row in users], "city": [row[1] for row in users]})
            self._place(self.root / "users" / f"{len(world.feeds['users']):06d}.parquet", _parquet(table))
            return
        change: list[Change] = [
            ((chance.randrange(1000), chance.randrange(12), chance.randrange(-50, 100)), 1)
            for _ in range(chance.randrange(1, 8))
        ]
        there = sorted(world.rows["orders"])
        change += [(row, -1) for row in chance.sample(there, min(len(there), chance.randrange(0, 4)))]
        path = self.root / "orders" / _numbered(len(world.feeds["orders"]))
        world.feed("orders", change)
        self._place(path, json.dumps(change).encode())

    def _place(self, path: Path, data: bytes) -> None:
        hidden = path.with_name(f".{path.name}.tmp")
        hidden.write_bytes(data)
        # A file's modification time is part of an epoch's lineage, so it is the same in every run of a seed.
        os.utime(hidden, ns=(START * 1000, START * 1000 + len(self.kept)))
        hidden.rename(path)
        self.kept[path] = hashlib.sha256(data).digest()

    def _lose(self, what: str) -> None:
        """Lose a copy, or the local directory with the copy in it: as much as the flow promises to survive. Only if all
        epochs are safe, since it promises nothing otherwise."""
        engine = self.engine
        if engine is None or not all(engine.is_held(place) for place in range(len(_PLACES))):
            return
        self.die()
        shutil.rmtree(self.root / ("a" if what == "lose local" else self.chance.choice(_PLACES[1:])))

    # -- what must hold -----------------------------------------------------------------------------------------------

    def check_files(self) -> None:
        """Check that no file of the user is gone or changed. Complete files of changelogs count among them from now
        on."""
        for path, digest in list(self.kept.items()):
            if not path.exists():
                if _is_within_another(path):
                    del self.kept[path]
                    continue
                raise Broken(f"{path.relative_to(self.root)} was whole, and is gone")
            if hashlib.sha256(path.read_bytes()).digest() != digest:
                raise Broken(f"{path.relative_to(self.root)} was whole, and is another file")
        for view in self.world.flow:
            for path in (self.root / "out" / view).glob("*.parquet"):
                if path not in self.kept:
                    try:
                        pq.read_table(path)
                    except (OSError, pa.ArrowException) as error:
                        raise Broken(f"{path.relative_to(self.root)} is not whole: {error}") from error
                    self.kept[path] = hashlib.sha256(path.read_bytes()).digest()

    def finish(self) -> None:
        """After the faults: take the remaining input, and compare everything with the model."""
        if self.chance.random() < 0.5:
            self.die()  # else the driver that met the faults continues
        if self.engine is not None:
            with suppress(HoldfastError):
                self.step()  # it may still raise an error of background work
        self.world.stopped = True
        try:
            while True:
                engine = self.open()
                if engine.step().idle:
                    break
            for _ in range(6):
                engine.upkeep()
                engine.step()
        except HoldfastError as error:
            raise Broken(f"nothing fails any more, and it says: {type(error).__name__}: {error}") from error
        self.check_files()
        bags, clock = self.world.rows, engine.history[engine.last].clock
        for view in self.world.flow:
            wanted = expected(view, bags["orders"], bags["users"], clock)
            kept, last = engine.views.readable(view, None)
            found = bag_of(kept.rows(0, ALL, last))
            _compare(f"view {view}", without_draws(view, found), wanted)
            _compare(f"changelog of {view}", self._delivered(view), found)
        if engine.safe != engine.last:
            raise Broken(f"nothing fails, and epoch {engine.last} is not safe: {engine.safe}")
        self.run.epochs = engine.last + 1
        self.close()

    def _delivered(self, view: str) -> Bag:
        total: Bag = Counter()
        for path in data_files(self.root / "out" / view):
            table = pq.read_table(path).drop_columns(["_epoch"])
            for *row, diff in zip(*(column.to_pylist() for column in table.columns), strict=True):
                total[tuple(row)] += diff
        return Counter({row: count for row, count in total.items() if count})


def _compare(subject: str, found: Bag, wanted: Bag) -> None:
    if found != wanted:
        raise Broken(f"{subject} is wrong: {difference(found, wanted)}")


def _is_within_another(path: Path) -> bool:
    """Whether a file of a changelog was compacted into another one."""
    if path.parent.parent.name != "out":
        return False
    epochs = [int(number) for number in re.findall(r"\d{12}", path.name)]
    return any(other.holds(DataFile(epochs[0], epochs[-1])) for other in listed(path.parent))


def _numbered(number: int) -> str:
    return f"{number:06d}.json"


def _parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def simulate_faults(
    seed: int,
    length: int = LENGTH,
    *,
    plan: Plan | None = None,
    watch: Callable[[FaultySimulation], Any] | None = None,
) -> FaultyRun:
    """Run the simulation of a seed on files that fail. The result's ``broken`` is None, or the rule that was broken.

    ``length``: the number of actions. ``plan``: a plan instead of the seed's own. ``watch``: called with the simulation
    if a rule was broken, before its files are deleted.
    """
    run = FaultyRun(seed, Plan.draw(seed) if plan is None else plan)
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    root = Path(tempfile.mkdtemp(prefix="holdfast-faulty-", dir=memory))
    simulation = FaultySimulation(run, root)
    chosen = random.Random(f"actions {seed}").choices(list(_ACTIONS), list(_ACTIONS.values()), k=length)
    under = [root / name for name in (*_PLACES, "out", "orders", "users")]
    try:
        with quiet_logs():
            with faults(run.plan, under) as layer:
                simulation.layer = layer
                for action in chosen:
                    run.actions.append(action)
                    if action in ("feed", "kill", "crash", "lose", "lose local"):
                        with layer.paused():
                            simulation.do(action)
                    else:
                        _tolerant(simulation, action)
                    with layer.paused():
                        simulation.check_files()
            run.actions.append("no faults")
            simulation.finish()
    except Exception as error:
        said = "" if isinstance(error, Broken) else f"{type(error).__name__}: "
        run.broken = f"{said}{error}"
        if watch is not None:
            watch(simulation)
    finally:
        if simulation.layer is not None:
            run.injected, run.counts = len(simulation.layer.injected), Counter(simulation.layer.counts)
        simulation.die()
        shutil.rmtree(root, ignore_errors=True)
    return run


def _tolerant(simulation: FaultySimulation, action: str) -> None:
    """Carry out an action that may fail, but only with an error of Holdfast; the driver may also die in it."""
    assert simulation.layer is not None
    failpoints.hook = simulation.reached
    try:
        simulation.do(action)
    except Broken:
        raise
    except Crash as crash:
        simulation.run.actions[-1] += f" (died at {crash})"
        with simulation.layer.paused():
            simulation.die()
        simulation.crashed = True
    except HoldfastError as error:
        simulation.run.errors[type(error).__name__] += 1
        simulation.run.actions[-1] += f" ({type(error).__name__})"
        if simulation.engine is not None and type(error).__name__ == "Fenced":
            with simulation.layer.paused():
                simulation.die()
    except BaseException as error:
        raise Broken(f"{action} raised what is no error of Holdfast's: {type(error).__name__}: {error}") from error
    finally:
        failpoints.hook = None
