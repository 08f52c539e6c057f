"""Large changes that tasks write for sinks: as parts beside the target, which the driver commits by their names.

A changelog joins the parts to the one file of the epoch; a table of SQLite has a staging table. Whatever happens to a
part (its epoch fails, its commit raises, its writer fails), the sink has each epoch once and whole.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.connectors import changelog_parts
from holdfast.runtime import late_changes
from holdfast.task import sink_parts
from holdfast.testing import Crash, crash_at
from holdfast.testing.crashes import abandon

QUERY = "SELECT key % 1000 AS key, sum(value) AS total FROM numbers GROUP BY key % 1000"
SCHEMA = "key long, value long"


@pytest.fixture
def parts_from_100_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_parts, "LEAST", 100)


def rows(count: int, start: int = 0) -> pa.Table:
    return pa.table({"key": range(start, start + count), "value": [1] * count})


def content(path: Path) -> dict[int, int]:
    """The rows to which a changelog adds up."""
    found = pyarrow.dataset.dataset(path, format="parquet").to_table()
    assert found.group_by(["key", "total", "_epoch"]).aggregate([]).num_rows == found.num_rows, "no row occurs twice"
    summed = found.group_by(["key", "total"]).aggregate([("_diff", "sum")])
    left = summed.filter(pc.not_equal(summed["_diff_sum"], 0))
    assert set(left["_diff_sum"].to_pylist()) <= {1}
    return dict(zip(left["key"].to_pylist(), left["total"].to_pylist(), strict=True))


def kept(flow: hf.Flow) -> dict[int, int]:
    return {row["key"]: row["total"] for row in flow.read("totals").collect()}


def files(path: Path) -> list[str]:
    return sorted(name for name in os.listdir(path) if name.endswith(".parquet"))


def left_over(path: Path) -> list[str]:
    return [name for name in os.listdir(path / "_parts") if not name.startswith(".probe-")]


@pytest.mark.usefixtures("parts_from_100_rows")
@pytest.mark.parametrize("way", ["resident", "task", "stages"])
def test_parts_that_tasks_write_become_the_one_file_of_the_epoch(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, joined: list[int]
) -> None:
    monkeypatch.setenv("HOLDFAST_PATH", way)
    with hf.Flow("parts", log=tmp_path / "log", spark=spark, partitions=2) as flow:
        numbers = flow.input("numbers", schema=SCHEMA)
        flow.view("totals", QUERY)
        flow.sink("totals", hf.changelog(tmp_path / "out"))
        for epoch, (count, start) in enumerate([(1000, 0), (600, 200), (10, 0), (3000, 0)]):
            numbers.insert(rows(count, start))
            assert flow.step().epoch == epoch
            assert content(tmp_path / "out") == kept(flow)
        numbers.delete(rows(1000))
        flow.step()
        assert content(tmp_path / "out") == kept(flow)
    assert files(tmp_path / "out") == [f"epoch-{number:012d}.parquet" for number in range(5)]
    assert joined == [2, 2, 2, 2], "all epochs but the one with ten rows"
    assert left_over(tmp_path / "out") == []
    assert duckdb.sql(f"SELECT sum(_diff) FROM '{tmp_path}/out/*.parquet'").fetchone() == (1000,)


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of parts in each commit."""
    found: list[int] = []
    join = changelog_parts.ChangelogParts.join

    def noting(self: Any, parts: Sequence[str], *others: Any) -> Path:
        found.append(len(parts))
        return join(self, parts, *others)

    monkeypatch.setattr(changelog_parts.ChangelogParts, "join", noting)
    return found


