"""The log of a collection: the rows of a view, or of a source whose rows are kept, arranged by a key.

Trace ``rows``: every row with its diff, key first. The output is the consolidated change, so that readers of a log
(sinks, other views) see no row twice and no row that cancelled out.

With ``check``, a row whose multiplicity would become negative is an error. Only rows with a negative diff in the change
can become negative, so only these are looked up, by hash and sub. Cost: one sort of the change; with ``check`` also
O(rows removed · log state).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from holdfast.errors import NegativeMultiplicity
from holdfast.operators.arrangement import Arrangement, change_table
from holdfast.operators.step import Context, KeyedOperator, StepResult
from holdfast.trace.rows import Block, Layout, consolidate
from holdfast.trace.trace import Trace

_SHOWN = 3


@dataclass(frozen=True)
class LogSpec(KeyedOperator):
    """Rows of ``types``, arranged by the columns at ``key``. ``name`` is the collection's name, for errors."""

    types: tuple[pa.DataType, ...]
    key: tuple[int, ...]
    check: bool
    name: str

    keeps_collection = True

    @property
    def reads_traces(self) -> bool:
        return self.check

    @property
    def arrangement(self) -> Arrangement:
        return Arrangement.by(self.key, len(self.types))

    def layouts(self) -> dict[str, Layout]:
        return {"rows": self.arrangement.layout}

    def prepare(self, port: int, change: pa.Table) -> pa.Table:
        return self.arrangement.prepare(change)

    def step(self, arrived: list[pa.Table], traces: dict[str, Trace], context: Context) -> StepResult:
        block = self.arrangement.block(arrived[0], context.epoch)
        if self.check:
            _check(self, block, traces["rows"], context.epoch)
        output = change_table(self.arrangement.original(block.columns), self.types, block.diff)
        return StepResult({"rows": block}, output)


def _check(spec: LogSpec, block: Block, trace: Trace, epoch: int) -> None:
    """Raise NegativeMultiplicity if the change removes more copies of a row than there are."""
    taken = block.filter(block.diff < 0)
    if not taken.rows:
        return
    assert taken.sub is not None  # consolidated in a layout with sub="hash"
    fresh = np.ones(taken.rows, np.bool_)
    fresh[1:] = (taken.hash[1:] != taken.hash[:-1]) | (taken.sub[1:] != taken.sub[:-1])
    _, before = trace.matching_pairs(taken.hash[fresh], taken.sub[fresh])
    # The search also finds rows that only share hash and sub with a removed row; they have no "+taken".
    marked = replace(taken, adds={"+diff": taken.diff, "+taken": taken.diff})
    total = consolidate(Block.concat([before.at(epoch), marked]), trace.layout)
    wrong = total.filter((total.diff < 0) & (total.add("+taken") < 0))
    if not wrong.rows:
        return
    shown = change_table(spec.arrangement.original(wrong.columns), spec.types, wrong.diff).slice(0, _SHOWN)
    rows = [tuple(row[f"c{index}"] for index in range(len(spec.types))) for row in shown.to_pylist()]
    listed = ", ".join(f"{row!r} ({count})" for row, count in zip(rows, wrong.diff.tolist(), strict=False))
    more = f" and {wrong.rows - _SHOWN} more" if wrong.rows > _SHOWN else ""
    raise NegativeMultiplicity(
        f"{spec.name!r}, epoch {epoch}: deleted more often than inserted: {listed}{more} (in brackets: how many copies "
        "there would be); delete only rows that are there, with all their columns as they were inserted. Nothing of "
        "the epoch took effect; discard() takes back what was pushed",
        name=spec.name,
        epoch=epoch,
        rows=rows,
    )
