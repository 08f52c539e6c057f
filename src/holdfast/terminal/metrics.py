"""Numbers of a running flow for Prometheus: ``holdfast run --metrics :9090`` serves them at ``/metrics``.

They are those of ``flow.status()``, asked when somebody asks for them, and counts of the epochs of this process. Names
and meanings are in docs/metrics.md; a test compares the two.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from holdfast.errors import ArgumentError
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
"""Metric → its kind, and what it says."""


class Metrics:
    """Counts the epochs of this process."""

    def __init__(self, flow: str, status: Callable[[], Status]) -> None:
        self._flow = flow
        self._status = status
        self._lock = threading.Lock()
        self._epochs = self._rows = 0
        self._seconds = self._at = 0.0
        self._changed: dict[str, int] = {}

    def add(self, epoch: Epoch) -> None:
        """An epoch is complete."""
        with self._lock:
            self._epochs += 1
            self._rows += epoch.rows_in
            self._seconds += epoch.seconds
            self._at = time.time()
            for view, rows in epoch.changed.items():
                self._changed[view] = self._changed.get(view, 0) + rows

    def text(self) -> str:
        """All of it, as Prometheus reads it."""
        values: dict[str, list[tuple[dict[str, str], float]]] = {name: [] for name in NAMES}
        for name, labels, value in self._values():
            values[name].append(({"flow": self._flow, **labels}, value))
        lines = []
        for name, (kind, meaning) in NAMES.items():
            if values[name]:
                lines += [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"]
                lines += [f"{name}{{{_labels(labels)}}} {value:g}" for labels, value in values[name]]
        return "\n".join(lines) + "\n"

    def _values(self) -> Iterator[tuple[str, dict[str, str], float]]:
        status = self._status()
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
        with self._lock:
            yield "holdfast_epochs_total", {}, self._epochs
            yield "holdfast_rows_in_total", {}, self._rows
            yield "holdfast_epoch_seconds_total", {}, self._seconds
            for view, rows in self._changed.items():
                yield "holdfast_rows_changed_total", {"view": view}, rows
            if self._epochs:
                yield "holdfast_last_epoch_timestamp_seconds", {}, self._at


def _labels(labels: dict[str, str]) -> str:
    escaped = {
        name: text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for name, text in labels.items()
    }
    return ",".join(f'{name}="{text}"' for name, text in escaped.items())


@contextmanager
def served(metrics: Metrics, address: str) -> Iterator[str]:
    """Serve the metrics at ``address`` (``:9090``, ``127.0.0.1:9090``) in the meantime; the address that it has."""
    host, _, port = address.rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise ArgumentError(
            f"metrics: expected an address such as ':9090' or '127.0.0.1:9090', found {address!r}", argument="metrics"
        )

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            try:
                body, status = (metrics.text(), 200) if self.path in ("/metrics", "/") else ("see /metrics\n", 404)
            except Exception as error:  # the flow is being closed
                body, status = f"{type(error).__name__}: {error}\n", 503
            data = body.encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            """Requests are no events."""

    server = ThreadingHTTPServer((host.strip("[]"), int(port)), Handler)
    threading.Thread(target=server.serve_forever, name="holdfast-metrics", daemon=True).start()
    try:
        yield f"{host or '0.0.0.0'}:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
