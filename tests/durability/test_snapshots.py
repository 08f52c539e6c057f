"""Named snapshots: a consistent cut of a flow that runs, copied elsewhere and opened as a flow of its own."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.log.snapshots import read_snapshots
from holdfast.testing import Crash, crash_at
from holdfast.testing.memory import MemoryLocation
from tests.guarantees.engines import Life

from .shop import VIEWS, Batches, Shop, die, engine, history, one_round, stop_rounds


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path) -> Shop:
    return Shop(spark, tmp_path)


def opened(shop: Shop, log: Path, **settings: Any) -> hf.Flow:
    return shop.open(log, sinks=False, local=log.with_name(f"{log.name}-local"), retain=2, **settings)


def rows(flow: hf.Flow, at: int | None = None) -> dict[str, Counter[Any]]:
    return {view: Counter(map(tuple, flow.read(view, at=at).collect())) for view in VIEWS}


def sent(shop: Shop, epoch: int) -> Shop:
    """The shop as it was when so many batches were sent."""
    past = Shop(shop._spark, shop.root)
    for batch in shop.orders[: epoch + 1]:
        for *row, diff in batch:
            if diff > 0:
                past._there.append(tuple(row))
            else:
                past._there.remove(tuple(row))
    return past


def test_snapshots_that_are_taken_while_epochs_run_are_consistent_cuts(shop: Shop, tmp_path: Path) -> None:
    """No view has received what was not sent by the epoch of the cut, and each has received all that was: in every
    trace, since the copies go on from there as flows of their own."""
    flow = opened(shop, tmp_path / "log")
    taken: list[hf.Snapshot] = []
    done = threading.Event()

    def take() -> None:
        while not done.is_set():
            taken.append(flow.snapshot(f"cut-{len(taken)}"))
            done.wait(0.1)

    shop.run(flow, 1)
    taker = threading.Thread(target=take)
    taker.start()
    shop.run(flow, 14)
    done.set()
    taker.join()
    assert len({snapshot.epoch for snapshot in taken}) >= 3, "they were taken at several epochs"
    flow.wait_safe()
    for _ in range(3):
        one_round(flow)  # compaction has had every chance to pass them
    assert [each.name for each in flow.snapshots()] == [each.name for each in sorted(taken, key=lambda one: one.epoch)]
    assert all(each.safe for each in flow.snapshots())
    shop.feed()
    for snapshot in {each.epoch: each for each in taken}.values():
        past = sent(shop, snapshot.epoch)
        assert rows(flow, snapshot.epoch) == {view: past.expected(view) for view in VIEWS}, "the cut is valid"
    chosen = taken[len(taken) // 2]
    target = tmp_path / "copied"
    assert hf.copy_snapshot(tmp_path / "log", chosen.name, target).digest == chosen.digest
    flow.step()
    copy = opened(shop, target)
    assert history(copy) == history(flow)[: chosen.epoch + 1] and copy.last_recovery.epochs_replayed == 0
    past = sent(shop, chosen.epoch)
    assert rows(copy) == {view: past.expected(view) for view in VIEWS}
    copy.run(until="idle")
    assert rows(copy) == rows(flow) == {view: shop.expected(view) for view in VIEWS}
    copy.close()
    flow.close()


def test_a_snapshot_holds_compaction_back_until_it_is_removed(shop: Shop, tmp_path: Path) -> None:
    flow = opened(shop, tmp_path / "log")
    shop.run(flow, 2)
    kept = rows(flow)
    assert flow.snapshot("first").epoch == 1
    with pytest.raises(hf.DeclarationError, match="already"):
        flow.snapshot("first")
    with pytest.raises(hf.DeclarationError, match="made of letters"):
        flow.snapshot("../first")
    shop.run(flow, 12)
    flow.wait_safe()
    flow.close()
    flow = opened(shop, tmp_path / "log")
    shop.run(flow, 10)
    flow.wait_safe()
    one_round(flow)
    assert [each.name for each in flow.snapshots()] == ["first"] and rows(flow, 1) == kept
    with pytest.raises(hf.UnknownName, match="did you mean 'first'"):
        flow.remove_snapshot("frst")
    flow.remove_snapshot("first")
    assert flow.snapshots() == ()
    state = engine(flow)._state
    assert all(state.copies.floor(trace, state.history, 0) > 1 for trace in engine(flow)._compiled.layouts)
    shop.run(flow, 30)
    flow.wait_safe()
    with pytest.raises(hf.EpochUnavailable):
        rows(flow, 1)
    flow.close()


@pytest.mark.parametrize("mark", ["snapshot.taken", "snapshot.written", "snapshot.removed"])
def test_a_crash_at_any_step_leaves_a_snapshot_or_none(shop: Shop, tmp_path: Path, mark: str) -> None:
    flow = opened(shop, tmp_path / "log")
    shop.run(flow, 2)
    kept = rows(flow)
    call: Callable[[str], object] = flow.snapshot
    if mark == "snapshot.removed":
        flow.snapshot("cut")
        call = flow.remove_snapshot
    flow.wait_safe()
    with pytest.raises(Crash), crash_at(mark):
        call("cut")
    die(flow)
    flow = opened(shop, tmp_path / "log")
    there = [each.name for each in flow.snapshots()]
    assert there == ([] if mark == "snapshot.taken" else ["cut"])
    shop.run(flow, 4)
    if there:
        assert rows(flow, 1) == kept
        assert (tmp_path / "log" / "snapshots" / "cut.json").exists(), "places that lacked it have it now"
        flow.remove_snapshot("cut")
    flow.snapshot("cut")
    assert [each.epoch for each in flow.snapshots()] == [5]
    flow.close()


def test_a_copy_that_broke_off_is_made_again(shop: Shop, tmp_path: Path) -> None:
    flow = opened(shop, tmp_path / "log")
    shop.run(flow, 3)
    stop_rounds(flow)
    flow.snapshot("cut")
    with pytest.raises(hf.StoreError, match="wait_safe"):
        shop.run(flow, 1)
        flow.snapshot("later")
        hf.copy_snapshot(tmp_path / "log", "later", tmp_path / "copied")
    one_round(flow)
    with pytest.raises(hf.UnknownName, match="did you mean"):
        hf.copy_snapshot(tmp_path / "log", "cat", tmp_path / "copied")
    with pytest.raises(Crash), crash_at("snapshot.copied_layers"):
        hf.copy_snapshot(tmp_path / "log", "cut", tmp_path / "copied", flow="branch")
    hf.copy_snapshot(tmp_path / "log", "cut", tmp_path / "copied", flow="branch")
    with pytest.raises(hf.DeclarationError, match="holds a log already"):
        hf.copy_snapshot(tmp_path / "log", "cut", tmp_path / "copied", flow="branch")
    branch = hf.Flow("branch", log=tmp_path / "copied", spark=shop._spark, partitions=3)
    branch.source("orders", Batches("id user amount", shop.orders)).source("users", Batches("user city", shop.users))
    for name, sql in VIEWS.items():
        branch.view(name, sql)
    past = sent(shop, 2)
    assert rows(branch) == {view: past.expected(view) for view in VIEWS}
    flow.close()
    branch.close()


@pytest.mark.parametrize("taken", [0, 1])
def test_a_copy_takes_the_input_that_a_rewind_undid_and_nobody_had_taken_again_yet(tmp_path: Path, taken: int) -> None:
    """However long ago the snapshot was taken: the rows are kept for it."""
    life = Life(tmp_path / "flow", hf.nosync(), view="ordered", retain=2)
    for number in range(4):
        life.world.feed("orders", [((number, number % 2, 10), 1)])
        life.step()
    life.open().rewind(1, "a test", {})
    for _ in range(taken):
        life.step()
    life.open().snapshots.take("cut")
    while not life.open().step().idle:
        life.open().upkeep()
    copies = [MemoryLocation("memory://at once"), MemoryLocation("memory://later")]
    hf.copy_snapshot(life.stores[0], "cut", copies[0])
    for _ in range(8):
        life.world.feed("orders", [((9, 0, 10), 1), ((9, 0, 10), -1)])
        life.step()
    life.open().upkeep()
    hf.copy_snapshot(life.stores[0], "cut", copies[1])
    for number, location in enumerate(copies):
        copy = Life(tmp_path / f"copy {number}", hf.nosync(), view="ordered", retain=2)
        copy.world.feeds = {**life.world.feeds, "orders": life.world.feeds["orders"][:4]}
        copy.stores = [location]
        copy.finish()
        total: Counter[Any] = Counter()
        for *row, diff in copy.given.rows:
            total[tuple(row)] += diff
        assert total == Counter({(0, 2): 1, (1, 2): 1})
    life.die()


def test_a_name_that_was_given_again_while_a_place_was_away_is_the_later_epoch(tmp_path: Path) -> None:
    """A location that is back, and a host that leads again, may still have the earlier snapshot of that name."""
    life = Life(tmp_path, hf.nosync(), locations=2)
    life.run(2)
    life.open().snapshots.take("cut")
    earlier = {path: data for path, data in life.stores[1].snapshot().items() if path.startswith("snapshots/")}
    life.finish()
    on_another_host = life.open(life.prepared(1))
    on_another_host.snapshots.remove("cut")
    life.run(2)
    assert on_another_host.snapshots.take("cut").epoch == 3
    for path, data in earlier.items():
        life.stores[1].write(path, data)
    life.finish()
    assert [each.epoch for each in life.open().snapshots.listed()] == [3]
    assert [read_snapshots(store)["cut"].epoch for store in life.stores] == [3, 3], "the copies are right, too"
    life.die()


def test_a_strategy_that_copies_no_state_has_no_snapshots(shop: Shop, tmp_path: Path) -> None:
    flow = opened(shop, tmp_path / "log", strategy="gap")
    with pytest.raises(hf.DeclarationError, match="copies no state"):
        flow.snapshot("cut")
    flow.close()
    flow = opened(shop, tmp_path / "other")
    with pytest.raises(hf.DeclarationError, match="no epoch yet"):
        flow.snapshot("cut")
    flow.close()
