"""When a trace changed last, also where its epochs were made one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from holdfast.trace.cover import Chain
from holdfast.trace.hashing import hash_columns
from holdfast.trace.layer import layer_metadata, list_layers, write_layer
from holdfast.trace.merge import merge
from holdfast.trace.quiet import CHANGED
from holdfast.trace.rows import Block, Layout, consolidate
from holdfast.trace.trace import Trace

LAYOUT = Layout(1, 1, "none")
ALL = 1 << 64
HALF = 1 << 63


class Log:
    """A trace with one layer per epoch and half."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.last = -1

    @property
    def chain(self) -> Chain:
        return Chain(-1, tuple(f"{epoch:016x}" for epoch in range(self.last + 1)))

    def epoch(self, *rows: tuple[int, int]) -> None:
        self.last += 1
        column = pa.array([row for row, _ in rows], pa.int64())
        diffs = np.array([diff for _, diff in rows], dtype=np.int64)
        epochs = np.full(len(rows), self.last, dtype=np.int64)
        block = consolidate(Block(hash_columns([column]), None, (column,), epochs, {"+diff": diffs}), LAYOUT)
        for low, high in ((0, HALF), (HALF, ALL)):
            within = block.filter((block.hash >= np.uint64(low)) & (block.hash <= np.uint64(high - 1)))
            write_layer(
                self.directory, within, LAYOUT, low=low, high=high, first=self.last, last=self.last,
                digest=f"{self.last:016x}", since=-1,
            )  # fmt: skip

    def compact(self, low: int, high: int, upto: int) -> None:
        names = [
            name for name in list_layers(self.directory) if (name.low, name.high) == (low, high) and name.last <= upto
        ]
        merge(self.directory, LAYOUT, names, low, high, upto, self.chain)
        for name in names:
            (self.directory / name.text()).unlink()

    def trace(self) -> Trace:
        return Trace.open(self.directory, LAYOUT, 0, ALL, self.last, self.chain)


def halves() -> tuple[int, int]:
    """A row of each half."""
    hashes = hash_columns([pa.array(range(100), pa.int64())])
    return int(np.flatnonzero(hashes < np.uint64(HALF))[0]), int(np.flatnonzero(hashes >= np.uint64(HALF))[0])


@pytest.fixture
def log(tmp_path: Path) -> Log:
    log = Log(tmp_path)
    left, right = halves()
    log.epoch((left, 1), (right, 1))
    log.epoch((left, 1))
    log.epoch((left, -1))  # leaves nothing behind once both are one
    for _ in range(5):
        log.epoch()
    return log


def test_a_compacted_trace_knows_when_it_changed_last(log: Log) -> None:
    log.compact(0, HALF, 6)
    log.compact(HALF, ALL, 6)
    trace = log.trace()
    assert trace.folded_after(2) == 6 and trace.is_quiet(2, 6)
    assert trace.folded_after(1) is None, "a row came and went since"
    assert trace.folded_after(6) == 6


def test_it_is_remembered_through_further_compactions(log: Log) -> None:
    for upto in (3, 5, 7):
        log.compact(0, HALF, upto)
        log.compact(HALF, ALL, upto)
    assert log.trace().folded_after(2) == 7
    assert log.trace().folded_after(1) is None
    said = {layer_metadata(log.directory / name.text())[CHANGED] for name in list_layers(log.directory)}
    assert said == {"2", "0"}


def test_a_change_that_compaction_has_not_reached_is_not_passed_over(log: Log) -> None:
    _, right = halves()
    log.epoch((right, 1))  # epoch 8
    log.epoch()
    log.compact(0, HALF, 9)
    log.compact(HALF, ALL, 5)
    trace = log.trace()
    assert trace.folded_after(4) == 9
    assert not trace.is_quiet(4, 9), "the other half changed at epoch 8"
