"""Lists of names for a line that must stay short, however many names there are."""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice

_SHOWN = 5


def first_names(names: Collection[str]) -> str:
    """Return the first few names, and how many more there are."""
    said = ", ".join(islice(names, _SHOWN))
    return f"{said}, … {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else said
