"""A function as a sink."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from holdfast.connectors.sink import Sink
from holdfast.errors import DeclarationError, SinkError
from holdfast.plan.nodes import Field


def foreach(function: Callable[[int, pa.Table], object]) -> Foreach:
    """Call ``function(epoch, change)`` for every epoch in which the view changed.

    ``change`` has the view's columns and ``_diff``. A function cannot say what it has seen, so after a crash it may be
    called again for the last epochs; if that matters, let it remember the greatest epoch it has dealt with.
    """
    return Foreach(function)


class Foreach(Sink):
    """See `foreach`."""

    def __init__(self, function: Callable[[int, pa.Table], object]) -> None:
        if not callable(function):
            raise DeclarationError(f"foreach: expected a function (epoch, change), found {type(function).__name__}")
        self._function = function
        self._view = ""

    def open(self, view: str, fields: tuple[Field, ...]) -> int | None:
        self._view = view
        return None

    def commit(self, epoch: int, change: pa.Table, lineage: bytes) -> None:
        if change.num_rows == 0:
            return
        try:
            self._function(epoch, change)
        except Exception as error:
            name = getattr(self._function, "__name__", repr(self._function))
            raise SinkError(
                f"view '{self._view}': epoch {epoch}: the sink function {name} raised {type(error).__name__}: {error}",
                view=self._view,
                epoch=epoch,
            ) from error
