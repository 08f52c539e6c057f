"""What the operators of a running flow did in the last epochs: for `flow.explain`, and nothing else.

A few numbers per operator and epoch, taken from the tasks' reports after the epoch is complete.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path

import pyarrow as pa

from holdfast.operators.stage import Report
from holdfast.plan.drawing import Measured, by_operator
from holdfast.recovery.layers import local_layers

_EPOCHS = 100


class Statistics:
    """Rows and seconds of each operator, over the last epochs."""

    def __init__(self) -> None:
        self._seen: dict[str, deque[tuple[int, float]]] = {}

    def add(self, reports: Iterable[Report]) -> None:
        """An epoch is complete."""
        rows: dict[str, int] = {}
        seconds: dict[str, float] = {}
        for report in reports:
            for operator, count in report.rows.items():
                rows[operator] = rows.get(operator, 0) + count
            for operator, spent in report.spent.items():
                seconds[operator] = max(seconds.get(operator, 0.0), spent)
        for operator, count in rows.items():
            kept = self._seen.setdefault(operator, deque(maxlen=_EPOCHS))
            kept.append((count, seconds.get(operator, 0.0)))

    def measured(self, traces: Mapping[str, Iterable[str]], directory: Path) -> dict[str, Measured]:
        """What each operator keeps in its local layers and did. ``traces``: operator → its traces."""
        found = {}
        for operator, names in traces.items():
            layers, size, rows = held(directory / trace for trace in names)
            seen = self._seen.get(operator, ())
            found[operator] = Measured(
                layers,
                size,
                rows,
                seen[-1][0] if seen else None,
                sum(count for count, _ in seen) / len(seen) if seen else None,
                1000 * sum(spent for _, spent in seen) / len(seen) if seen else None,
            )
        return found


def held(directories: Iterable[Path]) -> tuple[int, int, int]:
    """The local layers in these directories, their bytes, and the rows in them."""
    layers = size = rows = 0
    for directory in directories:
        for name in local_layers(directory):
            try:
                path = directory / name.text()
                size += path.stat().st_size
                rows += _rows(path)
                layers += 1
            except FileNotFoundError:
                continue  # merged in the meantime
    return layers, size, rows


def _rows(path: Path) -> int:
    """The rows of a layer, without reading them."""
    try:
        with pa.memory_map(str(path)) as file:
            reader = pa.ipc.open_file(file)
            return sum(reader.get_batch(number).num_rows for number in range(reader.num_record_batches))
    except pa.ArrowInvalid:
        return 0  # damaged: whoever uses it will find out


def operators_of(traces: Iterable[str], operators: Iterable[str]) -> dict[str, list[str]]:
    """Operator → its traces."""
    known = set(operators)
    found: dict[str, list[str]] = {}
    for trace in traces:
        found.setdefault(by_operator(known, trace), []).append(trace)
    return found
