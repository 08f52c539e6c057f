"""The next epoch's input, read while an epoch is committed: nothing but speed tells whether it was."""

from __future__ import annotations

import itertools
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.coordinator.clock import Reading
from holdfast.errors import SinkError
from holdfast.spark import resident_task
from holdfast.spark.resident_task import ResidentTask, resident_of
from holdfast.spark.runner import SparkRunner
from holdfast.testing import assert_same_rows
from holdfast.trace.name import LayerName


@pytest.fixture
def stays(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[ResidentTask]:
    """A task that stays, new and ready, and that reads ahead at once."""
    monkeypatch.setattr(resident_task, "_AGAIN", 0.0)
    monkeypatch.setattr(resident_task, "_ALONE", 0.0)
    task = resident_of(spark.sparkContext)
    assert task is not None
    task.end()
    assert task.wait(30.0)
    task.ready = 0
    yield task
    task.end()


@dataclass(frozen=True)
class Piece:
    """Ten rows of a number, unless a file in ``place`` says that reading them fails."""

    place: str
    number: int
    version: int = 0

    def read(self, schema: pa.Schema) -> Iterator[pa.Table]:
        marked = Path(self.place) / f"kill-{self.number}"
        if marked.exists():
            marked.rename(Path(self.place) / "killed")
            os.kill(os.getpid(), signal.SIGKILL)
        if (Path(self.place) / f"fail-{self.number}").exists():
            raise hf.InputError(f"piece {self.number} is bad", source="pieces")
        rows = range(10 * self.number, 10 * self.number + 10)
        yield pa.table([[each % 4 for each in rows], [each + self.version for each in rows]], schema=schema)


class Pieces(hf.Source):
    """``count`` pieces, one per epoch."""

    fields = (hf.Field("k", "bigint"), hf.Field("v", "bigint"))

    def __init__(self, place: Path, count: int, calls: list[str] | None = None) -> None:
        self._place, self._count, self._next = place, count, 0
        self.version = 0
        self.calls = [] if calls is None else calls

    def _offer(self) -> hf.Offer | None:
        return {"number": self._next, "version": self.version} if self._next < self._count else None

    def poll(self) -> hf.Offer | None:
        self.calls.append("poll")
        return self._offer()

    def upcoming(self) -> hf.Offer | None:
        self.calls.append("upcoming")
        return self._offer()

    def advance(self, offer: hf.Offer) -> None:
        self.calls.append("advance")
        self._next = offer["number"] + 1

    def parts(self, offer: hf.Offer) -> list[hf.Part]:
        return [Piece(str(self._place), offer["number"], offer["version"])]


VIEW = "SELECT k, count(*) AS n, sum(v) AS s FROM pieces GROUP BY k"


def flow_of(spark: SparkSession, home: Path, source: hf.Source, *sinks: hf.Sink) -> hf.Flow:
    flow = hf.Flow("pieces", log=home / "log", spark=spark, partitions=2)
    flow.source("pieces", source)
    flow.view("v", VIEW)
    for sink in sinks:
        flow.sink("v", sink)
    return flow


def pause(epoch: hf.Epoch) -> None:
    """Give the task time to read: a request does not wait for a part that was not begun."""
    time.sleep(0.2)


def expected(count: int) -> pa.Table:
    rows = [(each % 4, each) for each in range(10 * count)]
    keys = range(4)
    counts = [sum(k == key for k, _ in rows) for key in keys]
    return pa.table({"k": list(keys), "n": counts, "s": [sum(v for k, v in rows if k == key) for key in keys]})


# -- the same results -------------------------------------------------------------------------------------------------


def written_files(home: Path) -> None:
    """Files of a feed with deletions and a key, and files of insertions with deletions by their op."""
    for number in range(6):
        ids = list(range(20 * number, 20 * number + 20))
        feed = {
            "op": ["insert"] * 20 + ["delete"] * 5,
            "id": [*ids, *ids[:5]],
            "v": [7 * each for each in [*ids, *ids[:5]]],
        }
        keyed = {"id": [each % 30 for each in ids], "city": ["abc"[each % 3] for each in ids], "at": ids}
        for name, rows in (("feed", feed), ("keyed", keyed)):
            (home / name).mkdir(exist_ok=True)
            pq.write_table(pa.table(rows), home / name / f"{number}.parquet")


def drained(spark: SparkSession, home: Path, name: str) -> tuple[set[Any], list[Any], list[Any]]:
    """The names of layers, the lineage, and the changelog's content of a flow over the files in ``home``."""
    with hf.Flow("same", log=home / name, spark=spark, partitions=2) as flow:
        feed = hf.files(home / "feed", schema="id long, v long", op="op", max_files_per_epoch=1)
        keyed = hf.files(home / "keyed", schema="id long, city string, at long", max_files_per_epoch=1)
        flow.source("feed", feed)
        flow.source("keyed", keyed, key="id")
        flow.view("both", "SELECT city, count(*) AS n, sum(v) AS s FROM feed JOIN keyed USING (id) GROUP BY city")
        flow.view("high", "SELECT id, v FROM feed WHERE v > 100 ORDER BY v DESC LIMIT 5")
        flow.sink("both", hf.changelog(home / f"{name}-both"))
        paths: list[str | None] = []

        def note(epoch: hf.Epoch) -> None:
            paths.append(epoch.path)
            pause(epoch)

        assert flow.run(until="idle", on_epoch=note) == 6
        assert set(paths[1:]) == {"resident"}
        changes = [sorted(map(tuple, flow.changes(view).collect())) for view in ("both", "high")]
    layers = set()
    for file in (home / name).rglob("traces/*/*.arrow"):
        found = LayerName.parse(file.name)
        assert found is not None
        if found.first == found.last:  # merges come when they come
            layers.add((file.parent.name, file.name))
    lineage = [json.loads(line) for line in (next((home / name).rglob("log.jsonl"))).read_text().splitlines()]
    return layers, lineage, changes


def test_layers_digests_and_lineage_are_the_same_with_and_without(
    spark: SparkSession, tmp_path: Path, stays: ResidentTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    written_files(tmp_path)
    found, ready = [], []
    for ahead in ("1", "0"):
        monkeypatch.setenv("HOLDFAST_READ_AHEAD", ahead)
        clock, drawn = itertools.count(10**15, 10**6), itertools.count(1)
        monkeypatch.setattr(SparkRunner, "reading", lambda self, clock=clock: Reading(next(clock), "", 0))
        monkeypatch.setattr(SparkRunner, "draw", lambda self, drawn=drawn: next(drawn))
        before = stays.ready
        found.append(drained(spark, tmp_path, f"log-{ahead}"))
        ready.append(stays.ready - before)
    assert 4 < ready[0] <= 8 and ready[1] == 0, "of both sources, in the last four epochs"
    assert found[0][0] and found[0][0] == found[1][0]
    assert found[0][1] == found[1][1]
    assert found[0][2] == found[1][2]


# -- when it is read ahead, and when not ------------------------------------------------------------------------------


def test_a_run_reads_ahead_and_a_step_does_not(spark: SparkSession, tmp_path: Path, stays: ResidentTask) -> None:
    source = Pieces(tmp_path, 9)
    with flow_of(spark, tmp_path, source) as flow:
        for _ in range(3):
            flow.step()
        assert "upcoming" not in source.calls
        flow.run(epochs=1)
        assert "upcoming" not in source.calls, "no epoch comes after it"
        flow.run(epochs=3, on_epoch=pause)
        assert source.calls.count("upcoming") == 2 and 0 < stays.ready <= 2
        source.calls.clear()
        flow.run(until="idle")
        assert source.calls == ["poll", "advance", "upcoming", "poll", "advance", "upcoming", "poll"]
        assert_same_rows(flow.read("v"), expected(9))


def test_a_program_that_calls_users_functions_is_not_read_ahead(
    spark: SparkSession, tmp_path: Path, stays: ResidentTask
) -> None:
    with flow_of(spark, tmp_path, Pieces(tmp_path, 5)) as flow:
        flow.udf("plus", lambda v: v + 1, returns="long")
        flow.view("more", "SELECT k, plus(v) AS v FROM pieces")
        flow.run(until="idle")
        assert stays.ready == 0


def test_flows_that_share_the_task_do_not_read_ahead(
    spark: SparkSession, tmp_path: Path, stays: ResidentTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resident_task, "_ALONE", 600.0)
    with flow_of(spark, tmp_path, Pieces(tmp_path, 5)) as flow:
        flow.run(until="idle")
        assert stays.ready == 0


def test_rows_of_inputs_come_with_files_that_were_read_ahead(
    spark: SparkSession, tmp_path: Path, stays: ResidentTask
) -> None:
    with flow_of(spark, tmp_path, Pieces(tmp_path, 6)) as flow:
        pushed = flow.input("pushed", "k long")
        flow.view("both", "SELECT k FROM pieces UNION ALL SELECT k FROM pushed")

        def push(epoch: hf.Epoch) -> None:
            pause(epoch)
            if epoch.epoch < 5:
                pushed.insert([(epoch.epoch,)])

        flow.run(until="idle", on_epoch=push)
        assert 0 < stays.ready <= 4
        assert flow.read("both").count() == 60 + 5


# -- what is dropped --------------------------------------------------------------------------------------------------


def test_an_offer_that_changed_is_read_as_it_is(spark: SparkSession, tmp_path: Path, stays: ResidentTask) -> None:
    source = Pieces(tmp_path, 6)
    with flow_of(spark, tmp_path, source) as flow:
        flow.run(epochs=2)
        stays.ready = 0

        def changed(epoch: hf.Epoch) -> None:
            source.version += 1

        flow.run(until="idle", on_epoch=changed)
        assert stays.ready == 0
        total = sum(row.s for row in flow.read("v").collect())
        assert total == sum(range(60)) + 10 * (1 + 2 + 3)


def test_after_an_edit_and_a_rewind_the_input_is_read_again(
    spark: SparkSession, tmp_path: Path, stays: ResidentTask
) -> None:
    with flow_of(spark, tmp_path, Pieces(tmp_path, 8)) as flow:
        flow.run(epochs=3)
        flow.run(on_epoch=lambda epoch: flow.stop())
        assert stays._reads_ahead
        before = stays.ready
        flow.view("other", "SELECT k, max(v) AS m FROM pieces GROUP BY k")
        flow.step()
        flow.run(on_epoch=lambda epoch: flow.stop())
        flow.rewind(2, reason="a test")
        flow.step()
        assert stays.ready == before
        flow.run(until="idle")
        assert_same_rows(flow.read("v"), expected(8))
        assert {row.k: row.m for row in flow.read("other").collect()} == {0: 76, 1: 77, 2: 78, 3: 79}


def test_a_closed_flow_leaves_nothing_in_the_task(spark: SparkSession, tmp_path: Path, stays: ResidentTask) -> None:
    source = Pieces(tmp_path, 9)
    with flow_of(spark, tmp_path, source) as flow:
        flow.run(epochs=4)
        flow.run(on_epoch=lambda epoch: flow.stop())
        assert stays._reads_ahead
    assert not stays._reads_ahead, "the task was told to drop it"


def test_a_task_that_is_killed_while_it_reads_ahead_costs_a_job(
    spark: SparkSession, tmp_path: Path, stays: ResidentTask
) -> None:
    (tmp_path / "kill-4").touch()
    paths: list[str | None] = []

    def patiently(epoch: hf.Epoch) -> None:
        paths.append(epoch.path)
        deadline = time.monotonic() + 20.0
        while epoch.epoch == 3 and not (tmp_path / "killed").exists() and time.monotonic() < deadline:
            time.sleep(0.01)

    with flow_of(spark, tmp_path, Pieces(tmp_path, 7)) as flow:
        assert flow.run(until="idle", on_epoch=patiently) == 7
        assert (tmp_path / "killed").exists()
        assert paths[3] == "resident" and paths[4] == "task"
        assert_same_rows(flow.read("v"), expected(7))


# -- errors -----------------------------------------------------------------------------------------------------------


class Given(hf.Sink):
    """The epochs that a sink was given; it refuses epoch ``refused``, once."""

    def __init__(self, refused: int = -1) -> None:
        self.epochs: list[int] = []
        self._refused = refused

    def open(self, view: str, fields: tuple[hf.Field, ...]) -> int | None:
        return self.epochs[-1] if self.epochs else -1

    def taken(self) -> int | None:
        return self.epochs[-1] if self.epochs else -1

    def commit(self, epoch: int, change: pa.Table, lineage: bytes) -> None:
        if epoch == self._refused:
            self._refused = -1
            raise SinkError("not now")
        self.epochs.append(epoch)


def test_bad_input_is_the_error_of_its_own_epoch(spark: SparkSession, tmp_path: Path, stays: ResidentTask) -> None:
    (tmp_path / "fail-4").touch()
    sink = Given()
    with flow_of(spark, tmp_path, Pieces(tmp_path, 7), sink) as flow:
        done: list[int | None] = []
        with pytest.raises(hf.InputError, match="piece 4 is bad") as caught:
            flow.run(until="idle", on_epoch=lambda epoch: done.append(epoch.epoch))
        assert caught.value.fields["complete"] is False
        assert done == sink.epochs == [0, 1, 2, 3]
        (tmp_path / "fail-4").unlink()
        assert flow.run(until="idle") == 3
        assert sink.epochs == list(range(7))
        assert_same_rows(flow.read("v"), expected(7))


def test_a_damaged_file_is_the_error_of_its_own_epoch(spark: SparkSession, tmp_path: Path, stays: ResidentTask) -> None:
    (tmp_path / "in").mkdir()
    for number in range(6):
        values = list(range(10 * number, 10 * number + 10))
        pq.write_table(pa.table({"k": [each % 4 for each in values], "v": values}), tmp_path / f"in/{number}.parquet")
    damaged = tmp_path / "in/3.parquet"
    whole, time_of = damaged.read_bytes(), damaged.stat().st_mtime_ns
    damaged.write_bytes(whole[:4] + bytes(40) + whole[44:])  # the footer reads, the rows do not
    os.utime(damaged, ns=(time_of, time_of))
    sink = Given()
    source = hf.files(tmp_path / "in", schema="k long, v long", max_files_per_epoch=1)
    with flow_of(spark, tmp_path, source, sink) as flow:
        with pytest.raises(hf.BadFile, match=r"3\.parquet"):
            flow.run(until="idle")
        assert sink.epochs == [0, 1, 2]
        damaged.write_bytes(whole)
        assert flow.run(until="idle") == 3
        assert sink.epochs == list(range(6))
        assert_same_rows(flow.read("v"), expected(6))


def test_an_epoch_whose_sink_raised_is_delivered_before_the_next_one_begins(
    spark: SparkSession, tmp_path: Path, stays: ResidentTask
) -> None:
    sink, source = Given(refused=3), Pieces(tmp_path, 7)
    with flow_of(spark, tmp_path, source, sink) as flow:
        with pytest.raises(SinkError) as caught:
            flow.run(until="idle")
        assert caught.value.fields["complete"] is True
        assert sink.epochs == [0, 1, 2]
        assert source.calls[-2:] == ["advance", "upcoming"], "the next epoch was not begun"
        assert flow.run(until="idle") == 3
        assert sink.epochs == list(range(7))
        assert_same_rows(flow.read("v"), expected(7))


def test_a_source_that_cannot_look_ahead_costs_nothing(
    spark: SparkSession, tmp_path: Path, stays: ResidentTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raising(self: Pieces) -> hf.Offer | None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(Pieces, "upcoming", raising)
    with flow_of(spark, tmp_path, Pieces(tmp_path, 4)) as flow:
        assert flow.run(until="idle") == 4
        assert_same_rows(flow.read("v"), expected(4))


def test_other_threads_have_their_turns_between_epochs_that_are_read_ahead(
    spark: SparkSession, tmp_path: Path, stays: ResidentTask
) -> None:
    with flow_of(spark, tmp_path, Pieces(tmp_path, 20)) as flow:
        flow.step()
        threads = [threading.Thread(target=flow.run, kwargs={"until": "idle"}), threading.Thread(target=flow.step)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60.0)
        flow.run(until="idle")
        assert_same_rows(flow.read("v"), expected(20))
