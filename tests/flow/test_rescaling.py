"""Rescaling a running flow: other numbers of partitions between two epochs, over the very same files."""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections import Counter
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.coordinator.auto_partitions import AutoPartitions
from holdfast.errors import DeclarationError
from holdfast.runtime.merging import Merging
from holdfast.runtime.recovery.held_input import HeldInput
from holdfast.trace.name import LayerName

from ..durability.shop import engine


def _files(log: Path) -> dict[str, int]:
    """Every local layer, with its inode."""
    found = {}
    for path in (log / "traces").rglob("*.arrow"):
        with suppress(FileNotFoundError):  # merged meanwhile
            found[str(path.relative_to(log))] = os.stat(path).st_ino
    return found


def _at_rest(flow: hf.Flow, log: Path) -> dict[str, int]:
    """The same when nothing is being merged any more."""
    found: dict[str, int] = {}
    while flow.status().maintenance.busy or found != _files(log):
        found = _files(log)
        time.sleep(0.05)
    return found


@pytest.mark.slow
def test_a_flow_is_rescaled_under_load_and_no_layer_is_rewritten(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, commits = tmp_path / "log", list[tuple[int, float]]()
    given: Counter[tuple[object, ...]] = Counter()

    def take(epoch: int, change: pa.Table) -> None:
        commits.append((epoch, time.monotonic()))
        for row in change.to_pylist():
            given[row["user"], row["total"]] += row["_diff"]

    with hf.Flow("shop", log=log, spark=spark, partitions=2) as flow:
        orders = flow.input("orders", "user string, amount long")
        flow.view("spend", "SELECT user, sum(amount) AS total FROM orders GROUP BY user")
        flow.sink("spend", hf.foreach(take, seen=lambda: max((epoch for epoch, _ in commits), default=-1)))
        expected: Counter[str] = Counter()
        stopping = threading.Event()

        def feed() -> None:
            number = 0
            while not stopping.is_set():
                rows = [(f"u{(number * 7 + each) % 400}", each) for each in range(50)]
                orders.insert(rows)
                for user, amount in rows:
                    expected[user] += amount
                number += 1
                time.sleep(0.02)

        orders.insert([(f"u{each}", 0) for each in range(400)])
        flow.step()
        flow.start(interval=0.0)
        feeding = threading.Thread(target=feed, daemon=True)
        feeding.start()
        follower = flow.subscribe("spend", since=-1, timeout=0)
        for partitions in (8, 3, 5):
            time.sleep(1.0)
            with monkeypatch.context() as patch:
                patch.setattr(Merging, "tolerated", 10**9)
                _rescale_and_compare(flow, partitions, log)
        time.sleep(1.0)
        stopping.set()
        feeding.join()
        assert flow.await_idle(60)
        flow.stop()
        flow.await_termination(60)
        assert {user: total for (user, total), count in given.items() if count} == expected
        assert all(count in (0, 1) for count in given.values())
        assert {row["user"]: row["total"] for row in hf.read(log, "spend").to_pylist()} == expected
        assert sum(len(change) for change in follower) > 400 and follower.epoch == flow.status().epoch
        gaps = [after - before for (_, before), (_, after) in pairwise(commits)]
        epochs = [epoch for epoch, _ in commits]
        assert epochs == sorted(set(epochs)), "the sink was given an epoch twice, or out of order"
        median = statistics.median(gaps)
        print(f"{len(gaps)} commits, median {median:.2f} s apart, longest {max(gaps):.2f} s")
        assert max(gaps) < 2 * median + 1, f"the sink waited for {max(gaps):.1f} s"


def _rescale_and_compare(flow: hf.Flow, partitions: int, log: Path) -> None:
    """Rescale between two epochs, while nothing is merged: what was there is the same files, by their inodes, and what
    is new was written by epochs since."""
    while _merges(flow):
        time.sleep(0.05)
    last = flow.status().epoch
    before = _files(log)
    flow.rescale(partitions)
    assert flow.status().partitions == partitions
    recovery = flow.last_recovery
    assert recovery is not None and recovery.epochs_replayed == 0 and recovery.layers_fetched == 0
    after = _files(log)
    assert len(before) > 4 and {name: after.get(name) for name in before} == before
    layers = [LayerName.parse(Path(name).name) for name in after.keys() - before.keys()]
    assert all(layer is not None and layer.first > last for layer in layers)
    assert flow.status().epoch >= last


def _merges(flow: hf.Flow) -> bool:
    """Whether a merge that was asked for is at work, or about to be."""
    lanes = [lane.background for lane in engine(flow)._maintenance._lanes]
    return any(lane.busy or lane._wanted.is_set() for lane in lanes)


def test_nothing_at_all_changes_in_the_directory_of_a_flow_that_is_rescaled_at_rest(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    with hf.Flow("shop", log=log, spark=spark, partitions=2) as flow:
        orders = flow.input("orders", "user string, amount long")
        flow.view("spend", "SELECT user, sum(amount) AS total FROM orders GROUP BY user")
        flow.rescale(2)
        for number in range(3):
            orders.insert([(f"u{each}", number) for each in range(100)])
            flow.step()
        flow.wait_safe()
        for partitions in (8, 3, 5, 5):
            before = _at_rest(flow, log)
            rows = hf.read(log, "spend")
            flow.rescale(partitions)
            assert _files(log) == before, "a layer was written, rewritten or removed"
            assert flow.lookup("spend", user="u7").row == {"user": "u7", "total": rows["total"][0].as_py()}
            orders.insert([(f"u{each}", 1) for each in range(100)])
            flow.step()
            assert {row.user: row.total for row in flow.read("spend").collect()} == {
                row["user"]: row["total"] + 1 for row in rows.to_pylist()
            }


def test_a_flow_that_follows_its_cores_is_rescaled_between_two_epochs(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = [3]
    monkeypatch.setattr(AutoPartitions, "seen", lambda self, cores, present, now: wanted.pop() if wanted else None)
    with hf.Flow("auto", log=tmp_path / "log", spark=spark, partitions="auto") as flow:
        orders = flow.input("orders", "user long, amount long")
        flow.view("spend", "SELECT user, sum(amount) AS total FROM orders GROUP BY user")
        for number in range(3):
            orders.insert([(user, number) for user in range(20)])
            flow.step()
        assert flow.status().partitions == 3 and not wanted
        assert flow.last_recovery is not None and flow.last_recovery.epochs == ()
        assert {tuple(row) for row in flow.read("spend").collect()} == {(user, 3) for user in range(20)}
        flow.rescale(2)
        wanted.append(5)
        orders.insert([(1, 1)])
        flow.step()
        assert flow.status().partitions == 2, "a number that is said holds"


def test_a_number_that_is_said_holds_although_the_flow_was_about_to_follow_its_cores(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hf.Flow("auto", log=tmp_path / "log", spark=spark, partitions="auto") as flow:
        orders = flow.input("orders", "user long, amount long")
        flow.view("spend", "SELECT user, sum(amount) AS total FROM orders GROUP BY user")
        orders.insert([(1, 1)])
        flow.step()
        said = iter((3,))

        def bring_ahead(owners: object) -> int:
            if (partitions := next(said, None)) is not None:
                flow.rescale(partitions)  # while members fetch what they will keep
            return 0

        monkeypatch.setattr(engine(flow).moves, "bring_ahead", bring_ahead)
        flow._follow_to(5)
        assert flow.status().partitions == 3
        orders.insert([(1, 1)])
        assert flow.step().epoch == 1 and flow.lookup("spend", user=1).row == {"user": 1, "total": 2}
    with pytest.raises(DeclarationError, match="flow 'auto' is closed"):
        flow.rescale(2)


def test_rows_that_no_copy_has_yet_are_held_through_a_rescale(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HeldInput, "release", lambda self, safe: None)  # as while no location takes copies
    with hf.Flow("held", log=tmp_path / "log", spark=spark, partitions=2) as flow:
        orders = flow.input("orders", "user string, amount long")
        flow.input("other", "n long").insert([(1,)])
        flow.view("spend", "SELECT user, sum(amount) AS total FROM orders GROUP BY user").view("n", "TABLE other")
        orders.insert([("ada", 1)])
        flow.step()
        held = engine(flow)._flow.pushed
        held.hold("orders", 0, [])  # as where members have layers of their own
        held.hold("other", 0, [])
        held.hold("orders", 7, [])
        flow._told.fields["other"] = ()  # as where it was declared with others
        flow.rescale(3)
        assert engine(flow)._flow.pushed is held, "the loss of a host would take rows along that nobody else has"
        assert ("orders", 0) in held
        assert ("orders", 7) not in held and ("other", 0) not in held, "no such epoch, and no such columns any more"


def test_a_rescale_that_is_interrupted_leaves_the_flow_as_it_was(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hf.Flow("interrupted", log=tmp_path / "log", spark=spark, partitions=2) as flow:
        orders = flow.input("orders", "user string, amount long")
        flow.view("spend", "SELECT user, sum(amount) AS total FROM orders GROUP BY user")
        orders.insert([("ada", 1)])
        flow.step()
        asked: list[int] = []

        def interrupt(owners: object) -> int:
            asked.append(len(asked))
            if len(asked) == 2:
                raise KeyboardInterrupt
            return 0

        monkeypatch.setattr(engine(flow).moves, "bring_ahead", interrupt)
        with pytest.raises(KeyboardInterrupt):
            flow.rescale(4)
        orders.insert([("bob", 2)])
        assert flow.step().epoch == 1 and flow.status().partitions == 2
        flow.wait_safe(timeout=60)
        assert flow.status().durability.safe == 1, "copies go on being made"
