"""Records that a source delivers again count once: on Spark, through crashes, against Spark's DISTINCT."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from durability.shop import Batches, die, engine, lose
from holdfast.connectors.input import InlinePart, _encoded
from holdfast.plan.nodes import Field
from holdfast.testing import Crash, Oracle, assert_same_rows, crash_at

Row = tuple[int, ...]


class Unreliable:
    """A source's deliveries: of ``records`` 30 % come two to five times, some of them many epochs later."""

    def __init__(self, records: int, epochs: int, seed: int) -> None:
        dice = random.Random(seed)
        self.records = [(number, dice.randrange(7), dice.randrange(100)) for number in range(records)]
        self.batches: list[list[Row]] = [[] for _ in range(epochs)]
        self.again = 0
        for record in self.records:
            first = dice.randrange(epochs)
            times = dice.randint(2, 5) if dice.random() < 0.3 else 1
            self.again += times - 1
            for late in [0, *(dice.randrange(epochs - first) for _ in range(times - 1))]:
                self.batches[first + late].append((*record, 1))
        for batch in self.batches:
            dice.shuffle(batch)


VIEWS = {
    "spend": "SELECT user, sum(amount) AS total, count(*) AS n FROM orders GROUP BY user",
    "rows": "SELECT id, user, amount FROM orders",
}


def declared(
    spark: SparkSession, root: Path, batches: list[list[Row]], views: dict[str, str] = VIEWS, **said: Any
) -> hf.Flow:
    flow = hf.Flow("orders", log=root / "log", local=root / "local", spark=spark, partitions=2)
    flow.source("orders", Batches("id user amount", batches), unique="id", **said)
    for name, sql in views.items():
        flow.view(name, sql)
    return flow.sink("spend", hf.changelog(root / "out"))


def expected(spark: SparkSession, records: list[Row]) -> dict[str, Any]:
    """What Spark says of the distinct records."""
    oracle = Oracle(spark, {"delivered": "id long, user long, amount long"})
    oracle.insert("delivered", records)
    distinct = "(SELECT DISTINCT id, user, amount FROM delivered) AS orders"
    return oracle.expect({name: sql.replace("FROM orders", f"FROM {distinct}") for name, sql in VIEWS.items()})


def same(flow: hf.Flow, frames: dict[str, Any]) -> None:
    for name, frame in frames.items():
        assert_same_rows(flow.read(name).toArrow(), frame.toArrow())


