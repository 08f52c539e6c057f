"""Reads of a trace against its model: any epoch, any partition, any history of merges, strong and weak hashes."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.errors import EpochUnavailable, LogDamaged
from holdfast.trace.cover import Chain
from holdfast.trace.hashing import hash_columns, weak_bits
from holdfast.trace.layer import forget_all, list_layers, retain
from holdfast.trace.name import ALL
from holdfast.trace.rows import Block, Layout, sub_hash
from holdfast.trace.search import lower_bound, upper_bound
from holdfast.trace.trace import Trace

from .world import World, ranges, rows, totals

WEAK = [2, 64]
FAST = settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def lived(directory: Path, sub: Any, rng: Random, *, compact: bool = True) -> World:
    """A world with some history."""
    world = World(directory / f"{rng.random()}", Layout(3, 1, sub), rng)
    for _ in range(rng.randrange(1, 9)):
        world.step(rng.choice((0, 1, 4, 20)), parts=rng.choice((1, 2, 4)))
        if rng.random() < 0.4:
            since = rng.randrange(-1, world.last + 1) if compact else -1
            world.maintain(parts=rng.choice((1, 2)), since=since)
    return world


@pytest.mark.parametrize("weak", WEAK)
@pytest.mark.parametrize("sub", ["none", "hash", "order"])
@given(seed=st.integers(0, 1 << 32))
@FAST
def test_reads_as_of_any_epoch_give_what_was_written(tmp_path: Path, sub: Any, weak: int, seed: int) -> None:
    rng = Random(seed)
    with weak_bits(weak):
        world = lived(tmp_path, sub, rng)
        for as_of in range(max(world.since, -1), world.last + 1):
            state = world.state(as_of)
            low, high = rng.choice([(0, ALL), *ranges(2), *ranges(3)])
            trace = world.open(as_of, low, high)
            inside = {row: diff for row, diff in state.items() if low <= world.hash_of(row) < high}
            scanned = trace.scan()
            assert totals(scanned) == inside and scanned.rows == len(inside)
            assert set(scanned.epoch.tolist()) <= {as_of}
            assert trace.rows >= len(inside)
            check_matching(world, trace, inside, rng)
            check_pairs(world, trace, inside, rng)
            check_ranges(world, trace, inside, rng)


def some_hashes(world: World, rng: Random, low: int, high: int) -> np.ndarray:
    wanted = {world.hash_of(world.row()) for _ in range(rng.randrange(12))} | {rng.getrandbits(64) for _ in range(3)}
    return np.array(sorted(h for h in wanted if low <= h < high), np.uint64)


def check_matching(world: World, trace: Trace, inside: dict[Any, int], rng: Random) -> None:
    hashes = some_hashes(world, rng, trace.low, trace.high)
    index, block = trace.matching(hashes)
    assert (hashes[index] == block.hash).all() and len(index) == block.rows
    wanted = set(hashes.tolist())
    assert totals(block) == {row: diff for row, diff in inside.items() if world.hash_of(row) in wanted}


def check_pairs(world: World, trace: Trace, inside: dict[Any, int], rng: Random) -> None:
    if world.layout.sub != "hash":
        return
    candidates = [world.row() for _ in range(rng.randrange(12))] + rng.sample(
        sorted(inside, key=repr), len(inside) // 3
    )
    if not candidates:
        return
    block = world.block(dict.fromkeys(candidates, 1), 0)
    assert block.sub is not None
    pairs = sorted({(h, s) for h, s in zip(block.hash.tolist(), block.sub.tolist(), strict=True)})
    pairs = [(h, s) for h, s in pairs if trace.low <= h < trace.high]
    hashes, subs = (np.array([pair[i] for pair in pairs], np.uint64) for i in (0, 1))
    index, found = trace.matching_pairs(hashes, subs)
    assert found.sub is not None
    assert (hashes[index] == found.hash).all() and (subs[index] == found.sub).all()
    wanted = set(pairs)
    all_rows = world.block(inside, 0)
    assert all_rows.sub is not None
    expected = {
        row: diff
        for (row, diff), h, s in zip(inside.items(), all_rows.hash.tolist(), all_rows.sub.tolist(), strict=True)
        if (h, s) in wanted
    }
    assert totals(found) == expected


def check_ranges(world: World, trace: Trace, inside: dict[Any, int], rng: Random) -> None:
    if world.layout.sub == "none":
        return
    all_rows = world.block(inside, 0)
    assert all_rows.sub is not None
    places = list(zip(all_rows.hash.tolist(), all_rows.sub.tolist(), strict=True))
    ends = sorted({rng.getrandbits(64) for _ in range(2)} | {sub for _, sub in rng.sample(places, len(places) // 4)})
    wanted = [
        (hash, *ends[at : at + 2]) for hash in some_hashes(world, rng, trace.low, trace.high).tolist()
        for at in range(0, len(ends) - 1, 2) if rng.random() < 0.7
    ]  # fmt: skip
    block = trace.ranges(*(np.array([each[part] for each in wanted], np.uint64) for part in range(3)))
    expected = {
        row: diff
        for (row, diff), (hash, sub) in zip(inside.items(), places, strict=True)
        if any(hash == one and least <= sub <= most for one, least, most in wanted)
    }
    assert totals(block) == expected


@given(seed=st.integers(0, 1 << 32))
@FAST
def test_changes_are_each_epochs_own_or_refused(tmp_path: Path, seed: int) -> None:
    rng = Random(seed)
    world = lived(tmp_path, "hash", rng)
    trace = world.open(world.last)
    for after in range(-1, world.last):
        upto = rng.randrange(after + 1, world.last + 1)
        if after >= world.since:
            block = trace.changes(after, upto)
        else:
            try:
                block = trace.changes(after, upto)
            except EpochUnavailable as error:
                assert error.fields["after"] == after
                continue
        for epoch in range(after + 1, upto + 1):
            change = block.take(np.flatnonzero(block.epoch == epoch))
            assert totals(change) == world.epochs[epoch]
        assert not block.rows or after < block.epoch.min() <= block.epoch.max() <= upto


def test_compacted_epochs_are_refused_and_say_what_can_be_read(tmp_path: Path) -> None:
    world = World(tmp_path, Layout(3, 1, "hash"), Random(1))
    for _ in range(6):
        world.step(5)
    world.maintain(since=3)
    with pytest.raises(EpochUnavailable) as error:
        world.open(2)
    assert error.value.fields["earliest"] == 3
    with pytest.raises(EpochUnavailable) as error:
        world.open(5).changes(1, 4)
    assert error.value.fields["earliest"] == 3
    assert totals(world.open(5).changes(3, 5)) == world.state(5, after=3)


def test_a_damaged_layer_that_only_changes_read_is_damage_and_no_compaction(tmp_path: Path) -> None:
    """As of the last epoch a collapsed layer is read. A damaged one beside it is to be set aside and fetched again."""
    world = World(tmp_path, Layout(3, 1, "hash"), Random(1))
    for _ in range(3):
        world.step(5)
    single = {path: path.read_bytes() for path in tmp_path.glob("*.arrow")}
    world.maintain(since=2)
    collapsed = [path for path in tmp_path.glob("*.arrow") if path not in single]
    assert len(collapsed) == 1
    for path, data in single.items():
        middle = path.name.startswith("000000000001-")
        path.unlink(missing_ok=True)
        path.write_bytes(data[: len(data) // 2] if middle else data)
    forget_all()
    trace = Trace.open(tmp_path, world.layout, 0, ALL, 2, Chain(2, ()))
    assert totals(trace.scan()) == world.state(2)
    with pytest.raises(LogDamaged) as error:
        trace.changes(0, 2)
    assert Path(str(error.value.fields["path"])).name.startswith("000000000001-")


def test_a_trace_before_its_first_epoch_is_empty(tmp_path: Path) -> None:
    layout = Layout(2, 1, "order")
    trace = Trace.open(tmp_path / "nowhere", layout, 0, ALL, -1, Chain(-1, ()))
    hashes = np.array([1, 2], np.uint64)
    for index, block in (trace.matching(hashes), trace.matching_pairs(hashes, hashes), trace.first(hashes, 3)):
        assert len(index) == 0 and block.rows == 0 and len(block.columns) == 2
    assert trace.scan().rows == 0 and trace.rows == 0 and trace.layers == []
    assert trace.changes(-1, 5).rows == 0


def test_a_missing_directory_is_damage_once_epochs_ran(tmp_path: Path) -> None:
    with pytest.raises(LogDamaged, match="nowhere"):
        Trace.open(tmp_path / "nowhere", Layout(1, 1, "none"), 0, ALL, 0, Chain(-1, ("0" * 16,)))


def test_another_layout_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path, Layout(3, 1, "hash"), Random(1))
    world.step(3)
    with pytest.raises(LogDamaged, match="expected"):
        Trace.open(tmp_path, Layout(3, 2, "hash"), 0, ALL, 0, world.chain)


def test_quiet_epochs_read_as_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, Layout(3, 1, "none"), Random(1))
    for _ in range(3):
        world.step(0)
    trace = world.open(2)
    index, block = trace.matching(np.array([5], np.uint64))
    assert len(index) == 0 and block.rows == 0 and len(block.columns) == len(World.kinds)


def test_a_file_that_vanishes_between_listing_and_opening_is_looked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, Layout(3, 1, "none"), Random(1))
    for _ in range(4):
        world.step(5)
    before = os.listdir(tmp_path)
    world.maintain(since=3)
    retain(tmp_path, [])
    true_listing = os.listdir
    # What a reader may see of a merge: the files it removed, then neither those nor what it wrote.
    listings = [[], before, before]
    monkeypatch.setattr(os, "listdir", lambda path: listings.pop() if listings else true_listing(path))
    assert totals(world.open(3).scan()) == world.state(3)


def test_reading_goes_on_while_another_thread_merges(tmp_path: Path) -> None:
    world = World(tmp_path, Layout(3, 1, "hash"), Random(2))
    for _ in range(30):
        world.step(10)
    expected = world.state(29)
    failures: list[BaseException] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            try:
                assert totals(world.open(29).scan()) == expected
            except BaseException as error:
                failures.append(error)
                return

    reader = threading.Thread(target=read)
    reader.start()
    world.maintain(parts=2, since=29)
    world.maintain(parts=1, since=29)
    stop.set()
    reader.join()
    assert failures == []


def test_many_keys_are_found_in_large_and_small_layers(tmp_path: Path) -> None:
    with weak_bits(64):
        layout = Layout(2, 1, "hash")
        numbers = np.random.default_rng(3)
        world = World(tmp_path, layout, Random(3))
        everything = []
        for epoch, size in enumerate((50_000, 3_000, 40)):
            columns = (pa.array(numbers.integers(0, 20_000, size)), pa.array(numbers.integers(0, 9, size)))
            adds = {"+diff": np.ones(size, np.int64)}
            block = Block(hash_columns(columns[:1]), sub_hash(columns, layout), columns, np.full(size, epoch), adds)
            world.digests.append("0" * 16)
            world.epochs.append({})
            world.write(block, 0, ALL, epoch)
            everything += list(zip(columns[0].to_pylist(), columns[1].to_pylist(), strict=True))
        trace = world.open(2)
        keys = pa.array(range(0, 20_000, 7))
        hashes = hash_columns([keys])
        order = np.argsort(hashes)
        index, block = trace.matching(hashes[order])
        assert (np.array(keys)[order][index] == np.array(block.columns[0])).all()
        assert int(block.diff.sum()) == sum(key % 7 == 0 for key, _ in everything)
        pairs = [pa.array([key for key in range(0, 20_000, 7) for _ in range(2)]), pa.array([3, 4] * len(keys))]
        pair_hashes, pair_subs = hash_columns(pairs[:1]), sub_hash(pairs, layout)
        order = np.lexsort((pair_subs, pair_hashes))
        index, block = trace.matching_pairs(pair_hashes[order], pair_subs[order])
        for column, pair in zip(block.columns, pairs, strict=True):
            assert (np.array(pair)[order][index] == np.array(column)).all()
        assert int(block.diff.sum()) == sum(key % 7 == 0 and value in (3, 4) for key, value in everything)


@given(seed=st.integers(0, 1 << 32))
@FAST
def test_bounds_agree_with_a_linear_search(seed: int) -> None:
    rng = Random(seed)
    column = np.array(sorted(rng.randrange(12) for _ in range(30)), np.uint64)
    left = np.array([rng.randrange(31) for _ in range(10)], np.int64)
    right = np.array([rng.randrange(start, 31) for start in left], np.int64)
    wanted = np.array([rng.randrange(13) for _ in range(10)], np.uint64)
    for i in range(10):
        run = column[left[i] : right[i]].tolist()
        assert lower_bound(column, left, right, wanted)[i] == left[i] + sum(v < wanted[i] for v in run)
        assert upper_bound(column, left, right, wanted)[i] == left[i] + sum(v <= wanted[i] for v in run)


def test_layers_of_a_trace_are_listed_once(tmp_path: Path) -> None:
    world = World(tmp_path, Layout(3, 1, "none"), Random(4))
    world.step(9, parts=2)
    trace = world.open(0)
    assert sorted(trace.layers) == sorted(list_layers(tmp_path))
    assert len(rows(trace.scan())) == len(world.state(0))
