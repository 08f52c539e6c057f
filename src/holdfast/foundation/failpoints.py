"""Crash markers: named points of the code at which a test can have the process die, or do something else.

Nothing happens at a mark unless a test says so: with `holdfast.testing.crash_at`, or, for a process of its own, with
``HOLDFAST_CRASH_AT=name`` or ``name:n`` (the n-th time it is reached): the process is killed there as by SIGKILL.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

hook: Callable[[str], None] | None = None
"""Called at every mark, with its name. For tests."""


def reach(name: str) -> None:
    """A point at which a crash is interesting."""
    if hook is not None:
        hook(name)


def _from_environment() -> Callable[[str], None] | None:
    wanted = os.environ.get("HOLDFAST_CRASH_AT")
    return killing(wanted) if wanted else None


def killing(point: str) -> Callable[[str], None]:
    """A hook that has this process killed at ``name``, or at ``name:n`` the n-th time."""
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
