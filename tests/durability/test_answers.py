"""What outside functions answered is never asked again, and never lost where rows made of it were seen."""

from __future__ import annotations

import datetime
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.errors import StoreError
from holdfast.runtime.replication import Replication
from holdfast.testing import Crash, crash_at, total_of_changes

from .shop import SOON, Batches, die, stop_rounds


def geocoder(calls: Path) -> Any:
    """A function that answers something else at each call, in whatever process it runs."""

    def geocode(city: int) -> str:
        with open(calls, "a") as file:
            file.write(f"{city}\n")
        return f"{city} {datetime.datetime.now()}"

    return hf.nondeterministic(geocode)


class Town:
    def __init__(self, spark: SparkSession, root: Path) -> None:
        self._spark = spark
        self.root = root
        self.batches: list[list[tuple[int, ...]]] = []

    def open(self, *, late: bool = False) -> hf.Flow:
        flow = hf.Flow("town", log=self.root / "copy", local=self.root / "local", spark=self._spark, partitions=2)
        flow.source("orders", Batches("id city", self.batches))
        flow.udf("geocode", geocoder(self.root / "calls"), "string")
        flow.view("plain", "SELECT id FROM orders")
        if not late:
            flow.view("asked", "SELECT id, geocode(city) AS place FROM orders")
            flow.sink("asked", hf.changelog(self.root / "out"))
        flow.open()
        return flow

    @property
    def calls(self) -> int:
        return len((self.root / "calls").read_text().splitlines())

    def check(self, flow: hf.Flow) -> None:
        """The view is what the sink was given."""
        parts = [pa.parquet.read_table(path) for path in sorted((self.root / "out").glob("*.parquet"))]
        total = total_of_changes(pa.concat_tables(parts)).to_pydict().values()
        assert Counter(map(tuple, flow.read("asked").collect())) == Counter(zip(*total, strict=True))


@pytest.fixture
def town(spark: SparkSession, tmp_path: Path) -> Town:
    return Town(spark, tmp_path)


def away(self: Replication, last: int) -> None:
    raise StoreError("it does not answer")


def test_answers_of_an_epoch_whose_driver_died_before_it_was_complete_are_not_lost(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    town.batches.append([(n, n % 3, 1) for n in range(6)])
    working = Replication._make_durable
    flow = town.open()
    flow.step()
    flow.wait_safe(timeout=SOON)
    monkeypatch.setattr(Replication, "_make_durable", away)
    town.batches.append([(n, n % 3, 1) for n in range(6, 12)])
    with pytest.raises(Crash), crash_at("epoch.ran"):
        flow.step()
    die(flow)
    asked = town.calls
    flow = town.open()
    flow.step()
    town.check(flow)
    die(flow)
    shutil.rmtree(town.root / "local")
    monkeypatch.setattr(Replication, "_make_durable", working)
    flow = town.open()
    recovery = flow.last_recovery
    assert recovery is not None and recovery.epochs == (1,)
    town.check(flow)
    assert town.calls == asked, "nobody is asked again"
    flow.close()


def test_a_new_view_that_asks_does_not_count_before_its_answers_are_safe(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.runtime.edits._FORMER_SAFE", 0.5)
    town.batches.append([(n, n % 3, 1) for n in range(6)])
    working = Replication._make_durable
    flow = town.open(late=True)
    flow.step()
    flow.wait_safe(timeout=SOON)
    die(flow)
    monkeypatch.setattr(Replication, "_make_durable", away)
    with pytest.raises(StoreError, match="asked outside functions"):
        town.open()
    asked = town.calls
    monkeypatch.setattr(Replication, "_make_durable", working)
    monkeypatch.setattr("holdfast.runtime.edits._FORMER_SAFE", SOON)
    flow = town.open()
    stop_rounds(flow)
    town.batches.append([(6, 0, 1)])
    flow.step()
    town.check(flow)
    die(flow)
    shutil.rmtree(town.root / "local")
    flow = town.open()
    town.check(flow)
    assert town.calls == asked + 1
    flow.close()


def test_what_is_found_in_the_footers_of_a_sink_alone_is_not_asked_again(town: Town) -> None:
    """All layers, the stash, the copy of the log and the sink's records are lost. What is left is the changelog's data
    files, which carry the lineage, with the answers, in their footers."""
    flow = town.open()
    stop_rounds(flow)
    for first in range(0, 18, 6):
        town.batches.append([(n, n % 3, 1) for n in range(first, first + 6)])
        flow.step()
    seen = Counter(map(tuple, flow.read("asked").collect()))
    die(flow)
    asked = town.calls
    for gone in (town.root / "local", town.root / "copy", town.root / "out" / "_progress"):
        shutil.rmtree(gone)
    town.batches.append([(18, 0, 1)])  # more has arrived: it must not come into an epoch that was seen
    flow = town.open()
    recovery = flow.last_recovery
    assert recovery is not None and recovery.epochs == (0, 1, 2)
    town.check(flow)
    assert Counter(map(tuple, flow.read("asked").collect())) == seen
    assert town.calls == asked == 18, "nobody is asked again"
    flow.step()
    town.check(flow)
    assert town.calls == 19
    flow.close()


def test_answers_in_the_footers_of_layers_stand_in_for_a_stash_that_is_lost(town: Town) -> None:
    """The stash and the sink are lost: which epochs there were is in the file of epochs that were begun, and what was
    answered is in the footers of the layers alone."""
    flow = town.open()
    stop_rounds(flow)
    for first in (0, 6):
        town.batches.append([(n, n % 3, 1) for n in range(first, first + 6)])
        flow.step()
    seen = Counter(map(tuple, flow.read("asked").collect()))
    die(flow)
    for gone in (town.root / "local" / "lineage", town.root / "out"):
        shutil.rmtree(gone)
    flow = town.open()
    assert Counter(map(tuple, flow.read("asked").collect())) == seen
    town.batches.append([(12, 0, 1)])
    flow.step()
    town.check(flow)
    assert town.calls == 13, "nobody is asked again"
    flow.close()


@pytest.mark.parametrize("mark", ["epoch.ran", "epoch.complete", "sink.before_commit", "sink.after_commit"])
def test_a_sink_never_sees_two_answers_for_a_row(town: Town, mark: str) -> None:
    """Whatever is lost with the process: half of the layers, also such as were made of answers."""
    town.batches.append([(n, n % 3, 1) for n in range(6)])
    flow = town.open()
    flow.step()
    town.batches.append([(n, n % 3, 1) for n in range(6, 12)])
    with pytest.raises(Crash), crash_at(mark):
        flow.step()
    die(flow)
    for path in sorted((town.root / "local" / "traces").glob("*/*.arrow"))[::2]:
        path.unlink()
    flow = town.open()
    flow.run(until="idle")
    town.check(flow)
    parts = [pa.parquet.read_table(path) for path in sorted((town.root / "out").glob("*.parquet"))]
    given = pa.concat_tables(parts)
    assert sorted(given.column("id").to_pylist()) == list(range(12)), "each row once, so with one answer"
    assert town.calls == 12 if mark != "epoch.ran" else town.calls in (12, 18), "an epoch that never was may ask again"
    flow.close()
