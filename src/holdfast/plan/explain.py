"""A view's dataflow as text: what runs, where rows move, what is kept, and what a crash can do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from holdfast.plan.dataflow import Dataflow, Operator, Path
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


class Sized(Protocol):
    """A trace with its size."""

    @property
    def trace(self) -> str: ...
    @property
    def layers(self) -> int: ...
    @property
    def bytes(self) -> int: ...


def explain(flow: Dataflow, view: str, traces: Iterable[Sized] = ()) -> str:
    """Draw the dataflow that ends in ``view``, the view on top, its sources at the bottom."""
    sizes: dict[str, tuple[int, int]] = {}
    for trace in traces:
        mark = trace.trace.rsplit(".", 1)[0] if "." in trace.trace else trace.trace
        while mark not in flow.operators and "." in mark:
            mark = mark.rsplit(".", 1)[0]
        layers, total = sizes.get(mark, (0, 0))
        sizes[mark] = (layers + trace.layers, total + trace.bytes)
    lines: list[str] = []
    _draw(flow, flow.views[view], sizes, lines, "", "", set())
    mark = flow.views[view]
    involved = {mark} | flow.ancestors({mark})
    exchanges = flow.operators[mark].stage
    kept = sum(sizes.get(each, (0, 0))[1] for each in involved)
    lines += [
        "",
        f"{exchanges} exchange{'s' if exchanges != 1 else ''} per epoch; state {_size(kept)}",
        _closing(flow, involved),
    ]
    return "\n".join(lines)


def _closing(flow: Dataflow, involved: set[str]) -> str:
    nodes = [flow.operators[mark].node for mark in involved if mark in flow.operators]
    drawn = {each.function for node in nodes if isinstance(node, Draw) for each in node.draws}
    if not drawn and any(isinstance(node, Temporal) for node in nodes):
        return (
            "Time is the clock of the lineage, all else is deterministic: "
            "epochs lost in a crash are computed again, bit for bit the same."
        )
    if not drawn:
        return "Every operator is deterministic: epochs lost in a crash are computed again, bit for bit the same."
    origin = "clock and seed"
    if any(function.startswith("udf:") for function in drawn):
        origin += ", and the answers that functions gave"
    return (
        f"Drawn values come from the lineage ({origin}), all else is deterministic: "
        "epochs lost in a crash are computed again, bit for bit the same."
    )


def _draw(
    flow: Dataflow,
    mark: str,
    sizes: dict[str, tuple[int, int]],
    lines: list[str],
    first: str,
    rest: str,
    seen: set[str],
) -> None:
    operator = flow.operators.get(mark)
    if operator is None:
        lines.append(f"{first}source {mark}({', '.join(field.name for field in flow.sources[mark].fields)})")
        return
    layers, total = sizes.get(mark, (0, 0))
    state = f"  [{_size(total)} in {layers} layers]" if layers else ""
    again = "  (shown above)" if mark in seen else ""
    lines.append(f"{first}{_title(operator)}  stage {operator.stage}{state}{again}")
    if mark in seen:
        return
    seen.add(mark)
    paths = flow.into(mark)
    for place, path in enumerate(paths):
        last = place == len(paths) - 1
        stem, below = ("└─ ", "   ") if last else ("├─ ", "│  ")
        lines.append(f"{rest}{stem}{_path_text(path)}")
        _draw(flow, path.producer, sizes, lines, rest + below, rest + below, seen)


def _title(operator: Operator) -> str:
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


def _path_text(path: Path) -> str:
    how = "in place" if path.local else "exchange"
    steps = []
    for step in path.steps:
        if isinstance(step, Generate):
            steps.append(f"{'outer ' if step.outer else ''}{step.generator} as {', '.join(step.names)}")
            continue
        if isinstance(step, Apply):
            calls = [f"{each.function.name}({', '.join(each.arguments)}) as {each.name}" for each in step.calls]
            steps.append("call " + ", ".join(calls))
            continue
        if step.predicate:
            steps.append(f"where {step.predicate}")
        computed = [f"{output.sql} as {output.name}" for output in step.outputs if output.sql.strip("`") != output.name]
        if computed:
            steps.append("select " + ", ".join(computed))
    text = "; ".join(steps)
    return f"{how}{' through Spark' if path.catalyst else ''}{': ' + text if text else ''}"


def _size(count: int) -> str:
    size = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1024 or unit == "GB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return ""
