"""Declaring a flow or a sink again, as a notebook cell does that is run twice.

Within one process, a flow that is opened on a log closes an earlier `Flow` object that has the log open. A sink that is
declared again for its view replaces the earlier one, or changes nothing if it is the same.
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
"""Working directory → the flow that has it open in this process. A flow to which the user has no reference any more
still has its lock and threads, so this reference is kept until it is closed."""


def opening(flow: Flow, local: Path, told: ConnectorProgress) -> None:
    """Prepare for a flow to open its log: close an earlier flow of this process that has it open, after its current
    epoch. Epochs that its sinks were given are noted in ``told``, so that the same sinks do not get them again."""
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
    """Note that a flow has opened its log."""
    with _lock:
        _open[os.path.realpath(local)] = flow


def closed(flow: Flow, local: Path) -> None:
    """Note that a flow has closed its log."""
    with _lock:
        if _open.get(os.path.realpath(local)) is flow:
            del _open[os.path.realpath(local)]


def mark_of(sink: Sink) -> object:
    """Return a value that is equal for two declarations of the same sink: where it writes, or the function's name. A
    sink with neither equals only itself."""
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
    """Return the index of the sink that ``sink`` declares again for a view, and whether it is unchanged; None if the
    view does not have this sink."""
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
    except Exception:  # a callable without Python code to compare
        return id(sink.function)
