"""``hf.read``: a view's rows from its log, without Spark."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from holdfast.foundation import arguments
from holdfast.inspect.describe import read_collection
from holdfast.inspect.places import Named


def read(log: Named, view: str, at: int | None = None, *, others: Sequence[Named] = ()) -> pa.Table:
    """The rows of a view (or of an input that the log keeps) as an Arrow table: now, or as of epoch ``at``. Needs no
    Spark, takes no lock, and changes nothing; the flow may be running.

    ``log`` is the flow's working directory or a log location (``s3://…``), which may be behind; ``others`` are log
    locations for layers that it lacks. ``table.to_pandas()``, ``polars.from_arrow(table)`` and DuckDB's ``SELECT … FROM
    table`` take it from there."""
    arguments.text("read", "view", view, "its name")
    if isinstance(log, str) or not hasattr(log, "uri"):
        arguments.path("read", "log", log)
    if at is not None:
        at = arguments.whole("read", "at", at, 0)
    if isinstance(others, str) or not isinstance(others, Sequence):
        arguments.refuse("read", "others", "a list of log locations", others)
    return read_collection(log, view, at, others)
