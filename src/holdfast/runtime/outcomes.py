"""Sums over the reports of an epoch's tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from holdfast.results.flow_results import Approximation, Epoch
from holdfast.runtime.runner import Outcome
from holdfast.task.messages import decode
from holdfast.task.program import Compiled
from holdfast.task.stage import TaskReport

_LAZIER = 8
_LARGE = 1 << 19
"""Bytes of a layer."""

_TURN = 8
"""Layers without rows are merged this many times less often than others: no reader opens them."""


def answers_of(reports: Sequence[TaskReport]) -> dict[str, dict[str, str]]:
    """Return the answers of outside functions, by operator. No two tasks asked the same question."""
    found: dict[str, dict[str, str]] = {}
    for report in reports:
        for operator, answers in report.answers.items():
            found.setdefault(operator, {}).update(answers)
    return found


def delivered(outcome: Outcome, operator: Compiled) -> pa.Table:
    """Return the change of one log, from the rows that the tasks delivered."""
    parts = [decode(report.outputs[operator.id]) for report in outcome.reports if operator.id in report.outputs]
    return pa.concat_tables(parts) if parts else operator.output.empty_table()


@dataclass(frozen=True)
class SinkChange:
    """The change that a sink is given for an epoch."""

    rows: pa.Table
    """The rows that came to the driver: columns by position, ``_diff``."""

    parts: tuple[Any, ...] = ()
    """What the sink's writer returned for the rows that tasks wrote (`task/sink_parts.py`)."""


def change_for(outcome: Outcome, operator: Compiled, sink: int) -> SinkChange:
    """Return the change of one log for one of its sinks (its index): parts that tasks wrote, and the other rows."""
    parts = [part for report in outcome.reports for part in report.parts.written.get(sink, ())]
    rows = [
        decode(report.outputs[operator.id])
        for report in outcome.reports
        if operator.id in report.outputs and sink not in report.parts.written
    ]
    return SinkChange(pa.concat_tables(rows) if rows else operator.output.empty_table(), tuple(parts))


def part_errors(outcome: Outcome) -> dict[int, str]:
    """Return, for each sink whose writer failed in a task, one of the reasons."""
    return {sink: why for report in outcome.reports for sink, why in report.parts.errors.items()}


def due_of(outcome: Outcome) -> int | None:
    """Return the clock, in microseconds, from which rows come or go even if no input arrives; None: never."""
    return min((report.due for report in outcome.reports if report.due is not None), default=None)


def written_by(outcome: Outcome) -> int:
    """Return the bytes of the layers that were written."""
    return sum(
        report.quiet + sum(size for layers in report.written.values() for _, size in layers)
        for report in outcome.reports
    )


def crowded(
    outcome: Outcome, epoch: int, traces: Sequence[str], tolerated: int, logs: Collection[str] = ()
) -> set[str]:
    """Return the traces whose layers are to be merged now, among all ``traces`` of the flow.

    These are the traces that this epoch opened and that have ``tolerated`` layers or more; and those whose turn it is,
    for the layers that quiet epochs give to traces which nothing opens. A trace's turn comes every `_TURN` ·
    ``tolerated`` epochs, and not all have it at once, so what an epoch costs for them is the same in each. (The first
    turn comes when there can be that many layers.)

    ``logs`` are only written by epochs. If their layers are large, they are merged when they are `_LAZIER` times as
    many: epochs do not wait for a log, and each row of it is written again fewer times."""
    found = {
        trace
        for report in outcome.reports
        for trace, count in report.layers.items()
        if count >= tolerated * (_LAZIER if trace in logs and _is_large(report, trace) else 1)
    }
    turns = _TURN * tolerated
    return found.union(traces[epoch % turns :: turns]) if epoch >= turns else found


def _is_large(report: TaskReport, trace: str) -> bool:
    return any(size >= _LARGE for _, size in report.written.get(trace, ()))


def rounds_of(outcome: Outcome) -> dict[str, int]:
    """Return, for each view with loops, the greatest number of rounds that one of them ran."""
    found: dict[str, int] = {}
    for report in outcome.reports:
        for view, rounds in report.rounds.items():
            found[view] = max(rounds, found.get(view, 0))
    return found


def result_of(
    epoch: int,
    outcome: Outcome,
    logs: Mapping[str, str],
    seconds: float,
    waited: float = 0.0,
    approximate: Approximation | None = None,
) -> Epoch:
    """Return the result of an epoch. ``logs``: view → its log; ``seconds``: its latency; ``waited``: the seconds of
    back-pressure."""
    rows: Counter[str] = Counter()
    for report in outcome.reports:
        rows.update(report.rows)
    changed = {view: rows[log] for view, log in logs.items()}
    timings = {"planning": outcome.planning}
    if waited:
        timings["back-pressure"] = waited
    for what, spent in _slowest(outcome.reports):
        timings[what] = timings.get(what, 0.0) + spent
    arrived = sum(report.arrived for report in outcome.reports if report.stage == 0)
    return Epoch(epoch, changed, arrived, seconds, timings, approximate, outcome.path, rounds_of(outcome))


def _slowest(reports: Sequence[TaskReport]) -> Iterator[tuple[str, float]]:
    """Yield what the slowest task of each stage spent. A task may have made a report for each of its partitions."""
    tasks: dict[tuple[int, int | None, int], list[TaskReport]] = {}
    for report in reports:
        key = report.stage, report.task, report.partition if report.task is None else 0
        tasks.setdefault(key, []).append(report)
    slowest: dict[int, tuple[float, list[TaskReport]]] = {}
    for (stage, *_), mine in tasks.items():
        took = sum(report.ended - report.started for report in mine)
        if stage not in slowest or took > slowest[stage][0]:
            slowest[stage] = took, mine
    for _, mine in slowest.values():
        for report in mine:
            yield from report.seconds.items()
