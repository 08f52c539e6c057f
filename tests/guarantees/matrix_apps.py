"""Flows for the crash matrix: one per class of operators and kind of sink, with Spark or without.

The input is twelve batches of one record. Before a crash an epoch takes two of them. After it, batches whose output had
left already are taken one by one, if they are taken again at all: so input that is taken again is cut otherwise, which
is what the classes of operators are about. All others are taken by twos, as in a run that was never killed.

What goes to the receiver is a real SQLite database; its output is the rows that were added, in their order.

The outside function answers otherwise if it is asked again for a record of which something has left: the world outside
has changed by then.
"""

from __future__ import annotations

import json
import pickle
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

import holdfast as hf
from holdfast.coordinator.durability_settings import DurabilitySettings
from holdfast.coordinator.retention import Bound, Retention
from holdfast.guarantees.operator_classes import classes_of
from holdfast.guarantees.strategy import Strategy
from holdfast.log.location import LocalLocation
from holdfast.operators.aggregate import Aggregate, Call
from holdfast.operators.draw import Draw, Drawn
from holdfast.operators.unique import Unique, Within
from holdfast.plan import nodes
from holdfast.plan.drawing import drawing
from holdfast.plan.nodes import Field
from holdfast.runtime.declaration import ConnectorProgress, Declaration
from holdfast.runtime.engine import Engine
from holdfast.runtime.prepared_flow import PreparedFlow
from holdfast.testing.lives import About
from holdfast.testing.simulator.runner import SimulatedRunner
from holdfast.testing.simulator.world import World
from holdfast.trace.layer import forget_all

BATCHES = 12
FIELDS = (Field("id", "bigint"), Field("amount", "bigint"), Field("batch", "bigint"))
KINDS = ("repeatable", "convergent-capable", "deterministic", "arbitrary")
SINKS = ("transactional", "de-duplicating", "append")


def record(batch: int) -> tuple[int, int, int]:
    """Of batch 3 the id is that of batch 0: the same record, delivered again."""
    return (0 if batch == 3 else batch, 1 + batch % 5, batch)


class Records(hf.Source):
    """The batches. Of those that left, as ``output`` says, one is taken per epoch; of others two."""

    fields = FIELDS

    def __init__(self, left: Callable[[], int]) -> None:
        self._left = left
        self._next = 0

    def poll(self) -> hf.Offer | None:
        if self._next >= BATCHES:
            return None
        again = self._next <= self._left()
        after = self._next + 1 if again or self._next % 2 else self._next + 2
        return {"first": self._next, "after": after}

    def advance(self, offer: hf.Offer) -> None:
        self._next = offer["after"]

    def parts(self, offer: hf.Offer) -> list[hf.Part]:
        return [Record(batch) for batch in range(offer["first"], offer["after"])]


class ForgettingRecords(Records):
    """A queue: what was released is gone, and whoever asks for it gets nothing."""

    def __init__(self, left: Callable[[], int], directory: Path) -> None:
        super().__init__(left)
        self._gone = directory / "released"

    def release(self, offer: hf.Offer) -> None:
        self._gone.write_text(str(offer["after"]))

    def parts(self, offer: hf.Offer) -> list[hf.Part]:
        gone = int(self._gone.read_text()) if self._gone.exists() else 0
        return [Record(batch) for batch in range(max(gone, offer["first"]), offer["after"])]


@dataclass(frozen=True)
class Record:
    """One batch."""

    batch: int

    def read(self, schema: pa.Schema) -> Iterator[pa.Table]:
        columns = [pa.array([value], pa.int64()) for value in (*record(self.batch), 1)]
        yield pa.table(columns, names=[*schema.names, "_diff"])


