"""Spans and metrics for OpenTelemetry, if its API is installed (``pip install 'holdfast[opentelemetry]'``).

This module sets nothing up. In a program that sets up OpenTelemetry's SDK, Holdfast adds one span per epoch (also per
failed epoch) and the numbers of `results/metrics.py`. Without an SDK, or without the API, nothing happens.

The numbers are observed: when the SDK exports, it asks for those of all open flows. Their names are those of
docs/metrics.md as OpenTelemetry writes them (``holdfast.rows_in`` for ``holdfast_rows_in_total``), so that its
Prometheus exporter gives the same names again.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from holdfast.reporting.redaction import redact
from holdfast.results.flow_results import Epoch, Status
from holdfast.results.metrics import NAMES, Metrics, Value

_lock = threading.Lock()
_open: weakref.WeakSet[Telemetry] = weakref.WeakSet()
"""The flows whose numbers are observed."""

_meters: weakref.WeakSet[Any] = weakref.WeakSet()
"""The meter providers that have Holdfast's instruments."""


class Telemetry:
    """The spans and numbers of one flow for OpenTelemetry. Any thread may call its methods."""

    def __init__(self, flow: str, status: Callable[[], Status | None]) -> None:
        """``status`` gives the status of the flow; None if it is not open."""
        self._flow = flow
        self._metrics = Metrics(flow, status)
        try:
            from opentelemetry import metrics, trace
        except ImportError:
            self._trace: Any = None
            return
        self._trace = trace
        with _lock:
            _open.add(self)
            provider = metrics.get_meter_provider()
            if provider not in _meters:
                _meters.add(provider)
                _instruments(metrics, provider)

    def close(self) -> None:
        """Stop observing the flow, because it is closed."""
        with _lock:
            _open.discard(self)

    @contextmanager
    def epoch(self) -> Iterator[Callable[[Epoch], None]]:
        """Make a span of the attempt to run an epoch. Yield a function to be called with the result; a result that is
        idle makes no span, an exception makes one with an error."""
        if self._trace is None:
            yield lambda result: None
            return
        begun = time.time_ns()
        done: list[Epoch] = []
        try:
            yield done.append
        except Exception as error:
            span = self._span(begun, {})
            span.record_exception(error)
            span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, redact(str(error))))
            span.end()
            raise
        if done and not done[0].idle:
            self._metrics.add(done[0])
            self._span(begun, _attributes(done[0])).end()

    def _span(self, begun: int, attributes: dict[str, Any]) -> Any:
        from holdfast import __version__

        tracer = self._trace.get_tracer("holdfast", __version__)
        return tracer.start_span(
            "holdfast.epoch", start_time=begun, attributes={"holdfast.flow": self._flow, **attributes}
        )

    def values(self) -> list[Value]:
        """Return the present numbers; fewer if the flow is not open."""
        return list(self._metrics.values())


def _attributes(epoch: Epoch) -> dict[str, Any]:
    return {
        "holdfast.epoch": epoch.epoch,
        "holdfast.rows_in": epoch.rows_in,
        "holdfast.path": epoch.path,
        "holdfast.exact": epoch.approximate is None,
        **{f"holdfast.changed.{view}": rows for view, rows in epoch.changed.items()},
        **{f"holdfast.seconds.{kind}": seconds for kind, seconds in epoch.timings.items()},
    }


def _instruments(metrics: Any, provider: Any) -> None:
    from holdfast import __version__

    meter = provider.get_meter("holdfast", __version__)

    def observed(name: str) -> Callable[[Any], list[Any]]:
        def observe(options: Any) -> list[Any]:
            with _lock:
                flows = list(_open)
            found = [value for flow in flows for value in flow.values()]
            return [metrics.Observation(value, labels) for known, labels, value in found if known == name]

        return observe

    for name, (kind, meaning) in NAMES.items():
        make = meter.create_observable_counter if kind == "counter" else meter.create_observable_gauge
        make(
            name.removesuffix("_total").replace("holdfast_", "holdfast.", 1),
            callbacks=[observed(name)],
            description=meaning,
        )
