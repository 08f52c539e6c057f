"""``hf.open_log`` and ``hf.read``: a log opened for reading, without Spark."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from holdfast.foundation import arguments
from holdfast.inspect.log_reader import LogReader
from holdfast.inspect.places import Named


def open_log(log: Named, *, others: Sequence[Named] = ()) -> LogReader:
    """Open the views of a log at its last complete epoch, without Spark: ``reader.lookup("spend", user="ada")``,
    ``reader.arrow("spend")``, ``reader.refresh()``. Takes no lock and changes nothing; the flow may be running, in this
    process or another.

    ``log`` is the flow's working directory, or a log location (``s3://…``), which may be behind the flow, and from
    which layers are fetched; ``others`` are log locations for layers that ``log`` lacks."""
    _check_named("open_log", log, others)
    return LogReader(log, others)


def read(log: Named, view: str, at: int | None = None, *, others: Sequence[Named] = ()) -> pa.Table:
    """The rows of a view (or of an input that the log keeps) as an Arrow table: now, or as of epoch ``at``. Needs no
    Spark, takes no lock, and changes nothing; the flow may be running.

    ``log`` is the flow's working directory, or a log location (``s3://…``), which may be behind the flow; ``others``
    are log locations for layers that ``log`` lacks. Use the table with ``table.to_pandas()``,
    ``polars.from_arrow(table)`` or DuckDB's ``SELECT … FROM table``. `open_log` keeps the log open for more than one
    read."""
    arguments.text("read", "view", view, "its name")
    _check_named("read", log, others)
    if at is not None:
        at = arguments.epoch("read", "at", at, 0)
    with LogReader(log, others, [view]) as reader:
        return reader.arrow(view, at)


def _check_named(subject: str, log: Named, others: Sequence[Named]) -> None:
    if isinstance(log, str) or not hasattr(log, "uri"):
        arguments.path(subject, "log", log)
    if isinstance(others, str) or not isinstance(others, Sequence):
        arguments.refuse(subject, "others", "a list of log locations", others)
