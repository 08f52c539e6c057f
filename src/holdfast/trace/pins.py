"""Pins: layers that a DataFrame may still read are not removed when newer layers replace them.

A DataFrame reads when it is used, and may be used again much later. It knows the history as it was when the DataFrame
was made, so it cannot use layers merged since, which reach beyond that history. So it pins its epochs: the layers from
which they can be read stay for as long as a plan exists that reads them. A pin ends early when its epoch is further
back than the flow's retention.

Pins are kept per directory, in this process: a flow that is opened again finds the pins that it had before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple


class Pin(NamedTuple):
    """The epochs from ``live`` to ``end`` stay readable for a reader that knows no epoch after ``end``."""

    live: int
    end: int


_lock = threading.Lock()
_held: dict[str, list[tuple[Pin, Callable[[], bool]]]] = {}


def hold(directory: str, pin: Pin, alive: Callable[[], bool]) -> None:
    """Pin epochs of a trace for as long as ``alive`` returns True. ``directory`` is the trace's."""
    with _lock:
        _held.setdefault(directory, []).append((pin, alive))


def held(directory: str, least: int) -> tuple[Pin, ...]:
    """The pins of a trace, cut to begin at ``least``. Pins that ended, or that end before ``least``, are forgotten."""
    with _lock:
        found = _held.get(directory)
        if not found:
            return ()
        # Called one by one, never in a task: each call asks the JVM, which is short.
        kept = [(pin, alive) for pin, alive in found if pin.end >= least and alive()]
        if kept:
            _held[directory] = kept
        else:
            del _held[directory]
    return tuple(sorted({Pin(max(pin.live, least), pin.end) for pin, _ in kept}))
