"""A small flow for tests of recovery: a join, aggregates and a top-k over input that never changes.

A `Shop` holds all input that there ever was, so that any number of flows, one after the other or at once, see the same;
it says in plain Python what the views must hold.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.connectors.changelog import committed, delivered, lineage_of
from holdfast.connectors.input import InlinePart
from holdfast.coordinator.lineage import GENESIS, Lineage, from_lines
from holdfast.log.location import LocalLocation
from holdfast.plan.nodes import Field
from holdfast.runtime.engine import Engine
from holdfast.task.program import partition_range
from holdfast.testing import Unreliable, total_of_changes
from holdfast.trace.name import LayerName

PARTITIONS = 2
SOON = 60.0
"""Seconds in which what happens in the background has happened, on a busy machine."""

CITIES = {user: user % 3 for user in range(10)}
VIEWS = {
    "cities": "SELECT city, sum(amount) AS total, count(*) AS orders FROM orders o JOIN users u ON o.user = u.user "
    "GROUP BY city",
    "top": "SELECT user, sum(amount) AS total FROM orders GROUP BY user ORDER BY total DESC, user LIMIT 3",
}

Row = tuple[int, ...]


class Batches(hf.Source):
    """The batches of a list, one per epoch. It remembers what it was told to forget."""

    retracts = True

    def __init__(self, columns: str, batches: list[list[Row]]) -> None:
        """Each row ends with its diff."""
        self.fields = tuple(Field(name, "bigint") for name in columns.split())
        self.batches = batches
        self.released: list[int] = []
        self._next = 0

    def poll(self) -> hf.Offer | None:
        return {"batch": self._next} if self._next < len(self.batches) else None

    def advance(self, offer: hf.Offer) -> None:
        assert offer["batch"] == self._next
        self._next += 1

    def release(self, offer: hf.Offer) -> None:
        self.released.append(offer["batch"])

    def parts(self, offer: hf.Offer) -> list[hf.Part]:
        columns = [pa.array(column, pa.int64()) for column in zip(*self.batches[offer["batch"]], strict=True)]
        table = pa.table(columns, names=[*(field.name for field in self.fields), "_diff"])
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return [InlinePart(sink.getvalue().to_pybytes())]


class Shop:
    """All input, and flows over it."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.root = root
        self._spark = spark
        self._chance = random.Random(7)
        self._there: list[Row] = []
        self.orders: list[list[Row]] = []
        self.users: list[list[Row]] = [[(user, city, 1) for user, city in CITIES.items()]]

    def open(self, log: Any, *, sinks: bool = True, **settings: Any) -> hf.Flow:
        """A new flow over all the input, as a new process would declare it; it is opened."""
        settings = {"partitions": PARTITIONS, **settings}
        flow = hf.Flow("shop", log=log, spark=self._spark, **settings)
        flow.source("orders", Batches("id user amount", self.orders)).source("users", Batches("user city", self.users))
        for name, sql in VIEWS.items():
            flow.view(name, sql)
        if sinks:
            for name in VIEWS:
                flow.sink(name, hf.changelog(self.root / "out" / name))
        flow.open()
        return flow

    def feed(self) -> None:
        """One more batch of orders: rows come, and some go."""
        gone = [self._there.pop(self._chance.randrange(len(self._there))) for _ in range(min(len(self._there), 2))]
        come = [(len(self.orders) * 10 + n, self._chance.randrange(12), self._chance.randrange(100)) for n in range(5)]
        self._there += come
        self.orders.append([*((*row, -1) for row in gone), *((*row, 1) for row in come)])

    def run(self, flow: hf.Flow, epochs: int) -> None:
        for _ in range(epochs):
            self.feed()
            assert not flow.step().idle

    def there(self) -> Counter[Row]:
        """The orders that are there."""
        return Counter(self._there)

    def expected(self, view: str) -> Counter[Row]:
        rows = [(user, amount) for _, user, amount in self._there]
        totals: Counter[int] = Counter()
        if view == "top":
            for user, amount in rows:
                totals[user] += amount
            return Counter(sorted(totals.items(), key=lambda row: (-row[1], row[0]))[:3])
        counts: Counter[int] = Counter()
        for user, amount in rows:
            if user in CITIES:
                totals[CITIES[user]] += amount
                counts[CITIES[user]] += 1
        return Counter((city, totals[city], counts[city]) for city in counts)

    def check(self, flow: hf.Flow) -> None:
        """The views, and what was delivered of them, are what the input says; each epoch was delivered once."""
        for view in VIEWS:
            assert Counter(map(tuple, flow.read(view).collect())) == self.expected(view), view
            out = self.root / "out" / view
            if out.exists():
                changes = pa.concat_tables([pa.parquet.read_table(path) for path in sorted(out.glob("*.parquet"))])
                total = total_of_changes(changes).to_pydict().values()
                assert Counter(zip(*total, strict=True)) == self.expected(view), f"changelog of {view}"
                digests = [lineage.digest for lineage in history(flow)]
                for epoch in committed(out):
                    given = from_lines(lineage_of(out, epoch))[-1]
                    assert (given.parent, given.digest) == ([GENESIS, *digests][epoch], digests[epoch])
                assert delivered(out) == len(digests) - 1


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SOON
    while not true():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def copy(tmp_path: Path, name: str = "copy") -> Unreliable:
    """A log location that can be told to refuse writes."""
    return Unreliable(LocalLocation(tmp_path / name), only="write")


def levels(flow: hf.Flow) -> list[dict[str, int]]:
    """Of each view: location → the last epoch that it has."""
    found: dict[str, dict[str, int]] = flow.status().durability.levels
    return list(found.values())


def engine(flow: hf.Flow) -> Engine:
    assert flow._engine is not None
    return flow._engine


def history(flow: hf.Flow) -> list[Lineage]:
    return list(engine(flow).history)


def stop_rounds(flow: hf.Flow) -> None:
    """From now on nothing happens in the background."""
    engine(flow)._maintenance.close()
    engine(flow)._durability._background.close()
    engine(flow)._measuring.close()


def one_round(flow: hf.Flow) -> None:
    """Make everything durable, in this thread."""
    engine(flow)._durability._round()


def die(flow: hf.Flow) -> None:
    """Let the flow's process die, as far as one can within a process that lives on."""
    stop_rounds(flow)
    engine(flow).abandon()
    flow._engine = None
    flow._closed = True


def local_layers(local: Path, partition: int | None = None) -> list[Path]:
    """The local layers, or those of one partition."""
    found = sorted((local / "traces").glob("*/*.arrow"))
    if partition is None:
        return found
    low, high = partition_range(partition, PARTITIONS)
    names = {path: LayerName.parse(path.name) for path in found}
    return [path for path, name in names.items() if name is not None and low <= name.low < name.high <= high]


def moved(local: Path) -> Path:
    """The same directory under another name: no worker remembers that it has seen its files, as after a restart."""
    target = local.with_name(f"{local.name}-moved")
    os.rename(local, target)
    return target


def flip(path: Path, place: int | None = None) -> None:
    """Flip a bit, in a new file: who has mapped the old one keeps it."""
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 2 if place is None else place] ^= 4
    path.unlink()
    path.write_bytes(whole)


def cut(path: Path) -> None:
    whole = path.read_bytes()
    path.unlink()
    path.write_bytes(whole[: len(whole) * 2 // 3])


def lose(*places: Path) -> None:
    for place in places:
        shutil.rmtree(place)
