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

SIDE, CHANGE, COUNT = "_side", "_change", "_count"
HERE, THERE, CHANGED = "here", "there", "changed"


def compare_logs(here: ViewLog, there: ViewLog, at: int, key: Sequence[int]) -> pa.Table:
    """The rows that differ as of epoch ``at``: the columns of ``here``, then on which side a row is (``here`` or
    ``there``), what that means (``here``, ``there``, or ``changed``: there is one of its key on the other side), and
    how often it is there more often than on the other."""
    found = difference(there, at, here, at)
    diff = found.column("_diff").to_numpy()
    columns = found.drop_columns(["_diff"]).rename_columns([field.name for field in here.fields])
    sides = np.where(diff > 0, THERE, HERE)
    changes = np.where(_on_both_sides(columns, diff > 0, key), CHANGED, sides)
    # For people: rows of a key beside each other.
    order = np.lexsort((sides, _ranks(columns, key or range(columns.num_columns))))
    told = {SIDE: pa.array(sides, pa.string()), CHANGE: pa.array(changes, pa.string()), COUNT: pa.array(np.abs(diff))}
    for name, values in told.items():
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
