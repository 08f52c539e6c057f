"""Sums over the reports of an epoch's tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from holdfast.results.flow_results import Approximation, Epoch
from holdfast.runtime.runner import Outcome
from holdfast.task.messages import decode
from holdfast.task.stage import TaskReport


def answers_of(reports: Sequence[TaskReport]) -> dict[str, dict[str, str]]:
    """Return the answers of outside functions, by operator. No two tasks asked the same question."""
    found: dict[str, dict[str, str]] = {}
    for report in reports:
        for operator, answers in report.answers.items():
            found.setdefault(operator, {}).update(answers)
    return found


def delivered(outcome: Outcome, operator_id: str) -> pa.Table:
    """Return the change of one log, from the parts that the tasks delivered."""
    return pa.concat_tables(
        [decode(report.outputs[operator_id]) for report in outcome.reports if operator_id in report.outputs]
    )


def due_of(outcome: Outcome) -> int | None:
    """Return the clock, in microseconds, from which rows come or go even if no input arrives; None: never."""
    return min((report.due for report in outcome.reports if report.due is not None), default=None)


def written_by(outcome: Outcome) -> int:
    """Return the bytes of the layers that were written."""
    return sum(size for report in outcome.reports for layers in report.written.values() for _, size in layers)


def crowded(outcome: Outcome, tolerated: int) -> set[str]:
    """Return the traces that have ``tolerated`` layers or more."""
    return {trace for report in outcome.reports for trace, count in report.layers.items() if count >= tolerated}


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
    changed = {view: sum(report.rows.get(log, 0) for report in outcome.reports) for view, log in logs.items()}
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
