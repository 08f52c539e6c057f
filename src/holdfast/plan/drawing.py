"""A dataflow as it is shown: boxes, the lines between them, and the state and work of each box.

For a running flow the drawing is made from its `Dataflow`, otherwise from the flow's log (``collections.json``,
"dataflow"). Text (`plan/explain.py`), pictures (`plan/picture.py`) and JSON are all made from a drawing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from holdfast.plan.dataflow import Dataflow, Path
from holdfast.plan.nodes import Source


@dataclass(frozen=True)
class Filtered:
    """What the Bloom filters of a catalog of ids saved, since the flow was opened."""

    asked: int
    """The number of ids that arrived, each counted once per epoch and partition."""

    looked_up: int
    """The number of arrived ids for which the catalog was searched."""

    found: int
    """The number of searched ids that were in the catalog."""

    rate: float
    """The wanted share of new ids for which the catalog is searched in vain (0 to 1)."""

    remembered: int
    """The number of ids in the filters. It may include ids that have left the catalog."""

    bytes: int
    """The memory of the filters, in bytes."""

    @property
    def measured_rate(self) -> float:
        """The share of new ids for which the catalog was searched in vain (0 to 1)."""
        return (self.looked_up - self.found) / max(1, self.asked - self.found)

    @property
    def saved(self) -> float:
        """The share of arrived ids for which no search was needed (0 to 1)."""
        return 1 - self.looked_up / max(1, self.asked)

    @property
    def text(self) -> str:
        return (
            f"{self.asked:,} ids, {self.looked_up:,} looked up ({self.saved:.1%} saved), {self.measured_rate:.2%} of "
            f"the new ones in vain (set {self.rate:.2%}); filters {self.bytes:,} B"
        )


@dataclass(frozen=True)
class Measured:
    """The size of an operator's state, and the size and time of its changes."""

    layers: int = 0
    bytes: int = 0
    """The size of its layers, in bytes."""

    rows: int | None = None
    """Stored rows in its layers, also rows that cancel each other. None: not counted."""

    last: int | None = None
    """Rows of its last change; None if no change was seen."""

    mean: float | None = None
    """Rows of its change per epoch, averaged over the last epochs."""

    milliseconds: float | None = None
    """Its time per epoch in the slowest partition, averaged over the last epochs."""

    filtered: Filtered | None = None
    """What its filters saved; None if it has no filters."""


@dataclass(frozen=True)
class Box:
    """A source, an operator or (in a picture) a sink."""

    id: str
    kind: str
    title: str
    stage: int = 0
    cost: str = ""
    """What the operator's work in an epoch is proportional to."""

    views: tuple[str, ...] = ()
    """The views that depend on it."""

    nondeterministic: tuple[str, ...] = ()
    """The nondeterministic functions whose values it draws."""

    timed: bool = False
    """Whether it reads the clock of the lineage."""

    colour: str = "#f0f2f4"
    inside: tuple[str, ...] = ()
    """Only for a loop: what it does in each round, as lines of text."""


@dataclass(frozen=True)
class Line:
    """Rows from one box to a port of another."""

    producer: str
    consumer: str
    port: int
    text: str = ""
    """The linear steps that are applied to the rows, as text."""

    local: bool = False
    catalyst: bool = False


@dataclass(frozen=True)
class Drawing:
    """Boxes, producers before consumers, and the lines between them."""

    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]
    views: Mapping[str, str]
    """View (or kept source) → id of the box that keeps its rows."""

    measured: Mapping[str, Measured] = field(default_factory=dict)
    crash: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """View → what a crash can do to its output, as lines of text."""

    sinks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """View → the sinks that take its changes."""

    def box(self, box_id: str) -> Box:
        return next(each for each in self.boxes if each.id == box_id)

    def behind(self, view: str) -> Drawing:
        """The part of the drawing that a view depends on."""
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
        """The drawing without measurements, as JSON."""
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
        """Read a drawing from JSON. Raises KeyError or TypeError if it is not a drawing."""
        boxes = tuple(
            Box(
                **{
                    "timed": each["kind"] == "temporal",  # logs of earlier versions have no "timed"
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
    """Return the drawing of a whole dataflow."""
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
    """The columns of a source that users declared. A source with a key has more columns, which Holdfast adds."""
    names = [each.name for each in source.fields]
    return [name for name in names if not name.startswith("_")] if "_deleted" in names else names


def path_text(path: Path) -> str:
    """The steps of a path, as text."""
    return "; ".join(text for step in path.steps for text in step.texts())


def by_operator(operators: Iterable[str], trace: str) -> str:
    """The operator_id of the operator that a trace belongs to."""
    known = set(operators)
    operator_id = trace
    while operator_id not in known and "." in operator_id:
        operator_id = operator_id.rsplit(".", 1)[0]
    return operator_id
