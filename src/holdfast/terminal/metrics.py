"""``holdfast run --metrics :9090``: the numbers of `results/metrics.py` for Prometheus, at ``/metrics``."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from holdfast.errors import ArgumentError
from holdfast.results.metrics import NAMES, Metrics


def text(metrics: Metrics) -> str:
    """All of it, as Prometheus reads it."""
    values: dict[str, list[tuple[dict[str, str], float]]] = {name: [] for name in NAMES}
    for name, labels, value in metrics.values():
        values[name].append((labels, value))
    lines = []
    for name, (kind, meaning) in NAMES.items():
        if values[name]:
            lines += [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"]
            lines += [f"{name}{{{_labels(labels)}}} {value:g}" for labels, value in values[name]]
    return "\n".join(lines) + "\n"


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
                body, status = (text(metrics), 200) if self.path in ("/metrics", "/") else ("see /metrics\n", 404)
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
