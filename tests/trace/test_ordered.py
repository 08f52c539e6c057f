"""The first and last rows of a key, against sorting everything."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.trace import ordered
from holdfast.trace.hashing import weak_bits
from holdfast.trace.rows import Block, Layout
from holdfast.trace.trace import Trace

from .test_trace import FAST
from .world import World, rows


def expected(state: dict[Any, int], count: int, last: bool) -> dict[Any, int]:
    """Rows up to the one that fills the count, and all that tie with it."""
    found: dict[Any, int] = {}
    total = 0
    numbers = sorted({prefix(row) for row, diff in state.items() if diff > 0}, reverse=last)
    for number in numbers:
        if total >= count:
            break
        tied = {row: diff for row, diff in state.items() if diff > 0 and prefix(row) == number}
        found.update(tied)
        total += sum(tied.values())
    return found


def prefix(row: Any) -> int:
    return -1 if row[1] is None else int(row[1])


def check_first(world: World, trace: Trace, as_of: int, rng: Random, exact: bool) -> None:
    state = world.state(as_of)
    by_hash: dict[int, dict[Any, int]] = {}
    for row, diff in state.items():
        by_hash.setdefault(world.hash_of(row), {})[row] = diff
    hashes = np.array(sorted({*rng.sample(sorted(by_hash), (len(by_hash) + 1) // 2), rng.getrandbits(64)}), np.uint64)
    for count in (1, rng.randrange(1, 30)):
        for last in (False, True):
            index, block = trace.first(hashes, count, last=last)
            assert (hashes[index] == block.hash).all()
            assert (np.diff(index) >= 0).all()
            assert block.sub is not None
            assert len(set(rows(block))) == block.rows
            found: dict[int, dict[Any, int]] = {}
            for i, row, diff in zip(index.tolist(), rows(block), block.diff.tolist(), strict=True):
                found.setdefault(int(hashes[i]), {})[row] = diff
            for h in hashes.tolist():
                here, got = by_hash.get(h, {}), found.get(h, {})
                assert all(here.get(row) == diff and diff > 0 for row, diff in got.items())
                # Keys that share a hash are each served; where none do, nothing more is read than was asked.
                for key in {row[: world.layout.key] for row in here}:
                    mine = {row: diff for row, diff in here.items() if row[: world.layout.key] == key}
                    assert expected(mine, count, last).items() <= got.items()
                if exact:
                    assert got == expected(here, count, last)


@pytest.mark.parametrize("weak", [2, 64])
@pytest.mark.parametrize("key", [0, 1])
@given(seed=st.integers(0, 1 << 32))
@FAST
def test_first_rows_are_the_first_of_everything(tmp_path: Path, key: int, weak: int, seed: int) -> None:
    rng = Random(seed)
    with weak_bits(weak):
        world = World(tmp_path / f"{rng.random()}", Layout(3, key, "order"), rng, keys=3, numbers=rng.choice((2, 300)))
        for _ in range(rng.randrange(1, 7)):
            world.step(rng.choice((0, 3, 40)), parts=rng.choice((1, 2)))
            if rng.random() < 0.4:
                world.maintain(since=rng.randrange(-1, world.last + 1))
        for as_of in range(max(0, world.since), world.last + 1):
            check_first(world, world.open(as_of), as_of, rng, exact=key == 0 or weak == 64)


def big_group(directory: Path, size: int, deleted: int) -> World:
    """One group of ``size`` rows in order, the first ``deleted`` of which are taken away in a second epoch."""
    world = World(directory, Layout(3, 0, "order"), Random(0))
    for epoch, (start, diff) in enumerate(((0, 1), (0, -1))):
        stop = size if epoch == 0 else deleted
        world.digests.append("0" * 16)
        world.epochs.append({})
        world.write(world.block({("k", n, "x"): diff for n in range(start, stop)}, epoch), 0, 1 << 64, epoch)
    return world


def test_cost_follows_the_count_and_what_was_deleted_not_the_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = big_group(tmp_path, 50_000, deleted=200)
    read = 0
    original = ordered._read

    def counted(*arguments: Any) -> Block:
        nonlocal read
        block = original(*arguments)
        read += block.rows
        return block

    monkeypatch.setattr(ordered, "_read", counted)
    none = np.array([0], np.uint64)
    _, block = world.open(1).first(none, 10)
    assert block.columns[1].to_pylist() == list(range(200, 210))
    assert read < 4000
    read = 0
    _, block = world.open(1).first(none, 10, last=True)
    assert block.columns[1].to_pylist() == list(range(49_990, 50_000))
    assert read < 100
    read = 0
    _, block = world.open(0).first(none, 1)
    assert block.columns[1].to_pylist() == [0] and read < 50


def test_rows_that_tie_at_the_border_are_all_there(tmp_path: Path) -> None:
    world = World(tmp_path, Layout(3, 1, "order"), Random(0))
    world.digests.append("0" * 16)
    world.epochs.append({("k", n // 40, str(n)): 1 for n in range(200)})
    world.write(world.block(world.epochs[0], 0), 0, 1 << 64, 0)
    hashes = np.array([world.hash_of(("k", 0, ""))], np.uint64)
    for last in (False, True):
        _, block = world.open(0).first(hashes, 41, last=last)
        assert set(block.columns[1].to_pylist()) == ({3, 4} if last else {0, 1}) and block.rows == 80


def test_first_needs_a_trace_in_order(tmp_path: Path) -> None:
    world = World(tmp_path, Layout(3, 1, "hash"), Random(0))
    world.step(3)
    with pytest.raises(ValueError, match="in order"):
        world.open(0).first(np.array([0], np.uint64), 1)


def test_a_layer_says_whether_keys_share_a_hash(tmp_path: Path) -> None:
    with weak_bits(0):
        world = World(tmp_path, Layout(3, 1, "order"), Random(0))
        world.step(20)
        assert world.open(0).slices[0].layer.collided
    with weak_bits(64):
        world = World(tmp_path / "strong", Layout(3, 1, "order"), Random(0))
        world.step(20)
        assert not world.open(0).slices[0].layer.collided
