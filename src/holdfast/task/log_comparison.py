"""Comparison of two logs of the same columns, row by row.

The difference of the two (`task/log_difference.py`) has only rows that are not in both. A row whose key is on both
sides was changed; any other row is on one side only. Cost: reading both logs once, and memory for the rows that differ.
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
"""The columns that `compare_logs` adds behind a row's own: its side, the kind of change, the difference in count."""

HERE, THERE, CHANGED = "here", "there", "changed"


def told_names(columns: Sequence[str]) -> list[str]:
    """The names of the `TOLD` columns in a result: with a further ``_`` if the view has a column of that name."""
    known = {column.lower() for column in columns}
    found = []
    for name in TOLD:
        while name in known:
            name = f"_{name}"
        found.append(name)
    return found


def compare_logs(here: ViewLog, at: int, there: ViewLog, then: int, key: Sequence[int]) -> pa.Table:
    """Return the rows that differ between ``here`` as of epoch ``at`` and ``there`` as of epoch ``then``.

    The columns are those of ``here``, then: the side that has the row (``here`` or ``there``), the kind of change
    (``here`` or ``there`` if only that side has the row's key, else ``changed``), and how many more copies of the row
    that side has.
    """
    found = difference(there, then, here, at)
    diff = found.column("_diff").to_numpy()
    columns = found.drop_columns(["_diff"]).rename_columns([field.name for field in here.fields])
    sides = np.where(diff > 0, THERE, HERE)
    changes = np.where(_on_both_sides(columns, diff > 0, key), CHANGED, sides)
    # Rows of one key stand together, which is easier to read.
    order = np.lexsort((sides, _ranks(columns, key or range(columns.num_columns))))
    told = (pa.array(sides, pa.string()), pa.array(changes, pa.string()), pa.array(np.abs(diff)))
    for name, values in zip(told_names(columns.column_names), told, strict=True):
        columns = columns.append_column(name, values)
    return columns.take(pa.array(order))


def _on_both_sides(rows: pa.Table, there: Bools, key: Sequence[int]) -> Bools:
    """For each row, whether its key is on both sides."""
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
