"""A dataflow as it is shown: boxes, the lines between them, and what each box keeps and does.

Made of a `Dataflow` when a flow runs, and of what its log says of it (``collections.json``, "dataflow") when it does
not. Text (`plan/explain.py`), pictures (`plan/picture.py`) and JSON are all made of this.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from holdfast.plan.dataflow import Dataflow, Operator, Path
from holdfast.plan.expression import plain, readable
from holdfast.plan.nodes import (
    Aggregate,
    Apply,
    Call,
    Draw,
    Drawn,
    Generate,
    Join,
    SetOperation,
    Temporal,
    TopK,
    Window,
)
from holdfast.plan.windows import call_text

_WHOLE_GROUP = frozenset({"collect_list", "collect_set", "mode", "percentile", "percentile_disc"})


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

    def box(self, mark: str) -> Box:
        return next(each for each in self.boxes if each.id == mark)

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
        )

    def structure(self) -> dict[str, Any]:
        """The drawing without measures, as JSON."""
        return {
            "boxes": [asdict(each) for each in self.boxes],
            "lines": [asdict(each) for each in self.lines],
            "views": dict(self.views),
        }

    def to_dict(self) -> dict[str, Any]:
        return {**self.structure(), "measured": {mark: asdict(each) for mark, each in self.measured.items()}}

    @staticmethod
    def from_dict(said: Mapping[str, Any]) -> Drawing:
        """Raises KeyError or TypeError if it is not one."""
        boxes = tuple(
            Box(**{**each, "views": tuple(each["views"]), "nondeterministic": tuple(each["nondeterministic"])})
            for each in said["boxes"]
        )
        return Drawing(boxes, tuple(Line(**each) for each in said["lines"]), dict(said["views"]))


def drawing(flow: Dataflow, measured: Mapping[str, Measured] | None = None) -> Drawing:
    """The drawing of a whole dataflow."""
    behind = {view: {mark, *flow.ancestors({mark})} for view, mark in flow.views.items()}

    def views(mark: str) -> tuple[str, ...]:
        return tuple(view for view, above in behind.items() if mark in above)

    boxes = [
        Box(name, "source", f"source {name}({', '.join(each.name for each in source.fields)})", views=views(name))
        for name, source in flow.sources.items()
    ]
    for mark, operator in flow.operators.items():
        node = operator.node
        drawn = (
            tuple(each.function for each in node.draws) if operator.kind == "draw" and isinstance(node, Draw) else ()
        )
        boxes.append(Box(mark, operator.kind, title(operator), operator.stage, cost(operator), views(mark), drawn))
    lines = [
        Line(path.producer, path.consumer, path.port, path_text(path), path.local, path.catalyst) for path in flow.paths
    ]
    return Drawing(tuple(boxes), tuple(lines), dict(flow.views), measured or {})


def cost(operator: Operator) -> str:
    """What the work of an operator in an epoch is proportional to."""
    match operator.node:
        case Join(left_keys=()) if operator.kind in ("join", "outer", "semi"):
            return "of a side"
        case Join() if operator.kind in ("join", "outer", "semi"):
            return "of the change and what it matches"
        case Aggregate(calls=calls) if operator.kind == "aggregate":
            return "of the group" if any(call.function in _WHOLE_GROUP for call in calls) else "of the change"
        case Window(first=first) if operator.kind == "window":
            return "of the partition" if first is None else "of the change and the partition's front"
    return "of the change"


def title(operator: Operator) -> str:
    """What an operator does, for people."""
    node = operator.node
    names = [field.name for field in operator.fields]
    match operator.kind, node:
        case "log", _:
            kind = "input" if operator.check else "view"
            return f"{kind} {operator.name}({', '.join(names)})"
        case "aggregate", Aggregate():
            calls = ", ".join(map(_aggregate, node.calls))
            keys = ", ".join(node.keys) or "nothing"
            return f"aggregate by {keys}: {calls}" if calls else f"distinct {keys}"
        case (("join" | "outer" | "semi"), Join()):
            return _join(node)
        case "set", SetOperation():
            return f"{node.kind}{' all' if node.all else ''} of {', '.join(names)}"
        case "bucket", TopK():
            return f"first {node.limit + node.offset} of each bucket"
        case "global", TopK():
            order = ", ".join(f"{item.column}{' desc' if item.descending else ''}" for item in node.order)
            return (
                f"first {node.limit}"
                + (f" after {node.offset}" if node.offset else "")
                + (f" by {order}" if order else "")
            )
        case "window", Window():
            order = ", ".join(f"{item.column}{' desc' if item.descending else ''}" for item in node.order)
            calls = ", ".join(call_text(call).replace("`", "") for call in node.calls)
            by = f" by {', '.join(node.partition)}" if node.partition else ""
            first = "" if node.first is None else f", {node.first.call} up to {node.first.count}"
            return f"window{by}{' in order of ' + order if order else ''}: {calls}{first}"
        case "draw", Draw():
            return "draw " + ", ".join(f"{_call(draw)} as {draw.name}" for draw in node.draws)
        case "temporal", Temporal():
            since = "" if node.start is None else f" from {node.start}"
            return "rows while their time is," + since + ("" if node.end is None else f" until {node.end}")
    return operator.kind


def _join(node: Join) -> str:
    title = "join" if node.how == "inner" else f"{node.how} join"
    if not node.left_keys:
        return f"{title} of everything with everything: for each row that changes, the other side is scanned"
    signs = ["<=>" if safe else "=" for safe in node.null_safe or [False] * len(node.left_keys)]
    pairs = zip(node.left_keys, signs, node.right_keys, strict=True)
    return f"{title} on " + " and ".join(" ".join(pair) for pair in pairs)


def _aggregate(call: Call) -> str:
    arguments = ", ".join(call.arguments + call.parameters) or "*"
    return f"{call.function}({'distinct ' if call.distinct else ''}{arguments})"


def _call(draw: Drawn) -> str:
    name = "current_timestamp" if draw.function == "clock" else draw.function.removeprefix("udf:")
    return f"{name}({', '.join(draw.arguments)})"


def path_text(path: Path) -> str:
    """What is done to the rows of a path."""
    steps = []
    for step in path.steps:
        if isinstance(step, Generate):
            call = f"{step.function}({', '.join(map(readable, step.arguments))})"
            steps.append(f"{'outer ' if step.outer else ''}{call} as {', '.join(each.name for each in step.made)}")
            continue
        if isinstance(step, Apply):
            calls = [f"{each.function.name}({', '.join(each.arguments)}) as {each.name}" for each in step.calls]
            steps.append("call " + ", ".join(calls))
            continue
        if step.predicate is not None:
            steps.append(f"where {readable(step.predicate)}")
        new = [output for output in step.outputs if plain(output.expression) != output.name]
        computed = [f"{readable(output.expression)} as {output.name}" for output in new]
        if computed:
            steps.append("select " + ", ".join(computed))
    return "; ".join(steps)


def by_operator(operators: Iterable[str], trace: str) -> str:
    """The operator whose state a trace is part of."""
    known = set(operators)
    mark = trace
    while mark not in known and "." in mark:
        mark = mark.rsplit(".", 1)[0]
    return mark
