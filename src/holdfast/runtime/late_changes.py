"""The change of an epoch that a sink lacks, read from the view's log: whole, or in pieces if it is large.

A sink may lack an epoch because it is new to a view, because its commit failed, or because the flow was opened again.
The change may then be larger than the driver's memory: all rows of a large view, for a new sink. So it is read by
ranges of the key hash, each of about `PIECE` rows at most, and each piece becomes a part of the sink's commit
(`connectors/part_writer.py`), if the sink has a part writer.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.connectors.part_writer import PartWriter
from holdfast.task.log_difference import difference
from holdfast.task.program import partition_range
from holdfast.task.view_log import ViewLog

PIECE = 1_000_000
"""Rows."""

_MOST = 256


@dataclass(frozen=True)
class LateChange:
    """A change that is still to be read."""

    read: Callable[[int, int], pa.Table]
    """Reads the rows with a key hash in [low, high): columns and ``_diff``."""

    stored: int
    """The rows that the log has of it, or more: stored rows may cancel."""

    def whole(self) -> pa.Table:
        """Return all rows."""
        return self.read(0, 2**64)

    @property
    def is_large(self) -> bool:
        return self.stored > PIECE

    def write(self, writer: PartWriter, epoch: int, attempt: str, columns: list[str]) -> list[Any] | None:
        """Have ``writer`` write the rows piece by piece. Return its answers; None if it does not write."""
        parts = []
        count = min(_MOST, -(-self.stored // PIECE))
        for number in range(count):
            piece = self.read(*partition_range(number, count))
            if piece.num_rows == 0:
                continue
            part = writer.write(epoch, attempt, piece.rename_columns([*columns, "_diff"]))
            if part is None:
                return None
            parts.append(part)
        return parts


def change_at(log: ViewLog, epoch: int) -> LateChange:
    """The change of one epoch."""

    def read(low: int, high: int) -> pa.Table:
        return log.changes(low, high, epoch - 1, epoch).drop_columns(["_epoch"])

    return LateChange(read, _stored(log, epoch - 1, epoch))


def rows_at(log: ViewLog, epoch: int) -> LateChange:
    """All rows as of an epoch, as one change."""

    def read(low: int, high: int) -> pa.Table:
        return log.snapshot(low, high, epoch).drop_columns(["_epoch"])

    return LateChange(read, _stored(log, None, epoch))


def difference_to(new: ViewLog, at: int, old: ViewLog, before: int) -> LateChange:
    """The change from the rows of a log to those of another one (`difference`)."""

    def read(low: int, high: int) -> pa.Table:
        return difference(new, at, old, before, low, high)

    # Logs that are arranged by other keys have no ranges in common.
    same = new.spec.key == old.spec.key
    return LateChange(read, _stored(new, None, at) + _stored(old, None, before) if same else 0)


def known(change: pa.Table) -> LateChange:
    """A change that was read already."""
    return LateChange(lambda low, high: change, 0)


def attempt_of(digest: str) -> str:
    """A name for the parts of a commit, which no other attempt has."""
    return f"{digest}-{secrets.token_hex(4)}"


def _stored(log: ViewLog, after: int | None, upto: int) -> int:
    return int(pc.sum(log.stored(0, 2**64, after, upto).column("rows")).as_py() or 0)