class Receiver:
    """A table of rows; with ``once``, an id is taken once."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "received.db"
        with closing(self._database()) as database:
            database.execute(
                "CREATE TABLE IF NOT EXISTS received (place INTEGER PRIMARY KEY, id UNIQUE, row TEXT, diff INTEGER)"
            )
            database.execute("CREATE TABLE IF NOT EXISTS progress (epoch INTEGER, lineage BLOB)")

    def append(self, epoch: int, change: pa.Table) -> None:
        """Take whatever comes."""
        self._take(change, [None] * change.num_rows)

    def once(self, epoch: int, change: pa.Table) -> None:
        """Drop ids that are there."""
        self._take(change.drop_columns(["_id"]), change.column("_id").to_pylist())

    def transaction(self, epoch: int, change: pa.Table) -> None:
        """Take rows, epoch and lineage in one go."""
        self._take(change, [None] * change.num_rows, (epoch, change.schema.metadata[b"holdfast.lineage"]))

    def _take(self, change: pa.Table, ids: list[Any], progress: tuple[int, bytes] | None = None) -> None:
        columns = [column.to_pylist() for column in change.columns]
        rows = [(key, json.dumps(row[:-1]), row[-1]) for key, *row in zip(ids, *columns, strict=True)]
        with closing(self._database()) as database, database:
            database.execute("BEGIN IMMEDIATE")
            database.executemany("INSERT OR IGNORE INTO received (id, row, diff) VALUES (?, ?, ?)", rows)
            if progress is not None:
                database.execute("INSERT INTO progress VALUES (?, ?)", progress)

    def seen(self) -> int:
        return self._last("epoch", -1)

    def lineage(self) -> bytes:
        return self._last("lineage", b"")

    def _last(self, column: str, nothing: Any) -> Any:
        with closing(self._database()) as database:
            found = database.execute(f"SELECT {column} FROM progress ORDER BY rowid DESC LIMIT 1").fetchone()
        return nothing if found is None else found[0]

    def rows(self) -> list[tuple[int, ...]]:
        """What came of records. (A total over nothing, in which the last column is NULL, did not.)"""
        with closing(self._database()) as database:
            found = database.execute("SELECT row FROM received WHERE diff > 0 ORDER BY place").fetchall()
        return [row for (text,) in found if (row := tuple(json.loads(text)))[-1] is not None]

    def _database(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, isolation_level=None, timeout=60)


def output(directory: Path) -> list[tuple[int, ...]]:
    """The rows that the flow in a directory has delivered."""
    return Receiver(directory).rows()


def left(directory: Path) -> int:
    """The last batch of which something has left; -1 if none. (It is the last column of every view.)"""
    return max((row[-1] for row in output(directory)), default=-1)


@dataclass(frozen=True)
class Ask:
    """The world outside: it answers 1, and 1000 for a batch of which something has left."""

    directory: str

    def __call__(self, batch: int) -> int:
        return 1 if batch > left(Path(self.directory)) else 1000


def sink_of(kind: str, directory: Path) -> hf.Sink:
    receiver = Receiver(directory)
    if kind == "transactional":
        return hf.foreach(receiver.transaction, seen=receiver.seen, lineage=receiver.lineage)
    return hf.foreach(receiver.once, ids=True) if kind == "de-duplicating" else hf.foreach(receiver.append)


@dataclass(frozen=True)
class SparkApp:
    """A flow on Spark."""

    kind: str
    sink: str

    def __call__(self, directory: Path, strategy: Strategy) -> hf.Flow:
        flow = hf.Flow(
            "matrix", log=directory / "log", local=directory / "local", partitions=1, strategy=strategy,
        )  # fmt: skip
        unique = {"unique": "id", "within": 1} if self.kind == "deterministic" else {}
        flow.source("records", Records(lambda: left(directory)), **unique)
        total = "SELECT count(*) AS n, sum(amount) AS total, max(batch) AS upto FROM records"
        if self.kind == "arbitrary":
            flow.udf("ask", hf.nondeterministic(Ask(str(directory)).__call__), "bigint")
            flow.view("asked", "SELECT ask(batch) AS amount, batch FROM records")
            total = total.replace("records", "asked")
        flow.view("out", "SELECT id, batch FROM records" if self.kind == "repeatable" else total)
        return flow.sink("out", sink_of(self.sink, directory))


class BareFlow:
    """The same without Spark: the engine over real files, tasks in this thread."""

    def __init__(self, kind: str, sink: str, directory: Path, strategy: Strategy, forgets: bool) -> None:
        self._directory = directory
        took = partial(left, directory)
        records = ForgettingRecords(took, directory) if forgets else Records(took)
        source = nodes.Source("records", FIELDS)
        rows: nodes.Node = source
        expiring: dict[str, nodes.Node] = {}
        if kind == "deterministic":
            rows = expiring["records"] = Unique(source, ("id",), Within(1, True), False, 0.01)
        if kind == "arbitrary":
            outside = nodes.Outside("ask", "bigint", "ask", pickle.dumps(Ask(str(directory))))
            drawn = Draw(source, (Drawn("answer", "udf:ask", ("batch",), "bigint", outside=outside),))
            names = (nodes.Named("amount", drawn.column("answer")), nodes.Named("batch", drawn.column("batch")))
            rows = nodes.Linear(drawn, None, names)
        if kind == "repeatable":
            view: nodes.Node = nodes.projection(rows, ("id", "batch"))
        else:
            calls = (
                Call("n", "count", (), "bigint"),
                Call("total", "sum", ("amount",), "bigint"),
                Call("upto", "max", ("batch",), "bigint"),
            )
            view = Aggregate(rows, (), calls)
        sinks = [("out", sink_of(sink, directory))]
        self._declared = Declaration(
            name="matrix",
            local=directory / "local",
            locations=(LocalLocation(directory / "log"),),
            sources={"records": records},
            views={"out": view},
            texts={"out": kind},
            sinks=sinks,
            settings=DurabilitySettings(strategy, 1, Bound(), Retention(epochs=1000)),
            expiring=expiring,
            unique=frozenset(expiring),
        )
        self._sink = sinks[0][1]
        self._engine: Engine | None = None

    def open(self) -> None:
        world = World(len(list(self._directory.iterdir())), self._directory)
        self._engine = Engine(PreparedFlow(self._declared, SimulatedRunner(world, 2)), ConnectorProgress())

    def about(self) -> About:
        assert self._engine is not None
        return About(classes_of(drawing(self._engine._compiled.flow), "out"), self._sink.kind)

    def run(self, *, until: str) -> None:
        assert self._engine is not None
        while not self._engine.step().idle:
            if self._engine.last % 4 == 3:
                self._engine.upkeep()

    def close(self) -> None:
        assert self._engine is not None
        self._engine.close()
        forget_all()

    def die(self) -> None:
        if self._engine is not None:
            self._engine.abandon()
        forget_all()


@dataclass(frozen=True)
class BareApp:
    """A flow without Spark. ``forgets``: its input is a queue, which forgets what was released."""

    kind: str
    sink: str
    forgets: bool = False

    def __call__(self, directory: Path, strategy: Strategy) -> BareFlow:
        return BareFlow(self.kind, self.sink, directory, strategy, self.forgets)
