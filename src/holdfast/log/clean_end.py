"""Whether the driver before this one closed the flow: ``closed.json`` in the working directory, with the digest of its
last epoch.

Some strategies take less from the working directory after a driver that died than after one that closed the flow
(`guarantees/strategy.py`, `Survives`). The file is written last, when a flow is closed, and removed when it is opened.
"""

from __future__ import annotations

import json
from pathlib import Path

from holdfast.foundation.atomic_files import read_file, replace_file

FILE = "closed.json"


def note_end(directory: Path, digest: str) -> None:
    """The flow is closed; its last epoch has this digest."""
    replace_file(directory / FILE, json.dumps({"digest": digest}).encode())


def take_end(directory: Path) -> str | None:
    """The digest of the last epoch of a driver that closed the flow; None if it died. The next one is told None."""
    path = directory / FILE
    try:
        said = json.loads(read_file(path))
    except (FileNotFoundError, ValueError):
        return None
    path.unlink(missing_ok=True)
    return said.get("digest") if isinstance(said, dict) else None
