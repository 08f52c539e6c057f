"""What a flow does about every kind of loss, on real Spark, in one process: crashes are raised, disks are removed.

What is lost in a crash (layers, copies, lineage), what is damaged while the flow runs, crashes in the middle of
recovery and of rounds, a driver that does not know that it is dead, and an object store that is all there is left.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from moto.server import ThreadedMotoServer
from pyarrow import fs as arrow_fs

import holdfast as hf
from holdfast.coordinator import copy_plan
from holdfast.errors import Fenced
from holdfast.testing import MARKS, Crash, crash_at

from . import shop as world
from .shop import (
    SOON,
    Shop,
    copy,
    cut,
    die,
    flip,
    history,
    levels,
    local_layers,
    lose,
    one_round,
    stop_rounds,
    until,
)

# -- what is lost in a crash ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("partition", [None, 1])
def test_only_what_no_copy_holds_is_computed_again(shop: Shop, tmp_path: Path, partition: int | None) -> None:
    place, local = copy(tmp_path), tmp_path / "local"
    flow = shop.open(place, local=local)
    shop.run(flow, 3)
    flow.wait_safe(timeout=SOON)
    place.fail_before = 1.0
    shop.run(flow, 2)
    before = history(flow)
    die(flow)
    for path in local_layers(local, partition):
        path.unlink()
    place.fail_before = 0.0
    flow = shop.open(place, local=local)
    recovery = flow.last_recovery
    assert recovery is not None
    assert recovery.epochs == (3, 4) and recovery.epochs_replayed == 2 and recovery.filled is None
    assert set(map(tuple, recovery.partitions.values())) == {(0, 1) if partition is None else (partition,)}
    assert recovery.layers_fetched > 0
    assert history(flow) == before, "the past is as it was, draws and all"
    shop.check(flow)
    shop.run(flow, 1)
    flow.wait_safe(timeout=SOON)
    shop.check(flow)
    flow.close()


def test_what_copies_hold_is_fetched_and_lost_copies_are_made_again(shop: Shop, tmp_path: Path) -> None:
    copies, local = [tmp_path / name for name in "abc"], tmp_path / "local"
    flow = shop.open(copies, local=local, min_replicas=3)
    shop.run(flow, 3)
    flow.wait_safe(timeout=SOON)
    die(flow)
    lose(copies[0], copies[1], local)
    flow = shop.open(copies, local=local, min_replicas=3)
    recovery = flow.last_recovery
    assert recovery is not None and recovery.epochs == () and recovery.layers_fetched > 0
    shop.check(flow)
    flow.wait_safe(timeout=SOON)
    until(lambda: all(reached[str(each)] == 2 for reached in levels(flow) for each in copies))
    die(flow)
    lose(copies[1], copies[2], local)  # the one that is left was itself lost before
    flow = shop.open(copies, local=local, min_replicas=3)
    recovery = flow.last_recovery
    assert recovery is not None and recovery.epochs == () and recovery.layers_fetched > 0
    shop.run(flow, 1)
    shop.check(flow)
    flow.close()


def _levels(flow: hf.Flow) -> list[dict[str, int]]:
    levels: dict[str, dict[str, int]] = flow.status().durability.levels
    return list(levels.values())


def test_what_only_the_sinks_know_is_replayed_as_they_saw_it(shop: Shop, tmp_path: Path) -> None:
    place, local = copy(tmp_path), tmp_path / "local"
    flow = shop.open(place, local=local)
    shop.run(flow, 2)
    flow.wait_safe(timeout=SOON)
    place.fail_before = 1.0
    shop.run(flow, 2)
    before = history(flow)
    die(flow)
    lose(local)
    place.fail_before = 0.0
    flow = shop.open(place, local=local)
    recovery = flow.last_recovery
    assert recovery is not None
    assert recovery.lineage["sink of view 'cities'"] == 3 and recovery.lineage[place.uri] == 1
    assert "local" not in recovery.lineage
    assert recovery.epochs == (2, 3)
    assert history(flow) == before
    shop.check(flow)
    flow.close()


def test_the_lineage_stash_is_mended_from_the_copies(shop: Shop, tmp_path: Path) -> None:
    copies, local = [tmp_path / "a", tmp_path / "b"], tmp_path / "local"
    stash = local / "lineage" / "log.jsonl"
    flow = shop.open(copies, local=local)
    shop.run(flow, 3)
    flow.wait_safe(timeout=SOON)
    before = history(flow)
    whole = stash.read_bytes()
    die(flow)
    flip(stash, place=whole.index(b"\n") + 20)
    flow = shop.open(copies, local=local)
    recovery = flow.last_recovery
    assert recovery is not None
    assert [text for text in recovery.damaged if text.startswith(f"{stash}: line 2:")]
    assert history(flow) == before and stash.read_bytes() == whole
    die(flow)
    stash.unlink()
    flow = shop.open(copies, local=local)
    assert history(flow) == before and stash.read_bytes() == whole
    recovery = flow.last_recovery
    assert recovery is not None and recovery.epochs == () and recovery.layers_fetched == 0
    shop.run(flow, 1)
    shop.check(flow)
    flow.close()


# -- what is damaged while the flow runs ------------------------------------------------------------------------------


def test_damaged_local_layers_are_found_by_the_epoch_that_reads_them_and_replaced(shop: Shop, tmp_path: Path) -> None:
    place, local = tmp_path / "copy", tmp_path / "local"
    flow = shop.open(place, local=local)
    shop.run(flow, 3)
    flow.wait_safe(timeout=SOON)
    flow.close()
    local = world.moved(local)
    flow = shop.open(place, local=local)
    traces = sorted({path.parent for path in local_layers(local)})
    harmed = [max(trace.glob("*.arrow"), key=lambda path: path.stat().st_size) for trace in traces]
    for number, path in enumerate(harmed):
        (flip, cut, Path.unlink)[number % 3](path)
    shop.run(flow, 1)
    recovery = flow.last_recovery
    assert recovery is not None and recovery.epochs == (), "there are copies"
    aside = {path.name for path in (local / "damaged").glob("*/*.arrow")}
    assert aside, "the epoch read some of them"
    assert aside <= {path.name for number, path in enumerate(harmed) if number % 3 < 2}
    assert all(any(name in text for text in recovery.damaged) for name in aside)
    shop.check(flow)
    shop.run(flow, 2)
    shop.check(flow)
    flow.close()


@pytest.mark.parametrize("when", ["in an epoch", "in a replay"])
def test_an_epoch_that_met_damage_leaves_no_layer_of_incomplete_input(shop: Shop, tmp_path: Path, when: str) -> None:
    place, local = copy(tmp_path), tmp_path / "local"
    flow = shop.open(place, local=local)
    shop.run(flow, 2)
    flow.wait_safe(timeout=SOON)
    place.fail_before = 1.0
    shop.run(flow, 1)
    die(flow)
    place.fail_before = 0.0
    local = world.moved(local)
    traces = {path.parent for path in local_layers(local)}
    joined = next(trace for trace in traces if trace.suffix == ".left")
    if when == "in an epoch":
        flow = shop.open(place, local=local)
    else:
        for path in local.glob("traces/*/000000000002-*.arrow"):
            path.unlink()
    for path in local_layers(local, partition=1):  # the first stage fails in one partition; the next one still runs
        if path.parent == joined and path.name.startswith("000000000001-"):
            flip(path)
    if when == "in a replay":
        flow = shop.open(place, local=local)
    shop.run(flow, 1)
    for trace in traces:
        names = [path.name.rpartition("-")[0] for path in trace.glob("*.arrow")]
        assert len(set(names)) == len(names), f"two layers of one place and epoch in {trace.name}: {sorted(names)}"
    shop.check(flow)
    flow.close()


def test_damaged_copies_are_passed_over(shop: Shop, tmp_path: Path) -> None:
    copies, local = [tmp_path / "a", tmp_path / "b"], tmp_path / "local"
    flow = shop.open(copies, local=local, min_replicas=2)
    shop.run(flow, 3)
    flow.wait_safe(timeout=SOON)
    die(flow)
    lose(local)
    harmed = sorted((copies[0] / "layers").glob("*/*.parquet"))
    for number, path in enumerate(harmed):
        (flip, cut)[number % 2](path)
    flow = shop.open(copies, local=local, min_replicas=2)
    recovery = flow.last_recovery
    assert recovery is not None and recovery.epochs == () and recovery.layers_fetched > 0
    aside = sorted((copies[0] / "damaged").glob("*/*.parquet"))
    assert len(aside) > 0 and len(recovery.damaged) >= len(aside)
    assert all(any(path.name in text for text in recovery.damaged) for path in aside)
    shop.check(flow)
    shop.run(flow, 1)
    flow.wait_safe(timeout=SOON)
    die(flow)
    lose(local, copies[1])  # what was set aside was copied anew
    flow = shop.open(copies, local=local, min_replicas=2)
    recovery = flow.last_recovery
    assert recovery is not None and recovery.epochs == ()
    shop.check(flow)
    flow.close()


def test_where_all_copies_are_damaged_it_is_computed_again(shop: Shop, tmp_path: Path) -> None:
    place, local = tmp_path / "copy", tmp_path / "local"
    flow = shop.open(place, local=local)
    shop.run(flow, 3)
    flow.wait_safe(timeout=SOON)
    before = history(flow)
    die(flow)
    lose(local)
    for path in sorted((place / "layers").glob("*/*.parquet")):
        flip(path)
    flow = shop.open(place, local=local)
    recovery = flow.last_recovery
    assert recovery is not None and recovery.epochs == (0, 1, 2) and recovery.damaged
    assert history(flow) == before
    shop.check(flow)
    flow.close()


# -- crashes in the middle of things ----------------------------------------------------------------------------------


def test_crashes_in_recovery_leave_less_to_do(shop: Shop, tmp_path: Path) -> None:
    place, local = copy(tmp_path), tmp_path / "local"
    flow = shop.open(place, local=local)
    shop.run(flow, 2)
    flow.wait_safe(timeout=SOON)
    place.fail_before = 1.0
    shop.run(flow, 2)
    before = history(flow)
    die(flow)
    place.fail_before = 0.0
    lose(local)
    crashes = [(mark, 1) for mark in MARKS if mark.startswith("recovery.")] + [("recovery.before_replay", 2)]
    for mark, times in crashes:
        with pytest.raises(Crash, match=mark), crash_at(mark, times):
            shop.open(place, local=local)
    flow = shop.open(place, local=local)
    recovery = flow.last_recovery
    assert recovery is not None and recovery.epochs == (3,), "epoch 2 was computed again before the last crash"
    assert recovery.layers_fetched == 0
    assert history(flow) == before
    shop.check(flow)
    flow.close()


def test_a_crash_at_any_mark_of_an_epoch_loses_and_repeats_nothing(shop: Shop, tmp_path: Path) -> None:
    place, local = tmp_path / "copy", tmp_path / "local"
    for mark in ("epoch.ran", "epoch.complete", "sink.before_commit", "sink.after_commit"):
        flow = shop.open(place, local=local)
        shop.feed()
        with pytest.raises(Crash, match=mark), crash_at(mark):
            flow.step()
        die(flow)
        flow = shop.open(place, local=local)
        flow.step()  # brings the sinks up to date, and runs the epoch if there is none of this input yet
        shop.check(flow)
        assert len(history(flow)) == len(shop.orders)
        die(flow)


def test_a_crash_at_any_mark_of_a_round_leaves_a_log_that_is_whole(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copy_plan, "COMPACT_FROM", 8)
    place, local = tmp_path / "copy", tmp_path / "local"
    flow = shop.open(place, local=local)
    stop_rounds(flow)
    for _ in range(8):  # one more layer of each trace with each: then there is something to compact
        shop.run(flow, 1)
        one_round(flow)
    rounds = [mark for mark in MARKS if mark.startswith("round.")]
    for mark in sorted(rounds, key=lambda mark: mark != "round.before_compaction"):
        shop.feed()
        flow.step()
        with pytest.raises(Crash, match=mark), crash_at(mark):
            one_round(flow)
        die(flow)
        lose(local)
        flow = shop.open(place, local=local)
        stop_rounds(flow)
        shop.check(flow)
    for _ in range(3):
        one_round(flow)  # compacts, and removes what was compacted
    assert flow.status().durability.safe == len(history(flow)) - 1
    assert max(len(list(trace.iterdir())) for trace in (place / "layers").iterdir()) < 8 * world.PARTITIONS
    die(flow)
    lose(local)
    flow = shop.open(place, local=local)
    recovery = flow.last_recovery
    assert recovery is not None and recovery.epochs == () and recovery.filled is None
    shop.check(flow)
    flow.close()


# -- a driver that does not know that it is dead ----------------------------------------------------------------------


def test_a_stale_driver_is_refused_by_the_sink(shop: Shop, tmp_path: Path) -> None:
    place = tmp_path / "copy"
    first = shop.open(place, local=tmp_path / "first")
    shop.run(first, 2)
    first.wait_safe(timeout=SOON)
    stop_rounds(first)
    second = shop.open(place, local=tmp_path / "second")
    shop.run(second, 1)
    with pytest.raises(Fenced, match="another driver"):
        first.step()
    die(first)
    shop.run(second, 1)
    second.wait_safe(timeout=SOON)
    shop.check(second)
    assert len(history(second)) == 4
    second.close()


def test_a_stale_driver_notices_the_claim_of_another(shop: Shop, tmp_path: Path) -> None:
    place = tmp_path / "copy"
    first = shop.open(place, local=tmp_path / "first", sinks=False)
    shop.run(first, 1)
    first.wait_safe(timeout=SOON)
    second = shop.open(place, local=tmp_path / "second", sinks=False)
    shop.feed()
    with suppress(Fenced):
        first.step()  # it may go on, for as long as it has not looked
    with pytest.raises(Fenced, match=r"another driver has taken over \(process \d+ on .*, term 2\)"):
        first.wait_safe(timeout=SOON)
        first.step()
    with pytest.raises(Fenced):
        first.step()
    die(first)
    second.step()
    shop.run(second, 1)
    second.wait_safe(timeout=SOON)
    shop.check(second)
    before = history(second)
    second.close()
    third = shop.open(place, local=tmp_path / "third", sinks=False)
    assert history(third) == before, "what the stale driver wrote is there, and counts for nothing"
    shop.check(third)
    third.close()


# -- an object store --------------------------------------------------------------------------------------------------


@pytest.fixture
def s3() -> Iterator[str]:
    """The address of a log in an S3-compatible store."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    # The key is in the address: tasks run in processes that were started before there was one in the environment.
    query = f"endpoint_override={host}:{port}&scheme=http&region=us-east-1"
    root, _ = arrow_fs.FileSystem.from_uri(f"s3://made:up@copies?{query}&allow_bucket_creation=true")
    root.create_dir("copies")
    yield f"s3://made:up@copies/shop?{query}"
    server.stop()


def test_a_flow_is_recovered_from_an_object_store_alone(shop: Shop, tmp_path: Path, s3: str) -> None:
    place = tmp_path / "log"
    flow = shop.open([place, s3], min_replicas=2)
    shop.run(flow, 3)
    assert flow.wait_safe(timeout=SOON) == 2
    assert "made" not in str(flow.status().durability)
    before = history(flow)
    die(flow)
    lose(place)
    flow = shop.open([place, s3], min_replicas=2)
    recovery = flow.last_recovery
    assert recovery is not None and recovery.epochs == () and recovery.layers_fetched > 0
    assert history(flow) == before
    shop.run(flow, 1)
    flow.wait_safe(timeout=SOON)
    shop.check(flow)
    flow.close()
