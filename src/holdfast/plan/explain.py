"""A view's dataflow as text: operators, exchanges, state, work, and what a crash can do to the output."""

from __future__ import annotations

from holdfast.plan.dataflow import Dataflow
from holdfast.plan.drawing import Box, Drawing, Line, Measured, drawing


def explain(flow: Dataflow, view: str) -> str:
    """The dataflow that ends in ``view`` as text, from the plan alone (without measurements)."""
    return as_text(drawing(flow), view)


def as_text(whole: Drawing, view: str) -> str:
    """The dataflow that ends in ``view`` as text: its sinks at the top, then the view, its sources at the bottom."""
    shown = whole.behind(view)
    lines = [f"{sink} ◄" for sink in shown.sinks.get(view, ())]
    _draw(shown, shown.views[view], lines, "", "", set(), view)
    exchanges = shown.box(shown.views[view]).stage
    kept = sum(whole.measured.get(each.id, Measured()).bytes for each in shown.boxes)
    lines += [
        "",
        f"{exchanges} exchange{'s' if exchanges != 1 else ''} per epoch; state {size_text(kept)}",
        *shown.crash.get(view, ()),
    ]
    return "\n".join(lines)


def _draw(shown: Drawing, box_id: str, lines: list[str], first: str, rest: str, seen: set[str], view: str) -> None:
    box = shown.box(box_id)
    if box.kind == "source":
        lines.append(f"{first}{box.title}")
        return
    notes = [f"stage {box.stage}", *notes_of(box, shown.measured.get(box_id), view)]
    again = "  (shown above)" if box_id in seen else ""
    lines.append(f"{first}{box.title}  [{'; '.join(notes)}]{again}")
    if box_id in seen:
        return
    seen.add(box_id)
    paths = [line for line in shown.lines if line.consumer == box_id]
    lines += [f"{rest}{'│ ' if paths else '  '} {each}" for each in box.inside]
    for index, line in enumerate(paths):
        stem, below = ("└─ ", "   ") if index == len(paths) - 1 else ("├─ ", "│  ")
        lines.append(f"{rest}{stem}{_line_text(line)}")
        _draw(shown, line.producer, lines, rest + below, rest + below, seen, view)


def outline(flow: Dataflow) -> tuple[str, ...]:
    """The dataflow inside a loop as lines of text: for each of its views, the titles of the operators it reads."""
    shown = drawing(flow)
    lines: list[str] = []
    for view, log in shown.views.items():
        lines.append(f"{view}, next round")
        _outline(shown, log, lines, "")
    return tuple(lines)


def _outline(shown: Drawing, box_id: str, lines: list[str], rest: str) -> None:
    """Append the boxes that a box reads, a line each, and what they read."""
    paths = [line for line in shown.lines if line.consumer == box_id]
    for index, line in enumerate(paths):
        stem, below = ("└─ ", "   ") if index == len(paths) - 1 else ("├─ ", "│  ")
        title = shown.box(line.producer).title.removeprefix("source ")
        lines.append(f"{rest}{stem}{title}{' → ' + line.text if line.text else ''}")
        lines += [f"{rest}{below}│  {each}" for each in shown.box(line.producer).inside]
        _outline(shown, line.producer, lines, rest + below)


def notes_of(box: Box, measured: Measured | None, view: str | None = None) -> list[str]:
    """Notes on an operator: the size of its state and changes, its time, its cost, the views that share it."""
    notes = []
    if measured is not None and measured.layers:
        rows = "" if measured.rows is None else f"{measured.rows:,} rows, "
        notes.append(f"state {size_text(measured.bytes)}, {rows}{measured.layers} layers")
    if measured is not None and measured.last is not None and measured.mean is not None:
        notes.append(f"last change {measured.last:,} rows, mean {measured.mean:,.1f}")
    if measured is not None and measured.milliseconds is not None:
        notes.append(f"{measured.milliseconds:.1f} ms per epoch")
    if measured is not None and measured.filtered is not None:
        notes.append(measured.filtered.text)
    if box.cost:
        notes.append(f"cost {box.cost}")
    others = [each for each in box.views if each != view]
    if others and len(box.views) > 1:
        notes.append(f"shared with {', '.join(others)}" if view else f"shared by {', '.join(others)}")
    return notes


def _line_text(line: Line) -> str:
    how = "in place" if line.local else "exchange"
    return f"{how}{' through Spark' if line.catalyst else ''}{': ' + line.text if line.text else ''}"


def size_text(count: int) -> str:
    """A number of bytes, for people."""
    size = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1024 or unit == "GB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return ""
