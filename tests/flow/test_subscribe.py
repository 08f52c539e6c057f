"""Subscriptions: what a view was at one epoch, and what they gave since, is what it is; here and in another process."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.errors import EpochUnavailable, UnknownName

Rows = Counter[tuple[Any, ...]]


def _added(rows: Rows, change: hf.Changes) -> Rows:
    found = Counter(rows)
    for row in change.rows:
        diff = row.pop("_diff")
        found[tuple(row.items())] += diff
    return Counter({row: count for row, count in found.items() if count})


def _rows(log: Path, view: str, at: int | None = None) -> Rows:
    return Counter(tuple(row.items()) for row in hf.read(log, view, at).to_pylist())


@pytest.fixture
def flow(spark: SparkSession, tmp_path: Path) -> Iterator[hf.Flow]:
    with hf.Flow("shop", log=tmp_path / "log", spark=spark, partitions=2) as made:
        made.input("orders", "user string, amount long")
        made.view("spend", "SELECT user, sum(amount) AS total FROM orders GROUP BY user")
        made.view("big", "SELECT user, amount FROM orders WHERE amount > 5")
        yield made


def test_changes_come_epoch_by_epoch_and_can_be_resumed_anywhere(flow: hf.Flow, tmp_path: Path) -> None:
    orders = flow.input("orders", "user string, amount long")
    started, log = threading.Event(), tmp_path / "log"
    followed: list[list[hf.Changes]] = [[], []]

    def follow(place: int, subscription: hf.Subscription) -> None:
        for change in subscription:
            followed[place].append(change)
            started.set()

    orders.insert([("ada", 1)])
    flow.step()
    outside = hf.open_log(log)
    here, there = flow.subscribe("spend", since=-1), outside.subscribe("spend", since=-1)
    threads = [threading.Thread(target=follow, args=pair, daemon=True) for pair in ((0, here), (1, there))]
    for thread in threads:
        thread.start()
    assert started.wait(60)
    flow.start()
    for number in range(12):
        orders.insert([("ada", number), (f"u{number % 3}", 1)])
        if number % 4 == 3:
            orders.delete([("ada", number)])
        flow.await_idle(60)
    last = flow.status().epoch
    deadline = time.monotonic() + 30
    while (here.epoch < last or there.epoch < last) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [(one.epoch, one.rows) for one in followed[0]] == [(one.epoch, one.rows) for one in followed[1]]
    epochs = [change.epoch for change in followed[0]]
    assert epochs == sorted(set(epochs)) and epochs[0] == 0 and len(epochs) > 3
    rows: Rows = Counter()
    for change in followed[0]:
        rows = _added(rows, change)
        assert rows == _rows(log, "spend", change.epoch), change.epoch
        again = flow.subscribe("spend", since=change.epoch, timeout=0)
        assert [one.epoch for one in again] == [epoch for epoch in epochs if epoch > change.epoch]
        assert again.epoch == last
    there.close()
    flow.close()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive(), "a subscription does not end with the flow, or with close()"
    outside.close()


def test_an_edit_is_a_change_like_any_other(flow: hf.Flow, tmp_path: Path) -> None:
    orders = flow.input("orders", "user string, amount long")
    orders.insert([("ada", 1), ("bob", 2)])
    flow.step()
    before = _rows(tmp_path / "log", "spend")
    subscription = flow.subscribe("spend", timeout=0)
    flow.view("spend", "SELECT user, 10 * sum(amount) AS total FROM orders GROUP BY user")
    orders.insert([("cid", 3)])
    flow.step()
    for change in subscription:
        before = _added(before, change)
    assert before == _rows(tmp_path / "log", "spend") and subscription.epoch == 1


def test_a_view_that_is_dropped_is_said_to_be_gone_to_whoever_reads_it_meanwhile(
    flow: hf.Flow, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = flow.input("orders", "user string, amount long")
    orders.insert([("ada", 1)])
    flow.step()
    subscription = flow.subscribe("spend", timeout=0)
    flow.drop("spend")
    orders.insert([("ada", 2)])
    flow.step()
    monkeypatch.setattr(flow, "_check_view", lambda view: None)  # as where it is dropped after that
    reads: list[Callable[[], object]] = [
        lambda: next(subscription),
        lambda: flow.read("spend"),
        lambda: flow.changes("spend", 0),
        lambda: flow.changes("spend"),
        lambda: hf.compare(flow, flow, "spend"),
    ]
    for read in reads:
        with pytest.raises(UnknownName, match="view 'spend' not found: it was dropped"):
            read()


def test_epochs_that_change_nothing_in_the_view_are_passed_over_and_counted(flow: hf.Flow) -> None:
    orders = flow.input("orders", "user string, amount long")
    subscription = flow.subscribe("big", timeout=0)
    for amount in (1, 9, 2):
        orders.insert([("ada", amount)])
        flow.step()
    assert [(change.epoch, change.rows) for change in subscription] == [(1, [{"user": "ada", "amount": 9, "_diff": 1}])]
    assert subscription.epoch == 2 and repr(subscription) == "Subscription('big', epoch 2)"
    with pytest.raises(EpochUnavailable, match="epoch 9 is not there; the last is 2"):
        flow.subscribe("big", since=9)


def test_another_process_follows_a_running_flow(flow: hf.Flow, tmp_path: Path) -> None:
    orders = flow.input("orders", "user string, amount long")
    orders.insert([("ada", 1)])
    flow.step()
    program = (
        f"import holdfast as hf, sys\nlog = hf.open_log({str(tmp_path / 'log')!r})\nprint('ready', flush=True)\n"
        "total = 0\n"
        "for change in log.subscribe('spend', since=-1, timeout=20):\n"
        "    total += sum(row['_diff'] * row['total'] for row in change.rows)\n"
        "    if total >= 11: break\n"
        "print(total, 'pyspark' in sys.modules)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        for _ in range(5):
            orders.insert([("ada", 1), ("bob", 1)])
            flow.step()
        assert process.communicate(timeout=60)[0] == "11 False\n"


def test_a_subscription_says_that_what_it_gave_was_lost_and_run_again_otherwise(
    spark: SparkSession, tmp_path: Path
) -> None:
    log, saved = tmp_path / "log", tmp_path / "saved"

    def run(*amounts: int) -> None:
        with hf.Flow("shop", log=log, spark=spark, partitions=1) as flow:
            orders = flow.input("orders", "user string, amount long")
            flow.view("spend", "SELECT user, sum(amount) AS total FROM orders GROUP BY user")
            for amount in amounts:
                orders.insert([("ada", amount)])
                flow.step()

    run(1, 2)
    shutil.copytree(log, saved)
    run(3, 4)
    reader = hf.open_log(log)
    subscription = reader.subscribe("spend", since=-1, timeout=0)
    given: Rows = Counter()
    for change in subscription:
        given = _added(given, change)
    assert given == _rows(log, "spend") and subscription.epoch == 3
    shutil.rmtree(log)
    shutil.copytree(saved, log)
    with pytest.raises(EpochUnavailable, match="epoch 3, up to which changes were given, is not what it was"):
        next(subscription)
    run(5, 6, 7)
    with pytest.raises(EpochUnavailable, match="read the view anew"):
        next(subscription)
    subscription.close()
    reader.close()


def test_closing_a_subscription_while_it_looks_ends_it(flow: hf.Flow, tmp_path: Path) -> None:
    orders = flow.input("orders", "user string, amount long")
    orders.insert([("ada", 1)])
    flow.step()
    with hf.open_log(tmp_path / "log") as reader:
        subscription = reader.subscribe("spend", since=-1)
        looked = subscription._pull

        def pull(after: int) -> Any:
            subscription.close()
            return looked(after)

        subscription._pull = pull
        assert list(subscription) == []
        kept = reader.subscribe("spend")
    assert list(kept) == [] and kept._closed, "with its reader it ends, and lets go of what it holds"
