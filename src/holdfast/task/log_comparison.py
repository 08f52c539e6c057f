"""Where two logs of the same columns differ, row by row.

The difference of the two (`task/log_difference.py`) has only rows that are not in both. A row whose key is on both
sides was changed; any other is on one side alone. Cost: both logs once, and what differs in memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from holdfast.task.log_difference import difference
from holdfast.task.view_log import ViewLog
from holdfast.trace.equality import content_ranks
from holdfast.trace.physical import Bools, Ints

TOLD = ("_side", "_change", "_count")
"""What is said of each row, behind its own columns."""

HERE, THERE, CHANGED = "here", "there", "changed"


def told_names(columns: Sequence[str]) -> list[str]:
    """What the columns of `TOLD` are called beside these: with a further ``_`` where a view has such a column."""
    known = {column.lower() for column in columns}
    found = []
    for name in TOLD:
        while name in known:
            name = f"_{name}"
        found.append(name)
    return found


def compare_logs(here: ViewLog, at: int, there: ViewLog, then: int, key: Sequence[int]) -> pa.Table:
    """The rows that differ as of epoch ``at`` of one and ``then`` of the other: the columns of ``here``, then on which
    side a row is (``here`` or ``there``), what that means (``here``, ``there``, or ``changed``: there is one of its key
    on the other side), and how often it is there more often than on the other."""
    found = difference(there, then, here, at)
    diff = found.column("_diff").to_numpy()
    columns = found.drop_columns(["_diff"]).rename_columns([field.name for field in here.fields])
    sides = np.where(diff > 0, THERE, HERE)
    changes = np.where(_on_both_sides(columns, diff > 0, key), CHANGED, sides)
    # For people: rows of a key beside each other.
    order = np.lexsort((sides, _ranks(columns, key or range(columns.num_columns))))
    told = (pa.array(sides, pa.string()), pa.array(changes, pa.string()), pa.array(np.abs(diff)))
    for name, values in zip(told_names(columns.column_names), told, strict=True):
        columns = columns.append_column(name, values)
    return columns.take(pa.array(order))


def _on_both_sides(rows: pa.Table, there: Bools, key: Sequence[int]) -> Bools:
    """Which rows have a key that is on both sides."""
    if not key or rows.num_rows == 0:
        return np.zeros(rows.num_rows, np.bool_)
    ranks = _ranks(rows, key)
    count = int(ranks.max()) + 1
    here_too, there_too = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
    here_too[ranks[~there]] = True
    there_too[ranks[there]] = True
    both: Bools = (here_too & there_too)[ranks]
    return both


def _ranks(rows: pa.Table, columns: Sequence[int]) -> Ints:
    return content_ranks([rows.column(each) for each in columns], rows=rows.num_rows)
