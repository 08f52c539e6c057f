"""Views kept up to date in this process, without a Spark job: planned by Spark, run as a task runs them.

The dataflow is compiled as a flow's is, and each epoch is one task of it (`task.single_task`) over layers in files.
Between epochs the number of partitions changes and layers are merged. What is left out is Spark and the driver.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.operators.linear_step import is_native
from holdfast.plan.dataflow import build
from holdfast.plan.nodes import Node
from holdfast.task.messages import decode
from holdfast.task.program import compile_program
from holdfast.task.single_task import run_single_task
from holdfast.task.stage import EpochSpec, reports_of
from holdfast.trace.cover import Chain
from holdfast.trace.upkeep import keep_in_shape

Bag = Counter[tuple[Any, ...]]

NAN = math.nan


def hashable(value: Any) -> Any:
    """A value by which rows are counted: any NaN is the one NaN, -0.0 is 0.0, lists and structs are tuples."""
    match value:
        case float():
            return NAN if math.isnan(value) else value + 0.0
        case dict():
            return tuple((name, hashable(each)) for name, each in value.items())
        case list() | tuple():
            return tuple(map(hashable, value))
    return value


@dataclass(frozen=True)
class Rows:
    """What arrives of a source in an epoch."""

    change: Bag

    def read(self, schema: pa.Schema) -> Iterator[pa.Table]:
        rows = [(*row, diff) for row, diff in self.change.items() if diff]
        if rows:
            *columns, diffs = zip(*rows, strict=True)
            arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
            yield pa.table([*arrays, pa.array(diffs, pa.int64())], names=[*schema.names, "_diff"])


class InProcess:
    """Views over sources, epoch by epoch."""

    def __init__(self, views: Mapping[str, Node], directory: Path, dice: random.Random) -> None:
        flow = build(views, {}, is_native)
        assert not any(path.catalyst for path in flow.paths), "all steps run in a task"
        self._logs = {view: flow.views[view] for view in views}
        self._program = compile_program(flow)
        self._directory, self._dice = directory, dice
        self._digests: list[str] = []
        self.rows: dict[str, Bag] = {view: Counter() for view in views}

    def epoch(self, changes: Mapping[str, Bag]) -> None:
        """Rows come and go; ``rows`` has what the views hold then."""
        number = len(self._digests)
        digest, chain = f"{number:016x}", Chain(-1, tuple(self._digests))
        spec = EpochSpec(
            number, number, digest, chain, self._dice.choice([1, 1, 1, 1, 2, 3]), str(self._directory),
            deliver=frozenset(self._logs.values()),
        )  # fmt: skip
        items = [(name, Rows(change)) for name, change in changes.items() if name in self._program.sources]
        reports = reports_of(run_single_task(self._program, spec, items))
        for view, log in self._logs.items():
            for report in reports:
                if log in report.outputs:
                    for *row, diff in zip(*decode(report.outputs[log]).to_pydict().values(), strict=True):
                        self.rows[view][hashable(row)] += diff
            assert all(count >= 0 for count in self.rows[view].values()), f"{view}: a row is there less than never"
            self.rows[view] = +self.rows[view]
        self._digests.append(digest)
        if self._dice.random() < 0.2:
            self._merge(number)

    def _merge(self, last: int) -> None:
        since, chain = self._dice.choice([-1, last - 1, last]), Chain(-1, tuple(self._digests))
        for operator in self._program.operators:
            for suffix, layout in operator.spec.layouts().items():
                directory = self._directory / f"{operator.id}.{suffix}"
                keep_in_shape(directory, layout, 0, 2**64, since, chain, last)
