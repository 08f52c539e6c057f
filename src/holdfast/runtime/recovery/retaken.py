"""Input that a rewind has undone, read once more: for the epoch that takes it again, and for replays of that epoch.

The rows come from the log of their source if the source cannot give them again (code pushed them, or the source was
told to forget them), otherwise from the source itself, by its offer. Input that the rewind skips is left out.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.connectors.source import Offer, Part
from holdfast.coordinator.rewinds import Owed
from holdfast.plan.nodes import Field
from holdfast.runtime.open_flow import OpenFlow
from holdfast.runtime.recovery.logged_source import LoggedChange
from holdfast.runtime.runner import Work
from holdfast.task.view_log import ViewLog


def is_logged(flow: OpenFlow, name: str) -> bool:
    """Whether the rows of a source are read again from its log, and not from the source."""
    source = flow.compiled.declared.sources[name]
    return not source.replayable or (source.forgets and name in flow.compiled.flow.views)


def offers_again(flow: OpenFlow, owed: Owed) -> dict[str, Offer]:
    """Return the offers that an undone epoch took, without what is skipped."""
    found = {}
    for name, offer in flow.state.history[owed.epoch].offers.items():
        skipped = [names for said in _skips(flow, owed, name) if (names := said.get("names"))]
        left: Offer | None = offer
        for names in skipped:
            left = None if left is None else flow.compiled.declared.sources[name].without(left, names)
        if left is not None:
            found[name] = left
    return found


def retaken(flow: OpenFlow, name: str, owed: Owed, offer: Offer, partitions: int) -> Work:
    """Return the work that takes input of a source again; ``offer`` comes from `offers_again`."""
    source = flow.compiled.declared.sources[name]
    if not is_logged(flow, name):
        return Work(name, source, [offer])
    rows = [base64.b64decode(said["rows"]) for said in _skips(flow, owed, name) if "rows" in said]
    return Work(name, FewerChanges(source.fields, flow.log_of(name), owed.epoch, partitions, rows), [{}])


def _skips(flow: OpenFlow, owed: Owed, name: str) -> Iterator[Mapping[str, Any]]:
    for epoch in owed.rewinds:
        record = flow.state.history[epoch].rewind
        assert record is not None
        if name in record.get("skip", {}):
            yield record["skip"][name]


class FewerChanges(LoggedChange):
    """The change of an epoch in a kept source, without skipped rows."""

    def __init__(
        self, fields: tuple[Field, ...], kept: ViewLog, epoch: int, partitions: int, rows: Sequence[bytes]
    ) -> None:
        """``rows``: tables of skipped rows, as Arrow IPC streams."""
        super().__init__(fields, kept, epoch, partitions)
        if rows:
            self._parts = [FewerRows(part, tuple(rows)) for part in self._parts]


@dataclass(frozen=True)
class FewerRows:
    """A part without skipped rows."""

    part: Part
    rows: tuple[bytes, ...]

    def read(self, schema: pa.Schema) -> Iterator[pa.Table]:
        gone = set()
        for each in self.rows:
            with pa.ipc.open_stream(each) as reader:
                gone |= set(row_texts(reader.read_all()))
        for table in self.part.read(schema):
            kept = np.array([text not in gone for text in row_texts(table.drop_columns(["_diff"]))], dtype=np.bool_)
            yield table.filter(pa.array(kept))


def row_texts(rows: pa.Table) -> list[str]:
    """Return a text for each row: equal rows have equal texts."""
    columns = [column.to_pylist() for column in rows.columns]
    return [repr(row) for row in zip(*columns, strict=True)]


def encoded_rows(rows: pa.Table) -> str:
    """Return rows as text for the record of a rewind: an Arrow IPC stream in base64."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return base64.b64encode(sink.getvalue().to_pybytes()).decode()
