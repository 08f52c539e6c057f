"""Histories that are branched, edited, promoted, rewound, rescaled and read, in odd orders and at once: what a view
holds, and what its sink was given, is always what a fresh flow has that took the same input."""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.log.working_directory import LogDirectory

from .killed_process import given

OLD = "SELECT user, sum(amount) AS total FROM orders GROUP BY user"
NEW = "SELECT user, sum(amount * 2) AS total FROM orders GROUP BY user"
NEWEST = "SELECT user, sum(amount * 3) AS total FROM orders GROUP BY user"
TOP = "SELECT user, total FROM spend ORDER BY total DESC, user LIMIT 2"
VIEWS = ("spend", "top")
Row = tuple[str, int]


class History:
    """A flow, and the rows that it took epoch by epoch."""

    def __init__(self, spark: SparkSession, root: Path, **settings: Any) -> None:
        self.spark, self.root = spark, root
        self.taken: list[list[Row]] = []
        self.flow = hf.Flow("bank", log=root / "log", spark=spark, partitions=2, **settings)
        self.orders = self.flow.input("orders", "user string, amount long")
        self.flow.view("spend", OLD).view("top", TOP)
        for view in VIEWS:
            self.flow.sink(view, hf.changelog(root / "out" / view))

    def epochs(self, count: int) -> None:
        for _ in range(count):
            n = len(self.taken)
            self.taken.append([(f"u{n % 3}", n + 1), (f"u{n % 5}", 10)])
            self.orders.insert(self.taken[-1])
            assert self.flow.step().epoch is not None

    def fresh(self, spend: str, took: list[list[Row]] | None = None) -> dict[str, Counter[Any]]:
        """What a flow has that took this (by default all of it) in one go, with ``spend`` from the beginning."""
        flow = hf.Flow("fresh", log=self.root / f"fresh{time.monotonic_ns()}", spark=self.spark, partitions=1)
        epochs = self.taken if took is None else took
        flow.input("orders", "user string, amount long").insert([row for some in epochs for row in some])
        flow.view("spend", spend).view("top", TOP)
        flow.step()
        found = rows(flow)
        flow.close()
        return found

    def check(self, spend: str, took: list[list[Row]] | None = None) -> None:
        expected = self.fresh(spend, took)
        assert rows(self.flow) == expected
        assert {view: given(self.root / "out" / view) for view in VIEWS} == expected


def rows(flow: hf.Flow, at: int | None = None) -> dict[str, Counter[Any]]:
    return {view: Counter(map(tuple, flow.read(view, at=at).collect())) for view in VIEWS}


@pytest.fixture
def bank(spark: SparkSession, tmp_path: Path) -> History:
    return History(spark, tmp_path)


def test_a_branch_of_a_branch_is_promoted_step_by_step(bank: History) -> None:
    bank.epochs(4)
    first = bank.flow.branch("first", at=2)
    first.view("spend", NEW)
    second = first.branch("second", at=2)
    second.view("spend", NEWEST)
    bank.epochs(1)
    assert first.replay() == 2 and second.replay() == 2
    assert rows(first) == bank.fresh(NEW) and rows(second) == bank.fresh(NEWEST)
    bank.check(OLD)
    second.promote()
    assert rows(first) == bank.fresh(NEWEST), "the branch has the views of its branch"
    bank.check(OLD)
    bank.epochs(2)
    assert first.promote().epoch == 7
    bank.check(NEWEST)
    bank.epochs(1)
    bank.check(NEWEST)
    assert first.replay() == 2 and second.replay() == 4
    assert rows(first) == rows(second) == bank.fresh(NEWEST)
    bank.flow.remove_branch("first")
    assert bank.flow.branches() == ()
    bank.flow.close()


@pytest.mark.slow
def test_a_promotion_leaves_what_the_main_line_has_declared_since(
    bank: History, caplog: pytest.LogCaptureFixture
) -> None:
    """Views, inputs and edits of the main line were dropped, or taken back, by what the branch did not have."""
    flow = bank.flow
    bank.epochs(2)
    branch = flow.branch("tweaked", at=1)
    branch.view("spend", NEW)
    users = flow.input("users", "user string, city string")
    flow.view("users_of", "SELECT city, count(*) AS n FROM users GROUP BY city")
    flow.view("rich", "SELECT user FROM spend WHERE total > 30")
    flow.view("top", TOP.replace("LIMIT 2", "LIMIT 1"))
    users.insert([("u0", "rome"), ("u1", "oslo")])
    bank.epochs(2)
    branch.promote()
    bank.epochs(1)
    spend = bank.fresh(NEW)["spend"]
    assert Counter(map(tuple, flow.read("spend").collect())) == spend
    assert {tuple(row) for row in flow.read("users_of").collect()} == {("rome", 1), ("oslo", 1)}
    assert {row[0] for row in flow.read("rich").collect()} == {user for user, total in spend if total > 30}
    assert Counter(map(tuple, flow.read("top").collect())) == Counter([max(spend, key=lambda row: (row[1], row[0]))])
    assert given(bank.root / "out" / "top") == Counter(map(tuple, flow.read("top").collect()))
    # The branch's "top" read another "spend": that was said to be another version of Holdfast.
    assert not [each for each in caplog.records if "read otherwise" in each.getMessage()]
    flow.close()


