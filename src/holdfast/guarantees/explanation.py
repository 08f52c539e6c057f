"""What a crash can do to the output of each view and sink of a flow, as lines for people (`flow.explain`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from holdfast.guarantees.operator_classes import Classified, classes_of, worst
from holdfast.guarantees.prediction import SinkKind, predict
from holdfast.guarantees.strategy import Strategy
from holdfast.plan.drawing import Drawing

_READ = "rows that are read"
"""The subject of the line for a view without sinks."""

_SHOWN = 3
"""The greatest number of operators of the worst class that are named."""


@dataclass(frozen=True)
class Outlet:
    """The facts about a sink that a prediction needs."""

    view: str
    name: str
    kind: SinkKind


def anchored(sinks: Sequence[Outlet], index: int) -> bool:
    """Whether a sink that gets each epoch before this sink does holds the lineage."""
    return any(each.kind is SinkKind.TRANSACTIONAL for each in sinks[:index])


def explained(
    whole: Drawing, views: Iterable[str], strategy: Strategy, sinks: Sequence[Outlet], sources: Mapping[str, str]
) -> Drawing:
    """A drawing that shows for each view its sinks and what a crash can do to its output. ``sinks``: all sinks of the
    flow, in their order; ``sources``: the kind of each source that is not plain (`guarantees/operator_classes.py`)."""
    crash = {}
    for view in views:
        classes = classes_of(whole, view, sources)
        least = worst(classes).operator_class
        those = dict.fromkeys(f"{each.what} ({each.reason})" for each in classes if each.operator_class is least)
        lines = [
            f"The least of its operators are {least.value}: {'; '.join(list(those)[:_SHOWN])}.",
            f"What a crash can do, with strategy {strategy}:",
        ]
        own = [index for index, each in enumerate(sinks) if each.view == view]
        for index in own:
            lines += _lines(sinks[index].name, classes, strategy, sinks[index].kind, anchored(sinks, index))
        if not own:
            lines += _lines(_READ, classes, strategy, SinkKind.TRANSACTIONAL, False)
        crash[view] = tuple(lines)
    taking: dict[str, tuple[str, ...]] = {}
    for each in sinks:
        taking[each.view] = (*taking.get(each.view, ()), each.name)
    return replace(whole, crash=crash, sinks=taking)


def _lines(subject: str, classes: Sequence[Classified], strategy: Strategy, kind: SinkKind, holds: bool) -> list[str]:
    found = predict(classes, strategy, kind, anchored=holds)
    lost = predict(classes, strategy, kind, failure="host", anchored=holds)
    said = str(found)
    lines = [f"  {subject}: {said.removesuffix(', and the sink says what it has') if subject == _READ else said}"]
    if lost.recovery is not found.recovery:
        lines.append(f"    if the driver's working directory is lost, too: {lost}")
    return lines
