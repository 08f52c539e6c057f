"""OpenTelemetry: a span per epoch, and the numbers that Prometheus has, in the exporters of a program's own SDK."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.results.metrics import NAMES


@pytest.fixture(scope="module")
def exported() -> Iterator[tuple[InMemorySpanExporter, InMemoryMetricReader]]:
    spans, numbers = InMemorySpanExporter(), InMemoryMetricReader()
    tracing, measuring = TracerProvider(), MeterProvider([numbers])
    tracing.add_span_processor(SimpleSpanProcessor(spans))
    trace.set_tracer_provider(tracing)
    metrics.set_meter_provider(measuring)
    yield spans, numbers
    tracing.shutdown()
    measuring.shutdown()


def _numbers(reader: InMemoryMetricReader) -> dict[str, dict[str, float]]:
    """Metric → view or source or nothing → value."""
    data = reader.get_metrics_data()
    found: dict[str, dict[str, float]] = {}
    for resource in data.resource_metrics if data is not None else ():
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                for point in metric.data.data_points:
                    if point.attributes["flow"] != "watched":
                        continue  # one that another test has left open
                    label = point.attributes.get("view") or point.attributes.get("source") or ""
                    found.setdefault(metric.name, {})[label] = point.value
    return found


def test_each_epoch_is_a_span_and_the_numbers_are_those_of_prometheus(
    spark: SparkSession, tmp_path: Path, exported: tuple[InMemorySpanExporter, InMemoryMetricReader]
) -> None:
    spans, reader = exported
    with hf.Flow("watched", log=tmp_path / "log", spark=spark, partitions=1) as flow:
        t = flow.input("t", "k long")
        flow.view("v", "SELECT 10 div k AS d FROM t").sink("v", hf.changelog(tmp_path / "out"))
        t.insert([(1,), (2,)])
        flow.step()
        flow.step()  # finds nothing, and is no span
        t.insert([(0,)])
        with pytest.raises(hf.EvaluationError):
            flow.step()
        t.discard()
        t.insert([(5,)])
        flow.step()
        t.insert([(6,)])
        found = _numbers(reader)
        first, failed, last = spans.get_finished_spans()
    assert first.name == "holdfast.epoch" and first.attributes is not None
    assert {
        "holdfast.flow": "watched",
        "holdfast.epoch": 0,
        "holdfast.rows_in": 2,
        "holdfast.changed.v": 2,
    }.items() <= (first.attributes.items())
    assert first.end_time is not None and first.start_time is not None and first.end_time > first.start_time
    assert failed.status.status_code is trace.StatusCode.ERROR and failed.events[0].name == "exception"
    assert last.attributes is not None and last.attributes["holdfast.epoch"] == 1
    assert found["holdfast.epoch"] == {"": 1} and found["holdfast.epochs"] == {"": 2}
    assert found["holdfast.rows_changed"] == {"v": 3} and found["holdfast.source_waiting"] == {"t": 1}
    assert found["holdfast.sink_epoch"] == {"v": 1}
    assert found.keys() <= {name.removesuffix("_total").replace("_", ".", 1) for name in NAMES}
    assert not _numbers(reader), "a flow that is closed has nothing to say"
