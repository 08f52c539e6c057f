"""The surroundings of a flow in a simulation: time, input, a sink, hosts with disks, and locations for the log."""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from holdfast.connectors.part_writer import PartWriter
from holdfast.connectors.sink import Sink
from holdfast.connectors.source import Offer, Part, Source
from holdfast.coordinator.lineage import Lineage, from_lines, to_lines
from holdfast.errors import Fenced, InputError, StoreError
from holdfast.guarantees.strategies import NoSync
from holdfast.guarantees.strategy import Strategy
from holdfast.plan.nodes import Field
from holdfast.testing.memory import MemoryLocation
from holdfast.testing.simulator.model import SOURCES, START, Bag, Row, edition_of, flow_of
from holdfast.testing.unreliable import Unreliable

LOCATIONS = 3
MIN_REPLICAS = 2


class Broken(Exception):
    """A rule that must always hold was broken."""


class Forgotten(InputError):
    """Released input is read again. Only a stale driver, whose log another has taken over, may do that."""


Change = tuple[Row, int]


@dataclass
class Commit:
    """An epoch that a sink took."""

    lineage: Lineage
    change: list[Change]


class World:
    """Everything that outlives a driver."""

    def __init__(self, seed: int, root: Path) -> None:
        self.random = random.Random(seed)
        self.flow = flow_of(seed)
        """The views of the flow."""

        self.edition = 0
        """The edition of the views of a driver that is started now."""

        self.root = root
        self.feeds: dict[str, list[list[Change]]] = {name: [] for name in SOURCES}
        """Source → the batches that arrived. An offer is a range of batches."""

        self.forgotten: dict[str, int] = dict.fromkeys(SOURCES, 0)
        """Source → the first batch that can still be read; earlier ones were released."""

        self.rows: dict[str, Bag] = {name: Counter() for name in SOURCES}
        self.commits: dict[str, list[Commit]] = {}
        self.started: dict[str, int] = {}
        """View → the first epoch that its sink was given, if that is not epoch 0."""

        self.functions: dict[str, Function] = {}
        """View → the state of its function, which cannot report what it took, and skips epoch numbers that it has
        seen."""

        self.edits = 0
        self.lineages: dict[str, bytes] = {}
        """View → the lineage that came with its sink's last commit."""

        self.sinks_keep_lineage = seed % 3 != 0
        """Whether sinks keep all lineage that is not durable elsewhere, so that a commit brings only the new part."""

        self.sinks_take_parts = seed % 4 == 1
        """Whether tasks write changes for sinks."""

        self.stores = [MemoryLocation(f"memory://{number}") for number in range(LOCATIONS)]
        self.faults: list[dict[str, float]] = [{} for _ in range(LOCATIONS)]
        self.sink_failing = 0.0
        """The probability that an operation of a sink fails."""

        self.members: dict[str, Path] = {}
        """Member → directory. Empty if the driver's host keeps the layers."""

        self.on_loss = "replay"
        """The flow's policy when a member is lost."""

        self.strategy: Strategy = NoSync()
        """How results are protected."""

        self.elsewhere = 0.1
        """The probability that a keyed task runs on another member than the owner, if layers are scattered."""

        self._born = 0
        self.stopped = False
        """Whether time stands still."""

        self._now = START

    def seen_edition(self) -> int:
        """Return the edition of the views in the last epoch that the sinks have."""
        said = {
            commit.lineage.epoch: commit.lineage.views["spend"]["log"]
            for commits in self.commits.values()
            for commit in commits
            if commit.lineage.views and "spend" in commit.lineage.views
        }
        if not said:
            raise Broken("there was nothing to be edited")
        return edition_of(said[max(said)])

    def tick(self) -> int:
        passed = self.random.randrange(1, 2_000_000)
        self._now += 0 if self.stopped else passed
        return self._now

    def locations(self) -> list[Unreliable]:
        """Return the log's locations for a driver, with their present faults."""
        return [
            Unreliable(
                store,
                self.random.getrandbits(32),
                fail_before=faults.get("fail_before", 0.0),
                fail_after=faults.get("fail_after", 0.0),
                truncate=faults.get("truncate", 0.0),
            )
            for store, faults in zip(self.stores, self.faults, strict=True)
        ]

    def local(self, host: int) -> Path:
        return self.root / f"host{host}"

    # -- members ------------------------------------------------------------------------------------------------------

    def scatter(self, count: int) -> None:
        """From now on members keep the layers, each in a directory of its own."""
        for _ in range(count):
            self.add_member()

    def add_member(self) -> None:
        self._born += 1
        name = f"m{self._born}"
        self.members[name] = self.root / name
        self.members[name].mkdir()
        (self.members[name] / "member").write_text(name)

    def lose_member(self, name: str) -> None:
        """Remove a member, with all its layers."""
        shutil.rmtree(self.members.pop(name))

    # -- input --------------------------------------------------------------------------------------------------------

    def feed(self, name: str, change: Sequence[Change]) -> None:
        self.feeds[name].append(list(change))
        for row, diff in change:
            self.rows[name][row] += diff
            if self.rows[name][row] == 0:
                del self.rows[name][row]

    def upto(self, history: Sequence[Lineage]) -> dict[str, Bag]:
        """Return the rows of the sources after the epochs of a history. Raises `Broken` unless each batch was taken
        once, in order."""
        taken = dict.fromkeys(SOURCES, 0)
        bags: dict[str, Bag] = {name: Counter() for name in SOURCES}
        for lineage in in_effect(history):
            for name, offer in lineage.offers.items():
                if offer["first"] != taken[name]:
                    raise Broken(
                        f"epoch {lineage.epoch} took batches {offer['first']}… of {name}, "
                        f"and {taken[name]} had been taken before"
                    )
                taken[name] = offer["after"]
                for batch in self.feeds[name][offer["first"] : offer["after"]]:
                    for row, diff in batch:
                        bags[name][row] += diff
        return {name: Counter({row: n for row, n in bag.items() if n}) for name, bag in bags.items()}


