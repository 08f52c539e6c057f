"""The name of a layer says everything a reader must know to choose it, so that choosing needs no I/O but a listing.

    000000000012-000000000015-0000000000000000-08000000000000000-none-3f…-9a….arrow
    first        last         low              high              since digest checksum

The directory is the trace's (operator fingerprint), so it is not repeated. Names sort by epoch, then key range.
Two files of one name hold the same bytes (invariant 2, append-only): the name ends with their checksum.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

SUFFIX = ".arrow"
ALL = 1 << 64
"""The end of the whole hash range [0, 2^64)."""

_PATTERN = re.compile(
    r"(\d{12,})-(\d{12,})-([0-9a-f]{16})-([0-9a-f]{17})-(none|\d{12,})-([0-9a-f]{16})-([0-9a-f]{16})\.arrow"
)


@dataclass(frozen=True, order=True)
class LayerName:
    """Rows with hash in [low, high) of the epochs first … last; ``digest`` is the lineage digest of ``last``.
    Epochs ≤ ``since`` have been collapsed into ``since`` (-1: none have)."""

    low: int
    high: int
    first: int
    last: int
    digest: str
    since: int
    checksum: str

    @property
    def floor(self) -> int:
        """The first epoch from ``first`` on as of which this layer can be read; epochs first … floor are one."""
        return max(self.first, min(self.since, self.last))

    def text(self) -> str:
        since = "none" if self.since < 0 else f"{self.since:012d}"
        return (
            f"{self.first:012d}-{self.last:012d}-{self.low:016x}-{self.high:017x}-"
            f"{since}-{self.digest}-{self.checksum}{SUFFIX}"
        )

    @staticmethod
    def parse(text: str) -> LayerName | None:
        """The name a file name says; None if it is not a layer's."""
        return _parse(text)


@lru_cache(maxsize=65536)
def _parse(text: str) -> LayerName | None:
    match = _PATTERN.fullmatch(text)
    if match is None:
        return None
    first, last, low, high, since, digest, checksum = match.groups()
    name = LayerName(
        int(low, 16), int(high, 16), int(first), int(last), digest, -1 if since == "none" else int(since), checksum
    )
    return name if name.low < name.high <= ALL and name.first <= name.last else None
