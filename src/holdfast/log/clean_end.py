"""The mark of a clean end: ``closed.json`` in the working directory says that the last driver closed the flow, and has
the digest of its last epoch.

Some strategies trust less of the working directory if the last driver died than if it closed the flow
(`guarantees/strategy.py`, `Survives`). The file is written last, when a flow is closed, and removed when it is opened.
"""

from __future__ import annotations

import json
from pathlib import Path

from holdfast.foundation.atomic_files import read_file, replace_file

FILE = "closed.json"


def note_end(directory: Path, digest: str) -> None:
    """Write the mark of a flow that is closed, with the digest of its last epoch."""
    replace_file(directory / FILE, json.dumps({"digest": digest}).encode())


def take_end(directory: Path) -> str | None:
    """Remove the mark, and return its digest; None if there is none, because the last driver died."""
    path = directory / FILE
    try:
        said = json.loads(read_file(path))
    except (FileNotFoundError, ValueError):
        return None
    path.unlink(missing_ok=True)
    return said.get("digest") if isinstance(said, dict) else None
