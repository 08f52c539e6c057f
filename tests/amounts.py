"""How much the long tests do."""

from __future__ import annotations

import os


def times(count: int) -> int:
    """``count``, as often as the environment asks for: ``HOLDFAST_TIMES=10 make test-slow``."""
    return count * int(os.environ.get("HOLDFAST_TIMES", "1"))
