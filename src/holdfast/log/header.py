"""The header of a log, ``holdfast.json``: its format, and whose log it is. A working directory and a log location have
the same; so have the other small JSON files in them."""

from __future__ import annotations

import json
from typing import Any

from holdfast.errors import LogDamaged, LogForeign, LogFormat

FILE = "holdfast.json"

FORMAT = 3
"""The format that this version writes."""

READABLE = (2, 3)
"""The formats that it reads. A driver that opens a log of an older one makes it one of its own."""


def header_of(flow: str | None) -> dict[str, Any]:
    """The header that this version writes."""
    return {"format": FORMAT, "flow": flow}


def flow_of(header: dict[str, Any], log: str) -> str:
    """Whose log it is. LogDamaged if the header does not say, LogFormat if this version does not read that format."""
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
    """LogForeign unless the log of ``name`` is the one of ``flow``."""
    if name != flow:
        raise LogForeign(
            f"log {log}: it belongs to flow '{name}', not to '{flow}'; give each flow a log of its own",
            path=log,
            found=name,
            expected=flow,
        )


def to_text(held: dict[str, Any]) -> str:
    """A small JSON file, for people to read, too."""
    return json.dumps(held, indent=1) + "\n"


def from_text(text: bytes, log: str, file: str) -> dict[str, Any]:
    """What a small JSON file of a log says. LogDamaged if it does not read."""
    try:
        held = json.loads(text)
    except ValueError as error:
        raise LogDamaged(f"log {log}: {file} does not read as JSON ({error})", path=f"{log}/{file}") from None
    if not isinstance(held, dict):
        raise LogDamaged(f"log {log}: {file} does not hold a JSON object", path=f"{log}/{file}")
    return held
