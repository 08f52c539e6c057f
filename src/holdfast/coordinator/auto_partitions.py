"""How many partitions a flow has that follows its members (``partitions="auto"``): one for each core that they have.

A number that was seen once may be on its way to another: executors come one after the other, and one that died is most
often started again. So a new number is taken when it has stayed the same for a while. Rescaling costs little, but it is
a pause between two epochs.

Pure: cores and a clock in, a number out.
"""

from __future__ import annotations

MOST = 256
"""More partitions than slots of key hashes there cannot be."""

STEADY = 3.0
"""Seconds for which a new number must have stayed the same."""


def partitions_for(cores: int) -> int:
    """The partitions for so many cores."""
    return max(1, min(MOST, cores))


class AutoPartitions:
    """Follows the cores that there are."""

    def __init__(self) -> None:
        self._wanted: int | None = None
        self._since = 0.0

    def seen(self, cores: int, present: int, now: float) -> int | None:
        """So many cores are there; the number of partitions to change to, None if it is to stay ``present``. ``now``:
        seconds of a clock that nobody sets."""
        wanted = partitions_for(cores)
        if wanted == present:
            self._wanted = None
            return None
        if wanted != self._wanted:
            self._wanted, self._since = wanted, now
        if now - self._since < STEADY:
            return None
        self._wanted = None
        return wanted