@pytest.mark.slow
def test_a_promotion_is_rewound_and_what_came_is_taken_again_with_the_new_view(bank: History) -> None:
    bank.epochs(3)
    branch = bank.flow.branch("doubled", at=1)
    branch.view("spend", NEW)
    bank.epochs(1)
    assert branch.promote().epoch == 4
    bank.check(NEW)
    bank.epochs(2)
    bad = bank.taken[5][0]
    bank.flow.rewind(2, reason="before the promotion", skip={"orders": [bad]})
    bank.check(NEW, bank.taken[:3])
    bank.flow.run(until="idle")
    took = [[row for row in some if (number, row) != (5, bad)] for number, some in enumerate(bank.taken)]
    bank.check(NEW, took)
    assert branch.replay() > 0 and rows(branch) == rows(bank.flow), "the branch is fed the rewind, too"
    other = bank.flow.branch("before", at=3)
    assert rows(other) == bank.fresh(NEW, bank.taken[:4]), "with the views of now, as of then"
    other.replay()
    assert rows(other) == rows(bank.flow)
    bank.flow.close()


@pytest.mark.slow
def test_a_branch_of_an_epoch_that_was_undone_has_what_was_there(bank: History) -> None:
    bank.epochs(5)
    bank.flow.rewind(1)
    branch = bank.flow.branch("undone", at=4)
    assert rows(branch) == bank.fresh(OLD)
    assert branch.replay() == 1 and rows(branch) == bank.fresh(OLD, bank.taken[:2])
    bank.flow.run(until="idle")
    assert branch.replay() == 3 and rows(branch) == bank.fresh(OLD)
    bank.check(OLD)
    bank.flow.close()


@pytest.mark.slow
def test_a_branch_goes_on_while_the_main_line_is_rescaled_and_is_promoted_then(bank: History) -> None:
    bank.epochs(3)
    branch = bank.flow.branch("doubled", at=0)
    branch.view("spend", NEW)
    assert branch.replay() == 2
    bank.flow.rescale(8)
    bank.epochs(1)
    branch.rescale(3)
    bank.flow.rescale(5)
    bank.epochs(1)
    assert branch.replay() == 2 and rows(branch) == bank.fresh(NEW)
    branch.promote()
    bank.check(NEW)
    bank.flow.rescale(1)
    bank.flow.rewind(1)
    bank.check(NEW, bank.taken[:2])
    bank.flow.run(until="idle")
    bank.check(NEW)
    bank.flow.close()


@pytest.mark.slow
def test_look_ups_see_one_epoch_each_while_a_flow_is_rescaled_and_rewound(bank: History) -> None:
    bank.epochs(2)
    found: list[tuple[int, str, list[Any]]] = []
    errors: list[BaseException] = []
    over = threading.Event()

    def look() -> None:
        try:
            while not over.is_set():
                for user in ("u0", "u1", "u2", "nobody"):
                    one = bank.flow.lookup("spend", user=user)
                    found.append((one.epoch, user, [tuple(row.values()) for row in one.rows]))
        except BaseException as error:
            errors.append(error)
            raise

    threads = [threading.Thread(target=look) for _ in range(3)]
    for thread in threads:
        thread.start()
    for partitions in (8, 3, 5):
        bank.flow.rescale(partitions)
        bank.epochs(2)
    bank.flow.rewind(3)
    bank.flow.run(until="idle")
    bank.epochs(1)
    over.set()
    for thread in threads:
        thread.join()
    assert errors == []
    last = bank.flow.status().epoch
    truth = {epoch: rows(bank.flow, epoch)["spend"] for epoch in range(1, last + 1)}
    assert {epoch for epoch, _, _ in found} <= truth.keys() and len({epoch for epoch, _, _ in found}) >= 4
    for epoch, user, seen in found:
        assert Counter(seen) == Counter({row: n for row, n in truth[epoch].items() if row[0] == user}), (epoch, user)
    bank.check(OLD)
    bank.flow.close()


