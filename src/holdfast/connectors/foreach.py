"""A sink that calls a user's function with each change of a view."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from holdfast.connectors.sink import Sink
from holdfast.errors import DeclarationError, SinkError
from holdfast.foundation import arguments
from holdfast.foundation.user_code import raised_at
from holdfast.guarantees.prediction import SinkKind
from holdfast.plan.nodes import Field
from holdfast.reporting.redaction import cause


def foreach(
    function: Callable[[int, pa.Table], object],
    *,
    seen: Callable[[], int] | None = None,
    lineage: Callable[[], bytes] | None = None,
    ids: bool = False,
) -> Foreach:
    """Call ``function(epoch, change)`` for every epoch in which the view changed.

    ``change`` has the view's columns and ``_diff``. With ``ids`` each row has a stable id, ``_id``, and is one copy
    (``_diff`` is 1 or -1); a call that is made again has the same rows with the same ids, in the same order. A function
    that is new to a view is first given the view's contents: every change since epoch 0 if the log still has them all,
    else the rows at some epoch as one change, and every change after it.

    **At least once.** A function cannot say which epochs it has handled, so after a crash, or after it raised, it may
    be called again for the last epoch. If that matters, let the function remember the greatest ``epoch`` that it has
    handled, and return at once for an epoch that is not greater: no number is ever used again for another change. For
    that reason numbers go on from ``term * 10**12`` when the driver cannot know what was delivered before it (its host
    was lost, or started again after a crash); ``change.schema.metadata[b"holdfast.epoch"]`` is always the flow's own
    number. If epochs were lost with a host, they are run again under new numbers; what the function did for the lost
    ones is not undone.

    **Exactly once.** Give ``seen``, a function that returns the greatest ``epoch`` that was handled (-1: none), kept in
    one transaction with the effects. It is called when the flow is opened, and before a call that raised is made again.
    So each epoch takes effect once, through crashes of the process. To be exact also when a host is lost with epochs
    that are nowhere else, keep ``change.schema.metadata[b"holdfast.lineage"]`` in the same transaction, and return the
    last one from ``lineage``: with it those epochs are computed again exactly. (Without it, a flow whose log ends
    before the epoch that ``seen`` returns does not open.)

    **By ids.** ``ids`` also says that the receiver drops ids that it has already (a unique key in a database). Then the
    result is exact, too, although the function is called at least once, unless epochs were lost with a host.
    """
    return Foreach(function, seen, lineage, ids=ids)


class Foreach(Sink):
    """See `foreach`."""

    def __init__(
        self,
        function: Callable[[int, pa.Table], object],
        seen: Callable[[], int] | None = None,
        lineage: Callable[[], bytes] | None = None,
        *,
        ids: bool = False,
    ) -> None:
        arguments.callable_with("foreach", "function", function, "two arguments, (epoch, change)", 2)
        if seen is not None:
            arguments.callable_with("foreach", "seen", seen, "no arguments, which returns an epoch", 0)
        if lineage is not None:
            arguments.callable_with("foreach", "lineage", lineage, "no arguments, which returns bytes", 0)
        if lineage is not None and seen is None:
            raise DeclarationError("foreach: lineage needs seen: a function that says what it has dealt with")
        self.ids = self.deduplicates = arguments.flag("foreach", "ids", ids)
        self.function = function
        self._lineage = lineage
        self._seen = seen
        self._view = ""

    @property
    def kind(self) -> SinkKind:
        if self._seen is not None:
            return SinkKind.TRANSACTIONAL
        return SinkKind.DEDUPLICATING if self.deduplicates else SinkKind.APPEND

    def open(self, view: str, fields: tuple[Field, ...]) -> int | None:
        self._view = view
        return self.taken()

    def taken(self) -> int | None:
        if self._seen is None:
            return None
        try:
            epoch = self._seen()
        except Exception as error:
            raise SinkError(
                f"view '{self._view}': the function that says what was seen raised {type(error).__name__}: {error}",
                view=self._view,
            ) from error
        if not isinstance(epoch, int):
            raise SinkError(
                f"view '{self._view}': expected the greatest epoch that was seen (-1: none), found {epoch!r}",
                view=self._view,
            )
        return epoch

    def lineage(self) -> bytes:
        if self._lineage is None:
            return b""
        try:
            found = self._lineage()
        except Exception as error:
            raise SinkError(
                f"view '{self._view}': the function that gives the lineage back raised {type(error).__name__}: {error}",
                view=self._view,
            ) from error
        if not isinstance(found, bytes):
            raise SinkError(
                f"view '{self._view}': expected the lineage as it was given (bytes), found {found!r}", view=self._view
            )
        return found

    def commit(self, epoch: int, change: pa.Table, lineage: bytes) -> None:
        if change.num_rows == 0:
            return
        if self._lineage is not None:
            change = change.replace_schema_metadata({**(change.schema.metadata or {}), b"holdfast.lineage": lineage})
        try:
            self.function(epoch, change)
        except Exception as error:
            name = getattr(self.function, "__name__", repr(self.function))
            epoch = int((change.schema.metadata or {}).get(b"holdfast.epoch", epoch))  # the flow's own number
            raise SinkError(
                f"view '{self._view}': epoch {epoch}: the sink function {name} raised {type(error).__name__}: {error}"
                f"{raised_at(error)}",
                view=self._view,
                epoch=epoch,
            ) from cause(error)
