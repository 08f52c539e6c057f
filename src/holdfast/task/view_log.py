"""The rows of a collection that a ``log`` operator keeps: as of an epoch, or its changes since one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from holdfast.errors import EpochUnavailable, MultiplicityOverflow
from holdfast.log.host_paths import host_path
from holdfast.operators.log import LogSpec
from holdfast.plan.nodes import Field
from holdfast.trace import exact
from holdfast.trace.cover import Chain
from holdfast.trace.open_covers import OpenCovers
from holdfast.trace.rows import Block
from holdfast.trace.trace import Trace


@dataclass(frozen=True)
class ViewLog:
    """The place and layout of a collection's kept rows. A plain value, which can be sent to tasks."""

    directory: str
    spec: LogSpec
    fields: tuple[Field, ...]
    chain: Chain

    def rows(self, low: int, high: int, at: int) -> pa.Table:
        """The rows as of epoch ``at`` in a range of key hashes, each as often as it is there."""
        return self.table_of(self._scan(low, high, at), at)

    def over(self, low: int, high: int, read: Callable[[ViewLog, int, int], pa.Table]) -> pa.Table:
        """Return the result of ``read`` for a range of key hashes. `ScatteredViewLog` runs it where the layers of each
        part are."""
        return read(self, low, high)

    def trace(self, covers: OpenCovers, at: int) -> Trace:
        """The log's trace of all hashes as of epoch ``at``, kept open among ``covers``."""
        return covers.trace(host_path(self.directory), self.spec.layouts()["rows"], at, self.chain)

    def table_of(self, block: Block, at: int) -> pa.Table:
        """Rows of the log's trace, consolidated as of epoch ``at``, as a table: each as often as it is there."""
        try:
            return self._table(block).take(pa.array(exact.repeated(block.diff)))
        except MultiplicityOverflow as error:
            raise self._named(error, at) from None

    def changes(self, low: int, high: int, after: int, upto: int) -> pa.Table:
        """The changes with after < epoch ≤ upto, with ``_epoch`` and ``_diff``."""
        block = self.open(low, high, upto).changes(after, upto)
        table = self._table(block)
        return table.append_column("_epoch", pa.array(block.epoch)).append_column("_diff", pa.array(block.diff))

    def history(self, low: int, high: int, upto: int) -> pa.Table:
        """All changes up to ``upto``. Compacted epochs appear as one change, at the earliest epoch that can be read."""
        try:
            return self.changes(low, high, -1, upto)
        except EpochUnavailable as error:
            earliest = error.fields.get("earliest")
            if not isinstance(earliest, int):
                raise
            return pa.concat_tables(
                [self.snapshot(low, high, earliest), self.changes(low, high, earliest, upto)], promote_options="default"
            )

    def snapshot(self, low: int, high: int, at: int) -> pa.Table:
        """The rows as of epoch ``at`` as one change at that epoch, with ``_epoch`` and ``_diff``."""
        block = self._scan(low, high, at)
        table = self._table(block).append_column("_epoch", pa.array(np.full(block.rows, at, dtype=np.int64)))
        return table.append_column("_diff", pa.array(block.diff))

    def change_at(self, epoch: int) -> pa.Table:
        """The change of one epoch, with ``_diff``."""
        return self.changes(0, 2**64, epoch - 1, epoch).drop_columns(["_epoch"])

    def quiet_after(self, epoch: int, at: int) -> tuple[int, pa.Table] | None:
        """Whether nothing changed after ``epoch``, where compaction has passed ``epoch``. Return (the epoch up to which
        nothing changed, an empty change), or None if that cannot be told. ``at``: an epoch as of which the collection
        can be read."""
        folded = self.folded(0, 2**64, epoch, at).column("upto").to_pylist()
        if None in folded or max(folded) <= epoch:
            return None
        quiet = max(folded)
        if not all(self.quiet(0, 2**64, epoch, quiet, at).column("quiet").to_pylist()):
            return None
        return quiet, self.changes(0, 2**64, at, at).drop_columns(["_epoch"])

    def stored(self, low: int, high: int, after: int | None, upto: int) -> pa.Table:
        """The number of rows that `changes` reads in a range of hashes, or more; with ``after`` None, that `snapshot`
        reads. As a table: one row, or one per partition if several hosts have the layers. Reads no row; raises what
        these raise if the epochs cannot be read."""
        trace = self.open(low, high, upto)
        rows = trace.rows if after is None else trace.stored(after, upto)
        return pa.table({"rows": pa.array([rows], pa.int64())})

    def folded(self, low: int, high: int, after: int, at: int) -> pa.Table:
        """`Trace.folded_after` of a range of hashes, as a table: one row, or one per partition if several hosts have
        the layers."""
        return pa.table({"upto": pa.array([self.open(low, high, at).folded_after(after)], pa.int64())})

    def quiet(self, low: int, high: int, after: int, upto: int, at: int) -> pa.Table:
        """`Trace.is_quiet` of a range of hashes, as a table: one row, or one per partition if several hosts have the
        layers."""
        return pa.table({"quiet": [self.open(low, high, at).is_quiet(after, upto)]})

    def check(self, name: str, epoch: int) -> None:
        """Raise `EpochUnavailable` unless the collection can be read as of ``epoch``."""
        try:
            self.open(0, 2**64, epoch)
        except EpochUnavailable as error:
            raise EpochUnavailable(
                f"view '{name}': {error}", **{**error.fields, "view": name, "epoch": epoch}
            ) from None

    def first_readable(self, epoch: int) -> int:
        """The first epoch from ``epoch`` on as of which the collection can be read."""
        try:
            self.check("", epoch)
        except EpochUnavailable as error:
            earliest = error.fields.get("earliest")
            if not isinstance(earliest, int):
                raise
            return earliest
        return epoch

    def _scan(self, low: int, high: int, at: int) -> Block:
        try:
            return self.open(low, high, at).scan()
        except MultiplicityOverflow as error:
            raise self._named(error, at) from None

    def _named(self, error: MultiplicityOverflow, at: int) -> MultiplicityOverflow:
        name = self.spec.name
        return MultiplicityOverflow(
            f"'{name}' as of epoch {at}: {error}", **{**error.fields, "view": name, "epoch": at}
        )

    def open(self, low: int, high: int, at: int) -> Trace:
        """Open the log's trace in a range of key hashes, as of epoch ``at``."""
        return Trace.open(host_path(self.directory), self.spec.layouts()["rows"], low, high, at, self.chain)

    def _table(self, block: Block) -> pa.Table:
        columns = self.spec.arrangement.original(block.columns)
        typed = [column.cast(kind) for column, kind in zip(columns, self.spec.types, strict=True)]
        return pa.table(typed, names=[field.name for field in self.fields])
