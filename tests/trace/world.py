"""A trace on disk beside its model: a dictionary of what every epoch added.

``World`` writes epochs (in any number of partitions, sometimes nothing), merges and removes garbage at random, as
maintenance would, and answers every question by brute force.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.trace.cover import Chain, garbage
from holdfast.trace.hashing import hash_columns, order_prefix
from holdfast.trace.layer import list_layers, open_layer, write_layer
from holdfast.trace.merge import merge, plan_merge
from holdfast.trace.name import ALL, LayerName
from holdfast.trace.rows import Block, Layout, constant_epoch, sub_hash
from holdfast.trace.trace import Trace

Row = tuple[Any, ...]


class World:
    """Rows (key, number, text): the key has few values, so hashes repeat; the number is the order."""

    kinds = (pa.string(), pa.int64(), pa.string())

    def __init__(self, directory: Path, layout: Layout, rng: Random, keys: int = 6, numbers: int = 8) -> None:
        self.directory, self.layout, self.rng = directory, layout, rng
        self.keys, self.numbers = keys, numbers
        self.digests: list[str] = []
        self.epochs: list[dict[Row, int]] = []
        self.since = -1
        self.hashes: dict[Row, int] = {}

    @property
    def chain(self) -> Chain:
        return Chain(-1, tuple(self.digests))

    @property
    def last(self) -> int:
        return len(self.epochs) - 1

    def row(self) -> Row:
        rng = self.rng
        key = rng.choice([None, *(f"key {i}" for i in range(self.keys))])
        return (key, rng.choice([None, *range(self.numbers)]), rng.choice(("x", "y", None)))

    def block(self, change: dict[Row, int], epoch: int) -> Block:
        columns = tuple(pa.array([row[i] for row in change], kind) for i, kind in enumerate(self.kinds))
        sub = None
        if self.layout.sub == "hash":
            sub = sub_hash(columns, self.layout)
        elif self.layout.sub == "order":
            sub = order_prefix(columns[1], descending=False, nulls_first=True)
        hashes = hash_columns(columns[: self.layout.key], rows=len(change))
        diffs = np.array(list(change.values()), np.int64)
        return Block(hashes, sub, columns, constant_epoch(epoch, len(change)), {"+diff": diffs})

    def step(self, size: int, parts: int = 1) -> None:
        """One epoch: rows are added, and some of what is there is taken away."""
        epoch = len(self.epochs)
        change: dict[Row, int] = defaultdict(int)
        state = self.state(epoch - 1)
        for row in self.rng.sample(sorted(state, key=repr), min(len(state), size // 2)):
            change[row] -= state[row]
        for _ in range(size):
            change[self.row()] += self.rng.choice((1, 1, 2))
        change = {row: diff for row, diff in change.items() if diff}
        self.digests.append(f"{self.rng.getrandbits(64):016x}")
        self.epochs.append(change)
        block = self.block(change, epoch)
        for low, high in ranges(parts):
            inside = (block.hash >= np.uint64(low)) & (block.hash <= np.uint64(high - 1))
            part = block.take(np.flatnonzero(inside))
            self.write(part, low, high, epoch)

    def write(self, block: Block, low: int, high: int, epoch: int) -> LayerName:
        return write_layer(
            self.directory,
            block,
            self.layout,
            low=low,
            high=high,
            first=epoch,
            last=epoch,
            digest=self.digests[epoch],
            since=-1,
            metadata={},
        )

    def sized(self) -> list[tuple[LayerName, int]]:
        return [(name, open_layer(self.directory / name.text()).rows) for name in list_layers(self.directory)]

    def maintain(self, parts: int = 1, since: int | None = None, live_after: int | None = None) -> int:
        """Merge all partitions into shape, then remove garbage. The number of merges."""
        self.since = max(self.since, -1 if since is None else since)
        merges = 0
        for low, high in ranges(parts):
            while (names := plan_merge(self.sized(), low, high, self.chain)) is not None:
                merge(self.directory, self.layout, names, low, high, self.since, self.chain, {})
                merges += 1
                assert merges < 1000
        for name in garbage(list_layers(self.directory), self.chain, self.since if live_after is None else live_after):
            (self.directory / name.text()).unlink()
        return merges

    def open(self, as_of: int, low: int = 0, high: int = ALL) -> Trace:
        return Trace.open(self.directory, self.layout, low, high, as_of, self.chain)

    def state(self, as_of: int, after: int = -1) -> dict[Row, int]:
        total: dict[Row, int] = defaultdict(int)
        for change in self.epochs[after + 1 : as_of + 1]:
            for row, diff in change.items():
                total[row] += diff
        return {row: diff for row, diff in total.items() if diff}

    def hash_of(self, row: Row) -> int:
        key = row[: self.layout.key]
        if key not in self.hashes:
            columns = [pa.array([row[i]], self.kinds[i]) for i in range(self.layout.key)]
            self.hashes[key] = int(hash_columns(columns, rows=1)[0])
        return self.hashes[key]


def ranges(parts: int) -> list[tuple[int, int]]:
    return [(ALL * i // parts, ALL * (i + 1) // parts) for i in range(parts)]


def totals(block: Block) -> dict[Row, int]:
    """The rows of a block, summed over epochs."""
    found: dict[Row, int] = defaultdict(int)
    for row, diff in zip(rows(block), block.diff.tolist(), strict=True):
        found[row] += diff
    return {row: diff for row, diff in found.items() if diff}


def rows(block: Block) -> list[Row]:
    return list(zip(*(column.to_pylist() for column in block.columns), strict=True))
