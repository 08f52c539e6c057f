"""``holdfast explain``: a dataflow, of an app or of a log, as text with colours, as a picture, or as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from holdfast.errors import UnknownName
from holdfast.foundation.nearest_name import did_you_mean
from holdfast.plan.drawing import Drawing
from holdfast.plan.explain import as_text
from holdfast.plan.picture import as_html, as_svg

_NOTES = re.compile(r"  \[stage [^\n]*\](  \(shown above\))?$", re.MULTILINE)
_MOVES = re.compile(r"(?<=─ )exchange( through Spark)?")


def drawn(of: Sequence[str], view: str | None) -> tuple[str, Drawing]:
    """The flow's name, and its dataflow: all of it, or what a view depends on."""
    if len(of) == 1 and of[0].endswith(".py"):
        from holdfast.terminal.app import load_flow

        flow = load_flow(Path(of[0]))
        name, found = flow.name, flow.drawing()
    else:
        from holdfast.inspect.explain_log import drawing_of

        name, found = drawing_of(of)
    if view is None:
        return name, found
    if view not in found.views:
        raise UnknownName(f"view '{view}' not found{did_you_mean(view, found.views)}", name=view)
    return f"{name}: {view}", found.behind(view)


def rendered(name: str, found: Drawing, format: str) -> str:
    """The dataflow in one of the formats."""
    match format:
        case "svg":
            return as_svg(found)
        case "html":
            return as_html(found, name)
        case "json":
            return json.dumps(found.to_dict(), indent=1)
    return "\n\n".join(as_text(found, view) for view in found.views)


def print_text(found: Drawing, console: Console) -> None:
    """Each view's dataflow, with what is measured dimmed and what moves rows in colour."""
    text = Text(rendered("", found, "text"))
    for match in _NOTES.finditer(text.plain):
        text.stylize("dim", match.start(), match.end())
    for match in _MOVES.finditer(text.plain):
        text.stylize("yellow", match.start(), match.end())
    console.print(text, soft_wrap=True, highlight=False)
