"""The retention of a flow, which says how far back it can be read, and the bound on unsafe epochs."""

from __future__ import annotations

import re
from dataclasses import dataclass

from holdfast.coordinator.history import History

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_SIZES = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


@dataclass(frozen=True)
class Retention:
    """The number of epochs to keep, or the seconds; if both are None, all epochs are kept."""

    epochs: int | None = None
    seconds: float | None = None

    def floor(self, history: History, now: int) -> int:
        """The epoch up to which epochs may be collapsed; -1: none may be. ``now``: microseconds since 1970."""
        if self.epochs is not None:
            return max(-1, history.last - self.epochs)
        if self.seconds is None:
            return -1
        # Find the last epoch with a clock at or before the horizon: the state at the horizon stays readable. Clocks of
        # a history grow, except when the user let the clock go back, and then more epochs are kept.
        horizon = now - int(self.seconds * 1e6)
        low, high = history.first, history.last + 1
        while low < high:
            middle = (low + high) // 2
            if history[middle].clock <= horizon:
                low = middle + 1
            else:
                high = middle
        return low - 1


def parse_retention(text: object) -> Retention:
    """The retention for ``"all"``, a number of epochs, or a time such as ``"24h"``, ``"30m"``, ``"7d"``. Raises
    ValueError for anything else."""
    if text == "all":
        return Retention()
    if isinstance(text, int) and not isinstance(text, bool) and text >= 0:
        return Retention(epochs=text)
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdw])", text) if isinstance(text, str) else None
    if match is None:
        raise ValueError("a number of epochs, a time such as '24h' or '7d', or 'all'")
    return Retention(seconds=float(match[1]) * _UNITS[match[2]])


@dataclass(frozen=True)
class Bound:
    """How many bytes, or epochs, may be unsafe before input waits; if both are None, there is no bound."""

    bytes: int | None = None
    epochs: int | None = None

    def allows(self, unsafe_bytes: int, unsafe_epochs: int) -> bool:
        return not (
            (self.bytes is not None and unsafe_bytes > self.bytes)
            or (self.epochs is not None and unsafe_epochs > self.epochs)
        )


def parse_bound(text: object) -> Bound:
    """The bound for None, a number of epochs, or a size such as ``"512MB"``. Raises ValueError for anything else."""
    if text is None:
        return Bound()
    if isinstance(text, int) and not isinstance(text, bool) and text >= 1:
        return Bound(epochs=text)
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?B)", text.upper()) if isinstance(text, str) else None
    if match is None:
        raise ValueError("a number of epochs from 1 on, or a size such as '512MB'")
    return Bound(bytes=int(float(match[1]) * _SIZES[match[2]]))