@pytest.mark.usefixtures("parts_from_100_rows")
def test_parts_of_a_failed_epoch_go_and_none_is_seen(spark: SparkSession, tmp_path: Path) -> None:
    with hf.Flow("failing", log=tmp_path / "log", spark=spark, partitions=2) as flow:
        numbers = flow.input("numbers", schema=SCHEMA)
        flow.view("totals", QUERY)
        flow.view("shares", "SELECT key, 100 div total AS share FROM totals")
        flow.sink("totals", hf.changelog(tmp_path / "out"))
        numbers.insert(rows(1000))
        flow.step()
        numbers.insert(pa.table({"key": range(1000), "value": [-1] * 1000}))
        with pytest.raises(hf.EvaluationError):
            flow.step()
        assert files(tmp_path / "out") == ["epoch-000000000000.parquet"]
        assert left_over(tmp_path / "out") == []
        numbers.discard()
        numbers.insert(rows(1000))
        flow.step()
        assert content(tmp_path / "out") == kept(flow)


@pytest.mark.usefixtures("parts_from_100_rows")
def test_a_task_that_does_not_see_the_place_leaves_the_rows_to_the_driver(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, joined: list[int]
) -> None:
    monkeypatch.setattr(changelog_parts.ChangelogParts, "open", lambda self, older: (self._path / "_parts").mkdir())
    with hf.Flow("apart", log=tmp_path / "log", spark=spark) as flow:
        numbers = flow.input("numbers", schema=SCHEMA)
        flow.view("totals", QUERY)
        flow.sink("totals", hf.changelog(tmp_path / "out"))
        numbers.insert(rows(1000))
        flow.step()
        assert content(tmp_path / "out") == kept(flow)
    assert joined == []


