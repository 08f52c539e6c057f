"""Branches of a flow: made of its layers without a copy, kept through crashes, listed, and removed."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.coordinator import copy_plan
from holdfast.coordinator.copy_plan import plan_removals
from holdfast.task.program import partition_range
from holdfast.testing import Crash, crash_at
from holdfast.trace.cover import garbage
from holdfast.trace.layer import list_layers
from holdfast.trace.merge import merge

from ..durability.shop import PARTITIONS, VIEWS, Shop, die, engine, history, one_round, stop_rounds


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path) -> Shop:
    return Shop(spark, tmp_path)


def opened(shop: Shop, log: Path, **settings: Any) -> hf.Flow:
    return shop.open(log, sinks=False, **settings)


def rows(flow: hf.Flow, at: int | None = None) -> dict[str, Counter[Any]]:
    return {view: Counter(map(tuple, flow.read(view, at=at).collect())) for view in VIEWS}


def _recovery(flow: hf.Flow) -> hf.Recovery:
    assert flow.last_recovery is not None
    return flow.last_recovery


def test_a_branch_begins_as_the_flow_was_and_both_go_on(shop: Shop, tmp_path: Path) -> None:
    flow = opened(shop, tmp_path / "log")
    shop.run(flow, 6)
    then = rows(flow, 3)
    before = [each.digest for each in history(flow)]
    branch = flow.branch("cheaper", at=3)
    assert branch.root == 3 and rows(branch) == then and not _recovery(branch).epochs_replayed
    shop.run(flow, 2)
    assert [each.digest for each in history(flow)][:6] == before, "the main line is untouched"
    assert branch.replay() == 4
    assert rows(branch) == rows(flow) == {view: shop.expected(view) for view in VIEWS}
    assert [each.digest for each in history(branch)][4:] != [each.digest for each in history(flow)][4:]
    for epoch in range(4, 8):
        assert rows(branch, epoch) == rows(flow, epoch)
    assert [(each.name, each.root) for each in flow.branches()] == [("cheaper", 3)]
    assert flow.branch("cheaper") is branch
    branch.close()
    flow.close()
    flow = opened(shop, tmp_path / "log")
    assert [(each.name, each.root) for each in flow.branches()] == [("cheaper", 3)]
    branch = flow.branch("cheaper")
    assert rows(branch) == rows(flow) and branch.replay() == 0
    shop.run(flow, 1)
    assert branch.replay() == 1 and rows(branch) == rows(flow)
    branch.close()
    flow.close()


def test_no_file_of_the_main_line_is_touched_by_a_branch(shop: Shop, tmp_path: Path) -> None:
    log = tmp_path / "log"
    flow = opened(shop, log)
    shop.run(flow, 4)
    flow.wait_safe()
    stop_rounds(flow)

    def files() -> dict[str, tuple[int, int, int]]:
        found = [path for path in log.glob("**/*") if path.is_file() and (log / "branches") not in path.parents]
        about = {str(path): path.stat() for path in found}
        return {path: (each.st_ino, each.st_mtime_ns, each.st_size) for path, each in about.items()}

    before = files()
    assert any(path.endswith(".arrow") for path in before) and any(path.endswith(".parquet") for path in before)
    branch = flow.branch("beside", at=1)
    assert files() == before
    branch.view("top", VIEWS["top"].replace("LIMIT 3", "LIMIT 5"))
    assert branch.replay() == 2 and files() == before
    branch.close()
    assert files() == before
    flow.remove_branch("beside")
    assert files() == before
    flow.close()


def test_an_old_root_is_shared_too_and_state_that_does_not_reach_back_is_made_again(shop: Shop, tmp_path: Path) -> None:
    """Layers that were merged across the root are shared as the part up to it."""
    flow = opened(shop, tmp_path / "log", retain=100)
    shop.run(flow, 20)
    flow.wait_safe()
    engine(flow).upkeep()
    reaches = engine(flow)._compiled.reaches()
    _compact(flow, 12, [trace for trace, reach in reaches.items() if reach is not None])
    then = rows(flow, 4)
    branch = flow.branch("old", at=4)
    there = sorted((tmp_path / "log" / "branches" / "old" / "traces").glob("*/*.arrow"))
    assert any(path.stem.endswith("-part") for path in there), "a layer reaches beyond the root"
    shared = {path.stat().st_ino for path in (tmp_path / "log" / "traces").glob("*/*.arrow")}
    assert {path.stat().st_ino for path in there} <= shared, "nothing was copied"
    assert rows(branch) == then and _recovery(branch).filled == 4, "state is made again from rows"
    assert branch.replay(to=15) == 11 and rows(branch) == rows(flow, 15)
    assert branch.replay() == 4 and rows(branch) == {view: shop.expected(view) for view in VIEWS}
    branch.close()
    flow.close()


def test_a_branch_is_not_made_from_an_epoch_that_no_location_has_any_more(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be lost with its working directory. Copies are merged, local layers are not yet."""
    monkeypatch.setattr(copy_plan, "COMPACT_FROM", 2)
    flow = opened(shop, tmp_path / "copies", local=tmp_path / "local", retain=2)
    stop_rounds(flow)
    for _ in range(16):
        shop.run(flow, 1)
        one_round(flow)
    with pytest.raises(hf.EpochUnavailable, match=r"epoch 2 any more: .*the earliest epoch") as error:
        flow.branch("gone", at=2)
    assert flow.branches() == () and not list((tmp_path / "copies").glob("branches/*"))
    earliest = error.value.fields["earliest"]
    assert isinstance(earliest, int) and 2 < earliest < 15
    then = rows(flow, earliest)
    assert flow.branch("kept", at=earliest).root == earliest
    flow.close()
    shutil.rmtree(tmp_path / "local")
    flow = opened(shop, tmp_path / "copies", local=tmp_path / "local", retain=2)
    with flow.branch("kept") as branch:
        assert rows(branch) == then
    flow.close()


