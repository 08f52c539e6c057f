"""The number of partitions of a flow with ``partitions="auto"``: one for each core of its members.

The number of cores may still be changing when it is seen: executors start one after the other, and an executor that
died is usually started again. So a new number is taken only after it has stayed the same for a while. Rescaling costs
little, but it is a pause between two epochs.

Pure: cores and a clock in, a number out.
"""

from __future__ import annotations

MOST = 256
"""The greatest number of partitions: the number of slots of key hashes."""

STEADY = 3.0
"""Seconds for which a new number of cores must have stayed the same."""


def partitions_for(cores: int) -> int:
    """The number of partitions for ``cores`` cores."""
    return max(1, min(MOST, cores))


class AutoPartitions:
    """Follows the number of cores, and decides when to rescale."""

    def __init__(self) -> None:
        self._wanted: int | None = None
        self._since = 0.0

    def seen(self, cores: int, present: int, now: float) -> int | None:
        """Take in the number of cores. Returns the number of partitions to rescale to; None if it should stay
        ``present``. ``now``: seconds of a monotonic clock."""
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
