"""A dataflow as it is shown: boxes, the lines between them, and what each box keeps and does.

Made of a `Dataflow` when a flow runs, and of what its log says of it (``collections.json``, "dataflow") when it does
not. Text (`plan/explain.py`), pictures (`plan/picture.py`) and JSON are all made of this.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from holdfast.plan.dataflow import Dataflow, Path
from holdfast.plan.nodes import Source


@dataclass(frozen=True)
class Filtered:
    """What the filters in front of a catalog of ids saved, since the flow was opened."""

    asked: int
    """So many ids came, each counted once per epoch and partition."""

    looked_up: int
    """For so many of them the catalog was searched."""

    found: int
    """So many of those were there."""

    rate: float
    """The share of new ids that may be looked up in vain, as it was set."""

    remembered: int
    """So many ids the filters hold; more than the catalog, where some are over."""

    bytes: int
    """The filters' memory."""

    @property
    def measured_rate(self) -> float:
        """The share of new ids that were looked up in vain."""
        return (self.looked_up - self.found) / max(1, self.asked - self.found)

    @property
    def saved(self) -> float:
        """The share of look-ups that were not made."""
        return 1 - self.looked_up / max(1, self.asked)

    @property
    def text(self) -> str:
        return (
            f"{self.asked:,} ids, {self.looked_up:,} looked up ({self.saved:.1%} saved), {self.measured_rate:.2%} of "
            f"the new ones in vain (set {self.rate:.2%}); filters {self.bytes:,} B"
        )


@dataclass(frozen=True)
class Measured:
    """What an operator keeps, and what it did."""

    layers: int = 0
    bytes: int = 0
    rows: int | None = None
    """Rows in its layers; more than it holds where some cancel out. None: not counted."""

    last: int | None = None
    """Rows of its last change; None if none was seen."""

    mean: float | None = None
    """Rows of its change per epoch, over the last epochs."""

    milliseconds: float | None = None
    """Its time per epoch, in the slowest partition, over the last epochs."""

    filtered: Filtered | None = None
    """What its filters saved; None if it has none."""


@dataclass(frozen=True)
class Box:
    """A source or an operator."""

    id: str
    kind: str
    title: str
    stage: int = 0
    cost: str = ""
    """What its work in an epoch is proportional to."""

    views: tuple[str, ...] = ()
    """The views that depend on it."""

    nondeterministic: tuple[str, ...] = ()
    timed: bool = False
    """Whether it looks at the clock of the lineage."""

    colour: str = "#f0f2f4"
    inside: tuple[str, ...] = ()
    """Of a loop: what it does in each round, as lines of text."""


@dataclass(frozen=True)
class Line:
    """Rows from one box to a port of another."""

    producer: str
    consumer: str
    port: int
    text: str = ""
    """What is done to them on the way."""

    local: bool = False
    catalyst: bool = False


@dataclass(frozen=True)
class Drawing:
    """Boxes, producers before consumers, and the lines between them."""

    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]
    views: Mapping[str, str]
    """View (or kept source) → the box that keeps it."""

    measured: Mapping[str, Measured] = field(default_factory=dict)
    crash: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """View → what a crash can do to its output, in lines."""

    sinks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """View → the sinks that take its changes."""

    def box(self, box_id: str) -> Box:
        return next(each for each in self.boxes if each.id == box_id)

    def behind(self, view: str) -> Drawing:
        """Only what a view depends on."""
        wanted, frontier = {self.views[view]}, {self.views[view]}
        while frontier:
            frontier = {line.producer for line in self.lines if line.consumer in frontier} - wanted
            wanted |= frontier
        return replace(
            self,
            boxes=tuple(each for each in self.boxes if each.id in wanted),
            lines=tuple(each for each in self.lines if each.consumer in wanted),
            views={view: self.views[view]},
            crash={view: self.crash[view]} if view in self.crash else {},
            sinks={view: self.sinks[view]} if view in self.sinks else {},
        )

    def structure(self) -> dict[str, Any]:
        """The drawing without measures, as JSON."""
        return {
            "boxes": [asdict(each) for each in self.boxes],
            "lines": [asdict(each) for each in self.lines],
            "views": dict(self.views),
            "crash": {view: list(lines) for view, lines in self.crash.items()},
            "sinks": {view: list(names) for view, names in self.sinks.items()},
        }

    def to_dict(self) -> dict[str, Any]:
        return {**self.structure(), "measured": {box_id: asdict(each) for box_id, each in self.measured.items()}}

    @staticmethod
    def from_dict(said: Mapping[str, Any]) -> Drawing:
        """Raises KeyError or TypeError if it is not one."""
        boxes = tuple(
            Box(
                **{
                    "timed": each["kind"] == "temporal",  # logs of earlier versions do not say it
                    **each,
                    "views": tuple(each["views"]),
                    "inside": tuple(each.get("inside", ())),
                    "nondeterministic": tuple(each["nondeterministic"]),
                }
            )
            for each in said["boxes"]
        )
        crash = {view: tuple(lines) for view, lines in said.get("crash", {}).items()}
        sinks = {view: tuple(names) for view, names in said.get("sinks", {}).items()}
        lines = tuple(Line(**each) for each in said["lines"])
        return Drawing(boxes, lines, dict(said["views"]), crash=crash, sinks=sinks)


def drawing(flow: Dataflow, measured: Mapping[str, Measured] | None = None) -> Drawing:
    """The drawing of a whole dataflow."""
    behind = {view: {log, *flow.ancestors({log})} for view, log in flow.views.items()}

    def views(box_id: str) -> tuple[str, ...]:
        return tuple(view for view, above in behind.items() if box_id in above)

    boxes = [
        Box(
            name,
            "source",
            f"source {name}({', '.join(_columns(source))})",
            views=views(name),
            colour="#e8f1fb",
        )
        for name, source in flow.sources.items()
    ]
    for operator in flow.operators.values():
        part = operator.part
        boxes.append(
            Box(
                operator.id,
                part.kind,
                part.title,
                operator.stage,
                part.cost,
                views(operator.id),
                part.draws,
                part.timed,
                part.colour,
                part.inside,
            )
        )
    lines = [
        Line(path.producer, path.consumer, path.port, path_text(path), path.local, path.catalyst) for path in flow.paths
    ]
    return Drawing(tuple(boxes), tuple(lines), dict(flow.views), measured or {})


def _columns(source: Source) -> list[str]:
    """The columns of a source that people know: versions of keys have some more, of Holdfast's own."""
    names = [each.name for each in source.fields]
    return [name for name in names if not name.startswith("_")] if "_deleted" in names else names


def path_text(path: Path) -> str:
    """What is done to the rows of a path."""
    return "; ".join(text for step in path.steps for text in step.texts())


def by_operator(operators: Iterable[str], trace: str) -> str:
    """The operator whose state a trace is part of."""
    known = set(operators)
    operator_id = trace
    while operator_id not in known and "." in operator_id:
        operator_id = operator_id.rsplit(".", 1)[0]
    return operator_id
