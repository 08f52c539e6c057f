"""Finds the line of a user's own code at which an error was raised."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

_OURS = str(Path(__file__).parent.parent)
_LIBRARIES = tuple({sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib")})


def raised_at(error: BaseException) -> str:
    """Return `` (shop.py, line 12)``, the innermost line of the user's code that led to ``error``; empty if there is
    none."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith((_OURS, "<frozen")) and not frame.filename.startswith(_LIBRARIES):
            return f" ({frame.filename}, line {frame.lineno})"
    return ""
