"""Processes that tests start, and that must not outlive them."""

from __future__ import annotations

import ctypes
import signal
import sys
from collections.abc import Callable

_SET_DEATH_SIGNAL = 1


def die_with_parent() -> Callable[[], None] | None:
    """For ``subprocess.Popen(preexec_fn=…)``: have the process killed when the thread that starts it dies, however it
    dies. (Only Linux knows that.)"""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl  # looked up here: after a fork, less is allowed

    def ask() -> None:
        prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)

    return ask
