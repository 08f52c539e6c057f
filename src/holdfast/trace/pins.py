"""What readers hold: layers that a DataFrame may still read are not removed when newer ones replace them.

A DataFrame reads when it is used, and may be used again much later. It believes the history as it was when it was made,
so layers merged since, which reach beyond that, tell it nothing. So it pins: for as long as a plan exists that reads
them, the layers stay from which its epochs can be read. They are given up when the epoch is further back than the flow
retains.

By directory, in this process: a flow that is opened again finds the pins of the one before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple


class Pin(NamedTuple):
    """Every epoch from ``live`` to ``end`` stays readable for those who know no epoch after ``end``."""

    live: int
    end: int


_lock = threading.Lock()
_held: dict[str, list[tuple[Pin, Callable[[], bool]]]] = {}


def hold(directory: str, pin: Pin, alive: Callable[[], bool]) -> None:
    """Pin what is read of a trace for as long as ``alive``."""
    with _lock:
        _held.setdefault(directory, []).append((pin, alive))


def held(directory: str, least: int) -> tuple[Pin, ...]:
    """The pins of a trace, as far as they do not reach back before ``least``."""
    with _lock:
        found = _held.get(directory)
        if not found:
            return ()
        # Asked one by one, outside of any task: each is a short question to the JVM.
        kept = [(pin, alive) for pin, alive in found if pin.end >= least and alive()]
        if kept:
            _held[directory] = kept
        else:
            del _held[directory]
    return tuple(sorted({Pin(max(pin.live, least), pin.end) for pin, _ in kept}))
