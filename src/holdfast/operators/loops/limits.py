"""The limits of a loop, and the errors when it exceeds one. Then nothing of the epoch takes effect."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import LoopDiverged, MultiplicityOverflow

_SHOWN = 3

_GROWING = 3
"""From this round on, an overflow of multiplicities is reported as a loop that never ends."""


@dataclass(frozen=True)
class Limits:
    """``bound``: the number of rounds after which a loop must have ended or, with ``cut``, is stopped. ``rows``: the
    most rows that may be added in a round (None: no limit)."""

    bound: int
    cut: bool = False
    rows: int | None = None

    @property
    def last(self) -> int:
        """The last round that may run without an error."""
        return self.bound - 1 if self.cut else self.bound

    def shared(self, round: int, pending: int, expected: int, most: int) -> bool:
        """Whether a round should run in several tasks: whether it is expected to hand more than ``most`` rows to
        operators. A round that may exceed a limit runs in one task, which can count all rows for the error."""
        counted = self.rows is not None and pending > self.rows
        return round <= self.last and expected > most and not counted


def check(change: pa.Table, round: int, limits: Limits, epoch: int) -> None:
    """Raise LoopDiverged if a variable gains more rows in a round than allowed, or changes after the last round."""
    if limits.rows is not None and change.num_rows > limits.rows:
        count = pc.sum(pc.greater(change.column("_diff"), 0)).as_py() or 0
        if count > limits.rows:
            raise _diverged(
                f"the loop adds {count} rows in round {round}, among them {_few(change)}; the session allows "
                f"{limits.rows} (spark.sql.cteRecursionRowLimit); nothing of the epoch took effect: write UNION if "
                "rows alone are meant, and not the ways to each; take back the input that has so many ways; or set "
                "the limit higher, -1 for none, and declare the view again",
                change, round, limits, epoch,
            )  # fmt: skip
    if round > limits.bound:
        raise _diverged(
            f"the loop still changes {change.num_rows} row{'s' if change.num_rows > 1 else ''} after its bound of "
            f"{limits.bound} rounds, among them {_few(change)}; nothing of the epoch took effect: raise max_rounds if "
            "the loop ends later, or take back the input that makes it go on for ever. (A LIMIT behind a loop does not "
            "end it: what ends it is a condition inside.)",
            change, round, limits, epoch,
        )  # fmt: skip


@contextmanager
def counting(round: int, limits: Limits, epoch: int) -> Iterator[None]:
    """Turn a MultiplicityOverflow from round `_GROWING` on into LoopDiverged: the loop multiplies copies for ever."""
    try:
        yield
    except MultiplicityOverflow as error:
        if round < _GROWING:
            raise
        raise _diverged(
            f"{error}, in round {round}: they become more from round to round; nothing of the epoch took effect: UNION "
            "ALL counts the ways to a row, of which a cycle has no end; write UNION if rows alone are meant",
            None, round, limits, epoch,
        ) from None  # fmt: skip


def _diverged(message: str, change: pa.Table | None, round: int, limits: Limits, epoch: int) -> LoopDiverged:
    return LoopDiverged(
        message,
        epoch=epoch,
        max_rounds=limits.bound,
        round=round,
        changing=0 if change is None else change.num_rows,
        rows=[] if change is None else _examples(change),
    )


def _examples(change: pa.Table) -> list[tuple[object, ...]]:
    return [tuple(row.values())[:-1] for row in change.slice(0, _SHOWN).to_pylist()]


def _few(change: pa.Table) -> str:
    return ", ".join(map(repr, _examples(change)))
