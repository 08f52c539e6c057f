"""A dataflow as a picture: SVG, and an HTML page with the SVG and a table.

Layout: sources on the left, then the stages from left to right, each a band. An operator that runs in its producer's
task is to the right of the producer, in the same band. The boxes of a column are sorted by the mean place of the boxes
they read, so that few lines cross. Sinks are the last band, on the right. A line between two bands is an exchange. A
column is as wide as its longest text, so that the picture can be read on a page or in a notebook. The picture is drawn
without any other library.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape

from holdfast.plan.drawing import Box, Drawing, Line, Measured
from holdfast.plan.explain import notes_of, size_text

_GAP, _BAND_GAP, _LEADING, _MARGIN, _APART = 28.0, 52.0, 15.0, 24.0, 20.0
"""Distances in pixels: columns of a band, bands, lines of text, the margin, boxes of a column."""

_TITLE, _NOTE = 28, 34
"""The most characters in a line of a title and of a note."""

_LETTER = {"view": 7.6, "title": 7.0, "note": 5.9}
"""The average width of a letter, in pixels, in the widest of the usual fonts."""

_BOUND = "\N{NO-BREAK SPACE}"
_SINK = "sink"
_STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #1c2733; }
  .view { font-weight: 600; }
  .note { font-size: 10.5px; fill: #5a6875; }
  .stage { font-size: 11px; fill: #8894a0; }
  .box { stroke: #9aa7b3; rx: 6; }
  .line { fill: none; stroke: #51606e; stroke-width: 1.4; }
  .local { stroke: #9aa7b3; stroke-dasharray: 4 3; }
  .catalyst { stroke: #c2571a; }
  .band { fill: #f7f9fb; }
"""


def as_svg(shown: Drawing) -> str:
    """Return the picture as an SVG document."""
    shown = _with_sinks(shown)
    named: dict[str, list[str]] = {}
    for view, box_id in shown.views.items():
        named.setdefault(box_id, []).append(view)
    texts = {box.id: _texts(box, shown.measured.get(box.id), named.get(box.id, ())) for box in shown.boxes}
    columns = _columns(shown)
    lefts, widths = _placed(shown, columns, texts)
    wide = {box_id: width for column, width in zip(columns, widths, strict=True) for box_id in column}
    at: dict[str, tuple[float, float, float]] = {}
    """Box → its left edge, its top, its height."""

    bottom = 0.0
    for number, column in enumerate(columns):
        x, y = lefts[number], _MARGIN + 20
        for box_id in _settled(shown, column, at):
            height = 14.0 + _LEADING * len(texts[box_id])
            at[box_id] = (x, y, height)
            y += height + _APART
        bottom = max(bottom, y)
    width = lefts[-1] + widths[-1] + _MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{bottom + _MARGIN:.0f}" '
        f'viewBox="0 0 {width:.0f} {bottom + _MARGIN:.0f}"><style>{_STYLE}</style>'
    ]
    parts += _bands(shown, columns, lefts, widths, bottom)
    for line in shown.lines:
        x, y, height = at[line.producer]
        left, top, tall = at[line.consumer]
        start, end = (
            (x + wide[line.producer], y + height / 2),
            (left, top + tall / 2 + 8 * (line.port - 0.5 * _ports(shown, line.consumer))),
        )
        bend = max(14.0, (end[0] - start[0]) / 2)
        kind = "line" + (" local" if line.local else "") + (" catalyst" if line.catalyst else "")
        parts.append(
            f'<path class="{kind}" d="M{start[0]:.0f},{start[1]:.0f} C{start[0] + bend:.0f},{start[1]:.0f} '
            f'{end[0] - bend:.0f},{end[1]:.0f} {end[0]:.0f},{end[1]:.0f}"><title>{escape(_hint(line.text, line.local))}'
            "</title></path>"
        )
    for box in shown.boxes:
        x, y, height = at[box.id]
        parts.append(
            f'<g><title>{escape(box.title)}</title><rect class="box" x="{x:.0f}" y="{y:.0f}" '
            f'width="{wide[box.id]:.0f}" height="{height:.0f}" fill="{box.colour}"/>'
        )
        for index, (text, kind) in enumerate(texts[box.id]):
            parts.append(
                f'<text class="{kind}" x="{x + 8:.0f}" y="{y + 16 + index * _LEADING:.0f}">{escape(text)}</text>'
            )
        parts.append("</g>")
    return "\n".join([*parts, "</svg>", ""])


def as_html(shown: Drawing, heading: str) -> str:
    """Return an HTML page without external files: the picture, and a table of the operators."""
    head = ("operator", "stage", "state", "rows", "layers", "last change", "mean", "ms per epoch", "cost", "views")
    table: list[tuple[str, ...]] = []
    for box in shown.boxes:
        if box.kind == "source":
            continue
        known = shown.measured.get(box.id, Measured())
        cells = (
            box.title, box.stage, size_text(known.bytes), _number(known.rows), known.layers, _number(known.last),
            _number(known.mean), _number(known.milliseconds), box.cost, ", ".join(box.views),
        )  # fmt: skip
        table.append(tuple(str(cell) for cell in cells))
    filled = [place for place in range(len(head)) if any(row[place] for row in table)]
    rows = ["<tr>" + "".join(f"<td>{escape(row[place])}</td>" for place in filled) + "</tr>" for row in table]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(heading)}</title><style>\n'
        "body { font: 14px system-ui, sans-serif; margin: 24px; color: #1c2733; }\n"
        "div { overflow-x: auto; } table { border-collapse: collapse; margin-top: 24px; }\n"
        "td, th { text-align: left; padding: 4px 10px; border-bottom: 1px solid #dde3e8; font-size: 13px; }\n"
        f"</style></head><body><h1>{escape(heading)}</h1>\n<div>{as_svg(shown)}</div>\n"
        "<p>Solid lines are exchanges, dashed ones stay in the task, orange ones pass through Spark.</p>\n"
        f"<table><tr>{''.join(f'<th>{head[place]}</th>' for place in filled)}</tr>\n"
        + "\n".join(rows)
        + "</table></body></html>\n"
    )


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def _hint(text: str, local: bool) -> str:
    return f"{'in place' if local else 'exchange'}{': ' + text if text else ''}"