@pytest.mark.slow
def test_a_subscription_goes_on_across_a_promotion_a_rescale_and_a_rewind(bank: History) -> None:
    """At each epoch the changes up to it add up to what the view held when that epoch was the last."""
    truth: dict[int, Counter[Any]] = {}

    def seen() -> None:
        truth[bank.flow.status().epoch] = rows(bank.flow)["spend"]

    def epoch() -> None:
        bank.epochs(1)
        seen()

    epoch()
    subscription = bank.flow.subscribe("spend", timeout=3.0)
    for _ in range(3):
        epoch()
    branch = bank.flow.branch("doubled", at=1)
    branch.view("spend", NEW)
    branch.promote()
    seen()
    bank.flow.rescale(5)
    epoch()
    bank.flow.rewind(2)
    seen()
    while not bank.flow.step().idle:
        seen()
    total, epochs = truth[0].copy(), []
    for change in subscription:
        epochs.append(change.epoch)
        for row in change.rows:
            total[row["user"], row["total"]] += row["_diff"]
        assert Counter({row: n for row, n in total.items() if n}) == truth[change.epoch], change.epoch
    assert epochs == sorted(truth)[1:] and subscription.epoch == bank.flow.status().epoch
    for since in (2, 4, 6):
        again = bank.flow.subscribe("spend", since=since, timeout=1.0)
        assert [change.epoch for change in again] == [each for each in epochs if each > since], "it is resumed"
    bank.check(NEW)
    bank.flow.close()


def test_views_with_other_columns_are_compared_or_refused_with_both_schemas(bank: History) -> None:
    bank.epochs(3)
    branch = bank.flow.branch("wider")
    branch.view("spend", "SELECT user, sum(amount) AS total, count(*) AS n FROM orders GROUP BY user")
    with pytest.raises(hf.HoldfastError, match=r"total") as refused:
        hf.compare(bank.flow, branch, "spend")
    assert "n" in str(refused.value) and "spend" in str(refused.value)
    branch.view("spend", "SELECT user, CAST(sum(amount) AS double) AS total FROM orders GROUP BY user")
    with pytest.raises(hf.HoldfastError, match=r"double"):
        hf.compare(bank.flow, branch, "spend")
    branch.view("spend", OLD)
    assert hf.compare(bank.flow, branch, "spend").equal
    branch.view("mine", OLD)
    with pytest.raises(hf.UnknownName, match="mine"):
        hf.compare(bank.flow, branch, "mine")
    bank.flow.close()


def test_a_branch_that_is_open_somewhere_else_is_not_removed(bank: History) -> None:
    bank.epochs(2)
    bank.flow.branch("held").close()
    elsewhere = LogDirectory.open(bank.root / "log" / "branches" / "held", exclusive=True)
    try:
        with pytest.raises(hf.LogBusy):
            bank.flow.remove_branch("held")
        assert [each.name for each in bank.flow.branches()] == ["held"]
    finally:
        elsewhere.close()
    assert rows(bank.flow.branch("held")) == rows(bank.flow), "it is as it was"
    reader = hf.open_log(bank.root / "log" / "branches" / "held")
    before = reader.arrow("spend").num_rows
    bank.flow.remove_branch("held")
    assert bank.flow.branches() == ()
    try:
        assert reader.arrow("spend").num_rows == before, "what a reader holds open it may finish"
    except hf.HoldfastError as error:
        assert "held" in str(error)
    finally:
        reader.close()
    bank.flow.close()


@pytest.mark.slow
def test_a_branch_that_is_fed_by_another_thread_is_removed_between_two_epochs(bank: History) -> None:
    bank.epochs(12)
    branch = bank.flow.branch("fed", at=0)
    ran: list[int | None] = []
    raised: list[BaseException] = []
    begun = threading.Event()

    def told(epoch: hf.Epoch) -> None:
        ran.append(epoch.epoch)
        begun.set()

    def feed() -> None:
        try:
            branch.replay(on_epoch=told)
        except hf.HoldfastError as error:
            raised.append(error)

    thread = threading.Thread(target=feed)
    thread.start()
    begun.wait(60.0)
    bank.flow.remove_branch("fed")
    thread.join(60.0)
    assert not thread.is_alive() and ran == list(range(1, len(ran) + 1))
    assert bank.flow.branches() == () and not (bank.root / "log" / "branches" / "fed").exists()
    assert all("closed" in str(error) for error in raised), raised
    bank.epochs(1)
    bank.check(OLD)
    again = bank.flow.branch("fed", at=3)
    again.replay()
    assert rows(again) == bank.fresh(OLD)
    bank.flow.close()
