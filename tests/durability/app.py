"""A flow that is killed: run as ``python app.py <directory>``, or ``python app.py <directory> finish``.

It joins, aggregates and ranks what it finds in ``<directory>/users`` (Parquet files, one per epoch) and
``<directory>/orders`` (numbered JSON batches with deletions, one per epoch), keeps its log in two places, and commits
to two sinks that are exactly-once: a changelog, and a SQLite database. It prints a line when it is open and after each
epoch. A view draws (chance, the clock) and asks an outside function, whose answers are never the same twice; what that
answered is in ``<directory>/asked``. When nothing waits any more it stays, to be killed. With ``heal`` it ends when
both copies hold everything. With ``finish`` it takes many batches per epoch, prints what
the views hold in the end, and ends. If it is to die in a round of copying (``HOLDFAST_CRASH_AT``), it waits for one
after each epoch: rounds are seconds apart otherwise.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

import holdfast as hf
from holdfast.coordinator.lineage import from_lines
from holdfast.errors import Fenced, SinkError
from holdfast.plan.nodes import Field

VIEWS = {
    "placed": "SELECT o.id, o.amount, u.city FROM orders o JOIN users u ON o.user = u.user",
    "cities": "SELECT city, sum(amount) AS total, count(*) AS orders, max(amount) AS most FROM placed GROUP BY city",
    "spend": "SELECT user, sum(amount) AS total FROM orders GROUP BY user",
    "top": "SELECT user, total FROM spend ORDER BY total DESC, user LIMIT 5",
    "drawn": "SELECT id, user, rand() AS chance, unix_micros(now()) AS at, look_up(user) AS answer FROM orders",
    "drawn_spend": "SELECT user, sum(chance) AS total, count(*) AS orders, min(answer) AS least FROM drawn "
    "GROUP BY user",
}
DELIVERED = ("cities", "top", "drawn", "drawn_spend")


class Batches(hf.Source):
    """Numbered files ``000000.json``, each a list of ``[id, user, amount, diff]``."""

    fields = (Field("id", "bigint"), Field("user", "bigint"), Field("amount", "bigint"))
    retracts = True

    def __init__(self, directory: Path, per_epoch: int) -> None:
        self._directory = directory
        self._per_epoch = per_epoch
        self._next = 0

    def poll(self) -> hf.Offer | None:
        batches = range(self._next, self._next + self._per_epoch)
        upto = next((number for number in batches if not self._path(number).exists()), batches.stop)
        return {"from": self._next, "to": upto} if upto > self._next else None

    def advance(self, offer: hf.Offer) -> None:
        self._next = offer["to"]

    def parts(self, offer: hf.Offer) -> list[hf.Part]:
        return [Batch(str(self._path(number))) for number in range(offer["from"], offer["to"])]

    def _path(self, number: int) -> Path:
        return self._directory / f"{number:06d}.json"


@dataclass(frozen=True)
class Batch:
    """One file."""

    path: str

    def read(self, schema: pa.Schema) -> Iterator[pa.Table]:
        rows = json.loads(Path(self.path).read_text())
        yield pa.table(
            [pa.array(column, pa.int64()) for column in zip(*rows, strict=True)], names=[*schema.names, "_diff"]
        )


class Sqlite(hf.Sink):
    """A table of changes and a table of commits; both are written in one transaction."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def open(self, view: str, fields: tuple[Field, ...]) -> int:
        self._database = sqlite3.connect(self._path, isolation_level=None)
        columns = ", ".join(field.name for field in fields)
        self._database.execute(f"CREATE TABLE IF NOT EXISTS changes ({columns}, diff, epoch)")
        self._database.execute("CREATE TABLE IF NOT EXISTS commits (epoch PRIMARY KEY, digest, parent, lineage)")
        return self._last()

    def commit(self, epoch: int, change: pa.Table, lineage: bytes) -> None:
        carried = from_lines(lineage)[-1]
        marks = ", ".join("?" * (change.num_columns + 1))
        with self._database:  # commits, or rolls back
            self._database.execute("BEGIN IMMEDIATE")
            last = self._last()
            if epoch <= last:
                self._check_same(epoch, carried.digest)
                return
            if epoch != last + 1:
                raise SinkError(f"epoch {epoch} does not follow epoch {last}", epoch=epoch)
            self._database.executemany(
                f"INSERT INTO changes VALUES ({marks})",
                [(*row, epoch) for row in zip(*(column.to_pylist() for column in change.columns), strict=True)],
            )
            record = (epoch, carried.digest, carried.parent, lineage)
            self._database.execute("INSERT INTO commits VALUES (?, ?, ?, ?)", record)

    def lineage(self) -> bytes:
        found = self._database.execute("SELECT lineage FROM commits ORDER BY epoch DESC LIMIT 1").fetchone()
        return bytes(found[0]) if found else b""

    def close(self) -> None:
        self._database.close()

    def _last(self) -> int:
        last = self._database.execute("SELECT max(epoch) FROM commits").fetchone()[0]
        return -1 if last is None else int(last)

    def _check_same(self, epoch: int, digest: str) -> None:
        held = self._database.execute("SELECT digest FROM commits WHERE epoch = ?", (epoch,)).fetchone()
        if held != (digest,):
            raise Fenced(f"{self._path} has epoch {epoch} of another driver", epoch=epoch)


def declare(root: Path, per_epoch: int) -> hf.Flow:
    """The flow, over the files in a directory."""
    flow = hf.Flow("killed", log=[root / "a", root / "b"], local=root / "local", min_replicas=2, partitions=2)
    asked = str(root / "asked")

    @hf.nondeterministic
    def look_up(user: int) -> str:
        answer = f"{user} at {time.time_ns()} by {os.getpid()}"
        with open(asked, "a") as file:
            file.write(f"{answer}\n")
        return answer

    flow.udf("look_up", look_up, "string")
    users = hf.files(root / "users", schema="user bigint, city bigint", max_files_per_epoch=1)
    flow.source("orders", Batches(root / "orders", per_epoch)).source("users", users)
    for name, sql in VIEWS.items():
        flow.view(name, sql)
    for name in ("drawn", "drawn_spend"):
        flow.sink(name, hf.changelog(root / name))
    return flow.sink("cities", hf.changelog(root / "out")).sink("top", Sqlite(root / "top.db"))


def main(root: Path, finish: bool, heal: bool) -> None:
    flow = declare(root, 25 if finish else 1)
    flow.open()
    print("open", flush=True)
    if heal:
        flow.wait_safe()
        flow.close()
        print("held {}", flush=True)
        return
    dies_in_round = os.environ.get("HOLDFAST_CRASH_AT", "").startswith("round.")

    def tell(result: hf.Epoch) -> None:
        if dies_in_round:
            flow.wait_safe()
        print("epoch", result.epoch, flush=True)

    flow.run(until="idle", on_epoch=tell)
    if not finish:
        print("idle", flush=True)
        time.sleep(600)
    held = {name: [list(row) for row in flow.read(name).collect()] for name in DELIVERED}
    flow.close()
    print("held", json.dumps(held), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), "finish" in sys.argv[2:], "heal" in sys.argv[2:])