def _with_sinks(shown: Drawing) -> Drawing:
    """The drawing with a box for each sink, in a stage after all others."""
    stage = max((box.stage for box in shown.boxes), default=0) + 1
    boxes, lines = list(shown.boxes), list(shown.lines)
    for view, names in shown.sinks.items():
        for place, name in enumerate(names):
            boxes.append(Box(f"{view} → {place}", _SINK, name, stage, colour="#eaf6ea"))
            lines.append(Line(shown.views[view], boxes[-1].id, 0, f"changes of {view}", local=True))
    return replace(shown, boxes=tuple(boxes), lines=tuple(lines))


def _texts(box: Box, measured: Measured | None, named: Sequence[str]) -> list[tuple[str, str]]:
    """The lines of text in a box, each with its CSS class. ``named``: the views whose rows the box keeps."""
    title = [(part, "title") for part in textwrap.wrap(box.title, _TITLE)]
    names = [(part, "view") for name in named for part in textwrap.wrap(name, _TITLE - 2)]
    notes = [(part, "note") for note in notes_of(box, measured) for part in _wrapped(note)]
    inside = [each if len(each) <= _NOTE + 3 else f"{each[: _NOTE + 2]}…" for each in box.inside]
    return [*names, *title, *notes, *((each.replace(" ", _BOUND), "note") for each in inside)]


def _wrapped(note: str) -> list[str]:
    """Break a note into lines, after a comma where possible."""
    bound = ", ".join(part.replace(" ", _BOUND) if len(part) < _NOTE else part for part in note.split(", "))
    return [line.replace(_BOUND, " ") for line in textwrap.wrap(bound, _NOTE)]


def _placed(
    shown: Drawing, columns: Sequence[Sequence[str]], texts: Mapping[str, list[tuple[str, str]]]
) -> tuple[list[float], list[float]]:
    """The left edge and the width of each column."""
    stage = {box.id: box.stage for box in shown.boxes}
    lefts: list[float] = []
    widths: list[float] = []
    x = _MARGIN
    for number, column in enumerate(columns):
        if number:
            same = stage[column[0]] == stage[columns[number - 1][0]]
            x += widths[-1] + (_GAP if same else _BAND_GAP)
        longest = max(len(text) * _LETTER[kind] for box_id in column for text, kind in texts[box_id])
        lefts.append(x)
        widths.append(16 + longest)
    return lefts, widths


def _ports(shown: Drawing, box_id: str) -> int:
    return max((line.port for line in shown.lines if line.consumer == box_id), default=0)


def _columns(shown: Drawing) -> list[list[str]]:
    """The boxes of each column, from left to right."""
    stage = {box.id: box.stage for box in shown.boxes}
    depth: dict[str, int] = {}
    for box in shown.boxes:  # producers come first
        read = [line.producer for line in shown.lines if line.consumer == box.id]
        depth[box.id] = max((depth[each] + 1 for each in read if stage[each] == box.stage), default=0)
    places = sorted({(stage[box_id], depth[box_id]) for box_id in depth})
    return [[box_id for box_id in depth if (stage[box_id], depth[box_id]) == index] for index in places]


def _settled(shown: Drawing, column: Sequence[str], at: dict[str, tuple[float, float, float]]) -> list[str]:
    """The boxes of a column, sorted by the mean place of the boxes they read."""

    def middle(box_id: str) -> float:
        tops = [at[line.producer][1] for line in shown.lines if line.consumer == box_id and line.producer in at]
        return sum(tops) / len(tops) if tops else 0.0

    return sorted(column, key=middle)


def _bands(
    shown: Drawing,
    columns: Sequence[Sequence[str]],
    lefts: Sequence[float],
    widths: Sequence[float],
    bottom: float,
) -> list[str]:
    stage = {box.id: box.stage for box in shown.boxes}
    sinks = {box.id for box in shown.boxes if box.kind == _SINK}
    spans: dict[int, list[int]] = {}
    for number, column in enumerate(columns):
        spans.setdefault(stage[column[0]], []).append(number)
    parts = []
    for number, places in spans.items():
        x = lefts[places[0]] - _MARGIN / 2
        width = lefts[places[-1]] + widths[places[-1]] + _MARGIN / 2 - x
        parts.append(f'<rect class="band" x="{x:.0f}" y="6" width="{width:.0f}" height="{bottom:.0f}"/>')
        name = f"stage {number}" if number else "sources"
        if columns[places[0]][0] in sinks:
            name = "sinks"
        parts.append(f'<text class="stage" x="{x + 12:.0f}" y="24">{name}</text>')
    return parts
