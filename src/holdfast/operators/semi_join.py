"""Semi and anti joins: the left rows whose key the right side has (semi), or does not have (anti).

Trace ``left`` holds the left rows, key first. Of the right side, trace ``right.count`` holds only the number of rows of
each key. A key is *present* while that number is positive. A left row is in the output while its key is present (semi)
or absent (anti). If its multiplicity was *l* and changes by *dl*, its multiplicity in the output changes by

    (l + dl) · in output after  -  l · in output before

Left rows are read only for keys whose presence changes. Keys are compared normalised; the output has rows as they
arrived.

Cost: O((|dL| + |dR|) · log state), plus the rows in the output.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from holdfast.operators import join_sides
from holdfast.operators.arrangement import change_table
from holdfast.operators.join_sides import (
    JoinSpec,
    count_layout,
    counted,
    keys_of,
    matchable_rows,
    presence,
    side,
    touched,
)
from holdfast.operators.step import Context, StepResult
from holdfast.trace import physical
from holdfast.trace.rows import Layout
from holdfast.trace.trace import Trace


@dataclass(frozen=True)
class SemiJoin(JoinSpec):
    """The keyed operator of a semi or anti join."""

    def layouts(self) -> dict[str, Layout]:
        return {"left": self.arrangements[0].layout, "right.count": count_layout(self)}

    def step(self, arrived: list[pa.Table], traces: dict[str, Trace], context: Context) -> StepResult:
        arrangement, right_arrangement = self.arrangements
        arrived_left = arrangement.block(arrived[0], context.epoch)
        kept_left = matchable_rows(self, arrived_left)
        right_keys = keys_of(self, right_arrangement.block(arrived[1], context.epoch))
        count = counted(self, right_keys)
        groups = touched([keys_of(self, kept_left), right_keys])
        before, after = presence(groups, count, traces["right.count"])
        turned = join_sides.distinct(groups.hash[np.flatnonzero(before[:-1] != after[:-1])])
        left = side(arrived_left, turned, traces["left"])
        place = left.places(groups)
        out_before, out_after = (before[place], after[place]) if self.how == "semi" else (~before[place], ~after[place])
        diff = left.new * out_after - left.old * out_before
        rows = np.flatnonzero(diff)
        columns = physical.take_all(arrangement.original(left.columns), left.at[rows])
        return StepResult({"left": kept_left, "right.count": count}, change_table(columns, self.left_types, diff[rows]))
