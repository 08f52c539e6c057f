"""Every row that leaves can carry an id that is the same in every replay."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import holdfast as hf
from durability.shop import Batches, die, lose, one_round, stop_rounds
from guarantees.receivers import ById, Transactional, held
from holdfast.connectors.row_ids import with_ids
from holdfast.testing import Crash, crash_at
from holdfast.trace.hashing import weak_bits

ROWS = st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from([1, 2])), unique=True, max_size=6)


def table(rows: list[tuple[str | None, int]], diffs: list[int]) -> pa.Table:
    names, numbers = zip(*rows, strict=True) if rows else ((), ())
    return pa.table(
        {"name": pa.array(names, pa.string()), "n": pa.array(numbers, pa.int64()), "_diff": pa.array(diffs, pa.int64())}
    )


@pytest.mark.parametrize("bits", [64, 1], ids=["strong hash", "weak hash"])
@settings(deadline=None, max_examples=50)
@given(rows=ROWS, data=st.data())
def test_ids_and_order_are_a_function_of_the_rows(
    bits: int, rows: list[tuple[str | None, int]], data: st.DataObject
) -> None:
    diffs = data.draw(st.lists(st.sampled_from([1, 2, -1, -3]), min_size=len(rows), max_size=len(rows)))
    shuffled = data.draw(st.permutations(list(zip(rows, diffs, strict=True))))
    with weak_bits(bits):
        made = with_ids("v", 7, table(rows, diffs))
        again = with_ids("v", 7, table([row for row, _ in shuffled], [diff for _, diff in shuffled]))
        assert made.equals(again) and made.column_names == ["name", "n", "_id", "_diff"]
        ids = made.column("_id").to_pylist()
        assert len(set(ids)) == len(ids) == sum(map(abs, diffs)), "no two rows share an id"
        copies = Counter((row["name"], row["n"]) for row in made.to_pylist() for _ in range(1))
        assert copies == Counter({row: abs(diff) for row, diff in zip(rows, diffs, strict=True)})
        assert set(made.column("_diff").to_pylist()) <= {1, -1}
        others = {*with_ids("v", 8, table(rows, diffs)).column("_id").to_pylist()}
        others |= {*with_ids("w", 7, table(rows, diffs)).column("_id").to_pylist()}
        assert not others & set(ids)


class Bank:
    """A flow whose views go to a changelog with ids and to a receiver that only drops ids."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self._spark, self.root = spark, root
        self.batches: list[list[tuple[int, ...]]] = []
        self.receiver = ById(root / "received.db")
        self._dice = random.Random(3)

    def feed(self) -> None:
        self.batches.append([(self._dice.randrange(5), self._dice.randrange(9), 1) for _ in range(8)])

    def open(self, sink: hf.Sink | None = None) -> hf.Flow:
        root = self.root
        flow = hf.Flow("bank", log=root / "log", local=root / "local", spark=self._spark, partitions=2)
        flow.source("moves", Batches("account amount", self.batches))
        flow.view("balance", "SELECT account, sum(amount) AS total FROM moves GROUP BY account")
        flow.view("moved", "SELECT amount FROM moves")
        flow.sink("moved", hf.changelog(root / "out", ids=True))
        flow.sink("balance", hf.foreach(self.receiver.function, ids=True) if sink is None else sink)
        flow.open()
        return flow


@pytest.fixture
def bank(spark: SparkSession, tmp_path: Path) -> Bank:
    return Bank(spark, tmp_path)


def test_a_receiver_that_only_drops_ids_is_exact_through_failures_and_crashes(bank: Bank) -> None:
    flow = bank.open()
    for number in range(5):
        bank.feed()
        if number == 1:
            bank.receiver.fails_after = 3
            with pytest.raises(hf.SinkError) as failed:
                flow.step()
            assert failed.value.fields["complete"]
        if number == 3:
            with pytest.raises(Crash), crash_at("sink.after_commit", times=2):
                flow.step()
            die(flow)
            flow = bank.open()
        flow.run(until="idle")
    calls = Counter(epoch for epoch, _ in bank.receiver.calls)
    again = [epoch for epoch, count in calls.items() if count > 1]
    assert len(again) >= 2, "one call failed, one was before a crash"
    for epoch in again:
        first, *others = [rows for each, rows in bank.receiver.calls if each == epoch]
        assert all(rows == first for rows in others), "the same rows, with the same ids, in the same order"
    assert bank.receiver.total == held(flow.read("balance").collect())
    assert bank.receiver.received < sum(len(rows) for _, rows in bank.receiver.calls)
    files = sorted((bank.root / "out").glob("*.parquet"))
    moved = pa.concat_tables([pq.read_table(path) for path in files])
    assert moved.column_names == ["amount", "_id", "_epoch", "_diff"]
    assert len(set(moved.column("_id").to_pylist())) == moved.num_rows == 40
    flow.close()


def test_a_changelog_that_is_restored_has_the_ids_that_it_had(bank: Bank) -> None:
    for _ in range(3):
        bank.feed()
    flow = bank.open()
    flow.run(until="idle")
    flow.close()
    files = sorted((bank.root / "out").glob("*.parquet"))
    before = pq.read_table(files[1])
    files[1].write_bytes(files[1].read_bytes()[:-20])
    bank.feed()
    flow = bank.open()
    flow.step()
    assert pq.read_table(files[1]).equals(before)
    flow.close()
    with pytest.raises(hf.SinkError, match="other columns"):
        flow = hf.Flow("bank", log=bank.root / "log", local=bank.root / "local", spark=bank._spark, partitions=2)
        flow.source("moves", Batches("account amount", bank.batches)).view("moved", "SELECT amount FROM moves")
        flow.sink("moved", hf.changelog(bank.root / "out")).open()


def test_a_function_that_keeps_its_lineage_is_exact_when_a_host_is_lost_and_more_has_arrived(bank: Bank) -> None:
    """Epochs that are not safe are lost with the host: what the function gives back says how to compute them again.
    Those that come next would take more otherwise, since more input waits."""
    receiver = Transactional(bank.root / "transactions.db")
    sink = hf.foreach(receiver.function, seen=receiver.seen, lineage=receiver.lineage)
    bank.feed()
    flow = bank.open(sink)
    flow.step()
    flow.wait_safe()
    stop_rounds(flow)
    for _ in range(3):
        bank.feed()
        flow.step()
    die(flow)
    lose(bank.root / "local", bank.root / "out")
    bank.feed()
    flow = bank.open(hf.foreach(receiver.function, seen=receiver.seen, lineage=receiver.lineage))
    recovery = flow.last_recovery
    assert recovery is not None and recovery.epochs == (1, 2, 3), "they were computed again, as the receiver saw them"
    flow.run(until="idle")
    assert receiver.epochs == sorted(set(receiver.epochs)) == [0, 1, 2, 3, 4], "each once"
    assert receiver.total == held(flow.read("balance").collect())
    one_round(flow)
    flow.close()


def test_a_view_with_a_column_of_that_name_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    flow = hf.Flow("f", log=tmp_path / "log", spark=spark, partitions=2)
    flow.input("t", "k long")
    flow.view("v", "SELECT k AS _id FROM t").sink("v", hf.foreach(print, ids=True))
    with pytest.raises(hf.SinkError, match="rename the view's own"):
        flow.open()
    with pytest.raises(hf.DeclarationError, match="needs seen"):
        hf.foreach(print, lineage=bytes)