@pytest.mark.usefixtures("parts_from_100_rows")
def test_a_commit_of_parts_that_raised_is_made_again_from_the_log(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hf.Flow("again", log=tmp_path / "log", spark=spark) as flow:
        numbers = flow.input("numbers", schema=SCHEMA)
        flow.view("totals", QUERY)
        flow.sink("totals", hf.changelog(tmp_path / "out"))
        numbers.insert(rows(1000))
        with monkeypatch.context() as patched:

            def full(*_: object) -> None:
                raise OSError(28, "No space left on device")

            patched.setattr(changelog_parts, "join", full)
            with pytest.raises(hf.SinkError, match="the disk is full") as caught:
                flow.step()
        assert caught.value.fields["complete"] is True
        assert files(tmp_path / "out") == []
        assert left_over(tmp_path / "out") == []
        numbers.insert(rows(500))
        flow.step()
        assert content(tmp_path / "out") == kept(flow)
        assert len(files(tmp_path / "out")) == 2


def test_old_parts_of_a_driver_that_died_go_when_the_sink_is_opened(tmp_path: Path) -> None:
    old, young = tmp_path / "_parts" / "aa", tmp_path / "_parts" / "bb"
    for place in (old, young):
        place.mkdir(parents=True)
        (place / "x.parquet").write_bytes(b"PAR1")
    os.utime(old, (time.time() - 7200, time.time() - 7200))
    sink = hf.changelog(tmp_path)
    sink.open("totals", (hf.Field("key", "bigint"),))
    assert left_over(tmp_path) == ["bb"], "another driver may still be writing it"
    sink.close()
    assert os.listdir(tmp_path / "_parts") == ["bb"], "and no probe stays"


@pytest.mark.usefixtures("parts_from_100_rows")
def test_a_large_view_reaches_a_new_sink_in_pieces(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, joined: list[int]
) -> None:
    monkeypatch.setattr(late_changes, "PIECE", 300)
    most: list[int] = []
    with hf.Flow("late", log=tmp_path / "log", spark=spark, retain=2) as flow:
        numbers = flow.input("numbers", schema=SCHEMA)
        flow.view("totals", QUERY)
        for start in (0, 100, 200, 300):
            numbers.insert(rows(1000, start))
            flow.step()
        write = changelog_parts.ChangelogPartWriter.write

        def noting(self: Any, epoch: int, attempt: str, change: pa.Table) -> Any:
            most.append(change.num_rows)
            return write(self, epoch, attempt, change)

        monkeypatch.setattr(changelog_parts.ChangelogPartWriter, "write", noting)
        flow.sink("totals", hf.changelog(tmp_path / "out"))
        numbers.insert(rows(10))
        flow.step()
        assert content(tmp_path / "out") == kept(flow)
    assert joined and joined[0] >= 4
    assert max(most) < 600, "no piece has much more than its share"
    assert left_over(tmp_path / "out") == []


@pytest.mark.usefixtures("parts_from_100_rows")
@pytest.mark.parametrize("mark", ["epoch.ran", "epoch.complete", "sink.before_commit", "sink.after_commit"])
def test_a_driver_that_dies_between_parts_and_commit_delivers_each_epoch_once(
    spark: SparkSession, tmp_path: Path, mark: str
) -> None:
    def declared() -> hf.Flow:
        flow = hf.Flow("dying", log=tmp_path / "log", spark=spark, partitions=2)
        flow.source("numbers", hf.files(tmp_path / "in", schema=SCHEMA))
        flow.view("totals", QUERY)
        flow.sink("totals", hf.changelog(tmp_path / "out"))
        return flow

    def give(number: int) -> None:
        pq.write_table(rows(1000, 300 * number), tmp_path / "in" / f"{number}.parquet")

    (tmp_path / "in").mkdir()
    flow = declared()
    give(0)
    flow.step()
    give(1)
    with crash_at(mark), pytest.raises(Crash):
        flow.step()
    abandon(flow)
    flow = declared()
    give(2)
    flow.run(until="idle")
    assert content(tmp_path / "out") == kept(flow)
    flow.close()


# -- a sink of one's own ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Staging(hf.PartWriter):
    """Writes parts to a staging table."""

    database: str
    fails: bool = False

    def write(self, epoch: int, attempt: str, change: pa.Table) -> int:
        if self.fails:
            raise ConnectionError("the database is away")
        with closing(sqlite3.connect(self.database, timeout=60)) as connection, connection:
            (part,) = connection.execute("INSERT INTO parts VALUES (NULL, ?) RETURNING part", (attempt,)).fetchone()
            columns = [column.to_pylist() for column in change.columns]
            numbered = ((part, *row) for row in zip(*columns, strict=True))
            connection.executemany("INSERT INTO staged VALUES (?, ?, ?, ?)", numbered)
        return int(part)


class Table(hf.Sink):
    """A table with the changes, which an epoch enters in one transaction."""

    def __init__(self, database: Path, fails: bool = False) -> None:
        self._database = str(database)
        self._fails = fails
        self.staged: list[int] = []

    def open(self, view: str, fields: tuple[hf.Field, ...]) -> int | None:
        with self._connected() as connection:
            connection.executescript(
                "CREATE TABLE IF NOT EXISTS parts (part INTEGER PRIMARY KEY, attempt);"
                "CREATE TABLE IF NOT EXISTS staged (part, key, total, diff);"
                "CREATE TABLE IF NOT EXISTS changes (epoch, key, total, diff);"
                "CREATE TABLE IF NOT EXISTS progress (epoch, lineage)"
            )
            (last,) = connection.execute("SELECT max(epoch) FROM progress").fetchone()
        return -1 if last is None else int(last)

    def part_writer(self, view: str, fields: tuple[hf.Field, ...]) -> hf.PartWriter | None:
        return Staging(self._database, self._fails)

    def commit(self, epoch: int, change: pa.Table, lineage: bytes) -> None:
        self.commit_parts(epoch, [], change, lineage)

    def commit_parts(self, epoch: int, parts: Sequence[Any], change: pa.Table, lineage: bytes) -> None:
        self.staged.append(len(parts))
        with self._connected() as connection:
            for part in parts:
                connection.execute(
                    "INSERT INTO changes SELECT ?, key, total, diff FROM staged WHERE part = ?", (epoch, part)
                )
            columns = [column.to_pylist() for column in change.columns]
            numbered = ((epoch, *row) for row in zip(*columns, strict=True))
            connection.executemany("INSERT INTO changes VALUES (?, ?, ?, ?)", numbered)
            connection.execute("INSERT INTO progress VALUES (?, ?)", (epoch, lineage))

    def drop_parts(self, attempt: str) -> None:
        with self._connected() as connection:
            mine = "(SELECT part FROM parts WHERE attempt = ?)"
            connection.execute(f"DELETE FROM staged WHERE part IN {mine}", (attempt,))
            connection.execute("DELETE FROM parts WHERE attempt = ?", (attempt,))

    def lineage(self) -> bytes:
        with self._connected() as connection:
            found = connection.execute("SELECT lineage FROM progress ORDER BY epoch DESC LIMIT 1").fetchone()
        return b"" if found is None else bytes(found[0])

    def taken(self) -> int | None:
        with self._connected() as connection:
            return int(connection.execute("SELECT coalesce(max(epoch), -1) FROM progress").fetchone()[0])

    def content(self) -> dict[int, int]:
        query = "SELECT key, total FROM changes GROUP BY key, total HAVING sum(diff) > 0"
        with self._connected() as connection:
            return dict(connection.execute(query).fetchall())

    def staged_rows(self) -> int:
        with self._connected() as connection:
            return int(connection.execute("SELECT count(*) FROM staged").fetchone()[0])

    def _connected(self) -> Any:
        return _Transaction(self._database)


class _Transaction:
    """A connection whose changes take effect together at the end."""

    def __init__(self, database: str) -> None:
        self._connection = sqlite3.connect(database, timeout=60)

    def __enter__(self) -> sqlite3.Connection:
        return self._connection.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._connection.__exit__(*error)
        self._connection.close()


@pytest.fixture
def own(spark: SparkSession, tmp_path: Path) -> Iterator[tuple[hf.Flow, Any]]:
    with hf.Flow("own", log=tmp_path / "log", spark=spark, partitions=2) as flow:
        numbers = flow.input("numbers", schema=SCHEMA)
        flow.view("totals", QUERY)
        yield flow, numbers


@pytest.mark.usefixtures("parts_from_100_rows")
def test_rows_reach_a_table_through_its_staging_table(own: tuple[hf.Flow, Any], tmp_path: Path) -> None:
    flow, numbers = own
    table = Table(tmp_path / "totals.db")
    flow.sink("totals", table)
    for count in (1000, 500, 3):
        numbers.insert(rows(count))
        flow.step()
        assert table.content() == kept(flow)
    assert table.staged == [2, 2, 0], "both partitions of the large epochs, none of the small one"
    assert table.staged_rows() == 0


@pytest.mark.usefixtures("parts_from_100_rows")
def test_a_part_writer_that_fails_leaves_the_rows_to_the_driver_and_is_logged(
    own: tuple[hf.Flow, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    flow, numbers = own
    table = Table(tmp_path / "totals.db", fails=True)
    flow.sink("totals", table)
    numbers.insert(rows(1000))
    with caplog.at_level(logging.WARNING, "holdfast.sinks"):
        flow.step()
    assert table.content() == kept(flow)
    assert table.staged == [0]
    assert "ConnectionError: the database is away" in caplog.text


@pytest.mark.usefixtures("parts_from_100_rows")
def test_a_view_whose_other_sink_takes_no_parts_reaches_both(own: tuple[hf.Flow, Any], tmp_path: Path) -> None:
    flow, numbers = own
    table, seen = Table(tmp_path / "totals.db"), []
    flow.sink("totals", table)
    flow.sink("totals", hf.foreach(lambda epoch, change: seen.append(change.num_rows)))
    numbers.insert(rows(1000))
    flow.step()
    assert table.content() == kept(flow)
    assert table.staged == [2]
    assert seen == [1000]
