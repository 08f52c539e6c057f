"""The result of `hf.compare`: how a view of two flows differs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.trace.equality import content_ranks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SHOWN = 10


@dataclass(frozen=True)
class Comparison:
    """How a view of two flows differs, as of one epoch. ``print`` shows a summary."""

    view: str
    epoch: int
    here: str
    """The name of the first flow."""

    there: str
    """The name of the second flow."""

    key: tuple[str, ...]
    """The columns that identify a row, so that a row with the same key on both sides counts as changed; empty: every
    differing row is on one side only."""

    rows: pa.Table = field(repr=False)
    """The rows that differ: the view's columns; ``_side``: the side that has the row (``here`` or ``there``);
    ``_change``: ``changed`` if the other side has a row of the same key, otherwise the side; ``_count``: how many more
    copies this side has. If the view has a column of such a name, the added column's name begins with another ``_``."""

    frame: DataFrame | None = field(default=None, repr=False, compare=False)
    """`rows` as a Spark DataFrame; None if the comparison was made without Spark."""

    @property
    def equal(self) -> bool:
        """Whether both flows have the same rows."""
        return not self.rows.num_rows

    @property
    def counts(self) -> dict[str, int]:
        """The number of rows only in ``here``, the number only in ``there``, and the number of keys ``changed``."""
        found = {each: self._of(each).num_rows for each in ("here", "there")}
        changed = self._of("changed")
        ranks = content_ranks([changed.column(each) for each in self.key], rows=changed.num_rows)
        return {**found, "changed": len(np.unique(ranks))}

    def _of(self, change: str) -> pa.Table:
        return self.rows.filter(pc.equal(self.rows.column(-2), change))

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as plain values, for JSON."""
        return {
            "view": self.view,
            "epoch": self.epoch,
            "here": self.here,
            "there": self.there,
            "key": list(self.key),
            "counts": self.counts,
            "rows": self.rows.to_pylist(),
        }

    def __str__(self) -> str:
        subject = f"view '{self.view}' as of epoch {self.epoch}"
        if self.equal:
            return f"{subject}: {self.here} and {self.there} have the same rows"
        counts = self.counts
        lines = [
            f"{subject}:",
            f"  only in {self.here}: {counts['here']:,}",
            f"  only in {self.there}: {counts['there']:,}",
        ]
        if self.key:
            lines.append(f"  changed, by {', '.join(self.key)}: {counts['changed']:,}")
        lines += [_line(row) for row in self.rows.slice(0, _SHOWN).to_pylist()]
        if self.rows.num_rows > _SHOWN:
            lines.append(f"    … and {self.rows.num_rows - _SHOWN:,} rows more")
        return "\n".join(lines)


def _line(row: Mapping[str, Any]) -> str:
    """Return a differing row as text for people; the three added columns come after its own."""
    *own, (_, side), _, (_, count) = row.items()
    times = f" ({count} times)" if count > 1 else ""
    sign = "-" if side == "here" else "+"
    return f"    {sign} {', '.join(f'{name}={value!r}' for name, value in own)}{times}"
