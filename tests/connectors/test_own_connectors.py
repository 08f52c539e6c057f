"""A source and a sink of one's own, written by the steps of CONTRIBUTING.md ("Add a source", "Add a sink").

The source is a file that grows, whose offers are ranges of lines. The sink is a table of SQLite, which keeps rows,
epoch and lineage in one transaction. Neither imports anything but ``holdfast``.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import holdfast as hf


@dataclass(frozen=True)
class LinesPart:
    """Some lines of a file. Reads the same rows whenever it is read: lines that are there do not change."""

    path: str
    first: int
    count: int

    def read(self, schema: pa.Schema) -> Iterator[pa.Table]:
        lines = Path(self.path).read_text().splitlines()[self.first : self.first + self.count]
        if len(lines) < self.count:
            raise hf.InputError(f"file {self.path}: it has fewer lines than before", path=self.path)
        yield pa.table([lines], schema=schema)


class Lines(hf.Source):
    """The lines of a file, as they are appended."""

    fields = (hf.Field("line", "string"),)

    def __init__(self, path: Path) -> None:
        self._path = path
        self._taken = 0
        self._offered: hf.Offer | None = None

    def poll(self) -> hf.Offer | None:
        if self._offered is None and (count := self.waiting()):
            self._offered = {"first": self._taken, "count": count}
        return self._offered

    def advance(self, offer: hf.Offer) -> None:
        self._taken = offer["first"] + offer["count"]
        self._offered = None

    def parts(self, offer: hf.Offer) -> list[hf.Part]:
        middle = offer["count"] // 2  # two tasks, to show that a part is a piece
        pieces = [(offer["first"], middle), (offer["first"] + middle, offer["count"] - middle)]
        return [LinesPart(str(self._path), first, count) for first, count in pieces if count]

    def fold(self, offers: Sequence[hf.Offer]) -> list[hf.Offer]:
        return [{"first": offers[0]["first"], "count": sum(offer["count"] for offer in offers)}]

    def waiting(self) -> int:
        return len(self._path.read_text().splitlines()) - self._taken


class Table(hf.Sink):
    """A table of SQLite with the view's rows as they are now."""

    def __init__(self, path: Path, fail: Sequence[str] = ()) -> None:
        self._path = path
        self._fail = list(fail)
        self.commits: list[int] = []

    def open(self, view: str, fields: tuple[hf.Field, ...]) -> int | None:
        self._columns = [field.name for field in fields]
        self._database = sqlite3.connect(self._path, check_same_thread=False)
        self._database.execute("CREATE TABLE IF NOT EXISTS progress (epoch, lineage)")
        self._database.execute(f"CREATE TABLE IF NOT EXISTS rows ({', '.join(self._columns)}, diff)")
        return self.taken()

    def taken(self) -> int | None:
        (last,) = self._database.execute("SELECT max(epoch) FROM progress").fetchone()
        return -1 if last is None else last

    def lineage(self) -> bytes:
        return self._database.execute("SELECT lineage FROM progress").fetchone()[0]

    def commit(self, epoch: int, change: pa.Table, lineage: bytes) -> None:
        if "before" in self._fail:
            self._fail.remove("before")
            raise hf.SinkError("the table is locked")
        with self._database:  # one transaction: rows, epoch and lineage
            marks = ", ".join("?" * change.num_columns)
            rows = zip(*change.select([*self._columns, "_diff"]).to_pydict().values(), strict=True)
            self._database.executemany(f"INSERT INTO rows VALUES ({marks})", rows)
            self._database.execute("DELETE FROM progress")
            self._database.execute("INSERT INTO progress VALUES (?, ?)", (epoch, lineage))
        self.commits.append(epoch)
        if "after" in self._fail:
            self._fail.remove("after")
            raise hf.SinkError("the connection broke off")

    def target(self) -> str:
        return str(self._path.resolve())

    def close(self) -> None:
        self._database.close()


def _open(spark: SparkSession, home: Path, sink: Table) -> hf.Flow:
    flow = hf.Flow("words", log=home / "log", spark=spark, partitions=2)
    flow.source("text", Lines(home / "text"))
    flow.view("words", "SELECT line, count(*) AS n FROM text GROUP BY line")
    return flow.sink("words", sink)


def _append(home: Path, *lines: str) -> None:
    with (home / "text").open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


def _right(home: Path) -> None:
    """The table has, added up, what the file says."""
    total: Counter[tuple[str, int]] = Counter()
    with sqlite3.connect(home / "table") as database:
        for line, n, diff in database.execute("SELECT line, n, diff FROM rows"):
            total[line, n] += diff
    expected = Counter(Counter((home / "text").read_text().splitlines()).items())
    assert {row: count for row, count in total.items() if count} == expected


@pytest.mark.parametrize("failing", [(), ("before",), ("after",)], ids=["well", "refused", "told that it failed"])
def test_a_source_and_a_sink_of_ones_own_are_exact_through_restarts(
    spark: SparkSession, tmp_path: Path, failing: tuple[str, ...]
) -> None:
    _append(tmp_path, "ada", "bob", "ada")
    sink = Table(tmp_path / "table", failing)
    with _open(spark, tmp_path, sink) as flow:
        if failing:
            with pytest.raises(hf.SinkError) as caught:
                flow.step()
            assert caught.value.fields["complete"] is True, "the epoch counts"
        else:
            flow.step()
        _append(tmp_path, "eve", "ada")
        assert flow.status().sources["text"].waiting == 2
        assert flow.run(until="idle") == 1
        _right(tmp_path)
        assert sink.commits == [0, 1], "each epoch once, also if a commit that succeeded raised"

    _append(tmp_path, "bob")
    again = Table(tmp_path / "table")
    with _open(spark, tmp_path, again) as flow:
        assert flow.run(until="idle") == 1, "lines of the past are not taken again"
        assert again.commits == [2]
        _right(tmp_path)
        flow.view("longest", "SELECT max(length(line)) AS n FROM text")  # reads the offers of the past
        flow.step()
        assert [row.n for row in flow.read("longest").collect()] == [3]


def test_two_sinks_of_ones_own_with_one_target_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    _append(tmp_path, "ada")
    flow = _open(spark, tmp_path, Table(tmp_path / "table"))
    with pytest.raises(hf.DeclarationError, match="takes the changes of view 'words' already"):
        flow.view("same", "SELECT line FROM text").sink("same", Table(tmp_path / "sub" / ".." / "table"))
