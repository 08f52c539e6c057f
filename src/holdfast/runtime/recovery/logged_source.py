"""The rows of a source as its log keeps them: they are read again to fill a new operator, or to replay an epoch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from holdfast.connectors.source import Offer, Part, Source
from holdfast.connectors.versions import logged_arrivals
from holdfast.plan.nodes import Field
from holdfast.runtime.schema_changes import converted
from holdfast.task.program import partition_range
from holdfast.task.view_log import ViewLog


@dataclass(frozen=True)
class RowsPart:
    """All rows of one partition, as of an epoch."""

    kept: ViewLog
    epoch: int
    low: int
    high: int

    def read(self, schema: pa.Schema) -> Iterator[pa.Table]:
        table = self.kept.rows(self.low, self.high, self.epoch)
        yield _as_arrived(table.append_column("_diff", pa.array(np.ones(table.num_rows, dtype=np.int64))), schema)


@dataclass(frozen=True)
class ChangePart:
    """The change of one epoch in one partition."""

    kept: ViewLog
    epoch: int
    low: int
    high: int

    def read(self, schema: pa.Schema) -> Iterator[pa.Table]:
        table = self.kept.changes(self.low, self.high, self.epoch - 1, self.epoch).drop_columns(["_epoch"])
        yield _as_arrived(table, schema)


def _as_arrived(change: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a change of a source's log in the form in which the source gives it: if the source's rows are versions,
    as arrivals."""
    if change.num_columns <= len(schema):
        change = logged_arrivals(change, len(schema) + 1 - change.num_columns)
    return change.rename_columns([*schema.names, "_diff"])


@dataclass(frozen=True)
class ConvertedPart:
    """All rows of one partition as of an epoch, from a log of another schema. ``fields``: those of the present log."""

    kept: ViewLog
    epoch: int
    low: int
    high: int
    fields: tuple[Field, ...]

    def read(self, schema: pa.Schema) -> Iterator[pa.Table]:
        table = converted(self.kept.rows(self.low, self.high, self.epoch), self.fields)
        yield _as_arrived(table.append_column("_diff", pa.array(np.ones(table.num_rows, dtype=np.int64))), schema)


class _FromLog(Source):
    """A source that is read from the log; it has no offers."""

    retracts = True
    part: type[RowsPart] | type[ChangePart]

    def __init__(self, fields: tuple[Field, ...], kept: ViewLog, epoch: int, partitions: int) -> None:
        self.fields = fields
        ranges = [partition_range(partition, partitions) for partition in range(partitions)]
        self._parts: list[Part] = [self.part(kept, epoch, low, high) for low, high in ranges]

    def poll(self) -> Offer | None:
        return None

    def advance(self, offer: Offer) -> None:
        pass

    def parts(self, offer: Offer) -> list[Part]:
        return self._parts


@dataclass(frozen=True)
class ReadPart:
    """The change of one epoch, already read."""

    change: pa.Table

    def read(self, schema: pa.Schema) -> Iterator[pa.Table]:
        yield _as_arrived(self.change, schema)


class ReadChange(Source):
    """The change of an epoch in a kept source, for a flow whose tasks cannot read that log."""

    retracts = True

    def __init__(self, fields: tuple[Field, ...], change: pa.Table) -> None:
        self.fields = fields
        self._parts: list[Part] = [ReadPart(change)]

    def poll(self) -> Offer | None:
        return None

    def advance(self, offer: Offer) -> None:
        pass

    def parts(self, offer: Offer) -> list[Part]:
        return self._parts


class LoggedRows(_FromLog):
    """All rows of a kept source as of an epoch."""

    part = RowsPart


class LoggedChange(_FromLog):
    """The change of an epoch in a kept source."""

    part = ChangePart


class ConvertedRows(LoggedRows):
    """All rows of a kept source as of an epoch, from a log of another schema."""

    def __init__(
        self, fields: tuple[Field, ...], kept: ViewLog, epoch: int, partitions: int, now: tuple[Field, ...]
    ) -> None:
        super().__init__(fields, kept, epoch, partitions)
        ranges = [partition_range(partition, partitions) for partition in range(partitions)]
        self._parts = [ConvertedPart(kept, epoch, low, high, now) for low, high in ranges]
