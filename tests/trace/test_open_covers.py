"""Traces that stay open between look-ups: whatever is merged meanwhile, a cover is the trace as of its epoch."""

from __future__ import annotations

import os
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from holdfast.errors import LogDamaged
from holdfast.trace import open_covers
from holdfast.trace.cover import Chain
from holdfast.trace.hashing import hash_columns
from holdfast.trace.layer import list_layers, write_layer
from holdfast.trace.merge import merge
from holdfast.trace.name import ALL
from holdfast.trace.open_covers import OpenCovers
from holdfast.trace.rows import Block, Layout, constant_epoch, sub_hash
from holdfast.trace.trace import Trace

LAYOUT = Layout(2, 1, "hash")


def _digest(epoch: int) -> str:
    return f"{epoch:016x}"


def _chain(last: int) -> Chain:
    return Chain(-1, tuple(map(_digest, range(last + 1))))


def _write(directory: Path, epoch: int, keys: list[int]) -> None:
    columns = (pa.array(keys, pa.int64()), pa.array([epoch] * len(keys), pa.int64()))
    ones = np.ones(len(keys), np.int64)
    block = Block(
        hash_columns(columns[:1]), sub_hash(columns, LAYOUT), columns, constant_epoch(epoch, len(keys)), {"+diff": ones}
    )
    write_layer(directory, block, LAYOUT, low=0, high=ALL, first=epoch, last=epoch, digest=_digest(epoch))


def _rows(trace: Trace) -> list[tuple[int, int]]:
    block = trace.scan()
    return sorted(zip(block.columns[0].to_pylist(), block.columns[1].to_pylist(), strict=True))


def test_a_cover_that_is_kept_is_the_trace_of_its_epoch_whatever_is_merged_meanwhile(tmp_path: Path) -> None:
    chance = random.Random(7)
    covers, expected = OpenCovers(), []
    for epoch in range(60):
        keys = chance.sample(range(1000), 5)
        _write(tmp_path, epoch, keys)
        expected.append(sorted([*(expected[-1] if expected else []), *((key, epoch) for key in keys)]))
        if epoch % 7 == 6:
            chain = _chain(epoch)
            before = [name for name in list_layers(tmp_path) if name.last <= epoch]
            made = merge(tmp_path, LAYOUT, before, 0, ALL, -1, chain)
            for name in before:
                if name != made:
                    os.unlink(tmp_path / name.text())
        if chance.random() < 0.7:
            assert _rows(covers.trace(tmp_path, LAYOUT, epoch, _chain(epoch))) == expected[epoch]
        asked = chance.randrange(max(0, epoch - 6), epoch + 1)
        assert _rows(covers.trace(tmp_path, LAYOUT, asked, _chain(epoch))) == expected[asked]


def test_a_cover_that_is_kept_needs_no_listing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    covers = OpenCovers()
    _write(tmp_path, 0, [1, 2])
    first = covers.trace(tmp_path, LAYOUT, 0, _chain(0))
    _write(tmp_path, 1, [3])
    for path in tmp_path.iterdir():
        path.rename(path.with_name("gone-" + path.name))
    assert covers.trace(tmp_path, LAYOUT, 0, _chain(1)) is first, "nothing is listed, and what is mapped can be read"
    assert _rows(first) == [(1, 0), (2, 0)]


def test_pieces_are_appended_until_they_are_many(tmp_path: Path) -> None:
    covers = OpenCovers()
    opened: list[int] = []
    for epoch in range(3 * open_covers._APPENDED):
        _write(tmp_path, epoch, [epoch])
        trace = covers.trace(tmp_path, LAYOUT, epoch, _chain(epoch))
        opened.append(len(trace.slices))
        if epoch == 20:
            made = merge(tmp_path, LAYOUT, list_layers(tmp_path), 0, ALL, -1, _chain(epoch))
            for name in list_layers(tmp_path):
                if name != made:
                    os.unlink(tmp_path / name.text())
    assert max(opened) <= 2 * open_covers._APPENDED + 2
    assert min(opened[30:]) < 20, "it was opened anew over what was merged"


def test_a_cover_of_another_history_is_not_used(tmp_path: Path) -> None:
    covers = OpenCovers()
    _write(tmp_path, 0, [1])
    assert _rows(covers.trace(tmp_path, LAYOUT, 0, _chain(0))) == [(1, 0)]
    with pytest.raises(LogDamaged):
        covers.trace(tmp_path, LAYOUT, 0, Chain(-1, ("f" * 16,)))


def test_covers_that_nobody_asks_for_are_let_go(tmp_path: Path) -> None:
    covers = OpenCovers()
    _write(tmp_path, 0, [1])
    first = covers.trace(tmp_path, LAYOUT, 0, _chain(0))
    covers.let_go(60.0)
    assert covers.trace(tmp_path, LAYOUT, 0, _chain(0)) is first
    covers.let_go(0.0)
    assert covers.trace(tmp_path, LAYOUT, 0, _chain(0)) is not first
