"""Traces that stay open between look-ups. Of each trace the last covers asked for are kept, for any number of threads.

Opening a trace lists its directory, chooses a cover and maps the layers that are not mapped yet. A look-up by key costs
far less than that, so a cover is kept, and the cover of a later epoch is made from it: the layers of the epochs since
are appended to its pieces. When many pieces were appended, or when a merge has replaced some of their layers, the trace
is opened again.

Invariant: the pieces of a kept cover hold every row of all hashes and of the epochs up to its own exactly once. Layers
never change, and a mapped file can be read after it was removed, so a cover stays true for as long as it is kept. It
keeps the disk space of removed files, so covers that are not asked for any more are dropped (`let_go`).

A look-up at an epoch whose cover is kept takes one lock for a moment and touches no directory.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.errors import EpochUnavailable, LogDamaged
from holdfast.trace.cover import Chain
from holdfast.trace.name import ALL
from holdfast.trace.rows import Layout
from holdfast.trace.trace import Trace

_APPENDED = 16
"""The most pieces that are appended to a cover; then the trace is opened again."""

_EPOCHS = 4
"""The number of covers kept per trace: the last ones asked for."""


@dataclass
class _Kept:
    """The covers of one trace, by epoch."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    covers: OrderedDict[int, tuple[Trace, int]] = field(default_factory=OrderedDict)
    """Epoch → the trace as of this epoch, and how many of its pieces were appended."""

    asked: float = 0.0


class OpenCovers:
    """Traces, open as of the epochs that were asked for last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[str, _Kept] = {}

    def trace(self, directory: Path, layout: Layout, at: int, chain: Chain) -> Trace:
        """The trace of all hashes as of epoch ``at``. Raises as `Trace.open` does.

        May be called from any thread. A thread that asks while another opens the same trace waits for it."""
        with self._lock:
            kept = self._kept.setdefault(str(directory), _Kept())
            kept.asked = time.monotonic()
        with kept.lock:
            found = kept.covers.get(at)
            if found is not None and _is_of(found[0], chain):
                kept.covers.move_to_end(at)
                return found[0]
            opened = self._opened(kept, directory, layout, at, chain)
            kept.covers[at] = opened
            kept.covers.move_to_end(at)
            while len(kept.covers) > _EPOCHS:
                kept.covers.popitem(last=False)
            return opened[0]

    def _opened(self, kept: _Kept, directory: Path, layout: Layout, at: int, chain: Chain) -> tuple[Trace, int]:
        before = max((epoch for epoch in kept.covers if epoch < at), default=None)
        if before is not None:
            trace, appended = kept.covers[before]
            if _is_of(trace, chain):
                try:
                    longer = trace.extended(at, chain)
                except (EpochUnavailable, LogDamaged):
                    longer = None  # opening the trace again raises the best error, if there is one
                if longer is not None:
                    appended += len(longer.slices) - len(trace.slices)
                    if appended <= _APPENDED:
                        return longer, appended
        return Trace.open(directory, layout, 0, ALL, at, chain), 0

    def let_go(self, idle: float) -> None:
        """Forget the covers of traces that were not asked for in ``idle`` seconds. May be called from any thread."""
        since = time.monotonic() - idle
        with self._lock:
            for directory in [each for each, kept in self._kept.items() if kept.asked < since]:
                del self._kept[directory]

    def forget(self) -> None:
        """Forget all covers. May be called from any thread."""
        with self._lock:
            self._kept.clear()


def _is_of(trace: Trace, chain: Chain) -> bool:
    """Whether a kept cover is of the history that ``chain`` believes in."""
    if trace.as_of <= chain.base:
        return True
    return chain.digest(trace.as_of) is not None and chain.digest(trace.as_of) == trace.chain.digest(trace.as_of)