def _compact(flow: hf.Flow, upto: int, traces: list[str]) -> None:
    """Have these traces not reach back behind epoch ``upto``."""
    stop_rounds(flow)
    chain = engine(flow)._state.epochs.chain()
    for trace in traces:
        directory, layout = engine(flow)._compiled.directory / trace, engine(flow)._compiled.layouts[trace]
        for partition in range(PARTITIONS):
            merge(directory, layout, list_layers(directory), *partition_range(partition, PARTITIONS), upto, chain)
        for name in garbage(list_layers(directory), chain, upto):
            (directory / name.text()).unlink()


@pytest.mark.slow
def test_a_location_keeps_what_a_branch_refers_to_until_it_is_removed(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The main line merges and removes its copies meanwhile; the branch, whose working directory is lost, is read from
    the layers that it refers to."""
    monkeypatch.setattr(copy_plan, "COMPACT_FROM", 3)
    local, copies = tmp_path / "local", tmp_path / "copies"
    flow = opened(shop, copies, local=local, retain=2)
    shop.run(flow, 3)
    flow.wait_safe()
    then = rows(flow)
    flow.branch("held")
    shared = {each.path for each in _location(flow, "held").references().values()}
    assert shared and all((copies / path).exists() for path in shared)
    for _ in range(3):
        for _ in range(2):
            shop.run(flow, 7)
            flow.wait_safe()
        one_round(flow)
        one_round(flow)
    needed = {path for path in shared if (copies / path).exists()}
    assert needed == shared, "nothing that the branch needs is gone"
    held = flow.branches()[0].bytes
    assert held > sum((copies / path).stat().st_size for path in shared) / 2
    flow.close()
    os.rename(local / "branches", local / "lost")
    flow = opened(shop, copies, local=local, retain=2)
    branch = flow.branch("held")
    assert rows(branch) == then and _recovery(branch).layers_fetched > 0
    assert branch.replay() == 42 and rows(branch) == rows(flow), "the history since its root is kept"
    branch.close()
    flow.remove_branch("held")
    assert flow.branches() == () and not list((local / "branches").glob("*"))
    shop.run(flow, 1)
    flow.wait_safe()
    one_round(flow)
    _rounds_until_nothing_is_to_be_removed(flow)
    left = [path for path in shared if (copies / path).exists()]
    assert len(left) < len(shared), "what only the branch needed is gone"
    flow.close()


def _rounds_until_nothing_is_to_be_removed(flow: hf.Flow) -> None:
    """Run rounds: one may merge, and only a later one removes what was merged; few are enough."""
    copied = engine(flow)._state.copies
    for _ in range(4):
        one_round(flow)
        if not plan_removals(copied.holdings, engine(flow).last, copied.live_after):
            return
    raise AssertionError("there is always something to remove")


def _location(flow: hf.Flow, name: str) -> Any:
    from holdfast.log.branch_location import BranchLocation

    return BranchLocation(engine(flow).declared.locations[0], name)


@pytest.mark.parametrize("mark", ["branches.linked", "branches.written", "branches.unnamed"])
def test_a_crash_at_any_step_leaves_a_branch_or_none(shop: Shop, tmp_path: Path, mark: str) -> None:
    flow = opened(shop, tmp_path / "copies", local=tmp_path / "local")
    shop.run(flow, 2)
    flow.wait_safe()
    with pytest.raises(Crash), crash_at(mark):
        flow.branch("cut")
        flow.remove_branch("cut")
    die(flow)
    flow = opened(shop, tmp_path / "copies", local=tmp_path / "local")
    there = [each.name for each in flow.branches()]
    assert there == (["cut"] if mark == "branches.written" else [])
    places = [tmp_path / "local" / "branches", tmp_path / "copies" / "branches"]
    assert [sorted(path.name for path in each.glob("*") if path.is_dir()) for each in places] == [there, there]
    assert rows(flow.branch("cut", at=1)) == rows(flow)
    flow.branch("cut").close()
    flow.close()


def test_what_cannot_be_branched_is_refused_with_what_can(shop: Shop, tmp_path: Path) -> None:
    flow = opened(shop, tmp_path / "log", retain=2)
    with pytest.raises(hf.DeclarationError, match="no epoch yet"):
        flow.branch("early")
    shop.run(flow, 12)
    flow.wait_safe()
    _compact(flow, 9, list(engine(flow)._compiled.layouts))
    with pytest.raises(hf.EpochUnavailable, match=r"earliest epoch from which one can is \d+\. retain=11") as error:
        flow.branch("gone", at=0)
    earliest = error.value.fields["earliest"]
    assert isinstance(earliest, int)
    assert flow.branch("first", at=earliest).root == earliest
    with pytest.raises(hf.EpochUnavailable, match="not there yet; the last is 11"):
        flow.branch("later", at=12)
    with pytest.raises(hf.DeclarationError, match="already, from epoch"):
        flow.branch("first", at=11)
    for name, said in (("../first", "made of letters"), ("main", "the flow itself")):
        with pytest.raises(hf.DeclarationError, match=said):
            flow.branch(name)
    with pytest.raises(hf.UnknownName, match="did you mean 'first'"):
        flow.remove_branch("frist")
    with pytest.raises(hf.EpochUnavailable, match="not there yet; the main line's last is 11"):
        flow.branch("first").replay(to=30)
    flow.branch("first").close()
    clock = history(flow)[-2].clock
    assert flow.branch("then", at=datetime.fromtimestamp(clock / 1e6, UTC)).root == 10
    flow.close()


@pytest.mark.slow
def test_a_branch_of_a_branch_is_one_too(shop: Shop, tmp_path: Path) -> None:
    flow = opened(shop, tmp_path / "copies", local=tmp_path / "local")
    shop.run(flow, 4)
    first = flow.branch("first", at=1)
    assert first.replay() == 2
    second = first.branch("second", at=2)
    assert second.name == "shop/first/second" and rows(second) == rows(flow, 2)
    assert second.replay() == 1 and rows(second) == rows(flow)
    second.close()
    first.close()
    flow.close()
    shutil.rmtree(tmp_path / "local")
    flow = opened(shop, tmp_path / "copies", local=tmp_path / "local")
    second = flow.branch("first").branch("second")
    assert rows(second) == rows(flow), "each is read from what the other refers to"
    second.close()
    flow.remove_branch("first")
    assert not list((tmp_path / "copies" / "branches").glob("*"))
    flow.close()


@pytest.mark.slow
def test_a_flow_that_runs_in_the_background_is_branched_and_followed(shop: Shop, tmp_path: Path) -> None:
    flow = opened(shop, tmp_path / "log", retain=3)
    shop.run(flow, 2)
    flow.start(interval=0.01)
    for _ in range(3):
        shop.feed()
    branch = flow.branch("beside")
    for _ in range(12):
        shop.feed()
        branch.replay()
    assert flow.await_idle(60)
    flow.stop()
    branch.replay()
    assert rows(branch) == rows(flow) == {view: shop.expected(view) for view in VIEWS}
    branch.close()
    flow.close()
