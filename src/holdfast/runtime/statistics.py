"""What the operators of a running flow did in the last epochs, for `flow.explain`; and how many rows each partition
of a log has, for saying how many are lost with it.

A few numbers per operator and epoch, taken from the tasks' reports after the epoch is complete.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path

import pyarrow as pa

from holdfast.log.host_paths import host_path
from holdfast.plan.drawing import Filtered, Measured, by_operator
from holdfast.runtime.recovery.fetch_layers import local_layers
from holdfast.task.stage import TaskReport

_EPOCHS = 100


class Statistics:
    """Rows and seconds of each operator, over the last epochs."""

    def __init__(self) -> None:
        self._seen: dict[str, deque[tuple[int, float]]] = {}
        self._counted: dict[str, dict[str, int]] = {}
        """Operator → what it counted, in all epochs and partitions."""

        self._held: dict[str, dict[int, Mapping[str, int]]] = {}
        """Operator → partition → what it counted last."""

    def add(self, reports: Iterable[TaskReport]) -> None:
        """An epoch is complete."""
        rows: dict[str, int] = {}
        seconds: dict[str, float] = {}
        for report in reports:
            for operator, count in report.rows.items():
                rows[operator] = rows.get(operator, 0) + count
            for operator, spent in report.spent.items():
                seconds[operator] = max(seconds.get(operator, 0.0), spent)
            for operator, counts in report.counts.items():
                total = self._counted.setdefault(operator, {})
                for what, count in counts.items():
                    total[what] = total.get(what, 0) + count
                self._held.setdefault(operator, {})[report.partition] = counts
        for operator, count in rows.items():
            kept = self._seen.setdefault(operator, deque(maxlen=_EPOCHS))
            kept.append((count, seconds.get(operator, 0.0)))

    def measured(self, traces: Mapping[str, Iterable[str]], local: Mapping[str, Local]) -> dict[str, Measured]:
        """What each operator keeps in its local layers and did. ``traces``: operator → its traces; ``local``: trace →
        its layers, bytes and rows."""
        found = {}
        for operator, names in traces.items():
            layers, size, rows = together([{operator: local.get(trace, (0, 0, 0))} for trace in names])[operator]
            seen = list(self._seen.get(operator, ()))  # another thread may add to it
            found[operator] = Measured(
                layers,
                size,
                rows,
                seen[-1][0] if seen else None,
                sum(count for count, _ in seen) / len(seen) if seen else None,
                1000 * sum(spent for _, spent in seen) / len(seen) if seen else None,
                self.filtered(operator),
            )
        return found

    def filtered(self, operator: str) -> Filtered | None:
        """What the filters of an operator saved; None if it has none, or has not run."""
        if (counted := self._counted.get(operator)) is None:
            return None
        held = list(self._held[operator].values())
        return Filtered(
            counted["asked"],
            counted["looked up"],
            counted["found"],
            held[0]["rate"] / 1e9,
            sum(each["remembered"] for each in held),
            sum(each["bytes"] for each in held),
        )


class Census:
    """How many rows each log has in each partition, as of the last epoch."""

    def __init__(self, partitions: int, last: int) -> None:
        """``last``: the last epoch that was not counted. What was there before the counting began is not known."""
        self._partitions = partitions
        self._known = last < 0
        self._rows: dict[str, list[int]] = {}

    def add(self, reports: Iterable[TaskReport]) -> None:
        """An epoch is complete."""
        for report in reports:
            for log, net in report.net.items():
                self._rows.setdefault(log, [0] * self._partitions)[report.partition] += net

    def rows(self, logs: Iterable[str]) -> list[int] | None:
        """The rows of these logs together, by partition; None if they are not known."""
        if not self._known:
            return None
        counted = [self._rows[log] for log in logs if log in self._rows]
        return [sum(some) for some in zip([0] * self._partitions, *counted, strict=True)]


Local = tuple[int, int, int]
"""Layers, their bytes, and the rows in them."""


def local_state(directory: Path, traces: Iterable[str], *, rows: bool) -> dict[str, Local]:
    """Trace → its layers on this host; with the ``rows`` in them, for which each file is opened."""
    own = host_path(directory)
    return {trace: held([own / trace], rows=rows) for trace in traces}


def together(some: Iterable[Mapping[str, Local]]) -> dict[str, Local]:
    """The layers of several members."""
    found: dict[str, Local] = {}
    for one in some:
        for trace, (layers, size, rows) in one.items():
            had = found.get(trace, (0, 0, 0))
            found[trace] = (had[0] + layers, had[1] + size, had[2] + rows)
    return found


def held(directories: Iterable[Path], *, rows: bool = True) -> Local:
    """The local layers in these directories, their bytes, and the rows in them."""
    layers = size = count = 0
    for directory in directories:
        for name in local_layers(directory):
            try:
                path = directory / name.text()
                size += path.stat().st_size
                count += _rows(path) if rows else 0
                layers += 1
            except FileNotFoundError:
                continue  # merged in the meantime
    return layers, size, count


def _rows(path: Path) -> int:
    """The rows of a layer, without reading them."""
    try:
        with pa.memory_map(str(path)) as file:
            reader = pa.ipc.open_file(file)
            return sum(reader.get_batch(number).num_rows for number in range(reader.num_record_batches))
    except FileNotFoundError:
        raise
    except (pa.ArrowInvalid, OSError):
        return 0  # damaged: whoever uses it will find out


def operators_of(traces: Iterable[str], operators: Iterable[str]) -> dict[str, list[str]]:
    """Operator → its traces."""
    known = set(operators)
    found: dict[str, list[str]] = {}
    for trace in traces:
        found.setdefault(by_operator(known, trace), []).append(trace)
    return found
