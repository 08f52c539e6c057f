"""The difference between two logs of the same columns: the change that turns the rows of the old log into those of the
new.

Both logs are read as of an epoch, and rows that are in both cancel. If both are arranged by the same key, they are read
range by range of its hash, so that only a part of them is in memory at once. Cost: reading both logs once.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.operators.arrangement import change_table
from holdfast.task.program import partition_range
from holdfast.task.view_log import ViewLog

_PARTS = 16


def difference(new: ViewLog, at: int, old: ViewLog, before: int, low: int = 0, high: int = 2**64) -> pa.Table:
    """The rows of ``new`` as of epoch ``at`` less those of ``old`` as of ``before``: columns by position, ``_diff``.
    Logs that are arranged by the same key may be compared in a range [low, high) of its hash only."""
    if (low, high) != (0, 2**64):
        return _part(new, at, old, before, low, high)
    parts = _PARTS if new.spec.key == old.spec.key else 1
    return pa.concat_tables([_part(new, at, old, before, *partition_range(part, parts)) for part in range(parts)])


def _part(new: ViewLog, at: int, old: ViewLog, before: int, low: int, high: int) -> pa.Table:
    names = [f"c{place}" for place in range(len(new.spec.types))] + ["_diff"]
    there = new.snapshot(low, high, at).drop_columns(["_epoch"]).rename_columns(names)
    gone = old.snapshot(low, high, before).drop_columns(["_epoch"]).rename_columns(names)
    gone = gone.set_column(len(names) - 1, "_diff", pc.negate(gone.column("_diff")))
    arrangement = new.spec.arrangement
    block = arrangement.block(arrangement.prepare(pa.concat_tables([there, gone])), at)
    return change_table(arrangement.original(block.columns), new.spec.types, block.diff)
