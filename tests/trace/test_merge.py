"""Merges: the shape they keep, and that what they write does not depend on how it came about."""

from __future__ import annotations

import math
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import LogDamaged
from holdfast.trace import merge as merge_module
from holdfast.trace.cover import Chain, cover, covered, garbage
from holdfast.trace.hashing import weak_bits
from holdfast.trace.layer import list_layers, open_layer
from holdfast.trace.merge import merge, outline, plan_merge
from holdfast.trace.name import ALL, LayerName
from holdfast.trace.rows import Layout
from holdfast.trace.upkeep import keep_in_shape

from .test_cover import CHAIN, DIGESTS, EPOCHS, LAYERS
from .test_trace import FAST
from .world import World, ranges, totals


class Names:
    """A trace of names and sizes only: what planning sees."""

    def __init__(self) -> None:
        self.rows: dict[LayerName, int] = {}
        self.written = 0
        self.epoch = -1

    @property
    def chain(self) -> Chain:
        return Chain(self.epoch, ())

    def add(self, low: int, high: int, first: int, last: int, rows: int) -> None:
        self.rows[LayerName(low, high, first, last, "0" * 16, -1, f"{len(self.rows) + self.written:016x}")] = rows
        self.written += rows

    def step(self, size: int, parts: int) -> None:
        self.epoch += 1
        for low, high in ranges(parts):
            self.add(low, high, self.epoch, self.epoch, size // parts)

    def maintain(self, parts: int) -> int:
        most = 0
        for low, high in ranges(parts):
            while (names := plan_merge(self.rows.items(), low, high, self.chain)) is not None:
                share = sum(self.rows[n] * (min(high, n.high) - max(low, n.low)) / (n.high - n.low) for n in names)
                self.add(low, high, min(n.first for n in names), max(n.last for n in names), int(share))
                most = max(most, len(names))
            for name in garbage(self.rows, self.chain, self.epoch):
                del self.rows[name]
        return most


@given(seed=st.integers(0, 1 << 32), shape=st.sampled_from(["even", "growing", "falling", "wild", "quiet"]))
@settings(max_examples=25, deadline=None)
def test_the_number_of_layers_stays_logarithmic_whatever_the_epochs_sizes(seed: int, shape: str) -> None:
    rng = Random(seed)
    names = Names()
    total = 0
    for epoch in range(60):
        size = {
            "even": 1000,
            "growing": 10 * 2 ** (epoch // 5),
            "falling": 1_000_000 // (epoch + 1) ** 3,
            "wild": int(10 ** rng.uniform(0, 6)),
            "quiet": 5000 if epoch % 20 == 0 else 0,
        }[shape]
        total += size
        names.step(size, 1)
        names.maintain(1)
        pieces = cover(names.rows, 0, ALL, names.epoch, names.chain)
        assert len(pieces) <= math.log2(total + 2) + 2
        assert len(names.rows) == len(pieces)


def test_even_epochs_write_each_row_a_logarithmic_number_of_times() -> None:
    names = Names()
    for _ in range(256):
        names.step(1000, 1)
        names.maintain(1)
    assert names.written <= 256 * 1000 * (math.log2(256) + 2)


def test_quiet_epochs_cost_nothing_and_leave_one_layer() -> None:
    names = Names()
    names.step(1_000_000, 1)
    for _ in range(100):
        names.step(0, 1)
        names.maintain(1)
    assert len(names.rows) <= 2 and names.written == 1_000_000


@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=25, deadline=None)
def test_shape_is_reached_and_kept_when_the_number_of_partitions_changes(seed: int) -> None:
    rng = Random(seed)
    names = Names()
    for _ in range(4):
        parts = rng.choice((1, 2, 4, 8))
        for _ in range(rng.randrange(1, 10)):
            names.step(rng.choice((0, 10, 1000, 50_000)), parts)
            names.maintain(parts)
            for low, high in ranges(parts):
                pieces = cover(names.rows, low, high, names.epoch, names.chain)
                assert len(pieces) <= 4 * (math.log2(names.written + 2) + 2)


@given(names=LAYERS, since=st.integers(-1, EPOCHS))
@settings(max_examples=80, deadline=None)
def test_merging_ends_in_shape_whatever_is_there(names: list[LayerName], since: int) -> None:
    """Overlapping, collapsed, partial layers too: each merge is read afterwards, so none is made for ever."""
    rows = dict.fromkeys(names, 10)
    latest = covered(names, 0, ALL, CHAIN)
    for _ in range(30):
        chosen = plan_merge(rows.items(), 0, ALL, CHAIN)
        if chosen is None:
            break
        after, upto, floor = outline(chosen, 0, ALL, since, CHAIN, among=list(rows))
        merged = LayerName(0, ALL, after + 1, upto, DIGESTS[upto], floor, "merged".rjust(16, "0"))
        assert merged not in rows
        rows[merged] = sum(rows[name] for name in chosen)
        assert covered(rows, 0, ALL, CHAIN) == latest
        assert merged in {piece.name for piece in cover(rows, 0, ALL, latest, CHAIN)}
    else:
        raise AssertionError("merging does not end")


def test_a_trace_in_shape_is_left_alone() -> None:
    names = Names()
    assert plan_merge([], 0, ALL, Chain(-1, ())) is None
    for size in (8000, 1000, 100):
        names.step(size, 1)
    assert plan_merge(names.rows.items(), 0, ALL, names.chain) is None


@pytest.mark.parametrize("parts", [1, 2])
@given(seed=st.integers(0, 1 << 32))
@FAST
def test_a_log_that_is_merged_in_parts_holds_what_it_held_and_comes_to_rest(
    tmp_path: Path, parts: int, seed: int
) -> None:
    rng = Random(seed)
    world = World(tmp_path / f"{rng.random()}", Layout(3, 1), rng)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(merge_module, "LARGE", 10)
        since = -1
        for number in range(24):
            world.step(rng.choice((0, 1, 6)), parts=parts)
            if number % 4 != 3:
                continue
            since = rng.randrange(since, world.last + 1)
            for low, high in ranges(parts):
                keep_in_shape(world.directory, world.layout, low, high, since, world.chain, since, log=True)
                assert plan_merge(world.sized(), low, high, world.chain) is None
            for epoch in range(max(since, 0), world.last + 1):
                assert totals(world.open(epoch).scan()) == world.state(epoch)
            changed = world.open(world.last).changes(since, world.last)
            assert totals(changed) == world.state(world.last, after=since)
    assert len(list_layers(world.directory)) <= 40


@pytest.mark.parametrize("weak", [2, 64])
@pytest.mark.parametrize("sub", ["none", "hash", "order"])
@given(seed=st.integers(0, 1 << 32))
@FAST
def test_a_merge_writes_the_same_bytes_whatever_was_merged_before(
    tmp_path: Path, sub: Any, weak: int, seed: int
) -> None:
    rng = Random(seed)
    with weak_bits(weak):
        world = World(tmp_path / f"{rng.random()}", Layout(3, 1, sub), rng)
        for _ in range(rng.randrange(2, 7)):
            world.step(rng.choice((0, 3, 15)), parts=rng.choice((1, 2)))
        since = rng.randrange(-1, world.last + 1)
        raw = list_layers(world.directory)
        once = merge(world.directory, world.layout, raw, 0, ALL, since, world.chain, {})
        cut = rng.randrange(world.last)
        early = [name for name in raw if name.last <= cut]
        late = [name for name in raw if name.first > cut]
        halves = [
            merge(world.directory, world.layout, part, 0, ALL, rng.choice((-1, since)), world.chain, {})
            for part in (early, late)
        ]
        assert merge(world.directory, world.layout, halves, 0, ALL, since, world.chain, {}) == once
        assert merge(world.directory, world.layout, [once], 0, ALL, since, world.chain, {}) == once
        assert totals(open_layer(world.directory / once.text()).block()) == world.state(world.last)
        assert (once.first, once.last, once.digest) == (0, world.last, world.digests[-1])
        # The same layer compacted later is the same as one compacted at once.
        further = merge(world.directory, world.layout, raw, 0, ALL, world.last, world.chain, {})
        assert merge(world.directory, world.layout, [once], 0, ALL, world.last, world.chain, {}) == further


def test_a_merge_takes_its_partition_out_of_wider_layers(tmp_path: Path) -> None:
    world = World(tmp_path, Layout(3, 1, "hash"), Random(5))
    for _ in range(3):
        world.step(10)
    names = [
        merge(tmp_path, world.layout, list_layers(tmp_path)[:], low, high, -1, world.chain, {})
        for low, high in ranges(4)
    ]
    for name in garbage(list_layers(tmp_path), world.chain, 0):
        (tmp_path / name.text()).unlink()
    assert sorted(list_layers(tmp_path)) == sorted(names)
    for as_of in range(3):
        assert totals(world.open(as_of).scan()) == world.state(as_of)


def test_compaction_drops_what_cancelled_and_says_so(tmp_path: Path) -> None:
    world = World(tmp_path, Layout(3, 1, "hash"), Random(6))
    row = ("key 0", 1, "x")
    for diff in (1, -1, 1, -1):
        world.digests.append(f"{len(world.epochs):016x}")
        world.epochs.append({row: diff})
        world.write(world.block({row: diff}, world.last), 0, ALL, world.last)
    kept = merge(tmp_path, world.layout, list_layers(tmp_path), 0, ALL, -1, world.chain, {})
    assert kept.since == -1 and open_layer(tmp_path / kept.text()).rows == 4
    part = merge(tmp_path, world.layout, [kept], 0, ALL, 2, world.chain, {})
    assert part.since == 2 and open_layer(tmp_path / part.text()).rows == 2
    gone = merge(tmp_path, world.layout, [part], 0, ALL, 50, world.chain, {})
    assert gone.since == 3 and open_layer(tmp_path / gone.text()).rows == 0


def test_a_merge_never_claims_to_tell_apart_what_its_inputs_cannot(tmp_path: Path) -> None:
    world = World(tmp_path, Layout(3, 1, "hash"), Random(6))
    for _ in range(4):
        world.step(5)
    raw = sorted(list_layers(tmp_path), key=lambda name: name.first)
    early = merge(tmp_path, world.layout, raw[:3], 0, ALL, 2, world.chain, {})
    both = merge(tmp_path, world.layout, [early, raw[3]], 0, ALL, -1, world.chain, {})
    assert both.since == 2


def test_layers_with_a_gap_between_them_are_not_merged_across_it(tmp_path: Path) -> None:
    world = World(tmp_path, Layout(3, 1, "hash"), Random(6))
    for _ in range(4):
        world.step(5)
    raw = sorted(list_layers(tmp_path), key=lambda name: name.first)
    name = merge(tmp_path, world.layout, [raw[0], raw[2], raw[3]], 0, ALL, -1, world.chain, {})
    assert (name.first, name.last) == (2, 3)
    with pytest.raises(LogDamaged):
        merge(tmp_path, world.layout, [], 0, ALL, -1, world.chain, {})


@pytest.mark.parametrize("weak", [2, 64])
@given(seed=st.integers(0, 1 << 32))
@FAST
def test_maintenance_never_changes_what_is_read(tmp_path: Path, weak: int, seed: int) -> None:
    rng = Random(seed)
    with weak_bits(weak):
        world = World(tmp_path / f"{rng.random()}", Layout(3, 1, "hash"), rng)
        for _ in range(12):
            parts = rng.choice((1, 1, 2, 3))
            world.step(rng.choice((0, 0, 5, 30)), parts)
            if rng.random() < 0.5:
                world.maintain(parts, since=max(world.since, world.last - 3))
            assert covered(list_layers(world.directory), 0, ALL, world.chain) == world.last
        for as_of in range(max(0, world.since), world.last + 1):
            assert totals(world.open(as_of).scan()) == world.state(as_of)


def test_a_trace_that_is_never_read_holds_no_layers_that_are_gone(tmp_path: Path) -> None:
    world = World(tmp_path, Layout(3, 1, "hash"), Random(7))
    for _ in range(40):
        world.step(20)
        keep_in_shape(tmp_path, world.layout, 0, ALL, world.last, world.chain, world.last)
        # A mapping keeps the space of a file that was removed.
        mapped = [line for line in Path("/proc/self/maps").read_text().splitlines() if str(tmp_path) in line]
        assert mapped and not [line for line in mapped if "(deleted)" in line]
