"""The header of a log, ``holdfast.json``: its format, and the flow to which it belongs. Working directories and log
locations have the same header, and their other small JSON files are read and written by the same functions."""

from __future__ import annotations

import json
from typing import Any

from holdfast.errors import LogDamaged, LogForeign, LogFormat

FILE = "holdfast.json"

FORMAT = 3
"""The format that this version writes."""

READABLE = (2, 3)
"""The formats that this version reads. A driver that opens a log of an older format converts it."""


def header_of(flow: str | None) -> dict[str, Any]:
    """The header that this version writes."""
    return {"format": FORMAT, "flow": flow}


def flow_of(header: dict[str, Any], log: str) -> str:
    """The name of the flow in a header. Raises `LogDamaged` if the header has none, `LogFormat` if this version does
    not read the log's format."""
    found, name = header.get("format"), header.get("flow")
    if not isinstance(found, int) or not isinstance(name, str):
        raise LogDamaged(f"log {log}: {FILE} does not say whose log it is", path=f"{log}/{FILE}")
    if found not in READABLE:
        old = ", before the first release," if found < READABLE[0] else ","
        fix = "start the flow anew in an empty place" if found < READABLE[0] else "install the newer Holdfast"
        raise LogFormat(
            f"log {log}: it was written in format {found}{old} and this Holdfast reads format {FORMAT}; {fix}",
            path=log,
            found=found,
            expected=FORMAT,
        )
    return name


def check_flow(name: str, flow: str, log: str) -> None:
    """Raise `LogForeign` unless ``name``, the flow of a log, is ``flow``."""
    if name != flow:
        raise LogForeign(
            f"log {log}: it belongs to flow '{name}', not to '{flow}'; give each flow a log of its own",
            path=log,
            found=name,
            expected=flow,
        )


def to_text(held: dict[str, Any]) -> str:
    """The text of a small JSON file, indented so that people can read it."""
    return json.dumps(held, indent=1) + "\n"


def from_text(text: bytes, log: str, file: str) -> dict[str, Any]:
    """The object in a small JSON file of a log. Raises `LogDamaged` if it does not parse."""
    try:
        held = json.loads(text)
    except ValueError as error:
        raise LogDamaged(f"log {log}: {file} does not read as JSON ({error})", path=f"{log}/{file}") from None
    if not isinstance(held, dict):
        raise LogDamaged(f"log {log}: {file} does not hold a JSON object", path=f"{log}/{file}")
    return held
