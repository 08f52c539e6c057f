"""The metrics of a running flow, for Prometheus (`terminal/metrics.py`) and OpenTelemetry (`runtime/telemetry.py`).

They are numbers of ``flow.status()``, taken when a monitor asks for them, and counts of the epochs of this process.
Names and meanings are also in docs/metrics.md; a test compares the two.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeAlias

from holdfast.results.flow_results import Epoch, Status

NAMES = {
    "holdfast_epoch": ("gauge", "The last complete epoch."),
    "holdfast_safe_epoch": ("gauge", "The last epoch that is safe: min_replicas log locations have all of it."),
    "holdfast_unsafe_epochs": ("gauge", "Epochs that are not safe yet."),
    "holdfast_unsafe_bytes": ("gauge", "Bytes of layers that are not safe yet."),
    "holdfast_recovery_seconds": ("gauge", "What a recovery would cost now, in seconds, as far as it can be told."),
    "holdfast_source_waiting": ("gauge", "What waits in a source behind the next epoch (rows, files)."),
    "holdfast_sink_epoch": ("gauge", "The last epoch that a sink has."),
    "holdfast_state_bytes": ("gauge", "Bytes of local layers."),
    "holdfast_exact": ("gauge", "1 if the views are exact, 0 while they are approximate."),
    "holdfast_epochs_total": ("counter", "Epochs that this process ran."),
    "holdfast_rows_in_total": ("counter", "Rows that these epochs took in."),
    "holdfast_rows_changed_total": ("counter", "Rows of a view's changes in these epochs."),
    "holdfast_epoch_seconds_total": ("counter", "Seconds that these epochs took."),
    "holdfast_last_epoch_timestamp_seconds": ("gauge", "When the last of them was complete, in seconds since 1970."),
}
"""Metric → its kind, and its meaning."""

Value: TypeAlias = tuple[str, dict[str, str], float]
"""Metric, labels, value."""


class Metrics:
    """The metrics of one flow. `add` and `values` may be called from any thread."""

    def __init__(self, flow: str, status: Callable[[], Status | None]) -> None:
        """``status`` gives the status of the flow; None if it is not open."""
        self._flow = flow
        self._status = status
        self._lock = threading.Lock()
        self._epochs = self._rows = 0
        self._seconds = self._at = 0.0
        self._changed: dict[str, int] = {}

    def add(self, epoch: Epoch) -> None:
        """Count a complete epoch."""
        with self._lock:
            self._epochs += 1
            self._rows += epoch.rows_in
            self._seconds += epoch.seconds
            self._at = time.time()
            for view, rows in epoch.changed.items():
                self._changed[view] = self._changed.get(view, 0) + rows

    def values(self) -> Iterator[Value]:
        """Yield all metrics with their present values."""
        for name, labels, value in self._values():
            yield name, {"flow": self._flow, **labels}, value

    def _values(self) -> Iterator[Value]:
        if (status := self._status()) is not None:
            yield from _standing(status)
        with self._lock:
            yield "holdfast_epochs_total", {}, self._epochs
            yield "holdfast_rows_in_total", {}, self._rows
            yield "holdfast_epoch_seconds_total", {}, self._seconds
            for view, rows in self._changed.items():
                yield "holdfast_rows_changed_total", {"view": view}, rows
            if self._epochs:
                yield "holdfast_last_epoch_timestamp_seconds", {}, self._at


def _standing(status: Status) -> Iterator[Value]:
    durability = status.durability
    yield "holdfast_epoch", {}, status.epoch
    yield "holdfast_safe_epoch", {}, durability.safe
    yield "holdfast_unsafe_epochs", {}, durability.unsafe.epochs
    yield "holdfast_unsafe_bytes", {}, durability.unsafe.bytes
    yield "holdfast_recovery_seconds", {}, durability.recovery_seconds
    yield "holdfast_state_bytes", {}, sum(trace.bytes for trace in status.traces)
    yield "holdfast_exact", {}, status.approximate is None
    for name, source in status.sources.items():
        if source.waiting is not None:
            yield "holdfast_source_waiting", {"source": name}, source.waiting
    for sink in status.sinks:
        if sink.epoch is not None:
            yield "holdfast_sink_epoch", {"view": sink.view, "sink": sink.kind}, sink.epoch