def test_what_is_delivered_again_late_and_across_crashes_is_sparks_distinct(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    delivered = Unreliable(600, 7, seed=5)
    batches: list[list[Row]] = []
    flow = declared(spark, tmp_path, batches)
    asked = looked = found = 0
    for number, batch in enumerate(delivered.batches):
        batches.append(batch)
        if number in (2, 4):
            # The process dies before the epoch counts, or after it; the second time its host is lost, too.
            with pytest.raises(Crash), crash_at("epoch.ran" if number == 2 else "sink.before_commit"):
                flow.step()
            status = flow.status().sources["orders"].unique
            asked, looked, found = asked + status.asked, looked + status.looked_up, found + status.found
            die(flow)
            flow = declared(spark, tmp_path, batches)
        if number == 5:
            flow.wait_safe()
            die(flow)
            lose(tmp_path / "local")
            flow = declared(spark, tmp_path, batches)
        flow.run(until="idle")
    every = [row[:-1] for batch in delivered.batches for row in batch]
    same(flow, expected(spark, every))
    status = flow.status().sources["orders"].unique
    assert status is not None
    asked, looked, found = asked + status.asked, looked + status.looked_up, found + status.found
    with capsys.disabled():
        print(
            f"\n{len(every)} records delivered of {len(delivered.records)}: {asked} ids asked for, {looked} looked up, "
            f"{found} found ({1 - looked / asked:.1%} of look-ups saved)"
        )
    assert found <= looked < asked
    assert status.measured_false_positives < 0.05 and status.false_positives == 0.01
    shown = flow.explain("spend")
    assert "the first record of each id" in shown and "looked up" in shown and "set 1.00%" in shown
    flow.close()


def test_a_view_that_is_added_later_sees_the_records_that_counted(spark: SparkSession, tmp_path: Path) -> None:
    """Also where an id came again after it was forgotten: the new view is filled from the log of what counted."""
    batches = [[(1, 1, 10, 1)], [(2, 1, 10, 1), (1, 1, 10, 1)], [(9, 9, 9, 1)], [(1, 2, 20, 1)]]
    flow = declared(spark, tmp_path, batches, within=2)
    flow.run(until="idle")
    counted = Counter(map(tuple, flow.read("rows").collect()))
    assert counted == Counter({(1, 1, 10): 1, (2, 1, 10): 1, (9, 9, 9): 1, (1, 2, 20): 1})
    flow.view("late", "SELECT user, sum(amount) AS total FROM orders GROUP BY user")
    flow.step()
    assert dict(map(tuple, flow.read("late").collect())) == {1: 20, 9: 9, 2: 20}
    flow.close()


def test_a_record_that_is_deleted_stays_deleted_however_often_it_comes(spark: SparkSession, tmp_path: Path) -> None:
    flow = hf.Flow("orders", log=tmp_path / "log", spark=spark, partitions=2)
    orders = flow.input("orders", "id long, amount long", unique="id")
    assert flow.input("orders", "id long, amount long", unique="id") is orders
    flow.view("total", "SELECT sum(amount) AS total, count(*) AS n FROM orders")
    orders.insert([(1, 10), (2, 5), (1, 10), (1, 99), (None, 7), (None, 7)])
    flow.step()
    (total, count), *_ = flow.read("total").collect()
    assert (total, count) in ((29, 4), (118, 4))
    won = total - 19
    orders.delete([(1, won)])
    flow.step()
    orders.insert([(1, won)])
    orders.delete([(1, won), (1, 55)])
    flow.step()
    assert tuple(flow.read("total").collect()[0]) == (19, 3)
    with pytest.raises(hf.InputError, match="new id"):
        orders.update([(2, 5)], [(2, 6)])
    flow.close()


def test_lost_layers_of_the_catalog_are_computed_again_bit_for_bit(spark: SparkSession, tmp_path: Path) -> None:
    delivered = Unreliable(200, 6, seed=9)
    flow = declared(spark, tmp_path, delivered.batches, within=3)
    flow.run(epochs=3)
    flow.wait_safe()
    engine(flow)._durability._background.close()
    flow.run(until="idle")
    catalog = sorted((tmp_path / "local" / "traces").glob("*.ids/*.arrow"))
    before = {path.name: path.read_bytes() for path in catalog}
    rows = Counter(map(tuple, flow.read("rows").collect()))
    die(flow)
    for path in catalog:
        path.unlink()
    flow = declared(spark, tmp_path, delivered.batches, within=3)
    flow.open()
    assert flow.last_recovery is not None and flow.last_recovery.epochs_replayed
    after = {path.name: path.read_bytes() for path in catalog if path.exists()}
    assert after and all(before[name] == data for name, data in after.items())
    assert Counter(map(tuple, flow.read("rows").collect())) == rows
    flow.close()


def test_ids_and_expiry_of_rows_are_not_combined(spark: SparkSession, tmp_path: Path) -> None:
    flow = hf.Flow("f", log=tmp_path / "log", spark=spark)
    with pytest.raises(hf.DeclarationError, match="cannot be combined"):
        flow.input("orders", "id long, at timestamp", unique="id", expires="at + INTERVAL 1 DAY")
    with pytest.raises(hf.DeclarationError, match="did you mean 'id'"):
        flow.input("orders", "id long, at timestamp", unique="ids")
    with pytest.raises(hf.DeclarationError, match="needs unique"):
        flow.input("orders", "id long, at timestamp", within="1h")


def test_ids_are_those_of_arrow_tables_too(spark: SparkSession, tmp_path: Path) -> None:
    flow = hf.Flow("f", log=tmp_path / "log", spark=spark, partitions=2)
    events = flow.input("events", "event string, part int, x double", unique=["event", "part"], within="1h")
    flow.view("n", "SELECT event, count(*) AS n FROM events GROUP BY event")
    table = pa.table({"event": ["a", "a", "b"], "part": pa.array([1, 2, 1], pa.int32()), "x": [1.0, 2.0, 3.0]})
    for _ in range(3):
        events.insert(table)
        flow.step()
    assert dict(map(tuple, flow.read("n").collect())) == {"a": 2, "b": 1}
    flow.close()


def numbered(first: int, last: int) -> InlinePart:
    """Records ``first`` … ``last`` - 1, and 30 % more that were delivered before, or are delivered twice now."""
    dice = np.random.default_rng(first)
    ids = np.concatenate([np.arange(first, last), dice.integers(0, last, (last - first) * 3 // 10)])
    columns = [pa.array(ids), pa.array(ids % 1000), pa.array(np.ones(len(ids), np.int64))]
    return InlinePart(_encoded(pa.table(columns, names=["id", "amount", "_diff"])))


class Counting(hf.Source):
    """``epochs`` epochs of so many new records each, in two parts."""

    fields = (Field("id", "bigint"), Field("amount", "bigint"))

    def __init__(self, each: int, epochs: int) -> None:
        self._each, self._epochs, self._next = each, epochs, 0

    def poll(self) -> hf.Offer | None:
        return {"epoch": self._next} if self._next < self._epochs else None

    def advance(self, offer: hf.Offer) -> None:
        self._next = offer["epoch"] + 1

    def parts(self, offer: hf.Offer) -> list[hf.Part]:
        start, half = offer["epoch"] * self._each, self._each // 2
        return [numbered(start, start + half), numbered(start + half, start + self._each)]


@pytest.mark.slow
def test_five_million_ids_count_once(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flow = hf.Flow("many", log=tmp_path / "log", spark=spark, partitions=2)
    flow.source("events", Counting(250_000, 20), unique="id")
    flow.view("n", "SELECT count(*) AS n, sum(id) AS ids, sum(amount) AS total FROM events")
    seconds = [flow.step().seconds for _ in range(20)]
    numbers = np.arange(5_000_000)
    assert tuple(flow.read("n").collect()[0]) == (5_000_000, int(numbers.sum()), int((numbers % 1000).sum()))
    status = flow.status().sources["events"].unique
    assert status is not None
    with capsys.disabled():
        print(
            f"\n5,000,000 ids, {status.asked:,} asked for, {status.looked_up:,} looked up, {status.found:,} found; of "
            f"new ids {status.measured_false_positives:.2%} in vain (set {status.false_positives:.2%}); filters "
            f"{status.bytes / 1e6:.1f} MB; epochs of 325,000: first {seconds[1]:.2f} s, last {seconds[-1]:.2f} s"
        )
    assert status.measured_false_positives < 2 * status.false_positives
    flow.close()
