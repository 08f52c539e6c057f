"""Promoting a branch: its views become the main line's, and each sink is given the difference once, whatever dies."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.runtime.delivery import Delivery
from holdfast.testing import Crash, crash_at

from ..durability.shop import VIEWS, Shop, die, engine, one_round
from .killed_process import Stage, every, given

DOUBLED = VIEWS["cities"].replace("sum(amount)", "sum(amount * 2)")
APP = Path(__file__).with_name("promoted_flow.py")


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path) -> Shop:
    return Shop(spark, tmp_path)


def rows(flow: hf.Flow, view: str) -> Counter[Any]:
    return Counter(map(tuple, flow.read(view).collect()))


def wanted(shop: Shop) -> dict[str, Counter[Any]]:
    doubled = Counter({(city, total * 2, n): 1 for city, total, n in shop.expected("cities")})
    return {"cities": doubled, "top": shop.expected("top")}


def check(shop: Shop, flow: hf.Flow) -> None:
    for view, expected in wanted(shop).items():
        assert rows(flow, view) == expected, view
        assert given(shop.root / "out" / view) == expected, f"changelog of {view}"


def test_a_promoted_view_is_shared_and_its_sink_is_given_the_difference(shop: Shop, tmp_path: Path) -> None:
    flow = shop.open(tmp_path / "log")
    shop.run(flow, 5)
    branch = flow.branch("doubled", at=2)
    branch.view("cities", DOUBLED)
    shop.run(flow, 2)
    assert branch.promote().epoch == 7
    recovery = flow.last_recovery
    assert recovery is not None and recovery.filled is None and recovery.epochs_replayed == 0, (
        "nothing was computed again"
    )
    check(shop, flow)
    assert rows(branch, "cities") == rows(flow, "cities")
    shop.run(flow, 2)
    check(shop, flow)
    assert branch.replay() == 3 and rows(branch, "cities") == rows(flow, "cities"), "both go on"
    flow.remove_branch("doubled")
    flow.close()
    flow = shop.open(tmp_path / "log", sinks=False)
    flow.view("cities", DOUBLED)
    for view in VIEWS:
        flow.sink(view, hf.changelog(shop.root / "out" / view))
    shop.run(flow, 1)
    check(shop, flow)
    flow.close()


def test_a_branch_that_followed_for_longer_than_it_retains_is_promoted(shop: Shop, tmp_path: Path) -> None:
    flow = shop.open(tmp_path / "log", retain=1)
    shop.run(flow, 3)
    flow._settings = replace(flow._settings, fold=1)
    branch = flow.branch("doubled", at=2)
    branch.view("cities", DOUBLED)
    for _ in range(6):
        shop.run(flow, 1)
        assert branch.replay() == 1
        branch.wait_safe()
        one_round(branch)
    assert engine(branch).history.base is not None, "it folds as far as it may"
    assert branch.promote().epoch == 9
    recovery = flow.last_recovery
    assert recovery is not None and recovery.filled is None, "nothing was computed again"
    check(shop, flow)
    branch.close()
    flow.close()


def test_a_branch_with_input_of_its_own_is_not_promoted(spark: SparkSession, tmp_path: Path) -> None:
    flow = hf.Flow("own", log=tmp_path / "log", spark=spark, partitions=2)
    orders = flow.input("orders", "user string, amount long")
    flow.view("spend", "SELECT user, sum(amount) AS total FROM orders GROUP BY user")
    orders.insert([("ada", 1)])
    flow.step()
    branch = flow.branch("own")
    branch.input("orders", "user string, amount long").insert([("eve", 5)])
    branch.step()
    with pytest.raises(hf.DeclarationError, match="epoch 1 took input of its own"):
        branch.promote()
    assert rows(flow, "spend") == Counter([("ada", 1)])
    branch.close()
    flow.close()


def test_a_branch_whose_view_does_not_fit_a_sink_is_refused_and_the_main_line_goes_on(
    shop: Shop, tmp_path: Path
) -> None:
    flow = shop.open(tmp_path / "log")
    shop.run(flow, 2)
    branch = flow.branch("named")
    branch.view("cities", VIEWS["cities"].replace("SELECT city", "SELECT CAST(city AS string) AS city"))
    before = engine(flow)
    with pytest.raises(hf.SinkError, match=r"the view's columns were of types \(bigint, .* and now are \(string, "):
        branch.promote()
    assert engine(flow) is before, "nothing was touched"
    shop.run(flow, 1)
    shop.check(flow)
    branch.close()
    flow.close()


def test_a_promotion_with_which_the_main_line_does_not_open_leaves_it_as_it_was(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = shop.open(tmp_path / "log")
    shop.run(flow, 2)
    branch = flow.branch("doubled")
    branch.view("cities", DOUBLED)
    branch.replay()
    with monkeypatch.context() as patched, pytest.raises(hf.SinkError, match="it is away"):
        patched.setattr(Delivery, "attach", _away)
        branch.promote()
    shop.run(flow, 1)
    shop.check(flow)
    branch.promote()
    check(shop, flow)
    branch.close()
    flow.close()


def _away(*_: Any) -> None:
    raise hf.SinkError("it is away")


@pytest.mark.slow
@pytest.mark.parametrize("again", ["new", "old"])
@pytest.mark.parametrize("mark", ["promote.linked", "epoch.ran", "epoch.complete", "sink.before_commit"])
def test_a_crash_in_the_middle_leaves_the_old_views_or_the_new_ones(
    shop: Shop, tmp_path: Path, mark: str, again: str
) -> None:
    flow = shop.open(tmp_path / "log")
    shop.run(flow, 3)
    branch = flow.branch("doubled", at=1)
    branch.view("cities", DOUBLED)
    branch.replay()
    with pytest.raises(Crash), crash_at(mark):
        branch.promote()
    die(branch)
    if flow._engine is not None:
        die(flow)
    flow = shop.open(tmp_path / "log", sinks=False)
    if again == "new":
        flow.view("cities", DOUBLED)
    for view in VIEWS:
        flow.sink(view, hf.changelog(shop.root / "out" / view))
    shop.run(flow, 1)
    if again == "new":
        check(shop, flow)
    else:
        shop.check(flow)
    assert [each.name for each in flow.branches()] == ["doubled"]
    assert engine(flow).last >= 3
    flow.close()


MARKS = {
    "branches.linked": 1, "branches.written": 1, "recovery.found_history": 2, "recovery.before_replay": 1,
    "promote.linked": 1, "epoch.ran": 3, "epoch.complete": 3, "sink.before_commit": 2, "sink.after_commit": 2,
}  # fmt: skip
"""How often a promotion comes to which mark: two epochs are fed to the branch, one is the main line's."""


def _orders(root: Path) -> None:
    (root / "orders").mkdir()
    for n in range(4):
        (root / "orders" / f"{n}.csv").write_text(f"ada,{n}\nbob,{10 - n}\n")


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    root = tmp_path_factory.mktemp("killed")
    _orders(root)
    return Stage(APP, root)


@pytest.mark.slow
def test_every_mark_that_a_promotion_comes_to_is_one_at_which_it_is_killed(stage: Stage) -> None:
    stage.check_marks("promote", MARKS)


@pytest.mark.slow
@pytest.mark.parametrize("mark", every(MARKS))
def test_a_process_that_is_killed_while_it_promotes_has_given_each_row_once(stage: Stage, mark: str) -> None:
    spend = [["ada", 2 * (0 + 1 + 2 + 3 + 100)], ["bob", 2 * (10 + 9 + 8 + 7)]]
    stage.check_killed("promote", "promoting", mark, spend)
