"""Tasks write the rows of large changes for sinks themselves (`connectors/part_writer.py`).

A task has the change of a view in its partition. If the change has many rows, the task gives it to the writers of the
view's sinks, and reports what they returned. If it has few, or a sink has no writer, the rows go into the report, to
the driver. A writer that fails does no harm: the rows go to the driver, too.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import pyarrow as pa

from holdfast.connectors.part_writer import PartWriter
from holdfast.connectors.sink import Sink
from holdfast.plan.nodes import Field

LEAST = 10_000
"""The number of rows from which on a task writes a part. With fewer rows the driver is faster."""


@dataclass(frozen=True)
class SinkWriter:
    """The writer of one sink."""

    sink: int
    """The index of the sink among the sinks of the flow."""

    writer: PartWriter
    columns: tuple[str, ...]
    """The names of the view's columns."""

    least: int


@dataclass(frozen=True)
class ViewWriters:
    """The writers of a view's sinks."""

    writers: tuple[SinkWriter, ...]
    only: bool
    """Whether every sink of the view has a writer. Otherwise the driver needs the rows, too."""

    def least(self, rows: int) -> ViewWriters:
        """Return the same writers, for changes of so many rows or more."""
        return replace(self, writers=tuple(replace(each, least=rows) for each in self.writers))


@dataclass
class Parts:
    """The parts that tasks wrote of an epoch's changes."""

    written: dict[int, list[Any]] = field(default_factory=dict)
    """Index of the sink → what its writer returned, one item per part."""

    errors: dict[int, str] = field(default_factory=dict)
    """Index of the sink → why its writer failed."""


def writers_of(
    sinks: Sequence[tuple[str, Sink]],
    fields: Callable[[str], tuple[Field, ...]],
    operators: Mapping[str, str],
    least: int | None = None,
) -> dict[str, ViewWriters]:
    """Return the writers of a flow's sinks, by the operator whose output is the view's change. ``operators``: view →
    that operator. ``least``: the rows from which on a task writes a part; by default `LEAST`."""
    found: dict[str, ViewWriters] = {}
    for view in dict.fromkeys(view for view, _ in sinks):
        mine = [(index, sink) for index, (other, sink) in enumerate(sinks) if other == view]
        writers = [(index, None if sink.ids else sink.part_writer(view, fields(view))) for index, sink in mine]
        columns = tuple(each.name for each in fields(view))
        having = tuple(SinkWriter(index, one, columns, least or LEAST) for index, one in writers if one is not None)
        if having:
            found[operators[view]] = ViewWriters(having, len(having) == len(mine))
    return found


@lru_cache(maxsize=16)
def _unpacked(writers: bytes) -> Mapping[str, ViewWriters]:
    found: Mapping[str, ViewWriters] = pickle.loads(writers)
    return found


def write_parts(writers: bytes, operator: str, epoch: int, attempt: str, change: pa.Table, parts: Parts) -> bool:
    """Have the writers of the operator's sinks write a change (columns by position, ``_diff``), if it is large. Return
    whether all sinks have it now, so that the driver does not need the rows."""
    view = _unpacked(writers).get(operator) if writers else None
    if view is None:
        return False
    all_have_it = view.only
    for one in view.writers:
        part = None
        if change.num_rows >= one.least:
            try:
                part = one.writer.write(epoch, attempt, change.rename_columns([*one.columns, "_diff"]))
            except Exception as error:  # whatever it is, the driver's own commit meets it, too, or does without
                parts.errors[one.sink] = f"{type(error).__name__}: {error}"
        if part is None:
            all_have_it = False
        else:
            parts.written.setdefault(one.sink, []).append(part)
    return all_have_it
