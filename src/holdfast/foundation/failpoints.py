"""Failpoints: named points of the code at which a test can kill the process, or do something else.

A failpoint does nothing unless a test says so: with `holdfast.testing.crash_at`, or for a separate process with
``HOLDFAST_CRASH_AT=name`` or ``name:n`` (the n-th time the point is reached), which kills the process there by SIGKILL.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

hook: Callable[[str], None] | None = None
"""A function of tests that is called at every failpoint, with its name."""


def reach(name: str) -> None:
    """Mark a failpoint: a point of the code at which a crash is worth testing."""
    if hook is not None:
        hook(name)


def _from_environment() -> Callable[[str], None] | None:
    wanted = os.environ.get("HOLDFAST_CRASH_AT")
    return killing(wanted) if wanted else None


def killing(point: str) -> Callable[[str], None]:
    """Return a hook that kills this process at the failpoint ``name``, or for ``name:n`` the n-th time it is
    reached."""
    name, _, times = point.partition(":")
    left = int(times or 1)

    def die(reached: str) -> None:
        nonlocal left
        if reached == name:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return die


hook = _from_environment()
