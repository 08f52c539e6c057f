"""Declaring again: a notebook cell that is run twice.

Within one process a flow that is opened on a log takes it over from the handle that had it open before; and a sink that
is declared once more for its view takes the place of the one before, or changes nothing.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.connectors.changelog import Changelog
from holdfast.connectors.foreach import Foreach
from holdfast.connectors.input import PushedRows
from holdfast.connectors.sink import Sink
from holdfast.frontend.user_functions import meaning
from holdfast.reporting.redaction import logger

if TYPE_CHECKING:
    from holdfast.flow import Flow
    from holdfast.runtime.declaration import ConnectorProgress

_LOG = logger("holdfast.flow")

_lock = threading.Lock()
_open: dict[str, Flow] = {}
"""Working directory → the flow that has it open in this process. One that nobody else holds any more has its lock and
its threads still: so it is held here until it is closed."""


def opening(flow: Flow, local: Path, told: ConnectorProgress) -> None:
    """A flow is about to open its log: the one of this process that has it is closed, after the epoch at hand. What its
    sinks were given, those of the new one need not be given again."""
    key = os.path.realpath(local)
    with _lock:
        before = _open.get(key)
    if before is None or before is flow or before.name != flow.name or before._engine is None:
        return
    before.close()
    before._closed_for = "it was declared again, and that one is open now"
    pending = {
        name: source.pending.changes
        for name, source in before._catalog.sources.items()
        if isinstance(source, PushedRows) and source.pending.changes
    }
    if pending:
        said = ", ".join(f"{count} of input '{name}'" for name, count in pending.items())
        _LOG.warning(
            "flow '%s' was declared again; changes that were pushed to it before, and that no epoch had taken, are not "
            "taken now: %s",
            flow.name,
            said,
            extra={"flow": flow.name, "pending": pending},
        )
    if before._told is not None:
        for view, sink in flow._sinks:
            for other, known in before._sinks:
                if view == other and mark_of(sink) == mark_of(known) and known in before._told.delivered:
                    told.delivered[sink] = before._told.delivered[known]


def opened(flow: Flow, local: Path) -> None:
    """A flow has opened its log."""
    with _lock:
        _open[os.path.realpath(local)] = flow


def closed(flow: Flow, local: Path) -> None:
    """A flow has let go of its log."""
    with _lock:
        if _open.get(os.path.realpath(local)) is flow:
            del _open[os.path.realpath(local)]


def mark_of(sink: Sink) -> object:
    """What makes two sinks of a view the same one: where they write, or the function's name. Others are themselves."""
    if (target := sink.target()) is not None:
        return type(sink), target
    if isinstance(sink, Foreach):
        function = sink.function
        name = getattr(function, "__qualname__", "")
        if name and not name.endswith("<lambda>"):
            return Foreach, getattr(function, "__module__", ""), name
        return Foreach, _meaning(sink)
    return sink


def same_again(sinks: Sequence[tuple[str, Sink]], view: str, sink: Sink) -> tuple[int, bool] | None:
    """Whether a view has this sink already: its place among them, and whether it means the same; None if not."""
    for place, (other, known) in enumerate(sinks):
        if other == view and mark_of(known) == mark_of(sink):
            return place, known is sink or _meaning(sink) == _meaning(known)
    return None


def _meaning(sink: Sink) -> object:
    if isinstance(sink, Changelog):
        return sink.compact
    if not isinstance(sink, Foreach):
        return None
    try:
        return meaning(sink.function)
    except Exception:  # something callable that has no code to look at
        return id(sink.function)
