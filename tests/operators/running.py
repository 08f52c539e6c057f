"""A flow of one operator, without Spark: splits what arrives, partitions it, merges its traces, all at random.

`Runner.epoch` takes a change per port as (row, diff) pairs and gives the output change as a bag. Between epochs the
number of partitions changes and layers are merged, so a result that depends on either shows as a wrong bag.
"""

from __future__ import annotations

import math
import random
import struct
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.operators.step import Context, KeyedOperator
from holdfast.trace.cover import Chain
from holdfast.trace.layer import write_layer
from holdfast.trace.merge import merge
from holdfast.trace.name import LayerName
from holdfast.trace.rows import Block
from holdfast.trace.trace import Trace
from holdfast.trace.upkeep import keep_in_shape

Rows = Sequence[tuple[tuple[Any, ...], int]]
END = 2**64


def exact(value: Any) -> Any:
    """A value in a form in which equal is identical: floats by their bits."""
    if isinstance(value, float):
        return ("float", struct.pack(">d", value))
    if isinstance(value, Decimal):
        return ("decimal", str(value))
    if isinstance(value, dict):
        return tuple((key, exact(item)) for key, item in sorted(value.items()))
    if isinstance(value, list):
        return ("list", *map(exact, value))
    return value


def compare(a: Any, b: Any) -> int:
    """Spark's order, ascending, NULL least."""
    if a is None or b is None:
        return (a is not None) - (b is not None)
    if isinstance(a, dict):
        a, b = ([x[key] for key in sorted(x)] for x in (a, b))
    if isinstance(a, list):
        found = next((c for c in map(compare, a, b) if c), 0)
        return found or (len(a) > len(b)) - (len(a) < len(b))
    if isinstance(a, str):
        a, b = a.encode(), b.encode()
    if isinstance(a, float):
        a, b = ((math.isnan(x), 0.0 if math.isnan(x) else x) for x in (a, b))
    return (a > b) - (a < b)


def bag(rows: Rows) -> Counter[Any]:
    """A bag of rows, without those that cancel."""
    found: Counter[Any] = Counter()
    for row, diff in rows:
        found[tuple(map(exact, row))] += diff
    return Counter({row: diff for row, diff in found.items() if diff})


def added(one: Counter[Any], other: Counter[Any], sign: int = 1) -> Counter[Any]:
    total = Counter(one)
    for row, diff in other.items():
        total[row] += sign * diff
    return Counter({row: diff for row, diff in total.items() if diff})


def table(rows: Rows, types: Sequence[pa.DataType]) -> pa.Table:
    columns = [pa.array([row[place] for row, _ in rows], kind) for place, kind in enumerate(types)]
    names = [f"c{place}" for place in range(len(types))]
    return pa.table([*columns, pa.array([diff for _, diff in rows], pa.int64())], names=[*names, "_diff"])


def rows_of(change: pa.Table) -> list[tuple[tuple[Any, ...], int]]:
    columns = [column.to_pylist() for column in change.columns]
    return [(row[:-1], row[-1]) for row in zip(*columns, strict=True)]


class Runner:
    """One operator over epochs."""

    def __init__(
        self,
        spec: KeyedOperator,
        types: Sequence[Sequence[pa.DataType]],
        directory: Path,
        dice: random.Random,
        *,
        slot: int = 1,
    ) -> None:
        self.spec, self.types, self.directory, self.dice, self.slot = spec, types, directory, dice, slot
        self.digests: list[str] = []
        self.clock = 0
        """The clock of the next epoch."""
        self._before = -(2**63)

    @property
    def chain(self) -> Chain:
        return Chain(-1, tuple(self.digests))

    def epoch(self, *changes: Rows) -> Counter[Any]:
        number = len(self.digests)
        digest = f"{number:016x}"
        arrived = [self.prepared(port, rows) for port, rows in enumerate(changes)]
        output: list[tuple[tuple[Any, ...], int]] = []
        for low, high in self.partitions():
            mine = [_between(part, low, high) for part in arrived]
            layouts = self.spec.layouts()
            traces = {
                suffix: Trace.open(self.directory / suffix, layout, low, high, number - 1, self.chain)
                for suffix, layout in layouts.items()
            }
            context = Context(number, low, high, number == 0, self.clock, before=self._before)
            step = self.spec.step(mine, traces, context)
            for suffix, layout in layouts.items():
                write_layer(
                    self.directory / suffix, step.layers.get(suffix, Block.empty(layout)), layout,
                    low=low, high=high, first=number, last=number, digest=digest,
                )  # fmt: skip
            found = rows_of(step.output)
            assert len(bag(found)) == len(found), "the output holds a row twice, or a row that cancels"
            output += found
        self.digests.append(digest)
        self._before = self.clock
        self.merge_some()
        return bag(output)

    def prepared(self, port: int, rows: Rows) -> pa.Table:
        """The change as many tasks would send it: in pieces, in any order."""
        rows = list(rows)
        self.dice.shuffle(rows)
        pieces = [rows[start::3] for start in range(3)] if self.dice.random() < 0.5 else [rows]
        tables = [self.spec.prepare(port, table(piece, self.types[port])) for piece in pieces]
        self.dice.shuffle(tables)
        whole = pa.concat_tables(tables)
        assert whole.column_names[0] == "_hash"
        return whole

    def partitions(self) -> list[tuple[int, int]]:
        """Ranges of hashes, cut anywhere that is a multiple of the slot."""
        slots = END // self.slot
        cuts = sorted({self.dice.randrange(1, slots) * self.slot for _ in range(self.dice.randrange(3))})
        return list(zip([0, *cuts], [*cuts, END], strict=True))

    def merge_some(self) -> None:
        for suffix, layout in self.spec.layouts().items():
            directory, last = self.directory / suffix, len(self.digests) - 1
            since = self.dice.choice([-1, last - 1, last])
            match self.dice.randrange(3):
                case 0:
                    keep_in_shape(directory, layout, 0, END, since, self.chain, last)
                case 1:
                    merge(directory, layout, layers_in(directory), 0, END, since, self.chain)

    def state(self, suffix: str) -> Counter[Any]:
        """The rows of a trace now, in the trace's order of columns."""
        last = len(self.digests) - 1
        layout = self.spec.layouts()[suffix]
        block = Trace.open(self.directory / suffix, layout, 0, END, last, self.chain).scan()
        columns = [column.to_pylist() for column in block.columns]
        return bag(list(zip(zip(*columns, strict=True), block.diff.tolist(), strict=True)))


def layers_in(directory: Path) -> list[LayerName]:
    return [name for path in directory.iterdir() if (name := LayerName.parse(path.name)) is not None]


def _between(part: pa.Table, low: int, high: int) -> pa.Table:
    hashes = part.column("_hash").to_numpy()
    inside = hashes >= np.uint64(low)
    if high < END:
        inside &= hashes < np.uint64(high)
    return part.filter(pa.array(inside))