def in_effect(history: Sequence[Lineage]) -> list[Lineage]:
    """Return the epochs of a history, from epoch 0 on, that no rewind has undone. A plain second implementation, from
    the last one back."""
    found = []
    epoch = len(history) - 1
    while epoch >= 0:
        rewind = history[epoch].rewind
        if rewind is None:
            found.append(history[epoch])
        epoch = epoch - 1 if rewind is None else rewind["to"]
    return found[::-1]


@dataclass(frozen=True)
class BatchPart:
    """A part of a source: some of its batches."""

    world: World = field(repr=False)
    name: str
    first: int
    after: int

    def read(self, schema: pa.Schema) -> Iterator[pa.Table]:
        if self.first < self.world.forgotten[self.name]:
            raise Forgotten(f"batch {self.first} of {self.name} was released, and is read again")
        changes = [each for batch in self.world.feeds[self.name][self.first : self.after] for each in batch]
        columns = [pa.array([row[place] for row, _ in changes], type=kind.type) for place, kind in enumerate(schema)]
        diffs = pa.array(np.array([diff for _, diff in changes], dtype=np.int64))
        yield pa.table([*columns, diffs], names=[*schema.names, "_diff"])


class SimulatedSource(Source):
    """A source, as one driver has it: it reads the world's batches, and releases them."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self.name = name
        self.fields: tuple[Field, ...] = SOURCES[name]
        self.retracts = name == "orders"
        self._next = 0

    def poll(self) -> Offer | None:
        waiting = len(self._world.feeds[self.name]) - self._next
        return {"first": self._next, "after": self._next + min(waiting, 2)} if waiting else None

    def advance(self, offer: Offer) -> None:
        self._next = offer["after"]

    def fold(self, offers: Sequence[Offer]) -> list[Offer]:
        return [{"first": offers[0]["first"], "after": offers[-1]["after"]}]

    def parts(self, offer: Offer) -> list[Part]:
        return [BatchPart(self._world, self.name, each, each + 1) for each in range(offer["first"], offer["after"])]

    def release(self, offer: Offer) -> None:
        self._world.forgotten[self.name] = max(self._world.forgotten[self.name], offer["after"])


@dataclass
class Function:
    """The state of a function as a sink: it remembers the greatest epoch that it was given, and skips epochs up to
    that."""

    seen: int = -1
    took: set[str] = field(default_factory=set)
    """The digests of the epochs that it did not skip."""


class SimulatedFunction(Sink):
    """A function as a sink, as one driver has it: it cannot report which epochs it took."""

    def __init__(self, world: World, view: str) -> None:
        self._world = world
        self._function = world.functions.setdefault(view, Function())
        self.failing = 0.0

    def open(self, view: str, fields: tuple[Field, ...]) -> None:
        return None

    def commit(self, epoch: int, change: pa.Table, lineage: bytes) -> None:
        if self._world.random.random() < self.failing:
            raise StoreError("the function fails before it takes the epoch")
        if epoch > self._function.seen:
            self._function.seen = epoch
            self._function.took.add(from_lines(lineage)[-1].digest)
        if self._world.random.random() < self.failing:
            raise StoreError("the function took the epoch, and says that it failed")


@dataclass(frozen=True)
class SimulatedPartWriter(PartWriter):
    """Writes parts as files, for the sink to read."""

    directory: Path

    def write(self, epoch: int, attempt: str, change: pa.Table) -> str:
        place = self.directory / attempt
        place.mkdir(parents=True, exist_ok=True)
        path = place / f"{len(os.listdir(place))}.arrow"
        with pa.ipc.new_file(path, change.schema) as writer:
            writer.write_table(change)
        return str(path)


class SimulatedSink(Sink):
    """A transactional sink, as one driver has it. It takes an epoch once, and refuses a stale driver. Sometimes it
    fails before it took an epoch, sometimes after, and then it may or may not be able to report what it took. In some
    worlds it keeps all lineage that it is given until that is durable elsewhere, in others only the lineage of the last
    commit."""

    def __init__(self, world: World, view: str) -> None:
        self._world = world
        self.view = view
        self._commits = world.commits.setdefault(view, [])
        self.failing = 0.0
        self.keeps_lineage = world.sinks_keep_lineage
        self._released = -1

    def open(self, view: str, fields: tuple[Field, ...]) -> int:
        return len(self._commits) - 1

    def taken(self) -> int | None:
        if self._world.random.random() < self.failing:
            raise StoreError("the sink does not answer")
        return len(self._commits) - 1 if self._world.random.random() < 0.5 else None

    def lineage(self) -> bytes:
        return self._world.lineages.get(self.view, b"")

    def release_lineage(self, upto: int) -> None:
        self._released = max(self._released, upto)

    def commit(self, epoch: int, change: pa.Table, lineage: bytes) -> None:
        if self._world.random.random() < self.failing:
            raise StoreError("the sink fails before it takes the epoch")
        mine = from_lines(lineage)[-1]
        if epoch < len(self._commits):
            if self._commits[epoch].lineage.digest != mine.digest:
                raise Fenced(f"the sink has epoch {epoch} of another driver")
        elif epoch > len(self._commits) and (self._commits or not self._world.edits):
            raise Broken(f"the sink has epoch {len(self._commits) - 1}, and is given epoch {epoch}")
        else:
            if epoch > len(self._commits):
                # The sink is empty, and the view was edited: the first epoch given is the view as it is now.
                self._world.started[self.view] = epoch
                self._commits += [Commit(mine, [])] * epoch
            rows = list(zip(*(column.to_pylist() for column in change.columns), strict=True))
            self._commits.append(Commit(mine, [(row[:-1], row[-1]) for row in rows]))
            self._world.lineages[self.view] = self._kept(lineage)
        if self._world.random.random() < self.failing:
            raise StoreError("the sink took the epoch, and says that it failed")

    def part_writer(self, view: str, fields: tuple[Field, ...]) -> PartWriter | None:
        return SimulatedPartWriter(self._parts) if self._world.sinks_take_parts else None

    def commit_parts(self, epoch: int, parts: Sequence[str], change: pa.Table, lineage: bytes) -> None:
        read = [pa.ipc.open_file(part).read_all() for part in parts]
        self.commit(epoch, pa.concat_tables([*read, change.replace_schema_metadata(None)]), lineage)

    def drop_parts(self, attempt: str) -> None:
        shutil.rmtree(self._parts / attempt, ignore_errors=True)

    @property
    def _parts(self) -> Path:
        return self._world.root / "parts" / self.view

    def _kept(self, lineage: bytes) -> bytes:
        """Return the lineage to keep, of the known and the given one. Raises `Broken` if there is a gap in it."""
        if not self.keeps_lineage:
            return lineage
        given = from_lines(lineage)
        known = {each.epoch: each for each in from_lines(self.lineage()) if each.epoch > self._released}
        if given[0].epoch > self._released + 1 and given[0].epoch - 1 not in known:
            raise Broken(f"the lineage between epoch {self._released} and {given[0].epoch} was not carried")
        known |= {each.epoch: each for each in given}
        return to_lines(known[epoch] for epoch in sorted(known) if epoch <= given[-1].epoch)


def view_after(commits: Sequence[Commit]) -> Bag:
    """Return the rows to which a sink's commits add up. Raises `Broken` if a row has a negative count."""
    total: Bag = Counter()
    for commit in commits:
        for row, diff in commit.change:
            total[row] += diff
    wrong = {row: count for row, count in total.items() if count < 0}
    if wrong:
        raise Broken(f"rows were retracted more often than they were emitted: {wrong}")
    return Counter({row: count for row, count in total.items() if count})


def difference(found: Mapping[Row, int], wanted: Mapping[Row, int]) -> str:
    """Describe the first differences between two bags, for messages."""
    rows = sorted(set(found) | set(wanted))
    pairs = [(row, found.get(row, 0), wanted.get(row, 0)) for row in rows]
    return "; ".join([f"{row}: {has} instead of {should}" for row, has, should in pairs if has != should][:5])


def bag_of(table: pa.Table) -> Bag:
    """Return the rows of a table as a bag."""
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))
