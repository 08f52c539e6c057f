"""Statistics of a running flow: what its operators did in the last epochs (for `flow.explain`), and how many rows each
partition of a log has (to say how many are lost with it).

These are a few numbers per operator and epoch, taken from the tasks' reports after the epoch is complete.
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
        self._epochs = 0
        self._seen: dict[str, deque[tuple[int, int, float]]] = {}
        """Operator → the epochs in which something arrived: their number in this process, rows, seconds."""

        self._counted: dict[str, dict[str, int]] = {}
        """Operator → the sums of what it counted, over all epochs and partitions."""

        self._held: dict[str, dict[int, Mapping[str, int]]] = {}
        """Operator → partition → what it counted in its last epoch there."""

    def add(self, reports: Iterable[TaskReport]) -> None:
        """Add the reports of a complete epoch. An operator that is in none of them was quiet, and costs nothing
        here."""
        self._epochs += 1
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
            kept.append((self._epochs, count, seconds.get(operator, 0.0)))

    def measured(self, traces: Mapping[str, Iterable[str]], local: Mapping[str, Local]) -> dict[str, Measured]:
        """Return, for each operator, the size of its local layers and its measured work. ``traces``: operator → its
        traces; ``local``: trace → its layers, bytes and rows."""
        found = {}
        for operator, names in traces.items():
            layers, size, rows = together([{operator: local.get(trace, (0, 0, 0))} for trace in names])[operator]
            epochs = self._epochs
            kept = list(self._seen.get(operator, ()))  # another thread may add to it
            seen = [(count, spent) for epoch, count, spent in kept if epoch > epochs - _EPOCHS]
            over = min(epochs, _EPOCHS)
            found[operator] = Measured(
                layers,
                size,
                rows,
                (kept[-1][1] if kept and kept[-1][0] >= epochs else 0) if epochs else None,
                sum(count for count, _ in seen) / over if epochs else None,
                1000 * sum(spent for _, spent in seen) / over if epochs else None,
                self.filtered(operator),
            )
        return found

    def filtered(self, operator: str) -> Filtered | None:
        """Return what the filters of an operator saved; None if it has no filters, or has not run."""
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
    """The number of rows of each log in each partition, as of the last epoch."""

    def __init__(self, partitions: int, last: int) -> None:
        """``last``: the last epoch before counting begins. Unless that is -1, the rows of a log are never known,
        because those of earlier epochs were not counted."""
        self._partitions = partitions
        self._known = last < 0
        self._rows: dict[str, list[int]] = {}

    def add(self, reports: Iterable[TaskReport]) -> None:
        """Add the reports of a complete epoch."""
        for report in reports:
            for log, net in report.net.items():
                self._rows.setdefault(log, [0] * self._partitions)[report.partition] += net

    def rows(self, logs: Iterable[str]) -> list[int] | None:
        """Return the rows of these logs together, by partition; None if they are not known."""
        if not self._known:
            return None
        counted = [self._rows[log] for log in logs if log in self._rows]
        return [sum(some) for some in zip([0] * self._partitions, *counted, strict=True)]


Local = tuple[int, int, int]
"""The number of layers, their bytes, and the rows in them."""


def local_state(directory: Path, traces: Iterable[str], *, rows: bool) -> dict[str, Local]:
    """Return, for each trace, its layers on this host. With ``rows`` each file is opened to count its rows."""
    own = host_path(directory)
    return {trace: held([own / trace], rows=rows) for trace in traces}


def together(some: Iterable[Mapping[str, Local]]) -> dict[str, Local]:
    """Return the sums over several members."""
    found: dict[str, Local] = {}
    for one in some:
        for trace, (layers, size, rows) in one.items():
            had = found.get(trace, (0, 0, 0))
            found[trace] = (had[0] + layers, had[1] + size, had[2] + rows)
    return found


def held(directories: Iterable[Path], *, rows: bool = True) -> Local:
    """Return the number of local layers in these directories, their bytes, and the rows in them."""
    layers = size = count = 0
    for directory in directories:
        for name in local_layers(directory):
            try:
                path = directory / name.text()
                size += path.stat().st_size
                count += _rows(path) if rows else 0
                layers += 1
            except FileNotFoundError:
                continue  # a merge removed it in the meantime
    return layers, size, count


def _rows(path: Path) -> int:
    """Return the number of rows of a layer, from its metadata."""
    try:
        with pa.memory_map(str(path)) as file:
            reader = pa.ipc.open_file(file)
            return sum(reader.get_batch(number).num_rows for number in range(reader.num_record_batches))
    except FileNotFoundError:
        raise
    except (pa.ArrowInvalid, OSError):
        return 0  # damaged: the next read of the layer reports it


def operators_of(traces: Iterable[str], operators: Iterable[str]) -> dict[str, list[str]]:
    """Return, for each operator, its traces."""
    known = set(operators)
    found: dict[str, list[str]] = {}
    for trace in traces:
        found.setdefault(by_operator(known, trace), []).append(trace)
    return found
